"""Every study in scenarios/studies says how it is run, and all its runs are possible."""

from __future__ import annotations

import importlib
from pathlib import Path

import pandas as pd
import pytest

from fednet_emu.errors import FednetError
from fednet_emu.scenario.library import STUDIES, names
from fednet_emu.study.file import StudyFile
from fednet_emu.study.reproduce import fitting_studies
from fednet_emu.study.runs import runs_of
from fednet_emu.study.search.search import load_search

FOLDER = Path(__file__).parents[1] / "scenarios" / "studies"
FILES = sorted(FOLDER.glob("*.yaml"))
SEARCHED = {path for path in FILES if "\nsearch:" in path.read_text(encoding="utf-8")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_header_says_command_time_and_what_to_see(path: Path) -> None:
    """The first line reads `# fednet sweep NAME ...; TIME on ...; WHAT TO SEE.`, or search for sweep."""
    command, time, sight = path.read_text(encoding="utf-8").splitlines()[0].split("; ")

    assert command.split()[:4] == ["#", "fednet", "search" if path in SEARCHED else "sweep", path.stem]
    assert " on " in time
    assert sight.endswith(".")


@pytest.mark.parametrize("path", sorted(set(FILES) - SEARCHED), ids=lambda path: path.stem)
def test_cells_are_possible(path: Path) -> None:
    """Every run is a valid scenario, no two are the same, and each has a title to be drawn under."""
    if "kind: flower" in path.read_text(encoding="utf-8"):
        pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")
    runs = runs_of(path)

    assert len({run.digest for run in runs}) == len(runs)
    assert runs[0].study.title


@pytest.mark.parametrize("path", sorted(SEARCHED), ids=lambda path: path.stem)
def test_searches_are_possible(path: Path) -> None:
    """The space is sound, and the scenarios at its ends are."""
    study = load_search(StudyFile.read(path)).study

    assert study.search
    assert study.title


def test_studies_are_found_by_name_and_are_no_scenarios() -> None:
    """`fednet sweep NAME` knows them, and scenarios are not listed with them."""
    assert "quickstart_access" in names(STUDIES)
    assert not [name for name in names("scenarios") if "studies" in name]


def test_reproduction_takes_what_fits() -> None:
    """The cheapest studies that say their cost come first, and together they stay within the time."""
    hour = fitting_studies(60.0)
    costs = list(hour.values())

    assert "quickstart_access" in hour
    assert costs == sorted(costs)
    assert sum(costs) <= 60
    with pytest.raises(FednetError, match=r"no study of the library fits, got 0\.4"):
        fitting_studies(0.4)


def test_a_table_that_the_code_no_longer_makes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make stale` plays runs of a table again: one second more of simulated time, and the table is stale."""
    root = FOLDER.parents[1]
    monkeypatch.syspath_prepend(root / "tools")
    stale = importlib.import_module("stale")
    table = pd.read_csv(root / "results/reference/quickstart_access/cells.csv")
    monkeypatch.setattr(stale, "REFERENCE", tmp_path)
    (tmp_path / "quickstart_access").mkdir()
    verdicts = []
    for further_s in (0.0, 1.0):
        changed = table.assign(simulated_s=table["simulated_s"] + further_s)
        changed.to_csv(tmp_path / "quickstart_access/cells.csv", index=False)
        verdicts.append(stale.verdict("quickstart_access", 1))

    assert verdicts[0] == "as measured"
    assert verdicts[1].startswith("stale: access=tdma, devices.count=10, seed=0: simulated_s 32.692, now 31.692")


def test_tables_that_are_said_to_be_old_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page about the reference tables names them; those that were mended are not among them."""
    monkeypatch.syspath_prepend(FOLDER.parents[1] / "tools")
    old = importlib.import_module("stale").said_to_be_old()

    assert old >= {"flower_strategies", "aspire_stragglers", "aspire_table"}
    assert not old & {"fedul_table", "niid_bench", "quickstart_access"}
