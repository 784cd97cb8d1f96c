"""The command `fednet report`."""

from __future__ import annotations

from pathlib import Path

import pytest

import fednet_emu as fe
from tests.commands import fednet


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run without training."""
    folder = tmp_path_factory.mktemp("report") / "run"
    fe.run("quickstart", settings={"stop.rounds": 2}, out=folder, timing_only=True)
    return folder


def test_the_page_is_in_the_run_folder_unless_said_otherwise(finished: Path, tmp_path: Path) -> None:
    """The path is all that is printed; --out may name a folder that does not exist yet."""
    result = fednet("report", str(finished))
    elsewhere = fednet("report", str(finished), "--out", str(tmp_path / "new" / "page.html"))

    assert (result.exit_code, elsewhere.exit_code) == (0, 0)
    assert result.stdout == f"{finished / 'report.html'}\n"
    page = (finished / "report.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    assert "title: 'Quickstart: FedAvg on handwritten digits over a TDMA uplink'" in page


def test_a_run_can_be_made_again_over_its_page(finished: Path) -> None:
    """The page is nobody's table: reading the run, and running it again, do not mind it."""
    (finished / "report.html").touch()

    again = fe.run("quickstart", settings={"stop.rounds": 2}, out=finished, timing_only=True, force=True)

    assert again.verdict == "all records consistent"


def test_what_is_no_run_is_a_mistake(finished: Path, tmp_path: Path) -> None:
    """One sentence, and exit code 2."""
    nothing = fednet("report", str(tmp_path))
    nowhere = fednet("report", str(finished), "--out", str(finished / "rounds.parquet" / "page.html"))

    assert (nothing.exit_code, nowhere.exit_code) == (2, 2)
    assert "summary.json" in nothing.stderr
    assert "cannot be made" in nowhere.stderr


def test_a_missing_file_of_walks_leaves_out_the_map(tmp_path: Path) -> None:
    """The rest of the page is made all the same."""
    folder = tmp_path / "run"
    fe.run("quickstart", settings={"stop.rounds": 1}, out=folder, timing_only=True)
    text = (folder / "scenario.yaml").read_text(encoding="utf-8")
    (folder / "scenario.yaml").write_text(
        text.replace("kind: static", "kind: trace\n    path: gone.npz", 1), encoding="utf-8"
    )
    (folder / "manifest.json").unlink()

    result = fednet("report", str(folder))

    assert result.exit_code == 0, result.output
    assert "gone.npz" in (folder / "report.html").read_text(encoding="utf-8").split('"missing":')[1][:300]
