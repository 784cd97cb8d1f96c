"""Results in consoles and notebooks."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from nbclient import NotebookClient

import fednet_emu as fe
from fednet_emu.errors import DataError, FednetError, ScenarioError, visible, visible_lines
from fednet_emu.scenario.document import from_text
from fednet_emu.screen import progress
from fednet_emu.screen.console import PlainConsole
from fednet_emu.testing import SMALL
from tests.commands import OTHER_SEED

MAPPING = from_text(SMALL, "small").data


@pytest.fixture(scope="module")
def runs():
    digits = {**MAPPING, "data": "digits", "model": "softmax", "evaluation": {"per_device": True}}
    return [fe.run(digits, seed=seed) for seed in (0, 1)]


@pytest.mark.parametrize("against", ["time", "bits", "energy", "rounds"])
@pytest.mark.parametrize("what", ["accuracy", "loss", "worst_accuracy"])
def test_a_measure_against_a_cost(runs, what, against):
    """The line goes through the evaluations."""
    figure = runs[0].plot(what, against=against)

    (line,) = figure.axes[0].lines
    assert isinstance(figure, Figure)
    assert list(line.get_ydata()) == list(runs[0].evaluations[what])


def test_several_runs_in_one_figure(runs):
    """Each has its line and its name."""
    figure = fe.plot(list(runs), "loss", labels=["first", "second"])

    assert [line.get_label() for line in figure.axes[0].lines] == ["first", "second"]
    with pytest.raises(fe.FednetError, match="names the figure, got a Run; give several runs as a list"):
        fe.plot(*runs)


def test_the_function_plots_as_the_method_does(runs):
    """The arguments after the run are the same, also by position."""
    drawn = [fe.plot(runs[0], "loss", against="bits"), runs[0].plot("loss", against="bits")]

    assert drawn[0].axes[0].lines[0].get_xydata().tolist() == drawn[1].axes[0].lines[0].get_xydata().tolist()
    assert {figure.axes[0].get_xlabel() for figure in drawn} == {drawn[0].axes[0].get_xlabel()}


def test_what_is_drawn_by_default():
    """Accuracy, or the loss of a regression, against time; other figures by their name."""
    run = fe.run(MAPPING)

    assert run.plot().axes[0].get_ylabel() == "Loss"
    assert {"timeline", "round-latency", "loss-time"} <= run.figures().keys()
    assert run.plot("timeline").axes


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"what": "acuracy"}, "plot: no such figure, got 'acuracy'; did you mean 'accuracy'?"),
        ({"what": "accuracy", "against": "watts"}, "against: no such cost, got 'watts'; choose from time, bits"),
        ({"what": "timeline", "against": "time"}, "against: 'timeline' is not drawn against a cost, got 'time'; leave"),
        ({"what": "attack_success"}, "plot: 'attack_success' was not measured, got no figure; choose from accuracy"),
    ],
)
def test_what_cannot_be_drawn_is_told(runs, arguments, problem):
    """With what could be."""
    with pytest.raises(fe.FednetError, match=problem):
        runs[0].plot(**arguments)


def test_a_figure_shows_itself_and_leaves_matplotlib_as_it_was(runs):
    """It is a picture to a notebook and to a page, without pyplot, and the user's settings stay."""
    mine = {"font.size": 23.0, "axes.grid": True}
    with mpl.rc_context(mine):
        before = dict(mpl.rcParams)
        figure = runs[0].plot("accuracy")
        picture = figure._repr_png_()
        assert dict(mpl.rcParams) == before

    assert picture.startswith(b"\x89PNG")
    assert figure._repr_html_().startswith('<img alt="figure" src="data:image/png;base64,')
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_a_run_reads_well(runs):
    """A line of text, and a table as a page."""
    assert repr(runs[0]).startswith("<Run A small federation, seed 0: 3 rounds in ")
    page = runs[0]._repr_html_()
    assert page.startswith("<table>")
    assert "<th>verdict</th><td>all records consistent</td>" in page


def test_markup_in_a_title_is_text():
    """A title cannot put anything into a page."""
    page = fe.run({**MAPPING, "title": "<script>alert(1)</script>"})._repr_html_()

    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_progress_says_how_many_rounds_there_are_and_how_long_they_take(monkeypatch):
    """Of four rounds each takes 20 s of host time: after the second 40 s are left at the pace since the first."""
    clock, shown = iter(10.0 * number for number in range(100)), []
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(progress, "bar", lambda _: nullcontext(progress.Bar(0.0, lambda text, *_: shown.append(text))))
    fe.run(MAPPING, settings={"stop.rounds": 4}, progress=True)

    assert [text.partition("  ")[0] for text in shown] == [f"round {number} of 4" for number in (1, 2, 3, 4)]
    assert [text.partition("at most about ")[2] for text in shown] == ["", "40 s left", "20 s left", "0 s left"]


@pytest.mark.parametrize("method", ["print", "out"])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (":x: [bold]a[/bold] [/nope]", ":x: [bold]a[/bold] [/nope]"),
        ("\x1b[31mred\x1b[0m\a\r", "\\x1b[31mred\\x1b[0m\\x07\\r"),
        ("\u202eabc\u2066\u200b", "\\u202eabc\\u2066\\u200b"),
        ("two\nlines", "two\nlines"),
        ("\ud800 \U000e0001", "\\ud800 \\U000e0001"),
        ("größer × 2", "größer × 2"),
    ],
)
def test_text_is_shown_as_it_is(method: str, text: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No markup, no emoji, no colour, no control character; only line breaks are what they are."""
    getattr(PlainConsole(), method)(text)

    assert capsys.readouterr().out == shown + "\n"


@given(st.text())
def test_what_is_visible_is_printable_and_stays_as_it_is(text: str) -> None:
    """Escaping twice is escaping once, and printable text is not touched."""
    assert visible(text).isprintable()
    assert visible(visible(text)) == visible(text)
    assert visible_lines(text).count("\n") == text.count("\n")
    assert not text.isprintable() or visible(text) == text


@pytest.mark.parametrize(
    "error",
    [
        FednetError("\x1b[31mx"),
        ScenarioError("a\nb: \x1b[31mx"),
        ScenarioError("\x1b[31mx", "y"),
        DataError("\x1b[31mx", "b", "c"),
    ],
)
def test_errors_are_printable_for_callers_from_python_too(error: FednetError) -> None:
    """In a log or a notebook the text of an error is as safe."""
    assert all(line.isprintable() for line in str(error).splitlines())
    assert "\\x1b[31mx" in str(error)


def test_a_line_break_in_a_problem_makes_no_second_problem() -> None:
    """A key with a line break cannot pretend to be another problem."""
    assert str(ScenarioError("a\nb.yaml:1  fake: problem")).splitlines() == ["a\\nb.yaml:1  fake: problem"]


def test_a_hundred_problems_are_shown() -> None:
    """Of more, the number is given; all are in the error."""
    error = ScenarioError(*map(str, range(250)))

    assert str(error).splitlines()[0] == "250 problems in the scenario:"
    assert str(error).splitlines()[-2:] == ["  99", "  and 150 more"]
    assert len(error.problems) == 250


CELLS = (
    "import fednet_emu as fe",
    'run = fe.run("quickstart", seed=1, settings={"algorithm.lr": 0.05, "stop.rounds": 3})\nrun',
    "run.summary; run.rounds; run.transfers; run.computes; run.evaluations",
    'run.plot("accuracy", against="time")',
    'study = fe.sweep("quickstart", grid={"network.uplink.access": ["tdma", "ofdma"]}, seeds=2, workers=2,'
    ' settings={"stop.rounds": 3})',
    "study.runs",
    'study.compare("network.uplink.access=tdma", "network.uplink.access=ofdma")',
    'study.plot("accuracy", against="energy")',
    "import torch\n"
    "class MyAlgorithm(fe.Algorithm):\n"
    "    cohort: int\n"
    "    def run(self, fed: fe.Federation) -> fe.Process:\n"
    "        w = fed.initial_model()\n"
    "        for t in fed.rounds():\n"
    "            cohort = yield fed.cohort(self.cohort, t)\n"
    "            arrived = yield from fed.exchange(cohort, w, self.client, t)\n"
    "            w = arrived.average()\n"
    "            fed.end_of_round(w)\n"
    "    def client(self, fed: fe.Federation, k: fe.Device, w, t: int) -> fe.Process:\n"
    "        trained = yield k.train(w, fe.SgdPlan(lr=0.1, batch_size=8, epochs=1), t)\n"
    "        return trained.params\n"
    "x = torch.randn(200, 4); y = x[:, :3].argmax(1)\n"
    "data = fe.Samples(x[:150], y[:150], x[150:], y[150:], classes=3)\n"
    "my_module = torch.nn.Linear(4, 3)\n"
    "scenario = {'devices': {'count': 5, 'placement': {'kind': 'disc', 'radius_m': 100}, "
    "'speed': {'kind': 'fixed', 'flop_per_s': 1e6}}, 'channel': 'urban-micro', 'partition': 'iid', "
    "'model': 'softmax', 'algorithm': {'kind': 'fedavg', 'cohort': 5, 'lr': 0.1, 'batch_size': 8, 'local_steps': 1},"
    " 'stop': {'rounds': 2}}\n"
    "own = fe.run(scenario, algorithm=MyAlgorithm(cohort=5), model=my_module, data=data)\nown",
    'fe.sweep(scenario, algorithm=MyAlgorithm(cohort=5), data=data, grid={"stop.rounds": [1, 2]}, seeds=1)',
    'run.digest, fe.run("quickstart", seed=1, settings={"stop.rounds": 2}, out="results/quickstart/demo").name,'
    ' fe.open("results/quickstart/demo").verdict',
)
"""The ten lines of the README, with fewer rounds, and what an own algorithm adds."""
MISTAKE = 'fe.run("quickstart", settings={"algorithm.lrr": 1})'


LIMIT_S = 1200
"""More than any host needs for a cell that does seconds of work."""


def executed(folder):
    """The notebook of the cells after a run from top to bottom, with a mistake and another cell at its end."""
    cells = [nbformat.v4.new_code_cell(cell) for cell in (*CELLS, MISTAKE, "run.digest")]
    cells[-2].metadata.tags = ["raises-exception"]  # without this the notebook would end there
    notebook = nbformat.v4.new_notebook(cells=cells)
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONHASHSEED": OTHER_SEED, "PYTHONPATH": path}
    client = NotebookClient(
        notebook, timeout=LIMIT_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable
    client.execute(env=environment, cwd=str(folder))
    return notebook


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    notebook = executed(tmp_path_factory.mktemp("notebook"))
    return [cell.outputs for cell in notebook.cells]


def shown(outputs):
    """The kinds of what a cell's last line shows."""
    return [set(its.data) for its in outputs if its.output_type == "execute_result"]


def test_runs_and_studies_show_as_tables(outputs):
    """A run is a table of its summary, a frame is a frame, a study the means of its settings."""
    assert "text/html" in shown(outputs[1])[0]
    assert "<th>verdict</th>" in outputs[1][-1].data["text/html"]
    assert "text/html" in shown(outputs[2])[0]
    assert "text/html" in shown(outputs[5])[0]
    assert "B: network.uplink.access=ofdma" in outputs[6][-1].data["text/plain"]


@pytest.mark.parametrize("cell", [3, 7])
def test_figures_show_inline(outputs, cell):
    """Each is one picture, without pyplot and without a magic line."""
    assert [("image/png" in kinds, "text/html" in kinds) for kinds in shown(outputs[cell])] == [(True, False)]


@pytest.mark.parametrize("cell", [1, 4])
def test_progress_shows_while_a_cell_runs(outputs, cell):
    """One output that is written anew, and is empty when the cell has ended; nothing asks for widgets."""
    shows = [its for its in outputs[cell] if its.output_type == "display_data"]

    assert [its.data["text/html"] for its in shows] == [""]
    assert not [its for its in outputs[cell] if its.output_type == "stream"]


def test_objects_of_the_notebook_run_and_sweep(outputs):
    """A class of the notebook is an algorithm like any other, in a sweep too."""
    assert "<Run scenario, seed 0: 2 rounds in " in outputs[8][-1].data["text/plain"]
    assert "2 runs done" in outputs[9][-1].data["text/plain"]
    assert "'all records consistent'" in outputs[10][-1].data["text/plain"]


def test_the_digest_is_that_of_any_other_process(outputs):
    """A notebook's run is the same run, whatever the hash seed of its process."""
    here = fe.run("quickstart", seed=1, settings={"algorithm.lr": 0.05, "stop.rounds": 3}).digest

    assert here in outputs[10][-1].data["text/plain"]


def test_a_mistake_is_an_exception_with_the_sentence(outputs):
    """The cell fails with the command's words; the kernel lives on."""
    (error,) = [its for its in outputs[-2] if its.output_type == "error"]
    (digest,) = shown(outputs[-1])

    assert "algorithm.lrr: no such setting; did you mean 'lr'" in error.evalue
    assert digest == {"text/plain"}
