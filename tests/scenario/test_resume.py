"""A run that was interrupted or killed goes on where it was, and ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fednet_emu.errors import DataError
from fednet_emu.federation.federation import Federation
from fednet_emu.scenario.run import run_scenario
from fednet_emu.testing import small_federation, small_scenario

CHANGES = ("stop.rounds=8", "evaluation.every_rounds=2", "network.uplink.loss={kind: random, probability: 0.3}")


class Interruption:
    """An observer that presses Ctrl-C at the end of a round."""

    def __init__(self, after_round: int) -> None:
        self.after_round = after_round

    def __call__(self, fed: Federation) -> None:
        """Interrupt when it is time."""
        if fed.round == self.after_round:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after_round", [1, 3, 4, 7])
def test_interrupted_run_goes_on(tmp_path: Path, after_round: int) -> None:
    """The tables of a resumed run equal those of an undisturbed one, and no training is done twice."""
    scenario = small_scenario(*CHANGES)
    whole = run_scenario(scenario, "small", tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_scenario(scenario, "small", tmp_path / "cut", on_round=Interruption(after_round))
    resumed = run_scenario(scenario, "small", tmp_path / "cut")

    for table in ("transfers", "computes", "rounds", "evaluations", "receptions"):
        expected, got = (pd.read_parquet(tmp_path / run / f"{table}.parquet") for run in ("whole", "cut"))
        pd.testing.assert_frame_equal(got, expected)
    assert resumed["event_digest"] == whole["event_digest"]
    assert (after_round < 2) or resumed["wavefronts"] < whole["wavefronts"]
    assert not (tmp_path / "cut" / "checkpoint.pt").exists()


def test_other_scenario_starts_anew(tmp_path: Path) -> None:
    """A checkpoint belongs to one scenario: with another learning rate nothing of it is used."""
    with pytest.raises(KeyboardInterrupt):
        run_scenario(small_scenario(*CHANGES), "small", tmp_path / "run", on_round=Interruption(4))
    changed = small_scenario(*CHANGES, "algorithm.lr=0.01")

    with pytest.raises(DataError, match="holds an unfinished run of another scenario"):
        run_scenario(changed, "small", tmp_path / "run")
    fresh, after = (run_scenario(changed, "small", tmp_path / name, force=True) for name in ("fresh", "run"))

    assert after["loss"] == fresh["loss"]
    assert after["wavefronts"] == fresh["wavefronts"]


def test_interrupted_resumption_keeps_the_checkpoint(tmp_path: Path) -> None:
    """Ctrl-C while the past is being replayed loses nothing."""
    scenario = small_scenario(*CHANGES)
    for after_round in (6, 2):
        with pytest.raises(KeyboardInterrupt):
            run_scenario(scenario, "small", tmp_path / "run", on_round=Interruption(after_round))

    resumed = run_scenario(scenario, "small", tmp_path / "run")

    assert resumed["wavefronts"] <= 2


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
    first.observers.append(Interruption(3))
    with pytest.raises(KeyboardInterrupt):
        first.run(Steered())
    second.resume(first.checkpoint())
    second.run(Steered())

    assert second.ledger.rounds.digest() == whole.ledger.rounds.digest()
