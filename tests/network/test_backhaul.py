"""Claims about the backhaul: when messages arrive, what they cost, and what becomes of those that are stopped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.kernel.clock import Clock, to_ns
from fednet_emu.network.air.transfer import Delivery
from fednet_emu.network.backhaul import Backhaul, BackhaulSettings
from fednet_emu.records.laws.verify import verify
from fednet_emu.records.ledger import Ledger
from tests.quick import examples

MBIT = 1_000_000


class World:
    """A backhaul by itself."""

    def __init__(self, **given: Any) -> None:
        self.clock, self.ledger = Clock(), Ledger()
        self.lines = Backhaul(self.clock, self.ledger, BackhaulSettings.model_validate(given), 7)

    def play(self, *requests: tuple[Any, ...], until_s: float | None = None) -> list[Any]:
        """Messages (at_s, edge, up, size_bit, stopped after or None); the ends in s, None if lost or stopped."""

        def send(at_s: float, edge: int, up: bool, size_bit: int, patience_s: float | None = None) -> Any:
            yield self.clock.sleep(at_s)
            message = self.lines.send(edge, up=up, payload="w", number=3, size_bit=size_bit)
            if patience_s is None:
                got = yield message
                return None if got.lost else got.ended_s
            yield self.clock.sleep(patience_s)
            message.cancel(Delivery.given_up(self.clock.now_s))
            return None

        started = [self.clock.process(send(*request)) for request in requests]
        self.clock.run(until_s if until_s is None else to_ns(until_s))
        self.lines.close()
        assert not any(verify(self.ledger, frozenset()).values())
        return [process.value for process in started if not process.is_alive]

    def column(self, name: str) -> list[Any]:
        """A column of the recorded table."""
        return list(self.ledger.frames()["backhaul"][name])


def test_a_line_is_first_come_first_served_and_free_during_the_delay() -> None:
    """1 Mbit at 1 Mbit/s and 0.5 s on the way: the second of a line is 1 s behind the first; others are free."""
    world = World(rate_bps=1e6, delay_s=0.5, energy_j_per_bit=1e-6)
    ends_s = world.play((0, 0, True, MBIT), (0, 0, True, MBIT), (0, 0, False, MBIT), (0, 1, True, MBIT))

    assert ends_s == [1.5, 2.5, 1.5, 1.5]
    assert world.ledger.backhaul_bit == 4 * MBIT
    assert world.ledger.backhaul_j == world.ledger.energy_j == pytest.approx(4.0)
    assert world.column("direction") == ["up", "down", "up", "up"]


def test_the_default_is_ideal() -> None:
    """A message of any size arrives in the instant in which it is sent, and costs nothing but its bits."""
    world = World()

    assert world.play((2, 0, True, 10**12), (2, 0, True, 5)) == [2.0, 2.0]
    assert (world.ledger.backhaul_bit, world.ledger.energy_j) == (10**12 + 5, 0.0)


@pytest.mark.parametrize(
    ("patience_s", "sent_bit", "next_s"), [(0.25, 250_000, 1.75), (1.25, MBIT, 2.5), (0.0, 0, 1.5)]
)
def test_what_is_stopped_makes_way(patience_s: float, sent_bit: int, next_s: float) -> None:
    """Stopped on the line it counts what has left, stopped on the way it counts whole; the next one starts at once."""
    world = World(rate_bps=1e6, delay_s=0.5, energy_j_per_bit=1e-6)
    ends_s = world.play((0, 0, True, MBIT, patience_s), (0, 0, True, MBIT))

    assert ends_s == [None, next_s]
    assert world.column("lost") == ["deadline", ""]
    assert world.column("sent_bit") == [sent_bit, MBIT]
    assert world.column("energy_j") == pytest.approx([sent_bit * 1e-6, 1.0])


def test_who_waits_can_be_stopped_too() -> None:
    """It was never on the line: no bits, no start; those around it do not notice."""
    world = World(rate_bps=1e6)
    ends_s = world.play((0, 0, True, MBIT), (0, 0, True, MBIT, 0.5), (0, 0, True, MBIT))

    assert ends_s == [1.0, None, 2.0]
    assert world.column("sent_bit") == [0, MBIT, MBIT]


def test_the_end_of_the_run_stops_everything() -> None:
    """At 1.25 s the first of a line is on its way, the second a quarter through, the third waits."""
    world = World(rate_bps=1e6, delay_s=10)
    world.play(*[(0, 0, True, MBIT)] * 3, until_s=1.25)

    started_s = world.column("started_s")
    assert world.column("lost") == ["end"] * 3
    assert sorted(world.column("sent_bit")) == [0, 250_000, MBIT]
    assert sorted(start for start in started_s if start == start) == [0.0, 1.0]  # noqa: PLR0124  # the third never


def test_losses_have_their_probability_and_cost_as_much() -> None:
    """Of 2000 messages a quarter is lost, within five standard deviations, each line for itself."""
    world = World(rate_bps=1e6, loss={"kind": "random", "probability": 0.25})
    ends_s = world.play(*[(0, edge, True, 1000) for edge in range(2) for _ in range(1000)])
    lost = [end_s is None for end_s in ends_s]

    assert abs(sum(lost) - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5
    assert lost[:1000] != lost[1000:]
    assert world.ledger.backhaul_bit == 2000 * 1000
    assert max(end_s for end_s in ends_s if end_s is not None) == pytest.approx(1.0)


def test_losses_of_both_directions_of_an_edge_server_are_independent() -> None:
    """Of 2000 pairs, each half lost, about a quarter loses both, within five standard deviations."""
    world = World(loss={"kind": "random", "probability": 0.5})
    ends_s = world.play(*[(0, 0, up, 1000) for up in (True, False) for _ in range(2000)])
    both = sum(up is None and down is None for up, down in zip(ends_s[:2000], ends_s[2000:], strict=True))

    assert abs(both - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5


REQUEST = st.tuples(st.floats(0, 5), st.integers(0, 1), st.booleans(), st.integers(0, 4_000_000))


@examples(60)
@given(st.lists(REQUEST, max_size=12), st.sampled_from([None, 1e6, 3e6]), st.sampled_from([0.0, 0.25]))
def test_arrivals_are_those_of_the_recursion_of_a_queue(
    requests: list[tuple[Any, ...]], rate_bps: float | None, delay_s: float
) -> None:
    """By Lindley: a message leaves its line at max(request, departure of the one before) + bits / rate."""
    world = World(rate_bps=rate_bps, delay_s=delay_s)
    ends_s = world.play(*requests)
    free_s: dict[Any, float] = {}
    for at_s, edge, up, size_bit in sorted(requests, key=lambda request: to_ns(request[0])):
        left_s = max(at_s, free_s.get((edge, up), 0.0)) + (0.0 if rate_bps is None else size_bit / rate_bps)
        free_s[edge, up] = left_s
        place = requests.index((at_s, edge, up, size_bit))
        if requests.count((at_s, edge, up, size_bit)) == 1:
            assert ends_s[place] == pytest.approx(left_s + delay_s, abs=1e-7)
