"""Claims about what a run leaves behind: nothing that was met, cut short or used up stays alive."""

from __future__ import annotations

import gc
import io
import weakref
from typing import Any

import pytest
import torch

from fednet_emu.errors import Deadlock
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.all_of import gather
from fednet_emu.kernel.clock import Clock, Process
from fednet_emu.kernel.inbox import Inbox
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.jobs import SgdPlan
from fednet_emu.network.air.transfer import Transfer
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.learning.graph.memory import Memory


def alive(kind: type) -> int:
    gc.collect()
    return sum(type(thing) is kind for thing in gc.get_objects())


def test_memory_does_not_grow_with_rounds_that_meet_their_deadline() -> None:
    """After 20 and after 150 rounds with an hour's deadline: as many values, events and bytes of a checkpoint."""
    seen: list[tuple[int, int, int]] = []

    def look(fed: Federation) -> None:
        if fed.round in (20, 150):
            file = io.BytesIO()
            torch.save(list(fed.graph.snapshot().values()), file)
            seen.append((alive(Deferred), len(fed.clock._queue), len(file.getvalue())))

    fed = small_federation("algorithm.deadline_s=3600", "stop.rounds=150", "evaluation.every_rounds=10")
    fed.graph.use(Memory().program())
    fed.observers.append(look)
    fed.run(small_scenario("algorithm.deadline_s=3600").algorithm)
    early, late = seen

    assert fed.round == 150
    assert late[0] <= early[0] + 2
    assert late[1] <= early[1] + 66  # the queue is swept when 64 events of it, or half, were forgotten
    assert late[2] <= early[2] * 1.1 + 1000


@pytest.mark.parametrize(("way", "deadline_s"), [("uplink", 0.0011), ("downlink", 0.0002)])
def test_compressed_messages_that_a_deadline_has_cut_are_no_garbage(way: str, deadline_s: float) -> None:
    """Uploads begin at 1.04 ms, downloads take 0.32 ms: all are cut, and gone without a garbage collection."""

    def left(rounds: int) -> int:
        gc.collect()
        gc.disable()
        try:
            cut = (f"network.{way}.compression=float16", f"algorithm.deadline_s={deadline_s}", f"stop.rounds={rounds}")
            fed = run_small(*cut)
            assert fed.ledger.rounds.column("arrived").tolist() == [0] * rounds
            return sum(type(thing) is Transfer for thing in gc.get_objects())
        finally:
            gc.enable()

    assert left(24) == left(4)


def test_an_inbox_forgets_a_deadline_that_was_met() -> None:
    """What was collected in time is not held until the deadline."""
    clock = Clock()
    inbox = Inbox(clock)

    class Item:
        """Something large."""

    def server() -> Process:
        for _ in range(300):
            inbox.put(0, Item())
            yield inbox.collect(deadline_s=1e6)
        return len(clock._queue), alive(Item)

    in_queue, items = clock.run_process(server())

    assert in_queue <= 66
    assert items <= 1


def test_a_deadlock_is_told_when_it_happens() -> None:
    """Not at a deadline that was met long before, though that was still to come."""
    clock = Clock()

    def quick() -> Process:
        yield clock.sleep(1.0)

    def server() -> Process:
        yield gather(clock, [quick()], deadline_s=100.0)
        yield clock.event()

    with pytest.raises(Deadlock, match=r"t=1 s"):
        clock.run_process(server())


def test_a_cut_sleep_does_not_let_time_pass() -> None:
    """A process that slept when its deadline came is over; so is the run, at the deadline."""
    clock = Clock()

    def sleeper() -> Process:
        yield clock.sleep(1000.0)

    def server() -> Process:
        yield gather(clock, [sleeper()], deadline_s=2.0)
        yield clock.event()

    with pytest.raises(Deadlock, match=r"t=2 s"):
        clock.run_process(server())


def test_what_a_deadline_cuts_is_not_trained() -> None:
    """Three of four devices in time, in every round: 30 results of 10 rounds, and 30 jobs."""
    slow = "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 1e2]}"
    fed = run_small(slow, "algorithm.deadline_s=0.5", "stop.rounds=10")

    assert fed.ledger.frame("rounds")["arrived"].tolist() == [3] * 10
    assert fed.graph.statistics.jobs == 30


@pytest.mark.parametrize("how", ["again and again", "one of several"])
def test_an_upload_that_was_cut_lets_go_of_what_it_carried(how: str) -> None:
    """At once, without the garbage collector, though something waited for it: its model is not trained."""
    fed = small_federation()
    held: list[weakref.ref[Deferred]] = []

    def client() -> Process:
        model = fed.device(0).training(fed.initial_model(), SgdPlan(lr=0.1, steps=1), 0).result.params
        held.append(weakref.ref(model))
        if how == "one of several":
            return (yield fed.all_of([fed.uplink(fed.device(0), model)]))
        return (yield from fed.retry(lambda: fed.uplink(fed.device(0), model)))

    def server() -> Process:
        yield fed.gather([client()], deadline_s=1e-9)
        yield fed.clock.sleep(1000.0)
        return held[0]()

    gc.disable()
    try:
        assert fed.clock.run_process(server()) is None
    finally:
        gc.enable()


def test_a_computation_that_was_cut_lets_go_of_its_work() -> None:
    """While its end would still be to come, nothing holds what it would have given."""
    fed = small_federation("devices.speed={kind: fixed, flop_per_s: 1e-2}")
    held: list[weakref.ref[Deferred]] = []

    def client() -> Process:
        work = fed.device(0).training(fed.initial_model(), SgdPlan(lr=0.1, steps=1), 0)
        held.append(weakref.ref(work.result.params))
        yield fed.device(0).compute(work)

    def server() -> Process:
        yield fed.gather([client()], deadline_s=1.0)
        yield fed.clock.sleep(1.0)
        gc.collect()
        return held[0]()

    assert fed.clock.run_process(server()) is None


@pytest.mark.parametrize("capacity_j", [1e3, 1e-3])
def test_a_computation_on_a_battery_lets_go_of_its_work(capacity_j: float) -> None:
    """At once, without the garbage collector, whether the battery has lasted or not."""
    battery = f"devices.battery={{capacity_j: {capacity_j}}}"
    fed = small_federation(battery, "devices.compute_energy={kind: measured, active_w: 1}")
    held: list[weakref.ref[Deferred]] = []

    def client() -> Process:
        work = fed.device(0).training(fed.initial_model(), SgdPlan(lr=0.1, steps=1), 0)
        held.append(weakref.ref(work.result.params))
        yield fed.device(0).compute(work)

    def server() -> Process:
        yield fed.gather([client()])
        yield fed.clock.sleep(1.0)
        return held[0]()

    gc.disable()
    try:
        assert fed.clock.run_process(server()) is None
    finally:
        gc.enable()


def test_cycles_are_looked_for_rarely_until_the_final_model_is_evaluated() -> None:
    """What was put off until the end is trained before the collector looks at all the objects of the run."""
    fed = small_federation("evaluation.every_rounds=1000")
    before, run, seen = gc.get_threshold(), fed.graph.engine.run, []  # type: ignore[union-attr]

    def watched(jobs: Any) -> Any:
        seen.append(gc.get_threshold())
        return run(jobs)

    fed.graph.engine.run = watched  # type: ignore[union-attr, method-assign]
    fed.run(small_scenario().algorithm)

    assert seen
    assert all(rarely[0] >= 10 * before[0] for rarely in seen)
    assert gc.get_threshold() == before
