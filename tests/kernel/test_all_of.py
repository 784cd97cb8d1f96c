"""Claims about gathering and cancelling, down to what a process waits for."""

from typing import Any, NamedTuple

import pytest

from fednet_emu.errors import AlgorithmError, DataError
from fednet_emu.kernel.all_of import AllOf, gather
from fednet_emu.kernel.clock import COLLECT, NS_PER_S, SETTLE, Clock
from fednet_emu.kernel.events import Completion, cancel


class Lost(NamedTuple):
    """What a cancelled process returns in these stories."""

    lost: str


class Cancellable(Completion):
    """An event like a transfer or a computation: it can be cancelled, and remembers why."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.why: list[str] = []

    def cancel(self, outcome: Any) -> None:
        self.why.append(outcome.lost)


def sleeper(clock, duration_s, result):
    yield clock.sleep(duration_s)
    return result


def waiter(event):
    return (yield event)


def run(clock, event):
    """Run until an event has come; its value and when it came."""
    value = clock.run_process(waiter(event))
    return value, clock.now_s


def test_results_are_in_the_given_order():
    """Whoever ends first: results stand where their processes stood, and the last one decides the time."""
    clock = Clock()
    gathered = gather(clock, (sleeper(clock, duration_s, duration_s) for duration_s in (3.0, 1.0, 2.0)))

    assert run(clock, gathered) == ([3.0, 1.0, 2.0], 3.0)


def test_nothing_to_gather_is_gathered_at_once():
    """An empty cohort costs no time, with a deadline or without."""
    clock = Clock()

    assert run(clock, gather(clock, [])) == ([], 0.0)
    assert run(clock, gather(clock, [], deadline_s=5.0)) == ([], 0.0)


def test_an_end_at_the_very_deadline_counts():
    """Whatever settles in the instant of the deadline has still arrived; a nanosecond later is late."""
    clock = Clock()
    settled, too_late = clock.event(), clock.event()
    clock.call_at(4 * NS_PER_S, lambda _event: settled.succeed("settled"), SETTLE)
    clock.call_at(4 * NS_PER_S + 1, lambda _event: too_late.succeed("too late"), SETTLE)
    processes = [sleeper(clock, 4.0, "slept"), waiter(settled), waiter(too_late)]

    assert run(clock, gather(clock, processes, deadline_s=4.0)) == (["slept", "settled", None], 4.0)


def test_all_in_time_do_not_wait_for_the_deadline():
    """The gather comes with the last one."""
    clock = Clock()

    assert run(clock, gather(clock, [sleeper(clock, 1.0, "x")], deadline_s=100.0)) == (["x"], 1.0)


def test_a_deadline_ends_a_wait_for_events_that_never_come_once_they_are_cancelled():
    """A transfer, a group of them and a sleep, without processes of their own: each has the outcome of the deadline."""
    clock = Clock()
    event, member = Cancellable(clock), Cancellable(clock)
    early = clock.event()
    clock.call_at(NS_PER_S, lambda _event: early.succeed("early"), SETTLE)
    waits = [event, early, AllOf(clock, [member]), clock.sleep(9.0), clock.process(sleeper(clock, 9.0, "late")), event]

    late = Lost("deadline")
    assert run(clock, AllOf(clock, waits, 2.0, lambda: late)) == ([late, "early", late, late, late, late], 2.0)
    assert {*event.why, *member.why} == {"deadline"}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda clock, event: clock.process(waiter(event)),
        lambda clock, event: clock.process(waiter(clock.process(waiter(event)))),
        lambda clock, event: gather(clock, [waiter(event), sleeper(clock, 50.0, "other")]),
        lambda clock, event: gather(clock, [waiter(gather(clock, [waiter(event)], deadline_s=99.0))]),
        lambda clock, event: event & clock.sleep(1.0),
        lambda clock, event: clock.sleep(50.0) | clock.process(waiter(event)),
    ],
    ids=["process", "process of a process", "gather", "gather in a gather", "both of two events", "one of two events"],
)
def test_cancelling_reaches_the_innermost_wait(wrap):
    """However deep a transfer is wrapped, it is taken off when its process is cancelled."""
    clock = Clock()
    event = Cancellable(clock)

    result = run(clock, gather(clock, [waiter(wrap(clock, event))], deadline_s=2.0, late=lambda: Lost("deadline")))

    assert result == ([Lost("deadline")], 2.0)
    assert event.why == ["deadline"]


def test_nested_deadlines_of_one_instant_cancel_once():
    """The outer and the inner deadline come together: the innermost wait is told once, and both gathers come."""
    clock = Clock()
    event = Cancellable(clock)
    inner = gather(clock, [waiter(event)], deadline_s=2.0, late=lambda: Lost("inner"))
    outer = gather(clock, [waiter(inner)], deadline_s=2.0, late=lambda: Lost("outer"))

    assert run(clock, outer) == ([[Lost("inner")]], 2.0)
    assert event.why == ["inner"]


def test_cancelling_what_has_ended_changes_nothing():
    """A result that is there stays as it is."""
    clock = Clock()
    process = clock.process(sleeper(clock, 1.0, "done"))
    run(clock, process)

    cancel(process, Lost("deadline"))
    cancel(None, Lost("deadline"))

    assert process.value == "done"


def test_cancelling_twice_in_one_instant_is_cancelling_once():
    """The first outcome counts."""
    clock = Clock()
    process = clock.process(sleeper(clock, 9.0, "done"))

    def impatient(_event):
        cancel(process, Lost("first"))
        cancel(process, Lost("second"))

    clock.call_at(NS_PER_S, impatient, COLLECT)

    assert run(clock, process) == (Lost("first"), 1.0)


def test_a_process_may_tidy_up_when_it_is_cancelled():
    """A `finally` of the cancelled process runs, at the time of the deadline."""
    clock, log = Clock(), []

    def tidy():
        try:
            yield clock.sleep(9.0)
        finally:
            log.append(clock.now_s)

    run(clock, gather(clock, [tidy()], deadline_s=3.0))

    assert log == [3.0]


def test_a_process_that_is_cancelled_before_its_first_step_ends_at_its_first_wait():
    """It ends with the outcome in the instant in which it was started."""
    clock, ran = Clock(), []

    def process():
        ran.append(clock.now)
        yield clock.sleep(1.0)

    started, ended = clock.process(process()), []
    started.callbacks.append(lambda event: ended.append((event.value, clock.now)))
    cancel(started, "late")
    clock.run()

    assert (ran, ended) == ([0], [("late", 0)])


def test_a_process_cannot_cancel_itself():
    """It is told so where it tries."""
    clock = Clock()

    def process():
        yield clock.sleep(1.0)
        cancel(started[0], "late")

    started = [clock.process(process())]
    with pytest.raises(RuntimeError, match="process: cannot cancel itself"):
        clock.run_process(waiter(started[0]))


def test_a_process_that_yields_no_event_is_told_so():
    """The error names the process and the value; an attribute error of its own stays what it is."""
    clock = Clock()

    def forgetful():
        yield 3

    def broken():
        yield clock.sleep(1.0)
        clock.no_such_thing()

    with pytest.raises(AlgorithmError, match="forgetful: yields no event, got 3"):
        clock.run_process(forgetful())
    with pytest.raises(AttributeError, match="no_such_thing"):
        clock.run_process(broken())


def test_failing_children_fail_the_gather_once():
    """The first exception comes out; a second one, later or in the same instant, does not crash the run behind it."""
    clock = Clock()

    def failing(duration_s, word):
        yield clock.sleep(duration_s)
        raise DataError("file", word, "mend it")

    def server():
        gathered = gather(clock, [failing(2.0, "second"), failing(1.0, "first"), failing(1.0, "same instant")])
        try:
            yield gathered
        except DataError as error:
            caught = str(error)
        yield clock.sleep(10.0)
        return caught

    assert clock.run_process(server()) == "file: first; mend it"


def test_a_gather_describes_who_is_missing():
    """Those that have ended are not named."""
    clock = Clock()
    gathered = gather(clock, [sleeper(clock, 1.0, "x"), waiter(clock.event())])
    clock.run(until=2 * NS_PER_S)

    assert gathered.describe() == "1 of 2 processes: waiter waits for event"


def test_events_together_come_with_the_last_in_the_given_order():
    """Three timeouts in any order; none at all comes at once; cancelling reaches every one that can be cancelled."""
    clock = Clock()
    together = AllOf(clock, [clock.timeout(30, "a"), clock.timeout(10, "b"), clock.timeout(20, "c")])
    parts = [Cancellable(clock), Cancellable(clock)]
    both = AllOf(clock, parts)

    def server():
        return (yield together), (yield AllOf(clock, []))

    assert both.describe().startswith("2 of 2 events")
    assert clock.run_process(server()) == (["a", "b", "c"], [])
    assert clock.now == 30
    cancel(both, Lost("deadline"))
    assert [part.why for part in parts] == [["deadline"]] * 2
