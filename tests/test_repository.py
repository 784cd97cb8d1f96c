"""What the repository promises beside the code: lists of versions, workflows, install lines, licences of data."""

from __future__ import annotations

import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from constraints import LATEST, LOWEST, lower_bounds, normal, pins
from packaging.requirements import Requirement
from packaging.version import Version
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NEEDS = [
    need
    for need in map(Requirement, chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()))
    if need.name != PROJECT["name"]
]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def workflow(path: Path) -> dict:
    """The content of a YAML file."""
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
    named = [its.rpartition(" ")[2] for its in PROJECT["classifiers"] if its.startswith("Programming Language")]

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
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]


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
