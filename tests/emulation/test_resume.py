"""A run that was interrupted or killed goes on where it was, and ends as if nothing had happened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fednet_emu.emulation.play import play
from fednet_emu.errors import DataError
from fednet_emu.federation.federation import Federation
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.graph.engine import Results
from fednet_emu.learning.graph.jobs import ResolvedJob
from fednet_emu.records.folder import LEARNING, STAGED, RunFolder
from fednet_emu.testing import small_federation, small_scenario
from tests.learning.graph.memory import Memory

CHANGES = ("stop.rounds=8", "evaluation.every_rounds=2", "network.uplink.message_loss={kind: random, probability: 0.3}")


class Interruption:
    """An observer that presses Ctrl-C at the end of a round."""

    def __init__(self, after_round: int) -> None:
        self.after_round = after_round

    def __call__(self, fed: Federation) -> None:
        if fed.round == self.after_round:
            raise KeyboardInterrupt


HOST = {"host_s", "host_parts", "trained_jobs", "known_jobs"}
"""Entries of a summary that depend on the host's speed."""


def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labels of the jobs that the serial engine trains from now on."""
    labels: list[str] = []
    run = SerialEngine.run

    def noted(self: SerialEngine, jobs: Sequence[ResolvedJob]) -> Results:
        labels.extend(job.job.label for job in jobs)
        return run(self, jobs)

    monkeypatch.setattr(SerialEngine, "run", noted)
    return labels


def snapshots(folder: Path) -> dict[str, bytes]:
    """The snapshots in the folder of an unfinished run, to the byte; there is one."""
    found = {path.name: path.read_bytes() for path in (folder / LEARNING).glob("*/*.snapshot")}
    assert len(found) == 1
    return found


def without_host(summary: dict[str, object]) -> dict[str, object]:
    """A summary without what depends on the host's speed."""
    return {name: value for name, value in summary.items() if name not in HOST}


def assert_same_tables(got: Path, expected: Path) -> None:
    assert {path.name: path.read_bytes() for path in got.glob("*.parquet")} == {
        path.name: path.read_bytes() for path in expected.glob("*.parquet")
    }


@pytest.mark.parametrize("after_round", [1, 3, 4, 7])
def test_interrupted_run_goes_on(tmp_path: Path, after_round: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and summary of a resumed run equal those of an undisturbed one, and no training is done twice."""
    scenario = small_scenario(*CHANGES, "training.engine=serial")
    labels = trained(monkeypatch)
    whole = play(scenario, "small", tmp_path / "whole").summary
    once = sorted(labels)
    labels.clear()
    with pytest.raises(KeyboardInterrupt):
        play(scenario, "small", tmp_path / "cut", on_round=Interruption(after_round))
    resumed = play(scenario, "small", tmp_path / "cut").summary

    assert_same_tables(tmp_path / "cut", tmp_path / "whole")
    assert without_host(resumed) == without_host(whole)
    assert sorted(labels) == once
    assert not (tmp_path / "cut" / LEARNING).exists()


BESIDE = (
    "traffic=[{name: phones, users: 3, size: {kind: fixed, byte: 20}, gap: {kind: exponential, mean_s: 0.002}}]",
    *("network.uplink.access=ofdma", "network.slices={fl: {priority: 1, min: 0.2}, others: {max: 0.9}}"),
)
"""Other users of the uplink, and slices."""


@pytest.mark.parametrize("after_round", [1, 5])
def test_interrupted_run_beside_other_users_goes_on(tmp_path: Path, after_round: int) -> None:
    """Events, the table of files and energies of a resumed run equal those of an undisturbed one."""
    scenario = small_scenario(*CHANGES, *BESIDE)
    whole = play(scenario, "small", tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        play(scenario, "small", tmp_path / "cut", on_round=Interruption(after_round))
    resumed = play(scenario, "small", tmp_path / "cut")

    assert len(whole.ledger.traffic) > 10
    assert whole.ledger.transfers.column("others_s").sum() > 0
    assert resumed.ledger.traffic.digest() == whole.ledger.traffic.digest()
    assert resumed.summary["event_digest"] == whole.summary["event_digest"]
    assert resumed.ledger.energy_j == whole.ledger.energy_j
    assert_same_tables(tmp_path / "cut", tmp_path / "whole")
    assert without_host(resumed.summary) == without_host(whole.summary)


@pytest.mark.parametrize("limit_byte", [1, 40_000, 2**30])
def test_wavefronts_of_a_resumed_run_are_those_of_the_whole(limit_byte: int) -> None:
    """Also where pending work is done early because of its memory: the count of it goes on from the checkpoint."""
    algorithm = small_scenario(*CHANGES).algorithm
    whole, *parts = (small_federation(*CHANGES, "evaluation.every_rounds=5") for _ in range(9))
    whole.graph._pending_limit_byte = limit_byte
    whole.run(algorithm)
    memory = Memory()
    for after_round, fed in enumerate(parts, 1):
        fed.graph._pending_limit_byte = limit_byte
        memory = memory.again()
        fed.graph.use(memory.program())
        fed.observers.append(Interruption(after_round))
        if after_round < 8:
            with pytest.raises(KeyboardInterrupt):
                fed.run(algorithm)
            memory.keep(fed.graph)
    parts[-1].observers.clear()
    parts[-1].run(algorithm)

    assert parts[-1].graph.statistics.wavefronts == whole.graph.statistics.wavefronts
    assert sum(part.graph.statistics.trained for part in parts) == whole.graph.statistics.jobs
    assert parts[-1].ledger.evaluations.digest() == whole.ledger.evaluations.digest()


def test_forced_run_starts_anew_and_goes_on_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --force nothing of the run in the folder is used, but a forced run that was interrupted goes on."""
    labels = trained(monkeypatch)
    changed = small_scenario(*CHANGES, "algorithm.lr=0.01", "training.engine=serial")
    fresh = play(changed, "small", tmp_path / "fresh").summary
    once = sorted(labels)
    with pytest.raises(KeyboardInterrupt):
        play(small_scenario(*CHANGES), "small", tmp_path / "run", on_round=Interruption(4))

    with pytest.raises(DataError, match="holds an unfinished run of another scenario"):
        play(changed, "small", tmp_path / "run")
    labels.clear()
    with pytest.raises(KeyboardInterrupt):
        play(changed, "small", tmp_path / "run", force=True, on_round=Interruption(4))
    assert RunFolder.status(tmp_path / "run") == RunFolder.status(tmp_path / "run" / STAGED) == "interrupted"
    after = play(changed, "small", tmp_path / "run", force=True).summary

    assert without_host(after) == without_host(fresh)
    assert sorted(labels) == once
    assert_same_tables(tmp_path / "run", tmp_path / "fresh")
    assert not (tmp_path / "run" / STAGED).exists()


def test_interrupted_resumption_keeps_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the past is being replayed loses nothing."""
    scenario = small_scenario(*CHANGES, "training.engine=serial")
    for after_round in (6, 2):
        with pytest.raises(KeyboardInterrupt):
            play(scenario, "small", tmp_path / "run", on_round=Interruption(after_round))

    labels = trained(monkeypatch)
    play(scenario, "small", tmp_path / "run")
    assert {label.split(", ")[1] for label in labels} == {"round 7", "round 8"}


def test_a_run_that_is_cut_off_in_a_computation_keeps_the_checkpoint_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C may come amid training: half of a wavefront is not saved, and the counts stay right."""
    scenario = small_scenario(*CHANGES, "training.engine=serial")
    whole = play(scenario, "small", tmp_path / "whole").summary
    with pytest.raises(KeyboardInterrupt):
        play(scenario, "small", tmp_path / "run", on_round=Interruption(4))
    before = snapshots(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(SerialEngine, "run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            play(scenario, "small", tmp_path / "run")

    assert snapshots(tmp_path / "run") == before
    assert without_host(play(scenario, "small", tmp_path / "run").summary) == without_host(whole)


def test_values_that_steer_the_flow_are_remembered() -> None:
    """A run whose timing depends on what it reads is resumed with the same readings."""

    class Steered:
        """Waits for as many milliseconds as the loss says."""

        def run(self, fed: Federation):
            w = fed.initial_model()
            for _ in fed.rounds():
                energy = fed.read(fed.defer(lambda v: float((v**2).sum()), w, size=1))
                yield fed.clock.sleep(0.001 * energy)
                w = fed.defer(lambda v: v * 0.9, w)
                fed.end_of_round(w, invited=0, arrived=1)

    whole, first, second = (small_federation("stop.rounds=6") for _ in range(3))
    whole.run(Steered())
    memory = Memory()
    first.graph.use(memory.program())
    first.observers.append(Interruption(3))
    with pytest.raises(KeyboardInterrupt):
        first.run(Steered())
    memory.keep(first.graph)
    second.graph.use(memory.again().program())
    second.run(Steered())

    assert second.ledger.rounds.digest() == whole.ledger.rounds.digest()
