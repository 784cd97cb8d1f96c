"""The engine that deals stacks of jobs to processes of this machine.

What is trained together follows from the jobs alone, and results come back one by one, so that the numbers learnt are the
same, to the last bit, on any number of processes, and in this one. Data and models are written to shared memory once,
what jobs start from once per wavefront; results are read where the workers have written them.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping, Sequence
from typing import Any, final
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor
from typing_extensions import override

from fednet_emu.learning.engines.batched import is_worth_dividing
from fednet_emu.learning.engines.parcels import Kept, packed
from fednet_emu.learning.engines.workers.memory import Place
from fednet_emu.learning.engines.workers.pool import Call, pool
from fednet_emu.learning.engines.workers.worker import Order
from fednet_emu.learning.graph.engine import Engine, Results, TrainResult
from fednet_emu.learning.graph.host_time import HostTime
from fednet_emu.learning.graph.jobs import ResolvedJob
from fednet_emu.learning.models.flat import FlatModel

START_FLOP = 3e10
"""Work, in wavefronts that are worth sending, after which `auto` starts workers: about the seconds that it takes."""


@final
class WorkersEngine(Engine):
    """Runs stacks of jobs in processes, as long as a wavefront is worth it, and everything else here.

    Args:
        name: the engine in each process, as in a scenario.
        here: the same engine in this process, which also says what the stacks are.
        workers: number of processes.
        at_once: whether they are started before anything is trained; otherwise once they would have been worth it.
        host: where the time that sending takes is noted; None notes it nowhere.
    """

    def __init__(self, name: str, here: Engine, workers: int, *, at_once: bool, host: HostTime | None = None) -> None:
        self._name, self._here, self._count = name, here, workers
        self._left_flop = 0.0 if at_once else START_FLOP
        self._host = HostTime() if host is None else host
        self._pool = pool()
        self._kept: WeakKeyDictionary[Kept, tuple[int, tuple[Place, ...], Any]] = WeakKeyDictionary()
        self._numbers = 0
        self._stay: WeakSet[FlatModel] = WeakSet()
        self._calls: list[Call] = []
        self._sent: dict[int, tuple[Tensor, Any, Place]] = {}
        self._statistics: dict[str, float] = {}
        if at_once:
            self._pool.warm_up()

    @property
    @override
    def choices(self) -> Sequence[str]:
        return self._here.choices

    @property
    @override
    def statistics(self) -> Mapping[str, float]:
        return self._statistics

    @override
    def run(self, jobs: Sequence[ResolvedJob]) -> Results:
        with self._host.part("sending jobs"):
            away = [one for one in jobs if one.job.model not in self._stay] if self._is_worth_it(jobs) else []
            calls = self._send(away)
            self._sent.clear()
        here = set(jobs).difference(*(call.jobs for call in calls))
        yield from self._here.run([resolved for resolved in jobs if resolved in here])
        for call in calls:
            yield from self._results(call)

    @override
    def close(self) -> None:
        self._pool.drop()
        self._pool.memory.trim()
        self._here.close()

    def _is_worth_it(self, jobs: Sequence[ResolvedJob]) -> bool:
        """Whether processes are there for jobs that are enough to be sent."""
        if len(jobs) < 2 or threading.current_thread() is not threading.main_thread():
            return False
        if not is_worth_dividing(jobs):
            return False
        if self._left_flop > 0:
            self._left_flop -= sum(resolved.job.flop for resolved in jobs)
            if self._left_flop <= START_FLOP / 2:
                self._pool.warm_up()
            return False
        return True

    def _send(self, jobs: Sequence[ResolvedJob]) -> list[Call]:
        stacks = self._here.cut(jobs) if jobs else []
        calls = [call for stack in stacks if (call := self._packed(stack)) is not None] if len(stacks) > 1 else []
        for call in calls:
            self._pool.give(call, self._count)
        return calls

    def _packed(self, jobs: Sequence[ResolvedJob]) -> Call | None:
        """A call of a stack; None if it cannot be pickled."""
        memory, first = self._pool.memory, jobs[0]
        try:
            parcel = packed(jobs, pickle.Pickler)
            used = [self._number(thing) for thing in parcel.kept]
        except Exception:  # whatever the user's classes raise
            self._stay.add(first.job.model)
            return None
        text, text_place = memory.new((len(parcel.text),), "u1")
        text[:] = memoryview(parcel.text)
        results, place = memory.new((len(jobs), first.job.model.size), first.params.numpy().dtype)
        tensors = [self._once(tensor) for tensor in parcel.tensors]
        keeps = {number: places for number, places, _ in self._kept.values()}
        order = Order(self._name, text_place, used, keeps, [its for _, its in tensors], place)
        return Call(jobs, order, [text, *(array for array, _ in tensors), results], results)

    def _number(self, thing: Kept) -> int:
        """The number of a model or of data, which are in shared memory then."""
        if thing not in self._kept:
            memory, arrays = self._pool.memory, None
            if isinstance(thing, FlatModel):
                text = pickle.dumps(thing)
                arrays, place = memory.new((len(text),), "u1")
                arrays[:] = memoryview(text)
                places: tuple[Place, ...] = (place,)
            else:
                places = memory.move_here(thing.x), memory.move_here(thing.y)
            self._numbers += 1
            self._kept[thing] = self._numbers, places, arrays
        return self._kept[thing][0]

    def _once(self, tensor: Tensor) -> tuple[Any, Place]:
        """A tensor in shared memory, to which it is copied once per wavefront."""
        if id(tensor) not in self._sent:
            self._sent[id(tensor)] = tensor, *self._pool.memory.copy_of(tensor)
        return self._sent[id(tensor)][1:]

    def _results(self, call: Call) -> Results:
        """What a call comes to; what a worker cannot do is done here, where an error is raised as it is."""
        self._pool.wait_for(call, self._count)
        told, call.results, results = call.told, None, call.results
        if told is None or told.error is not None:
            if told is None:
                self._stay.add(call.jobs[0].job.model)
            yield from self._here.run_stack(call.jobs)
            return
        for place, resolved in enumerate(call.jobs):
            yield resolved, TrainResult(torch.from_numpy(results[place]), *told.losses[place])

