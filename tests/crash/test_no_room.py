"""A run that cannot write says so in one sentence, ends with exit code 2, and keeps what can be kept."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import Result

from fednet_emu.emulation import store
from fednet_emu.emulation.play import play
from fednet_emu.errors import DataError
from fednet_emu.federation.federation import Federation
from fednet_emu.files.writing import PART
from fednet_emu.records.folder import read_manifest
from fednet_emu.testing import SMALL, small_scenario
from tests.commands import Forked, fednet
from tests.quick import crossed

CHANGES = ("stop.rounds=6", "evaluation.every_rounds=2", "training.checkpoint_s=1e-9")
FILES = (".snapshot", "transfers.parquet", "rounds.parquet", "summary.json", "manifest.json", "model.pt")
Opener = Callable[..., Any]


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scenario") / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def run(scenario: Path, out: Path, *more: str) -> Result:
    changes = [word for change in CHANGES for word in ("--set", change)]
    return fednet("run", scenario, "--out", out, "--quiet", *changes, *more)


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, number: int, after: int = 0) -> None:
    """Let every attempt but the first `after` to write a file of this name, or ending, fail as the system would."""
    opened, seen = Path.open, 0

    def fails(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        nonlocal seen
        ours = name in self.name if name.startswith(".") else self.name == f".{name}{PART}"
        if "w" in mode and ours and self.name.endswith(PART):
            seen += 1
            if seen > after:
                raise OSError(number, os.strerror(number), str(self))
        return opened(self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", fails)
    monkeypatch.setattr(store, "COST", float("inf"))


def tables(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.glob("*.parquet")}


@pytest.fixture(scope="module")
def whole(scenario: Path) -> dict[str, bytes]:
    out = scenario.with_name("whole")
    assert run(scenario, out, "--no-plots").exit_code == 0
    return tables(out)


@pytest.mark.parametrize(
    ("number", "name"), crossed([errno.ENOSPC, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO], FILES)
)
def test_a_file_that_cannot_be_written(
    name: str, number: int, scenario: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """One sentence names it; the status is `failed`, other tables are kept, and the same command later ends the run."""
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, name, number, after=1 if name == "manifest.json" else 0)
        result = run(scenario, out, "--no-plots")

    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.rstrip().splitlines()
    assert line.startswith(str(out))
    assert line.endswith(
        f"{name}: cannot be written ({os.strerror(number)}); "
        "make room, or make the folder writable, and give the same command again"
    )
    manifest = read_manifest(out)
    assert manifest is not None
    assert manifest["status"] == "failed"
    if name not in ("summary.json", "manifest.json"):
        assert json.loads((out / "summary.json").read_text())["status"] == "failed"
    kept = tables(out)
    assert len(kept) == 9 - (name.endswith(".parquet"))
    for table in kept:
        pd.read_parquet(out / table)
    assert not list(out.glob(f".*{PART}"))

    assert run(scenario, out, "--no-plots").exit_code == 0
    assert tables(out) == whole


def test_a_folder_that_cannot_be_written_at_all(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run does not begin."""
    refuse(monkeypatch, "manifest.json", errno.EROFS)
    result = run(scenario, tmp_path / "run")

    assert result.exit_code == 2
    assert result.stderr.startswith(f"{tmp_path / 'run' / 'manifest.json'}: cannot be written (Read-only file system)")


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop()),) * 2)
from fednet_emu.cli import main
main()
"""


@pytest.mark.parametrize("limit_byte", [0, 3000, 6500, 12000])
def test_files_may_not_grow(limit_byte: int, scenario: Path, tmp_path: Path) -> None:
    """With a limit of the operating system (`ulimit -f`) there is one sentence, no traceback, and nothing half."""
    if limit_byte == 0 and find_spec("dill"):
        pytest.skip("PyTorch imports dill where it is installed, which needs a temporary folder")
    out, changes = tmp_path / "run", [word for change in CHANGES for word in ("--set", change)]
    result = Forked("-c", LIMITED, "run", scenario, "--out", out, "--quiet", *changes, limit_byte).ended()

    if limit_byte < 12000:
        (line,) = result.stderr.rstrip().splitlines()
        assert result.returncode == 2
        assert "cannot be written (File too large); make room" in line
    else:  # figures are larger still
        assert (result.returncode, "cannot be written" in result.stderr) == (2, True)
    assert not list(out.glob(f".*{PART}"))
    for table in tables(out):
        pd.read_parquet(out / table)
    manifest = read_manifest(out)
    assert (manifest or {"status": None})["status"] in ((None,) if limit_byte == 0 else ("failed", "running", "done"))
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != limit_byte


def test_the_disk_is_full(scenario: Path, tmp_path: Path) -> None:
    """On a file system of 256 kB, most of it taken: one sentence, `failed`, and with room the same command ends."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs more rights")
    try:
        (disk / "ballast").write_bytes(b"x" * (208 << 10))
        result = run(scenario, disk / "run", "--no-plots")
        assert result.exit_code == 2
        assert "cannot be written (No space left on device)" in result.stderr
        assert (read_manifest(disk / "run") or {})["status"] == "failed"
        (disk / "ballast").unlink()
        assert run(scenario, disk / "run", "--no-plots").exit_code == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("checkpoint_s", ["1e-9", "1000"])
def test_the_folder_vanishes(checkpoint_s: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deletes it during the run: an error names it, it is not made again, and the next run begins anew."""
    monkeypatch.setattr(store, "COST", float("inf"))
    scenario, out = small_scenario(*CHANGES, f"training.checkpoint_s={checkpoint_s}"), tmp_path / "run"

    def vanish(fed: Federation) -> None:
        if fed.round == 3:
            shutil.rmtree(out)

    with pytest.raises(DataError, match=r"cannot be written \(No such file or directory\)"):
        play(scenario, "small", out, on_round=vanish)
    assert not out.exists()
    assert play(scenario, "small", out).summary["status"] == "done"


FULL = """
import os
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
from fednet_emu.cli import main
main()
"""


def test_standard_output_is_full(scenario: Path, tmp_path: Path) -> None:
    """The run is kept, and one sentence says what could not be printed."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    result = Forked("-c", FULL, "run", scenario, "--out", tmp_path / "run", "--no-plots").ended()

    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "No space left on device" in result.stderr
    assert (read_manifest(tmp_path / "run") or {})["status"] == "done"
