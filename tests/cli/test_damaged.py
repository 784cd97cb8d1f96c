"""Folders with damaged or missing files: `compare` and `plot` say which and what to do, and `sweep` mends them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from fednet_emu.testing import SMALL
from tests.commands import fednet
from tests.quick import crossed

RUN_FILES = ("manifest.json", "summary.json", "scenario.yaml", "evaluations.parquet", "rounds.parquet")
STUDY_FILES = ("study.json", "cells.parquet", "study.parquet")


def without(path: Path) -> None:
    """Delete a file."""
    path.unlink()


def emptied(path: Path) -> None:
    """Leave nothing in a file."""
    path.write_bytes(b"")


def cut(path: Path) -> None:
    """Leave the first half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(bytes(content))


def other(path: Path) -> None:
    """Put something else in its place."""
    path.write_text(json.dumps([1, 2, 3]))


def a_folder(path: Path) -> None:
    """Put a folder in its place."""
    path.unlink()
    path.mkdir()


def nested(path: Path) -> None:
    """Put something nested very deeply in its place."""
    path.write_text("[" * 100_000)


DAMAGES = [without, emptied, cut, flipped, other, a_folder, nested]
Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, cells_here: None) -> Path:
    """A run and a study, both finished."""
    room = tmp_path_factory.mktemp("sound")
    (room / "small.yaml").write_text(SMALL.replace("rounds: 3", "rounds: 2"), encoding="utf-8")
    (room / "study.yaml").write_text("base: small\ngrid: {algorithm.lr: [0.1, 0.2]}\nseeds: 2\n", encoding="utf-8")
    assert fednet("run", room / "small.yaml", "--out", room / "run", "--no-plots").exit_code == 0
    assert fednet("sweep", room / "study.yaml", "--out", room / "study", "--quiet").exit_code == 0
    return room


def assert_told(result: Result, path: Path, damage: Damage) -> None:
    """One line names the file, its problem and a remedy; a bit that changes nothing that is used may do no harm."""
    assert "Traceback" not in result.output
    if result.exit_code:
        (line,) = result.stderr.strip().splitlines()
        assert line.startswith(str(path)) or (damage is flipped and path.name in ("manifest.json", "study.json"))
        assert "again" in line
        assert result.exit_code == 2
    else:
        assert path.name == "manifest.json"
        assert damage in (without, flipped, a_folder, other)


@pytest.mark.parametrize(("damage", "name"), crossed(DAMAGES, RUN_FILES))
def test_a_run_with_a_damaged_file(name: str, damage: Damage, sound: Path, tmp_path: Path) -> None:
    """Nothing is drawn or compared from a file that is not as it was written."""
    shutil.copytree(sound / "run", tmp_path / "run")
    damage(tmp_path / "run" / name)
    results = [fednet("plot", tmp_path / "run", "--out", tmp_path / "figures")]
    if name != "rounds.parquet":
        results.append(fednet("compare", tmp_path / "run", sound / "run"))

    for result in results:
        assert_told(result, tmp_path / "run" / name, damage)


@pytest.mark.parametrize(("damage", "name"), crossed(DAMAGES, STUDY_FILES))
def test_a_study_with_a_damaged_file(name: str, damage: Damage, sound: Path, tmp_path: Path) -> None:
    """The same for studies; the sweep that wrote it mends it."""
    study = tmp_path / "study"
    shutil.copytree(sound / "study", study)
    before = {path.name: path.read_bytes() for path in study.glob("*.parquet") if path.stem != "hosts"}
    damage(study / name)
    for result in (
        fednet("plot", study, "--out", tmp_path / "figures"),
        fednet("compare", study, "--between", "algorithm.lr=0.1", "algorithm.lr=0.2"),
    ):
        assert_told(result, study / name, damage)
    if damage is a_folder:
        (study / name).rmdir()
    mended = fednet("sweep", sound / "study.yaml", "--out", study, "--quiet", "--no-plots")
    assert mended.exit_code == 0, mended.output
    assert {path.name: path.read_bytes() for path in study.glob("*.parquet") if path.stem != "hosts"} == before
