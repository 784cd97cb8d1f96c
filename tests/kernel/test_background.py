"""Timers in the background: they run as others do, but a run does not go on for their sake."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simpy.events import Event

from fednet_emu.errors import Deadlock
from fednet_emu.kernel.clock import NS_PER_S, Clock, Process, Timer
from tests.quick import examples

DAY_NS = 86_400 * NS_PER_S


class Ticks:
    """A timer in the background that sets itself again each second, for a day."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.seen_s = clock, list[float]()
        self.again()

    def again(self, event: Event | None = None) -> None:
        """Note the time, and set the timer again."""
        if event is not None:
            self.seen_s.append(self.clock.now_s)
        if self.clock.now < DAY_NS:
            self.timer = self.clock.call_at(self.clock.now + NS_PER_S, self.again, background=True)


def waits_for_ever(clock: Clock, after_s: float) -> Process:
    """A process that works for a while, and then waits for what nobody sends."""
    yield clock.sleep(after_s)
    yield clock.event()


@pytest.mark.parametrize("until_s", [None, 10.0])
def test_a_run_in_which_only_the_background_goes_on_is_a_deadlock(until_s: float | None) -> None:
    """It is told at 2.5 s, when the process begins to wait in vain; until then the background has run each second."""
    clock = Clock()
    ticks = Ticks(clock)

    with pytest.raises(Deadlock, match=r"^deadlock at t=2\.5 s: waits_for_ever waits for event"):
        clock.run_process(waits_for_ever(clock, 2.5), until_s)

    assert ticks.seen_s == [1.0, 2.0]


def test_a_time_limit_ends_a_run_in_which_somebody_can_go_on() -> None:
    """A process that sleeps beyond the limit is no deadlock."""
    clock = Clock()
    ticks = Ticks(clock)

    assert clock.run_process(waits_for_ever(clock, 4.0), until_s=3.5) is None
    assert (clock.now_s, ticks.seen_s) == (3.5, [1.0, 2.0, 3.0])


def test_a_timer_that_comes_to_the_foreground_is_waited_for() -> None:
    """The third tick is: what it wakes ends the run."""
    clock = Clock()
    ticks, woken = Ticks(clock), clock.event()

    def main() -> Process:
        yield clock.sleep(2.5)
        ticks.timer.to_foreground()
        ticks.timer.callbacks.append(lambda _: woken.succeed("woken"))
        return (yield woken)

    assert clock.run_process(main()) == "woken"
    assert clock.now_s == 3.0


TIMERS = st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=200)
"""For each timer whether it is in the background, and what becomes of it (`FATES`)."""
FATES = ("runs", "cancelled at once", "cancelled later", "comes to the foreground")


@examples(200)
@given(TIMERS)
def test_the_deadlock_comes_with_the_last_timer_that_counts(drawn: list[tuple[bool, int]]) -> None:
    """Timer n is due after n seconds; those that are cancelled do not count, however many they are."""
    clock, ran, lasts_s = Clock(), list[int](), 0
    timers: list[Timer] = []
    for second, (background, fate) in enumerate(drawn, 1):
        timers.append(clock.call_at(second * NS_PER_S, partial(note, ran, second), background=background))
        if FATES[fate] == "cancelled at once":
            timers[-1].cancel()
        elif not background or FATES[fate] == "comes to the foreground":
            lasts_s = second if FATES[fate] != "cancelled later" else lasts_s

    def main() -> Process:
        yield clock.sleep(0.5)
        for timer, (_, fate) in zip(timers, drawn, strict=True):
            if FATES[fate] == "cancelled later":
                timer.cancel()
            elif FATES[fate] == "comes to the foreground":
                timer.to_foreground()
        yield clock.event()

    with pytest.raises(Deadlock) as caught:
        clock.run_process(main())

    assert caught.value.args[0] == max(lasts_s, 0.5)
    alive = [second for second, (_, fate) in enumerate(drawn, 1) if not FATES[fate].startswith("cancelled")]
    assert ran == [second for second in alive if second <= lasts_s]


def note(ran: list[int], number: int, _event: Any) -> None:
    """Note that a timer ran."""
    ran.append(number)
