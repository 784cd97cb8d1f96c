"""The stopwatch of the host: parts inside each other, and time in which the thread stands still."""

import time

import pytest

from fednet_emu.learning.graph import host_time
from fednet_emu.learning.graph.host_time import REST, HostTime


class Watch:
    """A clock and a processor that stand still until they are told how much time has passed."""

    def __init__(self):
        self.host_s, self.busy_s = 100.0, 7.0

    def passes(self, *, busy_s=0.0, idle_s=0.0):
        self.host_s += busy_s + idle_s
        self.busy_s += busy_s

    def perf_counter(self):
        return self.host_s

    def thread_time(self):
        return self.busy_s


@pytest.fixture
def watch(monkeypatch):
    shown = Watch()
    monkeypatch.setattr(host_time, "time", shown)
    return shown


def test_the_innermost_part_counts_alone(monkeypatch):
    """What passes inside two parts is the inner one's, and the parts add up to all the time since the start.

    The clock is read at the start, when a part begins or ends, and when it is asked: 1, 2, 4, 8, 16 and 32 s pass.
    """
    instants = iter([0.0, 1.0, 3.0, 7.0, 15.0, 31.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(instants))
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    host = HostTime()
    with host.part("outer"), host.part("inner"):
        pass
    parts = {name: spent.host_s for name, spent in host.parts().items()}

    assert parts == {REST: 1.0 + 16.0, "outer": 2.0 + 8.0, "inner": 4.0}


def test_sleeping_is_waiting_and_computing_is_not(watch):
    """What a part spends without the processor is waiting: all of a sleep, none of a computation, half of a mixture."""
    host = HostTime()
    with host.part("asleep"):
        watch.passes(idle_s=5.0)
    with host.part("busy"):
        watch.passes(busy_s=3.0)
    with host.part("both"):
        watch.passes(busy_s=1.0, idle_s=1.0)
    parts = host.parts()

    assert {name: tuple(spent) for name, spent in parts.items()} == {
        REST: (0.0, 0.0),
        "asleep": (5.0, 5.0),
        "busy": (3.0, 0.0),
        "both": (2.0, 1.0),
    }


def test_the_clocks_are_those_of_the_host():
    """Without a clock of our own, host time is the time that passes, and busy time that of this thread."""
    before = time.perf_counter(), time.thread_time()
    host = HostTime()
    with host.part("busy"):
        sum(range(100_000))
    spent = host.parts()["busy"]
    after = time.perf_counter(), time.thread_time()

    assert 0 < spent.host_s <= after[0] - before[0]
    assert 0 < spent.host_s - spent.waiting_s <= after[1] - before[1] or spent.waiting_s == 0


def test_an_error_ends_its_part(watch):
    """After an exception the time counts for the rest again."""
    host = HostTime()
    with pytest.raises(KeyError), host.part("broken"):
        raise KeyError
    watch.passes(idle_s=2.0)
    parts = host.parts()

    assert parts["broken"].host_s == 0.0
    assert parts[REST].host_s == 2.0


def test_a_part_interrupts_a_brief_part(watch):
    """Of 11 s, 3 s are those of the brief part before and after the part in it, which has 4 s, 3 s of them waiting."""
    host = HostTime()
    with host.part("training"):
        watch.passes(busy_s=4.0)
        with host.brief_part("deferred functions"):
            watch.passes(busy_s=1.0)
            with host.part("sending jobs"):
                watch.passes(busy_s=1.0, idle_s=3.0)
            watch.passes(busy_s=2.0)
    parts = host.parts()

    assert {name: tuple(spent) for name, spent in parts.items() if name != REST} == {
        "training": (4.0, 0.0),
        "deferred functions": (3.0, 0.0),
        "sending jobs": (4.0, 3.0),
    }


def test_a_brief_part_counts_alone_and_leaves_the_waiting_to_the_part_around_it(watch):
    """Of 8 s in a part, 3 s are those of two brief parts in it, and 4 s outside of them were waiting."""
    host = HostTime()
    with host.part("training"):
        watch.passes(busy_s=1.0)
        with host.brief_part("deferred functions"):
            watch.passes(busy_s=2.0)
        watch.passes(idle_s=4.0)
        with host.brief_part("deferred functions"):
            watch.passes(busy_s=1.0)
    watch.passes(busy_s=0.5)
    parts = host.parts()

    assert parts["deferred functions"] == (3.0, 0.0)
    assert parts["training"] == (5.0, 4.0)
    assert parts[REST] == (0.5, 0.0)
