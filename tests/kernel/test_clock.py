"""Claims about simulated time: rounding, the order within an instant, and what a run that cannot go on says."""

import gc
import math
import pickle
import weakref
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from simpy.events import NORMAL, URGENT

from fednet_emu import errors
from fednet_emu.errors import AlgorithmError, AppFailed, DataError, Deadlock, Diverged, FednetError, ScenarioError
from fednet_emu.kernel.all_of import gather
from fednet_emu.kernel.clock import COLLECT, NS_PER_S, SETTLE, Clock, to_ns
from fednet_emu.kernel.events import cancel
from fednet_emu.kernel.inbox import Inbox
from tests.quick import examples


@pytest.mark.parametrize(
    ("duration_s", "expected_ns"),
    [(0.0, 0), (1e-10, 1), (1e-9, 1), (1.5e-9, 2), (0.001, 1_000_000), (0.1, 100_000_000), (1.1, 1_100_000_000)],
)
def test_durations_round_up_to_the_nanosecond(duration_s, expected_ns):
    """No duration but zero is free, and 1.1 s is not 1.100000001 s because of binary fractions."""
    assert to_ns(duration_s) == expected_ns


@examples(200)
@example(duration_s=5e6)
@example(duration_s=9_007_199.254740993)
@given(duration_s=st.floats(0.0, 1e9))
def test_rounding_never_loses_a_nanosecond(duration_s):
    """The result is the next whole nanosecond, up to the noise of one product, for nanoseconds and for decades."""
    exact = Fraction(duration_s) * NS_PER_S
    ulp = Fraction(math.ulp(float(exact)))

    assert exact - min(5 * ulp, Fraction(1, 4) + ulp) <= to_ns(duration_s) < exact + 1 + ulp


@examples(100)
@example(seconds=5_000_000)
@given(seconds=st.integers(0, 10**9))
def test_whole_seconds_are_exact(seconds):
    """A whole number of seconds is that many billions of nanoseconds, however large."""
    assert to_ns(float(seconds)) == seconds * NS_PER_S


def test_an_instant_settles_in_the_stated_order():
    """Urgent, normal, settle, collect: whatever the order in which they were asked for."""
    clock, log = Clock(), []
    for priority in (COLLECT, SETTLE, NORMAL, URGENT):
        clock.call_at(5, lambda _event, priority=priority: log.append(priority), priority)
    clock.call_at(4, lambda _event: log.append("before"), COLLECT)

    clock.run()

    assert log == ["before", URGENT, NORMAL, SETTLE, COLLECT]


def test_a_timer_that_has_run_can_be_set_again_and_cancelled():
    """It calls at 3 and, after what else is of that instant, at 5; not at 9, since it is cancelled before."""
    clock, log = Clock(), []

    def call(timer):
        log.append(clock.now)
        if len(log) < 3:
            clock.call_at(5, call, again=timer)
        else:
            clock.call_at(9, call, again=timer)
            clock.call_at(7, lambda _event: timer.cancel())

    clock.call_at(3, call)
    clock.call_at(5, lambda _event: log.append("first"), NORMAL)
    clock.run()

    assert log == [3, "first", 5]


def test_processes_that_begin_run_to_their_first_event_at_once():
    """In their order, before the caller goes on; cancelled in that instant, they stop what they wait for."""
    clock, log = Clock(), []

    def own(name):
        log.append((name, clock.now))
        yield clock.sleep(1)
        log.append((name, clock.now))
        return name

    def caller():
        begun = clock.begin([own("first"), own("second"), own("cancelled")])
        log.append("caller")
        cancel(begun[2], "stopped")
        return (yield begun[0]), (yield begun[1]), (yield begun[2])

    assert clock.run_process(caller()) == ("first", "second", "stopped")
    assert log == [("first", 0), ("second", 0), ("cancelled", 0), "caller", ("first", NS_PER_S), ("second", NS_PER_S)]


def test_a_run_stops_at_the_very_instant():
    """What happens at the last instant is part of the run; one nanosecond later is not."""
    clock, log = Clock(), []

    def server():
        yield clock.sleep(1.0)
        log.append("at the end")
        yield clock.timeout(1)
        log.append("after the end")

    assert clock.run_process(server(), until_s=1.0) is None
    assert log == ["at the end"]
    assert clock.now == NS_PER_S


def test_a_process_that_ends_at_the_last_instant_has_ended():
    """An end at the very instant counts, and its result is there."""
    clock = Clock()

    def server():
        yield clock.sleep(1.0)
        return "in time"

    assert clock.run_process(server(), until_s=1.0) == "in time"


def test_idle_time_costs_nothing():
    """A million idle seconds are as many events as one: the clock jumps, it does not tick."""

    def events_of(idle_s):
        clock, steps = Clock(), 0

        def server():
            yield clock.sleep(idle_s)

        process = clock.process(server())
        while process.callbacks is not None:
            clock.step()
            steps += 1
        return steps

    assert events_of(1e6) == events_of(1.0) == 3


def test_a_deadlock_says_who_waits_for_whom():
    """The text follows the waits from the server down to what cannot come."""
    clock = Clock()
    inbox = Inbox(clock, lambda device: f"dev-{device}")

    def client():
        yield inbox.collect(at_least=2, including=frozenset({3, 5}))

    def server():
        yield clock.sleep(2.5)
        inbox.put(3, "update")
        yield gather(clock, [client()])

    with pytest.raises(Deadlock) as caught:
        clock.run_process(server())

    assert str(caught.value) == (
        "deadlock at t=2.5 s: server waits for 1 of 1 processes: client waits for 2 arrivals in the inbox, "
        "which holds 1; dev-5 must be among them"
    )


def test_a_deadlock_on_several_events_names_those_that_are_missing():
    """SimPy's own conditions are described by their parts."""
    clock = Clock()
    inbox = Inbox(clock)

    def server():
        yield clock.sleep(1.0) & inbox.collect()

    with pytest.raises(Deadlock, match="server waits for 1 of 2 events: 1 arrivals in the inbox, which holds 0"):
        clock.run_process(server())


def test_a_deadlock_of_many_names_the_first_few():
    """The text stays short in a network of thousands."""
    clock = Clock()
    inbox = Inbox(clock, lambda device: f"dev-{device}")

    def client():
        yield clock.event()

    def server():
        yield gather(clock, [client() for _ in range(1000)]) & inbox.collect(including=frozenset(range(1000)))

    with pytest.raises(Deadlock) as caught:
        clock.run_process(server())

    assert "1000 of 1000 processes: client waits for event; " in str(caught.value)
    assert str(caught.value).endswith("dev-0, dev-1, dev-2, dev-3, dev-4, ... must be among them")
    assert len(str(caught.value)) < 400


ERRORS = [
    FednetError("text"),
    ScenarioError("seed: is required"),
    ScenarioError("seed: is required", "sed: no such setting"),
    Diverged("dev-3, round 12: loss is nan after step 4"),
    DataError("a.npz", "not found", "fetch it"),
    Deadlock(1.5, "server waits for dev-3"),
    AlgorithmError("fed.rounds", "round 1 would never end, got 1000 turns of the loop", "end each round"),
    AppFailed("the client app at dev-3", "Traceback (most recent call last):\nValueError: no data\n"),
]


class Refused(Exception):  # noqa: N818  (as short as a user's own)
    """An error as users write them: its constructor takes other arguments than `args` holds."""

    def __init__(self, device: int, *, reason: str) -> None:
        super().__init__(f"device {device}: {reason}")
        self.device = device


@pytest.mark.parametrize("error", [*ERRORS, Refused(3, reason="busy")], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("gathered", [False, True])
def test_an_error_comes_through_processes_as_it_is(error, gathered):
    """After three processes it is the very object that was raised, and its traceback names the line that raised it."""
    clock = Clock()

    def refuse():
        raise error.with_traceback(None)

    def process(depth):
        yield clock.sleep(1.0)
        if depth == 0:
            refuse()
        yield gather(clock, [process(depth - 1)]) if gathered else clock.process(process(depth - 1))

    with pytest.raises(type(error)) as caught:
        clock.run_process(process(3))

    assert caught.value is error
    own = [entry.name for entry in caught.traceback if entry.path.name == "test_clock.py"]
    assert own[1:] == ["process"] * 4 + ["refuse"]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_keep_their_text_when_pickled(error):
    """An error of a study's process reads the same where it is printed."""
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_every_error_class_is_tried():
    """A new class of errors gets its example above."""
    classes = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FednetError)}

    assert classes == {type(error) for error in ERRORS}


def test_a_run_leaves_the_garbage_collector_as_it_was():
    """Whether it ends, stops or fails."""
    before = gc.get_threshold()
    clock = Clock()

    def server():
        yield clock.event()

    with pytest.raises(Deadlock):
        clock.run_process(server())

    assert gc.get_threshold() == before


def test_what_a_cancelled_process_held_is_free_at_once():
    """Without waiting for Python's garbage collector: what is computed must not depend on when that comes."""

    class Model:
        pass

    def train(clock):
        model = Model()
        held.append(weakref.ref(model))
        yield clock.sleep(1.0)

    clock, held = Clock(), []
    trains = [clock.process(train(clock))]
    gc.disable()
    try:
        clock.call_at(5, lambda _event: cancel(trains.pop(), None))
        clock.run()
        assert held[0]() is None
    finally:
        gc.enable()


def test_forgotten_timers_leave_the_queue_when_they_are_half_of_it():
    """Of 300 timers the 151st to be cancelled takes those out, the 75th of the other 149 again; the rest come."""
    clock, seen = Clock(), []
    timers = {at: clock.call_at(at, lambda _event, at=at: seen.append(at)) for at in (97 * i % 300 for i in range(300))}
    length = []
    for at in range(150 + 75 + 1):
        timers[at].cancel()
        length.append(len(clock._queue))
    clock.run()

    assert length == [300] * 150 + [149] * 75 + [74]
    assert seen == list(range(226, 300))


def test_few_forgotten_timers_stay():
    """Up to 64 of them, even if they are all that there is."""
    clock = Clock()
    for timer in [clock.call_at(at, print) for at in range(64)]:
        timer.cancel()

    assert len(clock._queue) == 64
    clock.call_at(64, print).cancel()
    assert clock._queue == []


# ---- questions -------------------------------------------------------------------------------------------------------


def asking(clock, log, name, wait):
    """A process that waits for an event, asks, and logs the answer with its time."""
    yield wait
    log.append((name, (yield clock.ask(name)), clock.now))


def waiting(clock, log, name, wait):
    """A process that waits for an event and logs its name."""
    yield wait
    log.append((name, clock.now))


def played(clock, main, answers):
    """Let the clock run, and answer each question by the next of the answers; the questions."""
    asked, process = [], clock.main(main)
    while clock.advance(process):
        asked.append(clock.asked.question)
        clock.answer(answers.pop(0))
    return asked


def test_an_answer_goes_on_in_the_same_instant_before_any_other_event():
    """Asked at 5 ns, the process goes on at 5 ns, before another that waits for the same instant."""
    clock, log = Clock(), []

    def main():
        both = [asking(clock, log, "first", clock.sleep_until(5)), waiting(clock, log, "second", clock.sleep_until(5))]
        yield gather(clock, both)

    assert played(clock, main(), ["yes"]) == ["first"]
    assert log == [("first", "yes", 5), ("second", 5)]


def test_several_questions_of_an_instant_are_asked_one_by_one():
    """Two processes with events of their own, and one that asks again at once: three questions, in order."""
    clock, log = Clock(), []

    def twice(wait):
        yield wait
        log.append((yield clock.ask("a")))
        log.append((yield clock.ask("b")))

    def main():
        yield gather(clock, [twice(clock.sleep_until(5)), asking(clock, log, "c", clock.sleep_until(5))])

    assert played(clock, main(), [1, 2, 3]) == ["a", "b", "c"]
    assert log == [1, 2, ("c", 3, 5)]


def begun(clock, log):
    """A process that is begun by another one and asks at once; the other has not come to its own wait."""

    def child():
        log.append((yield clock.ask("child")))

    yield clock.sleep_until(5)
    started = clock.begin([child()])
    log.append("parent")
    yield started[0]


def test_time_may_end_while_a_question_is_answered_late():
    """At the limit the clock ends, and the process that would ask at it does not."""
    clock, log = Clock(), []
    process = clock.main(asking(clock, log, "late", clock.sleep_until(6)), until_s=5e-9)

    assert not clock.advance(process)
    assert (clock.now, clock.asked, log) == (5, None, [])


def test_an_error_of_the_process_comes_out_of_advance():
    """Unchanged, after the answer that has caused it."""
    clock = Clock()

    def main():
        yield clock.sleep_until(5)
        raise KeyError((yield clock.ask("which")))

    process = clock.main(main())
    assert clock.advance(process)
    clock.answer("this")
    with pytest.raises(KeyError, match="this"):
        clock.advance(process)


def test_the_collector_is_as_before_between_two_questions():
    """Thresholds are the caller's whenever `advance` has returned."""
    clock, before = Clock(), gc.get_threshold()
    process = clock.main(asking(clock, [], "who", clock.sleep_until(5)))

    assert clock.advance(process)
    assert gc.get_threshold() == before
