"""Every algorithm where a device is out of reach, at rest, or where all of them are while they move."""

from __future__ import annotations

import pytest

from fednet_emu.algorithms.asynchronous import dispatcher
from fednet_emu.errors import Deadlock
from fednet_emu.federation import rounds
from fednet_emu.records.laws.verify import verify
from fednet_emu.records.summaries import messages
from fednet_emu.testing import run_small
from tests.algorithms.small import ALGORITHM_SETTINGS, EVERYWHERE, ROUNDS, in_turns

FAR = (
    "channel={include: urban-micro, path_loss: {kind: log-distance, exponent: 3.76, reference_loss_db: 35.3}, "
    "shadowing: none}",
    "devices.placement={kind: list, xy_m: [[30, 0], [50000, 0], [0, 30], [-30, 0]]}",
)
"""Device 1 is 50 km away, the others 30 m."""
SILENT = {"individual", "local"}
"""Algorithms that send nothing."""
AMONG_NEIGHBOURS = {"ad-psgd", "d-psgd", "gossip", "matcha", "sgp"}
"""Algorithms that send to neighbours of a topology only, among whom nobody is far away."""
ASYNCHRONOUS = ["fedasync", "fedbuff"]


@pytest.mark.parametrize("algorithm", ALGORITHM_SETTINGS)
def test_a_device_out_of_reach_costs_a_second_each_time(algorithm):
    """Four rounds end, in a few seconds each: nobody waits for a timeout, and nobody sends again without end."""
    fed = run_small(*EVERYWHERE, *ALGORITHM_SETTINGS[algorithm], *FAR)

    assert fed.round == ROUNDS
    assert fed.clock.now_s < 3.0 * ROUNDS
    losses = messages(fed.ledger)["losses"]
    assert losses.get("unreachable", 0) > 0 or algorithm in {*SILENT, *AMONG_NEIGHBOURS, "aspire"}
    assert "timeout" not in losses
    broken = {law: text for law, text in verify(fed.ledger, in_turns(fed)).items() if text}
    assert broken == {}


@pytest.mark.parametrize("algorithm", ASYNCHRONOUS)
def test_the_asynchronous_go_on_with_those_in_reach(algorithm):
    """The one far away is asked once, as nobody moves; its place is taken by others, and all are at work."""
    settings = (*ALGORITHM_SETTINGS[algorithm], "algorithm.concurrency=4", "stop.rounds=12")
    fed = run_small(*EVERYWHERE, *settings, *FAR)

    assert messages(fed.ledger)["losses"]["unreachable"] == 1
    arrived = {row["device"] for row in fed.ledger.series["activations"]}
    assert (fed.round, arrived) == (12, {0, 2, 3})


def test_who_works_long_is_waited_for(monkeypatch):
    """With a limit of 20 losses in a row, one device at work for 60 s beside three that move out of reach."""
    monkeypatch.setattr(rounds, "MAX_FRUITLESS_ROUNDS", 20)
    monkeypatch.setattr(rounds, "AWAY_S", 0.0)
    moving = "devices.mobility={kind: gauss-markov, mean_speed_m_s: 0.001, speed_sigma_m_s: 0}"
    near = "devices.placement={kind: list, xy_m: [[30, 0], [50000, 0], [49999, 30], [-50000, 0]]}"
    region = "devices.region={kind: disc, radius_m: 60000}"
    slow = "devices.speed={kind: fixed, flop_per_s: 50}"
    settings = (*ALGORITHM_SETTINGS["fedasync"], "algorithm.concurrency=4", "stop.rounds=1")
    fed = run_small(*settings, *FAR, near, moving, region, slow)

    assert fed.round == 1
    assert messages(fed.ledger)["losses"]["unreachable"] > 20


@pytest.mark.parametrize("algorithm", ASYNCHRONOUS)
def test_nobody_in_reach_is_said_at_once_where_nobody_moves(algorithm):
    """Three of three are out of reach from the start: a second later the run ends and says so."""
    far = "devices.placement={kind: list, xy_m: [[50000, 0], [50000, 9], [0, 50000], [-50000, 0]]}"

    with pytest.raises(Deadlock, match=r"t=\d+ s.*all devices are out of reach"):
        run_small(*ALGORITHM_SETTINGS[algorithm], *FAR, far)


def test_those_who_move_have_a_day_to_come_back():
    """A thousand losses in a row are the end where nobody moves, or after a day."""
    assert not rounds.is_standstill(999, 1e9, moving=False)
    assert rounds.is_standstill(1000, 0.0, moving=False)
    assert not rounds.is_standstill(1000, 86_399.0, moving=True)
    assert rounds.is_standstill(1000, 86_400.0, moving=True)
    assert dispatcher.is_standstill is rounds.is_standstill
