"""The image: its context has what the wheel is built from, and its command is one of the package's."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import typer

from fednet_emu.cli.app import app

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LINES = re.findall(r"^([A-Z]+) (.*)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)


def arguments(instruction: str) -> list[str]:
    """What stands behind each line of an instruction."""
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
