"""`fe.sweep`, `fe.open`, `fe.compare`: studies from Python."""

import subprocess
import sys

import pandas as pd
import pytest

import fednet_emu as fe
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL

MAPPING = from_text(SMALL, "small").data
TDMA, OFDMA = "network.uplink.access=tdma", "network.uplink.access=ofdma"
GRID = {"network.uplink.access": ["tdma", "ofdma"]}


class Silent(fe.Algorithm):
    """An algorithm that only lets time pass."""

    pause_s: float

    def run(self, fed: fe.Federation) -> fe.Process:
        """Sleep in each round."""
        w = fed.initial_model()
        for _ in fed.rounds():
            yield fed.clock.sleep(self.pause_s)
            fed.end_of_round(w, invited=0, arrived=0)


@pytest.fixture(scope="module")
def study():
    """Two access schemes, two seeds; tests only look at it."""
    return fe.sweep(MAPPING, grid=GRID, seeds=2, workers=2, settings={"stop.rounds": 2})


def test_a_sweep_has_a_row_for_each_cell(study):
    """Levels and seeds in the order of the grid; totals are those of the runs by themselves."""
    alone = fe.run(MAPPING, seed=1, settings={"stop.rounds": 2, "network.uplink.access": "ofdma"})

    assert list(study.cells["network.uplink.access"]) == ["tdma", "tdma", "ofdma", "ofdma"]
    assert list(study.cells["seed"]) == [0, 1, 0, 1]
    assert study.cells["simulated_s"].iloc[3] == alone.summary["simulated_s"]
    assert study.run(seed=1, **{"network.uplink.access": "ofdma"}).digest == alone.digest
    assert study.axes == GRID
    assert study.folder is None


def test_a_comparison_reads_and_counts(study):
    """The words of the command, and the numbers behind them; a limit may be a mapping."""
    told = study.compare(TDMA, OFDMA)
    cells = study.cells.set_index(["network.uplink.access", "seed"])["simulated_s"].unstack("seed")

    row = told.frame.set_index("quantity").loc["simulated_s"]
    assert row["difference"] == pytest.approx((cells.loc["ofdma"] - cells.loc["tdma"]).mean())
    assert str(told).splitlines()[:2] == [f"A: {TDMA}", f"B: {OFDMA}"]
    assert told._repr_html_().startswith("<pre>A: ")
    limited = study.compare(TDMA, OFDMA, within={"rounds": 1, "time": 1e9}).frame.set_index("quantity")
    assert limited.loc["energy_j", "a"] < told.frame.set_index("quantity").loc["energy_j", "a"]


def test_a_study_reads_and_draws(study):
    """A line of text, a page with the mean of each setting, and a figure."""
    assert repr(study) == "<Study A small federation: 2 network.uplink.access; 4 cells done>"
    assert "<th>ofdma</th>" in study._repr_html_()
    assert len(study.plot("loss", against="energy").axes[0].lines) >= 2
    assert "loss-time" in study.figures()


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda study: study.compare("acess=tdma", OFDMA), "no such axis, got 'acess'"),
        (lambda study: study.compare(TDMA, "network.uplink.access=noma"), "no such level of network.uplink.access"),
        (lambda study: study.run(seed=0), "one cell is needed, got 2 of these levels; name seed and levels"),
        (lambda study: study.plot("los"), "no such choice, got 'los'; did you mean 'loss'?"),
        (lambda _: fe.sweep(MAPPING, grid={"seed": [1]}), "give the seeds under 'seeds'"),
        (lambda _: fe.sweep(MAPPING, grid={"algorithm.lrr": [1]}), "algorithm.lrr: no such setting; did you mean 'lr'"),
        (lambda _: fe.sweep(MAPPING, grid={"stop.rounds": [1]}, settings={"stop.rounds": 2}), "is varied by the axis"),
        (lambda _: fe.sweep(MAPPING, seeds=[1, 1]), "seeds: expected a number above 0 or different numbers"),
        (lambda _: fe.sweep("quickstart_access", seeds=2), "seeds and target are in the study's file"),
    ],
)
def test_mistakes_are_told(study, call, problem):
    """The sentences of the command, as exceptions, before anything is run."""
    with pytest.raises(fe.FednetError, match=problem):
        call(study)


def test_a_study_in_a_folder_is_the_ordinary_one(tmp_path):
    """It opens again, its cells are not run again, and a run beside it opens as a run."""
    first = fe.sweep(MAPPING, grid=GRID, seeds=[4], settings={"stop.rounds": 1}, out=tmp_path / "study", workers=1)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")}
    again = fe.sweep(MAPPING, grid=GRID, seeds=[4], settings={"stop.rounds": 1}, out=tmp_path / "study", workers=1)
    opened = fe.open(tmp_path / "study")

    assert len(stamps) == 2
    assert stamps == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")}
    assert isinstance(opened, fe.Study)
    pd.testing.assert_frame_equal(opened.cells, first.cells)
    pd.testing.assert_frame_equal(again.cells, first.cells)
    assert isinstance(fe.open(next(iter(stamps)).parent), fe.Run)
    assert fe.compare(opened, tmp_path / "study").differences[0].is_none


def test_objects_that_only_this_process_has_are_swept_here():
    """A class from inside a function or notebook cannot be imported elsewhere; its cells run all the same."""

    class Local(Silent):
        pass

    study = fe.sweep(MAPPING, algorithm=Local(pause_s=2.0), grid={"stop.rounds": [1, 3]}, seeds=1)

    assert list(study.cells["simulated_s"]) == [2.0, 6.0]


def test_failed_cells_are_warned_of_and_kept():
    """The others count; the reason and what replays the cell are there."""
    with pytest.warns(UserWarning, match="1 of 2 cells failed, first devices.count=100, seed=0: partition: "):
        study = fe.sweep(MAPPING, grid={"devices.count": [4, 100]}, seeds=1, workers=1)

    assert len(study.cells) == 1
    (failure,) = study.failures
    assert failure.replay.startswith("fednet run ")
    assert "1 unfinished" in repr(study)


def test_a_script_needs_no_guard(tmp_path):
    """A sweep at the top of a script does not run the script again in the processes of its cells."""
    script = tmp_path / "script.py"
    script.write_text(
        "import fednet_emu as fe\nprint('top')\n"
        "study = fe.sweep('quickstart', grid={'stop.rounds': [1, 2]}, seeds=1, workers=2, settings="
        "{'devices.count': 3, 'algorithm.cohort': 2})\n"
        "print(len(study.cells))\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.stdout.split() == ["top", "2"], done.stderr


def test_check_channels_scenarios_and_schema():
    """What the commands tell, as values."""
    assert fe.check("quickstart", seed=5).seed == 5
    assert list(fe.channels(["ideal"])["rate_at_500_m_bps"]) == [1e6]
    assert "quickstart" in fe.scenarios()
    assert "algorithm" in str(fe.schema())
