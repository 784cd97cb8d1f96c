"""Events, inboxes and processes in the background."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from simpy.events import Event

from fednet_emu.errors import Deadlock
from fednet_emu.kernel.all_of import gather
from fednet_emu.kernel.clock import NS_PER_S, Clock, Process, Timer
from fednet_emu.kernel.events import Completion, describe
from fednet_emu.kernel.inbox import Inbox
from tests.quick import examples

PACKAGE = Path(__file__).parents[2] / "fednet_emu"
OF_EVENTS = {"_ok", "_value", "_defused"}
OF_PROCESSES = {"_generator", "_target"}
OF_ENVIRONMENTS = {"_queue", "_eid", "_active_proc", "_now"}
PRIVATE = OF_EVENTS | OF_PROCESSES | OF_ENVIRONMENTS | {"_events"}
ENGINE = ("devices", "network", "federation", "algorithms", "emulation")
"""The parts that deal with events; elsewhere these names mean something else."""


def touched(path):
    """The private names of SimPy that a file takes from an object other than `self`."""
    text = path.read_text(encoding="utf-8")
    return {
        node.attr
        for node in (ast.walk(ast.parse(text)) if any(name in text for name in PRIVATE) else ())
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE
        if not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }


def test_simpy_has_what_the_kernel_uses():
    """An update of SimPy that renames one of these fails here first."""
    env = simpy.Environment()
    process = env.process(iter_once(env))
    env.run()

    assert all(hasattr(process, name) for name in (*OF_EVENTS, *OF_PROCESSES) if name != "_defused")
    assert all(hasattr(env, name) for name in OF_ENVIRONMENTS)
    assert hasattr(env.event() & env.event(), "_events")


def test_only_the_kernel_knows_them():
    """Transfers, computations and messages go through `Completion`."""
    files = [path for part in ENGINE for path in sorted((PACKAGE / part).rglob("*.py"))]

    assert len(files) > 100
    assert {path.name: found for path in files if (found := touched(path))} == {}


def test_a_resource_of_simpy_knows_the_process_that_asks_for_it():
    """Users may share a `simpy.Resource`: its requests and interruptions read the active process."""
    clock = Clock()
    resource, asked = simpy.Resource(clock, capacity=1), []

    def user(name):
        with resource.request() as request:
            asked.append(request.proc.name)
            assert clock.active_process is request.proc
            yield request
            yield clock.sleep(1.0)
        return name, clock.now

    def both():
        first, second = clock.processes([user("first"), user("second")])
        return [(yield first), (yield second)]

    assert clock.run_process(both()) == [("first", NS_PER_S), ("second", 2 * NS_PER_S)]
    assert asked == ["user", "user"]
    assert clock.active_process is None


@pytest.mark.parametrize("together", [True, False])
def test_a_completion_comes_once_with_its_value(together):
    """`complete` tells nobody; those who wait go on in the instant in which it is triggered, or `come` does both."""
    clock = Clock()
    event = Completion(clock)

    def wait():
        return (yield event), clock.now

    def trigger(_event):
        if together:
            clock.come(event, "arrived")
            return
        event.complete("arrived")
        clock.trigger_now([event])

    clock.call_at(7, trigger)

    assert not event.triggered
    assert clock.run_process(wait()) == ("arrived", 7)
    assert describe(event) == "completion"


@pytest.mark.parametrize("together", [True, False])
def test_what_starts_when_an_event_comes_has_started_when_the_next_one_comes(together):
    """A process that is started by whoever waited runs before anything else of the instant."""
    clock, log = Clock(), []
    first, second = Completion(clock), Completion(clock)

    def started():
        log.append("started")
        yield clock.sleep(1)

    def wait(event, name):
        yield event
        log.append(name)
        clock.process(started())

    def trigger(_event):
        if together:
            clock.come(first, None)
            clock.come(second, None)
            return
        first.complete(None)
        second.complete(None)
        clock.trigger_now([first, second])

    clock.processes([wait(first, "first"), wait(second, "second")])
    clock.call_at(7, trigger)
    clock.run()

    assert log == ["first", "started", "second", "started"]


def iter_once(env):
    yield env.timeout(1)


def story(arrivals, *collections):
    """Collect again and again while (at_s, sender) arrive; a log of (time, senders)."""
    clock, log = Clock(), []
    inbox = Inbox(clock)

    def worker(at_s, sender):
        yield clock.sleep(at_s)
        inbox.put(sender, sender)

    def server():
        for wanted in collections:
            items = yield inbox.collect(**wanted)
            log.append((clock.now_s, items))

    for arrival in arrivals:
        clock.process(worker(*arrival))
    clock.run_process(server())
    return log


def test_an_overdue_sender_is_waited_for():
    """Enough have arrived, but the one that must be among them has not."""
    log = story([(1.0, 1), (2.0, 2), (5.0, 0)], {"at_least": 2, "including": frozenset({0})})

    assert log == [(5.0, [1, 2, 0])]


def test_what_is_there_already_is_collected_at_once():
    """Arrivals wait for the collector as it waits for them."""
    clock = Clock()
    inbox = Inbox(clock)

    def server():
        inbox.put(4, "early")
        yield clock.sleep(7.0)
        return (yield inbox.collect())

    assert clock.run_process(server()) == ["early"]
    assert clock.now_s == 7.0


@examples(60)
@given(arrivals=st.permutations([(1.0, 0), (2.0, 0), (2.0, 1), (2.0, 2), (2.0, 3), (3.0, 1)]))
def test_arrivals_of_one_instant_are_in_the_order_of_senders(arrivals):
    """Whoever was created first: all that arrive together are collected together, in one order (the heap-tie trap)."""
    log = story(arrivals, {"at_least": 2}, {"at_least": 1})

    assert log == [(2.0, [0, 0, 1, 2, 3]), (3.0, [1])]


def test_a_deadline_collects_whatever_is_there():
    """Nobody waits for ever for those that are lost; the deadline's own instant still counts."""
    assert story([(1.0, 1)], {"at_least": 2, "deadline_s": 4.0}) == [(4.0, [1])]
    assert story([(4.0, 1)], {"at_least": 2, "deadline_s": 4.0}) == [(4.0, [1])]
    assert story([], {"at_least": 1, "deadline_s": 4.0}) == [(4.0, [])]


def test_a_deadline_that_is_over_disturbs_nobody():
    """The first collection came in time; its deadline does not cut the second one short."""
    log = story([(1.0, 1), (6.0, 2)], {"deadline_s": 4.0}, {"at_least": 1})

    assert log == [(1.0, [1]), (6.0, [2])]


def test_nothing_is_needed_of_nobody():
    """A collection of at least none comes at once with what is there."""
    assert story([], {"at_least": 0}) == [(0.0, [])]


def test_a_cancelled_collection_leaves_the_arrivals():
    """Who stops waiting takes nothing with it: the next collector gets it all."""
    clock = Clock()
    inbox = Inbox(clock)

    def impatient():
        yield inbox.collect(at_least=3)

    def server():
        yield gather(clock, [impatient()], deadline_s=1.0)
        inbox.put(9, "late")
        return (yield inbox.collect(at_least=2))

    inbox.put(8, "early")

    assert clock.run_process(server()) == ["early", "late"]
    assert clock.now == NS_PER_S


def test_a_waiting_collector_says_how_many_items_are_there():
    """Two items of one sender are two arrivals."""
    inbox = Inbox(Clock(), lambda device: f"dev-{device}")
    collector = inbox.collect(at_least=3, including=frozenset({1, 2}))
    inbox.put(1, "first")
    inbox.put(1, "second")

    assert collector.describe() == "3 arrivals in the inbox, which holds 2; dev-2 must be among them"


def test_of_one_sender_in_one_instant_the_first_comes_first():
    """What is sent together stays in the order of sending, whatever it is: the items are never compared."""
    clock = Clock()
    inbox = Inbox(clock)

    def server():
        for item in ("second by name", "first by name", {"no": "order"}):
            inbox.put(3, item)
        return (yield inbox.collect(at_least=3))

    assert clock.run_process(server()) == ["second by name", "first by name", {"no": "order"}]


DAY_NS = 86_400 * NS_PER_S


class Ticks:
    """A timer in the background that sets itself again each second, for a day."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.seen_s = clock, list[float]()
        self.again()

    def again(self, event: Event | None = None) -> None:
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
    ran.append(number)
