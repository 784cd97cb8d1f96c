"""Claims about promotion after inactivity: stories at exact times."""

from collections.abc import Callable

import pytest

import fednet_emu as fe
from fednet_emu.errors import ScenarioError
from fednet_emu.network.access.base import Use
from fednet_emu.network.access.orthogonal import Tdma
from fednet_emu.network.nr.rrc import RadioConnections, Rrc
from fednet_emu.testing import run_small

MBIT = 1_000_000
"""A second on the air of a cell in these tests."""


@pytest.fixture
def starts(cell: Callable[..., object]) -> Callable[..., list[float]]:
    """Plays requests with a timer of 2 s and a promotion of 0.3 s; when each is on the air, in s."""

    def play(*requests: tuple[float, int, int]) -> list[float]:
        use = RadioConnections(Rrc(inactivity_s=2, promotion_s=0.3)).around(Use(None, None, None))
        its = cell(Tdma(), before=use.before, after=use.after)
        return [delivery.started_s for delivery in its.play(*requests)]

    return play


def test_silence_beyond_the_timer_costs_a_promotion(starts):
    """Ends at 1.3 s; at 3.3 s, after 2 s exactly, it is still connected, and 2.001 s after its next end no more."""
    assert starts((0.0, 0, MBIT), (3.3, 0, MBIT), (6.301, 0, MBIT)) == pytest.approx([0.3, 3.3, 6.601])


def test_devices_have_connections_of_their_own(starts):
    """While one is connected, the first message of another waits."""
    assert starts((0.0, 0, 1000), (1.0, 1, 1000), (1.1, 0, 1000)) == pytest.approx([0.3, 1.3, 1.1])


def test_who_sends_is_connected_however_long_it_takes(starts):
    """A message of 5 s, and another asked for at 4 s: it waits for its turn alone."""
    assert starts((0.0, 0, 5 * MBIT), (4.0, 0, MBIT)) == pytest.approx([0.3, 5.3])


def test_two_at_once_wait_for_one_promotion(starts):
    """The second is asked for a tenth of a second after the first, and waits for the other two."""
    assert starts((0.0, 0, 1000), (0.1, 0, 1000)) == pytest.approx([0.3, 0.301])


IDLE = "network.uplink.idle={kind: rrc, inactivity_s: 0.5, promotion_s: 0.3}"
SLOW = "devices.speed={kind: fixed, flop_per_s: 1000}"


def test_both_directions_count():
    """Each device pays once at the start, for its download, and once in each round, after it has trained."""
    fed = run_small("network.downlink.mode=unicast", IDLE, SLOW, timing_only=True)
    rows = fed.ledger.frames()["transfers"]
    up, down = rows[rows["kind"] == "uplink"], rows[rows["kind"] == "downlink"]
    first = down["requested_s"] == 0

    assert up["access_s"].tolist() == pytest.approx([0.3] * len(up))
    assert down[first]["access_s"].tolist() == pytest.approx([0.3] * 4)
    assert down[~first]["access_s"].max() == 0.0


def test_broadcasts_reach_idle_devices():
    """They do not wait, and keep nobody connected."""
    rows = run_small(IDLE, SLOW, timing_only=True).ledger.frames()["transfers"]

    assert rows[rows["kind"] == "downlink"]["access_s"].max() == 0.0
    assert rows[rows["kind"] == "uplink"]["access_s"].min() == pytest.approx(0.3)


@pytest.mark.parametrize("access", ["planned", "over-the-air"])
def test_what_is_planned_before_is_refused(access):
    """With place and remedy."""
    with pytest.raises(ScenarioError, match=r"network.uplink.idle: who sends when is fixed before .* leave one out"):
        fe.check("quickstart", settings={"network.uplink.idle": "rrc", "network.uplink.access": access})


def test_a_downlink_has_none_of_its_own():
    """The connection is the device's."""
    with pytest.raises(ScenarioError, match=r"network\.downlink\.idle"):
        fe.check("quickstart", settings={"network.downlink.idle": "rrc"})
