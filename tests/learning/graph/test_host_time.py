"""The stopwatch of the host: parts inside each other, and time in which the thread stands still."""

import time

import pytest

from fednet_emu.learning.graph.host_time import REST, HostTime


def test_the_innermost_part_counts_alone():
    """Sleeping inside two parts is the inner one's, and the parts add up to all the time since the start."""
    started = time.perf_counter()
    host = HostTime()
    with host.part("outer"), host.part("inner"):
        time.sleep(0.05)
    parts = host.parts()

    assert 0.05 <= parts["inner"].host_s <= sum(spent.host_s for spent in parts.values())
    assert parts["outer"].host_s < 0.04
    assert sum(spent.host_s for spent in parts.values()) <= time.perf_counter() - started


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
