"""Programs and names of the pages: guides, commands, the site, and what pages name."""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
import shlex
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import command_reference
import profile_tables
import pytest
import typer
from api_examples import EXAMPLES as EXAMPLES_BY_NAME
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

import fednet_emu
import fednet_emu as fe
from fednet_emu.cli.app import app
from fednet_emu.federation import Terms
from fednet_emu.study.file import StudyFile
from fednet_emu.study.search.search import load_search
from tests.commands import Forked, fednet
from tests.quick import validator

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
                done = fednet(*words[1:], *(["--no-plots"] if words[1] == "sweep" else []))  # drawn in tests/cli
                assert done.exit_code == 0, done.output
                printed += done.output
        else:
            assert [line for line in text.splitlines() if line not in printed] == []

    assert len(list(Path("results/access/figures").glob("accuracy-time.*"))) == 3  # pdf, csv and tex


@pytest.mark.usefixtures("cells_here")
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each code cell of `examples/first_steps.ipynb` runs in one namespace; the last one names the better setting."""
    notebook = json.loads((DOCS.parent / "examples/first_steps.ipynb").read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for code in cells:
        exec(compile(code, "first_steps.ipynb", "exec"), names)

    assert cells[-1].strip() == "study.best()"
    assert str(eval(cells[-1], names)).startswith("ofdma reaches accuracy 0.7 soonest")


COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
SECTIONS = dict(part.split("\n", 1) for part in command_reference.page().split("\n## fednet ")[1:])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_section_with_all_it_takes(name: str) -> None:
    """Its first sentence, its example, and a row for each argument and option."""
    section, command = SECTIONS[name], COMMANDS[name]

    assert f"\nfednet {name}" in section
    assert section.count("\n| `") == len(command.params)
    options = [its for parameter in command.params for its in parameter.opts if its.startswith("--")]
    assert [its for its in options if f"`{its}" not in section] == []


def test_an_option_says_what_it_takes_and_its_default() -> None:
    """A value behind its name, a range as it is; a switch has neither."""
    assert "| `--minimise TEXT` | What to rank by" in SECTIONS["best"]
    assert "\\[default: time\\] |" in SECTIONS["best"]
    assert "| `--plots`, `--no-plots` |" in SECTIONS["run"]


def test_every_profile_has_a_row() -> None:
    """Devices, radios and stations, each in the table of its kind."""
    page = profile_tables.page()
    named = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]

    assert named == list(fe.profiles()["profile"])
    assert "| `pi-4b` | 1.39e+10 FLOP/s | - | 5.1 W | 2.7 W |" in page


EXAMPLES = sorted((DOCS / "examples").rglob("*_*.py"))
"""Those that are called `plot_...` are run when the site is built."""


def test_every_public_name_is_on_the_api_page() -> None:
    """What `fednet_emu` offers is documented, and nothing that it does not have."""
    text = (DOCS / "reference/api/index.md").read_text(encoding="utf-8")

    listed = re.findall(r"^   fednet_emu\.(\w+)$", text, flags=re.MULTILINE)
    assert sorted(listed) == sorted([*fednet_emu.__all__, "testing"])


def test_every_public_function_has_an_example() -> None:
    """The page of a function shows how it is called: code that Python can read, with keywords that the function has."""
    functions = [name for name in fednet_emu.__all__ if inspect.isfunction(getattr(fednet_emu, name))]

    assert set(functions) <= set(EXAMPLES_BY_NAME)
    for name, code in EXAMPLES_BY_NAME.items():
        function = getattr(fednet_emu, name)
        for call in (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == f"fe.{name}":
                inspect.signature(function).bind(*call.args, **{str(key.arg): 0 for key in call.keywords})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_use_the_public_door(path: Path) -> None:
    """An example imports `fednet_emu` as a user would, nothing inside it, and begins with a title."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    ]

    assert "fednet_emu" in modules
    assert not [name for name in modules if str(name).startswith("fednet_emu.")]
    title, rule = (ast.get_docstring(tree) or "").splitlines()[:2]
    assert rule == "=" * len(title)


def test_every_page_is_in_a_table_of_contents() -> None:
    """A page that no toctree names cannot be found."""
    pages = [path for path in DOCS.rglob("*.md") if not {"_build", "gallery", "ext", "settings"} & set(path.parts)]
    named = {
        (path.parent / line.strip()).with_suffix(".md")
        for path in pages
        for block in re.findall(r"```{toctree}\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for line in block.splitlines()
    }

    assert len(pages) > 40
    assert {path for path in pages if path not in named} == {DOCS / "index.md"}


WORDS = 900
"""So many words may a page about a method have; tables of results are made from files."""


@pytest.mark.parametrize("path", sorted((DOCS / "methods").glob("*.md")), ids=lambda path: path.stem)
def test_pages_of_methods_are_short(path: Path) -> None:
    """Signs that are no words, as in tables and formulas, do not count."""
    words = [part for part in path.read_text(encoding="utf-8").split() if re.search(r"\w", part)]

    assert len(words) <= WORDS


ROOT = Path(__file__).parents[2]
WRITTEN = {
    *(f"docs/reference/{name}" for name in ("settings", "api", "commands.md", "tables.md")),
    *("docs/reference/profiles.md", "docs/reference/plausible.md", "docs/project/house.md"),
    *("docs/_build", "docs/gallery"),
}
"""Pages, and folders of pages, that are made when the site is built."""
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "RELEASE.md", "results/reference/README.md")),
    *(
        its
        for its in sorted((ROOT / "docs").rglob("*.md"))
        if not any(str(its).startswith(str(ROOT / w)) for w in WRITTEN)
    ),
]
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PAGES}
NAMES = {path.stem for path in (ROOT / "scenarios").rglob("*.yaml")}
MADE = {"docs/_build/html", "docs/project/house.md", "fednet_emu/library/", "results/reference/NAME/"}
"""What pages tell to be made."""


def blocks_of(language: str) -> list[tuple[str, str]]:
    """The code of all pages in a language, with the name of the page."""
    fence = re.compile(rf"```{language}\n(.*?)```", re.DOTALL)
    return [(page, code) for page, text in TEXTS.items() for code in fence.findall(text)]


def test_commands_have_their_options() -> None:
    """Each `fednet COMMAND --option` of a block of commands, and the scenario that it names."""
    wrong = []
    lines = [(page, line) for page, code in blocks_of("sh") for line in code.replace("\\\n", " ").splitlines()]
    for page, line in lines:
        for name, rest in re.findall(r"fednet ([a-z]+)([^#|>]*)", line):
            command, words = COMMANDS[name], rest.partition(" -- ")[0].split()
            options = {"--help", *(word for its in command.params for word in (*its.opts, *its.secondary_opts))}
            wrong += [(page, name, word) for word in words if word.startswith("--") and word not in options]
            named = words[0] if words and name in ("run", "sweep", "check", "search", "live") else ""
            wrong += [(page, name, named)] if re.fullmatch(r"[a-z0-9_]+", named) and named not in NAMES else []

    assert len(lines) > 60
    assert wrong == []


def test_files_are_there() -> None:
    """Each path of this repository in a code span."""
    path = re.compile(r"`((?:fednet_emu|tests|docs|scenarios|examples|tools|benchmarks|results/reference)/[\w./-]+)`")
    named = {(page, name) for page, text in TEXTS.items() for name in path.findall(text)}

    assert len(named) > 50
    assert {(page, name) for page, name in named if name not in MADE and not (ROOT / name).exists()} == set()


def test_imports_find_what_they_name() -> None:
    """Each name that a program of a page imports from this package."""
    imports = [
        (page, node.module, alias.name)
        for page, code in blocks_of("python")
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fednet_emu")
        for alias in node.names
    ]

    assert len(imports) > 10
    assert [its for its in imports if not hasattr(import_module(its[1]), its[2])] == []


def without_required(schema: Any) -> Any:
    """The schema of a file that need not be whole."""
    if isinstance(schema, list):
        return [without_required(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: without_required(its)
        for word, its in schema.items()
        if word != "required" or its in (["kind"], ["include"])
    }


@cache
def of_a_piece(study: bool) -> Draft202012Validator:
    """The validator of a piece of a scenario or of a study."""
    return Draft202012Validator(without_required(validator(study=study).schema))


WHOLE = [
    (page, code) for page, code in blocks_of("yaml") if not re.search(r"\.\.\.|my-algorithm", re.sub("#.*", "", code))
]
"""Those that are not cut short, and need no plug-in."""


@pytest.mark.parametrize(("page", "code"), WHOLE)
def test_settings_have_keys_that_there_are(page: str, code: str) -> None:
    """A piece of a scenario, or of a study, has known keys with values of the right kind."""
    content = YAML(typ="safe").load(code)

    valid = of_a_piece(bool(content.keys() & {"base", "grid"}))
    assert [(list(each.absolute_path), each.message[:200]) for each in valid.iter_errors(content)] == []
