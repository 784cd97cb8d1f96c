"""Claims about the events that algorithms wait for, and about what is used of SimPy's private attributes."""

import ast
from pathlib import Path

import pytest
import simpy

from fednet_emu.kernel.clock import NS_PER_S, Clock
from fednet_emu.kernel.events import Completion, describe

PACKAGE = Path(__file__).parents[2] / "fednet_emu"
OF_EVENTS = {"_ok", "_value", "_defused"}
OF_PROCESSES = {"_generator", "_target"}
OF_ENVIRONMENTS = {"_queue", "_eid", "_active_proc", "_now"}
PRIVATE = OF_EVENTS | OF_PROCESSES | OF_ENVIRONMENTS | {"_events"}
ENGINE = ("devices", "network", "federation", "algorithms", "emulation")
"""The parts that deal with events; elsewhere these names mean something else."""


def touched(path):
    """The private names of SimPy that a file takes from an object other than `self`."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
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
    """A process that waits once."""
    yield env.timeout(1)
