"""The stopwatch of the host: parts inside each other, and time in which the thread stands still."""

import time

import pytest

from fednet_emu.learning.graph.host_time import REST, HostTime


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


def test_sleeping_is_waiting_and_computing_is_not():
    """A part that sleeps has waited for nearly all its time; one that computes used the processor."""
    host = HostTime()
    with host.part("asleep"):
        time.sleep(0.05)
    with host.part("busy"):
        ends = time.thread_time() + 0.05
        while time.thread_time() < ends:
            pass
    parts = host.parts()

    assert parts["asleep"].waiting_s > 0.9 * parts["asleep"].host_s
    assert parts["busy"].host_s - parts["busy"].waiting_s == pytest.approx(0.05, rel=0.2)


def test_an_error_ends_its_part():
    """After an exception the time counts for the rest again."""
    host = HostTime()
    with pytest.raises(KeyError), host.part("broken"):
        raise KeyError
    before = host.parts()["broken"]
    time.sleep(0.01)
    parts = host.parts()

    assert parts["broken"] == before
    assert parts[REST].host_s >= 0.01
