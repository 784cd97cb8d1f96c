"""What every algorithm does where the server receives sums only: it runs, or is refused with the reason."""

from __future__ import annotations

import pytest
import torch

from fednet_emu.algorithms.selection import SELECTIONS
from fednet_emu.records.laws import verify
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.testing import run_small, small_scenario
from tests.algorithms.small import ALGORITHM_SETTINGS, EVERYWHERE, ROUNDS, assert_it_goes_on, finals

BY_SUMS = ("ditto", "fedavg", "fedper", "fedprox", "fedrep", "fedul", "per-fedavg", "pfedme")
"""The algorithms that ask for sums."""
AIR = (
    "channel.fading={kind: rayleigh, coherence_s: 0.001}",
    "network.uplink.access={kind: over-the-air, symbols_per_slot: 4, cutoff: 0.3, csi_error: 0.05}",
)
LOSSY = "network.downlink.message_loss={kind: random, probability: 0.2}"


def settings_of(algorithm: str, *more: str) -> tuple[str, ...]:
    plain = ("algorithm.adaptive=false",) if algorithm == "fedprox" else ()
    return (*EVERYWHERE, *ALGORITHM_SETTINGS[algorithm], *plain, *AIR, *more)


def problems(*settings: str) -> list[tuple[tuple[str, ...], str]]:
    found = small_scenario(*settings).contradictions()
    return [(path, what) for path, what in found if path == ("network", "uplink", "access")]


def test_who_asks_for_sums() -> None:
    """The algorithms whose servers need the mean of the uploads only."""
    assert {kind for kind, its in ALGORITHMS.items() if "sums" in its.uses} == set(BY_SUMS)


@pytest.mark.parametrize("kind", sorted(set(ALGORITHM_SETTINGS) - set(BY_SUMS)))
def test_who_needs_single_uploads_is_refused_with_the_reason(kind: str) -> None:
    """Before the run, at the key of the access; over another access nothing is wrong."""
    [(_, what)] = problems(*ALGORITHM_SETTINGS[kind], *AIR)

    assert f"not enough for {kind}: its server reads single uploads; got over-the-air, choose" in what
    assert problems(*ALGORITHM_SETTINGS[kind]) == []


@pytest.mark.parametrize("kind", sorted(set(SELECTIONS) - {"fedcs", "oort", "power-of-choice"}))
def test_rules_by_presence_and_channels_choose_who_sends(kind: str) -> None:
    """They need no upload of a single device."""
    fed = run_small(*settings_of("fedavg", f"algorithm.selection={kind}"), timing_only=True)

    assert fed.round == ROUNDS
    assert not any(verify(fed.ledger, frozenset()).values())


@pytest.mark.parametrize("algorithm", BY_SUMS)
def test_runs_keep_the_laws_and_do_not_depend_on_how_training_is_run(algorithm: str) -> None:
    """Serial, batched and no training have one event digest; somebody is silent, and somebody sends."""
    settings = settings_of(algorithm, LOSSY, "stop.rounds=4")
    serial, batched = run_small(*settings), run_small(*settings, "training.engine=batched")
    timed = run_small(*settings, timing_only=True)
    lost = serial.ledger.frame("transfers").query("direction == 'uplink'")["loss_reason"]

    assert serial.round == 4
    assert not any(verify(serial.ledger, frozenset({"downlink"})).values())
    assert len({fed.ledger.event_digest() for fed in (serial, batched, timed)}) == 1
    assert serial.ledger.series["over_the_air"] == timed.ledger.series["over_the_air"]
    assert set(lost) == {"", "outage"}


@pytest.mark.parametrize("algorithm", BY_SUMS)
def test_a_learning_rate_of_zero_changes_nothing(algorithm: str) -> None:
    """Noise is relative to what is sent: models that have not moved stay bit for bit."""
    fed, models = finals(*settings_of(algorithm, "algorithm.lr=0"))
    initial = fed.task.model.initial()

    assert all(torch.equal(w, initial) for w in models)


@pytest.mark.parametrize("server", ["null", "{kind: adam, lr: 0.1}"])
def test_noise_reaches_the_model(server: str) -> None:
    """The lower the SNR, the farther from the model of a run without noise to speak of, by any server optimizer."""

    def model(snr_db: float) -> torch.Tensor:
        air = f"network.uplink.access={{kind: over-the-air, snr_db: {snr_db}}}"
        return finals(*settings_of("fedavg", air, f"algorithm.server_optimizer={server}"))[1][0]

    exact, near, far = (model(snr_db) for snr_db in (40, 20, -5))
    assert 0 < (near - exact).norm() < (far - exact).norm()


def test_without_noise_and_fading_it_is_federated_averaging() -> None:
    """At a very high SNR the model is that of a digital uplink, to rounding."""
    air = "network.uplink.access={kind: over-the-air, snr_db: 150}"
    settings = (*EVERYWHERE, *ALGORITHM_SETTINGS["fedavg"], "channel.device.tx_power_dbm=200")
    (_, [w]), (_, [exact]) = finals(*settings, air), finals(*settings)

    assert torch.allclose(w, exact, atol=1e-5)


@pytest.mark.parametrize("algorithm", BY_SUMS)
def test_who_is_late_is_left_out(algorithm: str) -> None:
    """A device that needs minutes, and a deadline of a second: rounds go on with the others, and end in time."""
    speed = "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 10]}"
    fed = run_small(*settings_of(algorithm, speed, "algorithm.deadline_s=1"), timing_only=True)
    rounds = fed.ledger.frame("rounds")

    assert 0 < rounds["arrived"].sum() < rounds["invited"].sum()
    assert (rounds["ended_s"] - rounds["started_s"]).max() <= 1.0 + 1e-8
    assert not any(verify(fed.ledger, frozenset({"downlink"})).values())


@pytest.mark.parametrize("algorithm", BY_SUMS)
def test_it_goes_on_from_a_checkpoint_file(algorithm: str) -> None:
    """With losses on the way down, too."""
    assert_it_goes_on(*settings_of(algorithm, LOSSY))
