"""How runs and studies look: figures, pages and lines of text."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

import fednet_emu as fe
from fednet_emu.scenario.document import from_text
from fednet_emu.screen import progress
from fednet_emu.testing import SMALL

MAPPING = from_text(SMALL, "small").data


@pytest.fixture(scope="module")
def runs():
    """Two runs of a classifier in memory."""
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
    with pytest.raises(fe.FednetError, match="says what is drawn, got a Run; give several runs as a list"):
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
