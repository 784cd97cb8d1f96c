"""Resolve the versions to test with: `constraints.txt`, and `constraints-lowest.txt` with every lower bound.

    python tools/constraints.py            # keep the versions that are there, and add what is missing
    python tools/constraints.py --upgrade  # take the newest of all

It takes uv, and asks the package index. In the second list, each package that `pyproject.toml` names has its lower
bound (but for the extras in `HOUSE`, which only the project itself uses); what comes along is the newest that suits.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LATEST, LOWEST = ROOT / "constraints.txt", ROOT / "constraints-lowest.txt"
HOUSE = ("browser", "dev", "docs", "mutants", "oracles")
_BOUND = re.compile(r"(?P<name>[A-Za-z0-9._-]+)>=(?P<lowest>[0-9.]+)")


def normal(name: str) -> str:
    """Return the name of a package in lower case, with dashes: the index takes all spellings for one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lower_bounds(pyproject: Path = ROOT / "pyproject.toml") -> dict[str, str]:
    """Return the lowest version of each package that the package itself, an extra or the tests need."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = (needs for extra, needs in project["optional-dependencies"].items() if extra not in HOUSE)
    found = (_BOUND.match(need) for need in chain(project["dependencies"], *extras))
    return {normal(bound["name"]): bound["lowest"] for bound in found if bound}


def pins(file: Path) -> dict[str, str]:
    """Return the versions in a list of constraints, by the names of the packages."""
    lines = (line.split("==") for line in file.read_text(encoding="utf-8").split())
    return {normal(name): version for name, version in lines}


def main(options: list[str]) -> None:
    """Write both lists; torch is of any build, and what it brings for GPUs is left out: it asks for exact versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [f"--extra={extra}" for extra in project["optional-dependencies"] if extra not in HOUSE]
    lowest = "".join(f"{name}=={version}\n" for name, version in lower_bounds().items())
    _resolve(LATEST, "--all-extras", *options)
    _resolve(LOWEST, *extras, "--constraint=-", *options, given=lowest)


def _resolve(file: Path, *options: str, given: str = "") -> None:
    command = ["uv", "pip", "compile", "--quiet", "--python-version=3.11", "--no-annotate", "--no-header", *options]
    subprocess.run([*command, f"--output-file={file}", "pyproject.toml"], cwd=ROOT, input=given, text=True, check=True)
    lines = re.sub(r"\+\w+$", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE).splitlines(keepends=True)
    kept = (line for line in lines if not line.startswith(("cuda-", "nvidia-", "triton")))
    file.write_text("".join(kept), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
