"""The code in the guides is whole: it runs as it stands."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path

import pytest

import fednet_emu as fe
from fednet_emu.federation import Terms
from fednet_emu.study.file import StudyFile
from fednet_emu.study.search.search import load_search
from tests.commands import Forked, fednet

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = (
    "guides/own-algorithm.md",
    "guides/plug-ins.md",
    "guides/trained-model.md",
    "methods/selection.md",
    "guides/trackers.md",
)
"""Pages whose blocks of Python are programs: whole files, named in their first line."""
PROGRAM = re.compile(r"# (\w+\.py)\n")
SHORT = {"stop.rounds": 2, "devices.count": 4, "algorithm.cohort": 2}


def blocks(page: str) -> list[str]:
    """The Python code of a page, block by block."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


PROGRAMS = [(page, code) for page in GUIDES for code in blocks(page)]


@pytest.mark.parametrize(("page", "code"), PROGRAMS, ids=[code.splitlines()[0] for _, code in PROGRAMS])
def test_a_program_runs_as_it_stands(page: str, code: str, tmp_path: Path) -> None:
    """With its own imports, in an empty folder, without a warning; no block hides by lacking its name."""
    name = PROGRAM.match(code)
    assert name, f"{page}: a block of Python without a file name"
    (tmp_path / name[1]).write_text(code, encoding="utf-8")

    done = Forked(tmp_path / name[1], cwd=tmp_path).ended()

    assert (done.returncode, done.stderr) == (0, "")


def test_every_keyword_of_training_is_in_the_guide() -> None:
    """A keyword that is added without a word about it fails."""
    table = (DOCS / "guides/own-algorithm.md").read_text(encoding="utf-8").partition("## Keywords of `k.train`")[2]
    named = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE))))

    assert set(Terms.__annotations__) <= named


def test_a_radio_part_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path loss of the guide is a file that a scenario can name, with its settings checked, and links run on it."""
    (code,) = blocks("guides/own-radio.md")
    (tmp_path / "campus_of_the_guide.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    kind = "campus_of_the_guide:Campus"

    channel = {"channel.path_loss": {"kind": kind, "corner_m": 25}, "channel.shadowing": "none"}

    run = fe.run("quickstart", settings=SHORT | channel, timing_only=True)

    assert run.summary["verified"]
    with pytest.raises(fe.ScenarioError, match=r"corner_m: must be > 0, got -1"):
        fe.check("quickstart", settings={"channel.path_loss": {"kind": kind, "corner_m": -1}})


def test_a_model_and_data_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network of the guide trains by its import path, and the file that the guide writes is read."""
    network, arrays = blocks("guides/own-model-and-data.md")
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "nets_of_the_guide.py").write_text(network, encoding="utf-8")
    (tmp_path / "make_data.py").write_text(arrays, encoding="utf-8")
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(tmp_path / "make_data.py"))
    model = {"kind": "module", "path": "nets_of_the_guide:Wide", "args": {"width": 16}}

    own_model = fe.run("quickstart", settings=SHORT | {"model": model})
    own_data = fe.run("quickstart", settings=SHORT | {"data": {"kind": "npz", "path": "mine.npz"}, "model": "softmax"})

    assert own_model.summary["accuracy"] > 0
    assert own_data.summary["verified"]


@pytest.mark.usefixtures("cells_here")
def test_the_search_of_its_guide_is_right(tmp_path: Path) -> None:
    """The file passes `fednet check`, and the code runs, here for two settings of two rounds."""
    (text,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "guides/search.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    (code,) = blocks("guides/search.md")
    short = code.replace(
        "trials=12,", f"trials=2, seeds=1, workers=1, settings={{'stop.rounds': 2}}, out={str(tmp_path / 'out')!r},"
    )

    assert len(load_search(StudyFile.read(tmp_path / "mine.yaml")).study.search.space) == 4
    assert short != code
    exec(compile(short, "guides/search.md", "exec"), {})
    assert fe.open(tmp_path / "out").name


def test_the_scenario_of_the_first_page_is_right(tmp_path: Path) -> None:
    """What `start` tells to write passes `fednet check`."""
    texts = re.findall(
        r"```yaml\n(devices:.*?)```", (DOCS / "start/first-run.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert len(texts) == 1
    (tmp_path / "mine.yaml").write_text(texts[0], encoding="utf-8")

    assert fe.check(tmp_path / "mine.yaml").devices.count == 100


def test_the_scenario_of_the_readme_is_right(tmp_path: Path) -> None:
    """What README shows as a scenario is one."""
    (text,) = re.findall(r"```yaml\n(.*?)```", (DOCS.parent / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "readme.yaml").write_text(text, encoding="utf-8")

    assert fe.check(tmp_path / "readme.yaml").algorithm.kind == "fedavg"


@pytest.mark.usefixtures("cells_here")
def test_a_study_from_question_to_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File and commands of the page, in an empty folder; the commands before an output print each line of it."""
    page = (DOCS / "guides/question-to-figure.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    printed = ""
    for language, text in re.findall(r"```(yaml|sh|text)\n(.*?)```", page, flags=re.DOTALL):
        if language == "yaml":
            Path("access.yaml").write_text(text, encoding="utf-8")
        elif language == "sh":
            printed = ""
            for line in text.splitlines():
                words = [str(next(tmp_path.glob(word), word)) if "*" in word else word for word in shlex.split(line)]
                done = fednet(*words[1:])
                assert done.exit_code == 0, done.output
                printed += done.output
        else:
            assert [line for line in text.splitlines() if line not in printed] == []

    assert len(list(Path("results/access/figures").glob("accuracy-time.*"))) == 4  # png, pdf, csv and tex


@pytest.mark.usefixtures("cells_here")
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each code cell of `examples/first_steps.ipynb` runs in one namespace; the last one names the better setting."""
    notebook = json.loads((DOCS.parent / "examples/first_steps.ipynb").read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for code in cells:
        exec(compile(code, "first_steps.ipynb", "exec"), names)

    assert cells[-1] == "study.best()\n"
    assert str(eval(cells[-1], names)).startswith("ofdma reaches accuracy 0.7 soonest")
