"""The repository: versions, workflows, licences, imports, public names and limits."""

from __future__ import annotations

import ast
import json
import math
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import typer
from constraints import LATEST, LOWEST, lower_bounds, normal, pins
from packaging.requirements import Requirement
from packaging.version import Version
from public import LIST, ROOT, gone, today
from ruamel.yaml import YAML

from fednet_emu import limits
from fednet_emu.cli.app import app
from fednet_emu.emulation.outlook import BYTE_PER_DEVICE, VECTORS
from fednet_emu.errors import MAX_PROBLEMS, ScenarioError
from fednet_emu.files import data_folder as paths
from fednet_emu.scenario.wording import WORDS
from fednet_emu.testing import small_scenario
from tests.commands import LIMIT_S

LISTED = LIST.read_text(encoding="utf-8").splitlines()
FORMER = [line for line in LISTED if line.startswith("- ")]
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
TABLE = "".join(re.findall(r"### Upgrade from .+?(?=\n###)", CHANGES, re.DOTALL))
ROWS = re.findall(r"^\| `(.+?)` \| (.+) \|$", TABLE, re.MULTILINE)
"""What was written with an earlier version, and what is written now."""
BEFORE = r'mode="before"\)\n    @classmethod\n    def (.*?)(?=\n    (?:@|def )|\n\n\n|\Z)'
"""A validator that sees what is written before anything else does."""
SETTINGS = [(former, now) for former, now in ROWS if re.match(r"[a-z_]+\.[a-z_.]+: ", former)]


def test_the_list_is_that_of_the_code() -> None:
    """A public name, parameter, default, key, option or column has not changed; else `python tools/public.py`."""
    now = today()

    assert [line for line in now if line not in set(LISTED)] == []
    assert gone(now, LISTED) == [line.removeprefix("- ") for line in FORMER]


def test_a_name_that_is_gone_stays_with_a_minus() -> None:
    """The tool tells a line that was there before from one that is still there."""
    now = ["fe.run()", "fe.run(seed) = 1", "fe.new()"]
    before = ["- fe.old()", "fe.older()", "fe.run()", "fe.run(seed) = 0"]
    assert gone(now, before) == ["fe.old()", "fe.older()"], "another default is no other name"


def test_what_is_gone_has_a_row() -> None:
    """The first column of a row of the upgrade tables has the last two words of each line with a minus."""
    told = [set(re.findall(r"[\w-]+(?:\.json)?", former)) for former, _ in ROWS]
    ends = {line: re.findall(r"[\w-]+(?:\.json)?", line.removeprefix("- "))[-2:] for line in FORMER}

    assert FORMER
    assert [line for line, words in ends.items() if not any(words_of >= set(words) for words_of in told)] == []


@pytest.mark.parametrize(("former", "now"), SETTINGS)
def test_a_former_setting_is_refused_with_its_new_name(former: str, now: str) -> None:
    """Each setting in the first column is refused in a sentence that has the word of the second."""
    with pytest.raises(ScenarioError) as refusal:
        small_scenario(former.replace(": ", "=", 1))

    words = re.findall(r"`(?:\{kind: )?([\w-]+)", now)
    assert words
    assert words[0] in str(refusal.value)


def test_what_the_code_refuses_by_its_former_name_has_a_row() -> None:
    """Validators that know a former word, which they quote, are in the table with it."""
    known = {
        word
        for path in Path(ROOT / "fednet_emu").rglob("*.py")
        for validator in re.findall(BEFORE, path.read_text(encoding="utf-8"), re.DOTALL)
        for word in re.findall(r"got ([a-z][\w-]+)[,:;]", validator)
    }

    assert known >= {"auto", "foschini-miljanic", "l2"}
    assert [word for word in known if not any(re.search(rf"\b{word}\b", former) for former, _ in SETTINGS)] == []


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LINES = re.findall(r"^([A-Z]+) (.*)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)


def arguments(instruction: str) -> list[str]:
    return [rest for name, rest in LINES if name == instruction]


def test_the_context_has_what_the_wheel_is_built_from() -> None:
    """What pyproject.toml names is let in by .dockerignore, which shuts out everything else, and it is there."""
    head, *lines = [its for its in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if not its.startswith("#")]
    let_in = {its.removeprefix("!") for its in lines if its.startswith("!")}
    wheel, project = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"], PROJECT["project"]

    assert head == "*"
    assert let_in >= {*wheel["only-include"], *project["license-files"], project["readme"], "pyproject.toml"}
    assert [name for name in let_in if not (ROOT / name).exists()] == []


def test_the_package_is_installed_in_tested_versions() -> None:
    """With a version of Python that the tests run with, by the list of constraints, from the folder that is copied."""
    (image,), (install, _) = arguments("FROM"), arguments("RUN")
    (copied,) = arguments("COPY")

    assert (
        f"Programming Language :: Python :: {image.removeprefix('python:').removesuffix('-slim')}"
        in (PROJECT["project"]["classifiers"])
    )
    assert copied == ". /source"
    assert install.endswith("--constraint /source/constraints.txt /source")


def test_the_demo_runs_as_nobody_special() -> None:
    """A user who is not root, in a folder that is his, with a command and a scenario that there are."""
    (user,), (place,), (entry,), (command,) = map(arguments, ("USER", "WORKDIR", "ENTRYPOINT", "CMD"))
    name, scenario, *options = json.loads(command)

    assert f"useradd --create-home {user} && install --directory --owner {user} {place}" in arguments("RUN")
    assert json.loads(entry) == list(PROJECT["project"]["scripts"])
    assert name in typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert (ROOT / f"scenarios/{scenario}.yaml").exists()
    assert options == ["--out", "results/demo"]


PACKAGE = ROOT / "fednet_emu"
ENGINE = ("kernel", "radio", "devices", "network", "federation", "algorithms", "flower")


def calls(text):
    nodes = ast.walk(ast.parse(text)) if re.search(r"\b(?:hash|id)\b", text) else ()
    return {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def test_nothing_depends_on_what_differs_from_process_to_process():
    """Hashes of text and addresses of objects differ, so no order and no draw may come from them."""
    files = [path for part in ENGINE for path in (PACKAGE / part).rglob("*.py")]

    assert len(files) > 200
    assert [str(path) for path in files if {"hash", "id"} & calls(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("code", ["sorted(devices, key=lambda k: hash(k))", "x = {id(device): 1}"])
def test_the_claim_can_fail(code):
    """The check above sees what it forbids."""
    assert {"hash", "id"} & calls(code)


STEPS = {
    "the package": "import fednet_emu as fe; assert 'run' in dir(fe)",
    "the help": "import fednet_emu.cli.app",
    "a scenario": """
from fednet_emu.emulation.load import load_scenario
load_scenario('quickstart', ['data={kind: torchvision, name: CIFAR10}'])
load_scenario('quickstart', ['data={kind: hugging-face, path: x, input: a, target: b}',
                             'model={kind: transformers, config: {model_type: gpt2}}'])
""",
    "a check": "import fednet_emu.emulation.build, fednet_emu.emulation.given",
    "the commands": "import fednet_emu.cli.app, fednet_emu.study.runners",
    "figures": "import fednet_emu.draw.figures.run_figures",
    "operations": """
import torch
from fednet_emu.learning.models.flops import FlopCount
with FlopCount() as count:
    torch.nn.Linear(3, 2)(torch.ones(4, 3)).sum().backward()
assert count.total == 96
""",
    "a trained agent": "import sys; sys.modules['gymnasium'] = None; import fednet_emu.environment.trained",
}
PROGRAM = """
import json, sys
there = {}
for name, step in json.loads(sys.argv[1]).items():
    exec(step)
    there[name] = sorted(sys.modules)
print(json.dumps(there))
"""


@pytest.fixture(scope="module")
def modules() -> dict[str, set[str]]:
    command = [sys.executable, "-c", PROGRAM, json.dumps(STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return {name: set(there) for name, there in json.loads(done.stdout).items()}


def test_the_import_is_cheap(modules: dict[str, set[str]]) -> None:
    """Neither torch nor pandas, matplotlib nor the package's own parts come with the name alone."""
    there = modules["the package"]

    assert not there & {"torch", "numpy", "pandas", "matplotlib", "pydantic", "simpy", "rich", "typer"}
    assert {name for name in there if name.startswith("fednet_emu")} == {"fednet_emu"}


def test_the_help_waits_for_no_large_library(modules: dict[str, set[str]]) -> None:
    """The commands are there before PyTorch, pandas, Matplotlib and SciPy are."""
    assert "fednet_emu.cli.app" in modules["the help"]
    assert not modules["the help"] & {"torch", "pandas", "matplotlib", "scipy", "pyarrow"}


def test_no_library_of_an_extra_is_imported_before_it_is_used(modules: dict[str, set[str]]) -> None:
    """Not even by a scenario that names them, as long as it is only read."""
    assert "pydantic" in modules["a scenario"]
    assert not modules["a scenario"] & {"torchvision", "datasets", "huggingface_hub", "PIL", "transformers"}
    assert not modules["operations"] & {"gymnasium", "pettingzoo"}


def test_a_trained_agent_needs_no_library_of_agents(modules: dict[str, set[str]]) -> None:
    """The selection rule that reads it is there where Gymnasium cannot be imported."""
    assert "fednet_emu.environment.trained" in modules["a trained agent"]
    assert not modules["a trained agent"] & {"gymnasium.core", "pettingzoo", "stable_baselines3"}


def test_a_check_waits_for_neither_tables_nor_statistics(modules: dict[str, set[str]]) -> None:
    """What builds a scenario needs no pandas and none of the larger parts of SciPy, which take as long as PyTorch."""
    assert "torch" in modules["a check"]
    assert not modules["a check"] & {"pandas", "matplotlib", "scipy.stats", "scipy.optimize"}


def test_nothing_imports_ray_unasked(modules: dict[str, set[str]]) -> None:
    """Whoever does not say --ray does not wait for it, even where it is installed."""
    assert "fednet_emu.study.runners" in modules["the commands"]
    assert "ray" not in modules["the commands"]


def test_figures_need_no_display(modules: dict[str, set[str]]) -> None:
    """The state machine for screens, pyplot, is never loaded."""
    assert "matplotlib.figure" in modules["figures"]
    assert "matplotlib.pyplot" not in modules["figures"]


def test_counting_does_not_load_the_compiler(modules: dict[str, set[str]]) -> None:
    """In a fresh interpreter a count leaves torch._dynamo, and with it 75 MB, where they are."""
    assert "torch" in modules["operations"]
    assert "torch._dynamo" not in modules["operations"]


PAGE = (Path(__file__).parents[1] / "docs/reference/limits.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("value", [0, 2**63 - 1, 1 - 2**63, 0.0, 1e40, -1e-40, math.nan, math.inf, "", "größer", True])
def test_values_within_the_limits(value: object) -> None:
    """The limits themselves are inside; what is not finite is left to the setting."""
    assert limits.problem_of(value) is None


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**4000, 1.1e40, -9e-41, 5e-324, "\ud800"], ids=type)
def test_values_beyond_the_limits(value: object) -> None:
    """Each is told in one short sentence with the remedy."""
    told = limits.problem_of(value)

    assert told is not None
    assert "; write " in told
    assert len(told) < 150


def test_pipes_and_impossible_names_are_no_files(tmp_path: Path) -> None:
    """Only files and folders are there; asking is no error."""
    (tmp_path / "file").touch()

    assert paths.exists(tmp_path)
    assert paths.is_file(tmp_path / "file")
    assert not any(map(paths.is_file, (tmp_path, tmp_path / ("n" * 300), Path("a\0b"), Path("/dev/zero"))))
    assert not any(map(paths.exists, (tmp_path / "x", tmp_path / ("n" * 300), Path("a\0b"), Path("/dev/zero"))))


@pytest.mark.parametrize(
    "row",
    [
        f"| a file of settings | {limits.MAX_FILE_BYTE // 2**20} MiB of UTF-8 text |",
        f"| values of a scenario | {limits.MAX_VALUES:,} |",
        f"| nesting | {limits.MAX_NESTING} levels |",
        f"| includes | {limits.MAX_FILES} |",
        f"| chain of includes | {limits.MAX_CHAIN} |",
        f"| whole numbers | ±(2^{(limits.MAX_INTEGER + 1).bit_length() - 1} − 1) |",
        f"| other numbers | 0, or {limits.SMALLEST:g} to {limits.LARGEST:g} in magnitude |".replace("+", ""),
        f"| levels in decibels | ±{limits.MAX_DECIBEL:g} |",
        f"| runs of a study | {limits.MAX_RUNS:,} |",
        f"| problems explained | {MAX_PROBLEMS} |",
        f"| memory | that of the host | {BYTE_PER_DEVICE} bytes for each device, the samples, three copies",
    ],
)
def test_the_page_states_the_limits(row: str) -> None:
    """What users read is what holds."""
    assert row in PAGE
    assert VECTORS == 3


PACKAGED = PROJECT["project"]
NEEDS = [
    need
    for need in map(Requirement, chain(PACKAGED["dependencies"], *PACKAGED["optional-dependencies"].values()))
    if need.name != PACKAGED["name"]
]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def workflow(path: Path) -> dict:
    return YAML(typ="safe").load(path)


def test_one_list_serves_every_extra():
    """Each package that the project names is in the list, at a version within its bounds; there is no second list."""
    pinned = pins(LATEST)

    assert [str(need) for need in NEEDS if not need.specifier.contains(pinned[normal(need.name)])] == []
    assert {file.name for file in ROOT.glob("constraints*.txt")} == {LATEST.name, LOWEST.name}


def test_the_lowest_versions_are_the_bounds():
    """What `make test-lowest` installs is the lower bound of each dependency, so no bound goes untested."""
    pinned, bounds = pins(LOWEST), lower_bounds()

    assert {"pydantic", "typer", "torch", "flwr", "ray", "pytest"} < set(bounds)
    assert {name: pinned[name] for name, lowest in bounds.items() if Version(pinned[name]) != Version(lowest)} == {}


def test_every_dependency_has_both_bounds():
    """A lowest version that is tested, and a next major version that is not yet allowed."""
    assert [str(n) for n in NEEDS if {its.operator for its in n.specifier} != {">=", "<"}] == []


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / ".ci/run"], ids=lambda path: path.name)
def test_workflows_call_targets_that_there_are(path: Path):
    """Each step is one call of make, whose target is in the Makefile; packages of the system apart."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yml":
        for job in workflow(path)["jobs"].values():
            targets = job.get("strategy", {}).get("matrix", {}).get("target", [])
            text += "".join(f"\nmake {target}" for target in targets)
    called = set(re.findall(r"make ([a-z-]+)", text))

    assert called
    assert called <= set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )


def test_each_python_that_is_named_is_tested():
    """The classifiers of the package are the matrix of the workflow."""
    (job,) = (workflow(path)["jobs"]["test"] for path in WORKFLOWS if path.name == "test.yml")
    named = [its.rpartition(" ")[2] for its in PACKAGED["classifiers"] if its.startswith("Programming Language")]

    assert job["strategy"]["matrix"]["python"] == named == ["3.11", "3.12", "3.13", "3.14"]


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda path: path.stem
)
def test_issue_forms_are_whole(path: Path):
    """Each has what GitHub demands: a name, a description, and fields with labels and ids of their own."""
    form = workflow(path)

    assert form["name"]
    assert form["description"]
    assert all(field["attributes"]["label"] for field in form["body"])
    assert len({field["id"] for field in form["body"]}) == len(form["body"])


def test_install_lines_need_no_index():
    """The pages install from a clone; the one page that explains the other ways says when they work."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs/examples").glob("*.py")]
    lines = {page.name for page in pages if re.search(r"pip install '?fednet[-_]emu", page.read_text(encoding="utf-8"))}

    assert lines == {"install.md"}


def test_the_version_is_typed_once():
    """The build reads it from the package; CITATION.cff is compared in tests/cli."""
    assert "version" not in PACKAGED
    assert PACKAGED["dynamic"] == ["version"]


def test_embedded_data_have_a_licence():
    """Each file of data in the package is named in DATA-LICENSES.md, or is a page or style of our own."""
    package = ROOT / "fednet_emu"
    ours = {".py", ".pyi", ".typed", ".bib", ".js", ".css", ".html"}
    found = {
        str(f.relative_to(package)) for f in package.rglob("*.*") if f.is_file() and f.suffix not in ours | {".pyc"}
    }
    told = (ROOT / "DATA-LICENSES.md").read_text(encoding="utf-8")

    assert found
    assert [name for name in sorted(found) if f"`{name}`" not in told] == []


def test_each_reference_picture_is_shown():
    """Each committed picture is embedded in a page, a table's text or the README."""
    pictures = [path.relative_to(ROOT) for path in (ROOT / "results/reference").rglob("*.[pg][ni][gf]")]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "results/reference").rglob("*.md")]
    texts = "".join(path.read_text(encoding="utf-8") for path in [*pages, *(ROOT / "docs").rglob("*.py")])

    assert len(pictures) > 20
    assert [str(path) for path in pictures if "/".join(path.parts[-2:]) not in texts] == []


def test_no_link_of_a_page_is_dead():
    """Each relative link of a Markdown file of the clone leads to a file, and to a heading of it if it names one."""
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    texts = {ROOT / name: (ROOT / name).read_text(encoding="utf-8") for name in names.stdout.split()}
    dead, count = [], 0
    for path, text in texts.items():
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
        for link in re.findall(r"\]\(<?((?!\w+:)[^)\s>]+)", prose):
            name, _, anchor = link.partition("#")
            target, count = (path.parent / name).resolve() if name else path, count + 1
            if not target.exists() or (anchor and anchor not in headings(texts[target])):
                dead.append(f"{path.relative_to(ROOT)}: {link}")

    assert count > 300
    assert dead == []


def headings(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub forms them."""
    titles = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in plain}


def test_remedies_name_present_kinds() -> None:
    """A sentence that says what to choose, give or set names no former kind or value."""
    former = re.compile(rf"\b(?:choose|give|set) [^;.]*(?<![-\w])(?:{'|'.join(WORDS)})(?![-\w])")
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "fednet_emu").rglob("*.py")]
    texts = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert [text for text in texts if isinstance(text, str) and "\n" not in text and former.search(text)] == []
