"""The engine that distributes stacks of training jobs to worker processes on this machine.

The stacks depend only on the jobs, and models are summed in the main process, in the order of the jobs. Results are
therefore bit-identical for any number of worker processes, including none. Data, models and their frozen weights are
copied to shared memory once. The tensors of jobs are copied once per wavefront (a set of jobs that are trained
together). Results are not copied back, but read in shared memory.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor
from torch.nn import Parameter

from fednet_emu.errors import described
from fednet_emu.learning.engines.batched import aligned, is_worth_dividing
from fednet_emu.learning.engines.parcels import Kept, packed, pickled_without
from fednet_emu.learning.engines.trainer import Losses, TrainReport
from fednet_emu.learning.engines.workers.memory import Place
from fednet_emu.learning.engines.workers.pool import Call, pool
from fednet_emu.learning.engines.workers.worker import MOST_OF_ERROR, KeptData, KeptModel, Order
from fednet_emu.learning.graph.cohort import Columns
from fednet_emu.learning.graph.engine import CohortResults, Engine, Results, TrainResult
from fednet_emu.learning.graph.host_time import HostTime
from fednet_emu.learning.graph.jobs import ResolvedJob, TrainJob
from fednet_emu.learning.models.flat import FlatModel

START_FLOP = 3e10
"""Number of floating-point operations in large wavefronts after which `workers: auto` starts worker processes. Training
takes about as long for these operations as starting the processes does."""


@final
class WorkersEngine(Engine):
    """Engine that trains the jobs of large wavefronts in `workers` processes, one of which is the main process.

    The main process trains all other jobs alone.

    Each worker uses the engine `name` of the scenario. The main process uses the engine `here`, which also divides jobs
    into stacks. If `at_once` is True, workers are used from the first large wavefront on, and otherwise after
    `START_FLOP` operations. `host` records the time that sending takes.
    """

    def __init__(self, name: str, here: Engine, workers: int, *, at_once: bool, host: HostTime | None = None) -> None:
        self._name, self._here, self._helpers = name, here, workers - 1
        self._left_flop = 0.0 if at_once else START_FLOP
        self._host = HostTime() if host is None else host
        self._process = os.getpid()
        self._kept: WeakKeyDictionary[Kept, tuple[int, KeptModel | KeptData, Any]] = WeakKeyDictionary()
        self._stay: WeakSet[FlatModel] = WeakSet()
        self._notes: dict[str, None] = {}
        self._sent: dict[int, tuple[Tensor, Any, Place]] = {}
        self._first: ResolvedJob | None = None
        self._begun: dict[TrainJob, Call] = {}
        self._wavefront: list[Call] | None = None
        self._cohort: list[tuple[list[int], Call | None]] | None = None
        self._since: float | None = None
        self._statistics: dict[str, float] = {
            "processes": workers - 1,
            "computing_s": 0.0,
            "ahead_s": 0.0,
            "sent_byte": 0,
            "received_byte": 0,
        }
        if at_once:
            pool().warm_up()

    @property
    def choices(self) -> Sequence[str]:
        return [*self._here.choices, *self._notes]

    @property
    def statistics(self) -> Mapping[str, float]:
        return self._statistics if self._statistics["computing_s"] else {}

    def begin(self, job: TrainJob) -> None:
        """Start a large job that is always trained alone, in a worker process.

        The first such job of a wavefront is started only when there is a second one.
        """
        known = self._left_flop > 0 or job in self._begun or job.model in self._stay
        if known or not is_worth_dividing(job.flop) or not self._may_send():
            return
        resolved = job.resolve()
        if not self._here.is_alone(resolved):
            return
        with self._host.part("sending jobs"):
            if not self._begun and self._first is None:
                self._first = resolved
                return
            for one in [self._first, resolved] if self._first is not None else [resolved]:
                for call in self._given([[one]]):
                    self._begun[one.job] = call
            self._first, self._since = None, self._since or time.perf_counter()

    def begin_all(self, jobs: Sequence[ResolvedJob]) -> None:
        begun, self._begun, self._first, self._wavefront = self._begun, {}, None, []
        if self._is_worth_it(len(jobs), sum(one.job.flop for one in jobs)):
            with self._host.part("sending jobs"):
                calls = [begun[one.job].of(one) for one in jobs if one.job in begun]
                away = [one for one in jobs if one.job not in begun and one.job.model not in self._stay]
                stacks = self._here.cut(away)
                self._wavefront = calls + self._given(stacks if len(calls) + len(stacks) > 1 else [])
        if self._wavefront:
            self._since = self._since or time.perf_counter()
        self._sent.clear()

    def run(self, jobs: Sequence[ResolvedJob]) -> Results:
        if self._wavefront is None:
            self.begin_all(jobs)
        calls, self._wavefront = self._wavefront or [], None
        self._note_ahead()
        there = {resolved for call in calls for resolved in call.single}
        rest = [resolved for resolved in jobs if resolved not in there]
        yield from self._here.run(rest) if len(rest) != 1 or not there else self._here.run_stack(rest)
        for call, losses in self._collected(calls):
            for place, resolved in enumerate(call.single):
                yield resolved, TrainResult(torch.from_numpy(call.results[place]), *losses[place])

    def takes(self, columns: Columns) -> bool:
        return self._here.takes(columns)

    def cut_cohort(self, columns: Columns) -> list[list[int]]:
        return self._here.cut_cohort(columns)

    def begin_cohort(self, columns: Columns) -> None:
        self._begun, self._first, self._cohort = {}, None, []
        if columns.model not in self._stay and self._is_worth_it(len(columns), sum(columns.flop.tolist())):
            with self._host.part("sending jobs"):
                stacks = self._here.cut_cohort(columns)
                for places in stacks if len(stacks) > 1 else []:
                    call = self._packed(columns.part(places))
                    if call is not None:
                        pool().give(call, self._helpers)
                    self._cohort.append((places, call))
        if self._cohort:
            self._since = self._since or time.perf_counter()
        self._sent.clear()

    def run_cohort(self, columns: Columns) -> CohortResults:
        if self._cohort is None:
            self.begin_cohort(columns)
        stacks, self._cohort = self._cohort or [], None
        self._note_ahead()
        if not stacks:
            yield from self._here.run_cohort(columns)
        places_of = {call: places for places, call in stacks if call is not None}
        for call, _ in self._collected(list(places_of)):
            yield places_of.pop(call), list(map(torch.from_numpy, call.results))
        unsent = [places for places, call in stacks if call is None]
        for places in unsent:
            for stack, models in self._here.run_cohort(columns.part(places)):
                yield [places[place] for place in stack], models

    def close(self) -> None:
        if self._statistics["sent_byte"] and self._may_send():
            pool().drop(self)
            self._begun, self._first = {}, None  # jobs that are still needed start again
            self._wavefront = self._cohort = self._since = None
            pool().memory.trim()
        self._here.close()

    def _note_ahead(self) -> None:
        if self._since is not None:
            self._statistics["ahead_s"] += time.perf_counter() - self._since
            self._since = None

    def _is_worth_it(self, n: int, flop: float) -> bool:
        """Return True if workers should train n jobs of `flop` operations.

        Until `START_FLOP` operations have been counted, the result is False, and the operations are added up.
        """
        if n < 2 or not is_worth_dividing(flop) or not self._may_send():
            return False
        if self._left_flop > 0:
            self._left_flop -= flop
            if self._left_flop <= START_FLOP / 2:
                pool().warm_up()
            return False
        return True

    def _may_send(self) -> bool:
        """Return True in the main thread of the process that created the engine; False in threads and forks."""
        return os.getpid() == self._process and threading.current_thread() is threading.main_thread()

    def _given(self, stacks: Sequence[list[ResolvedJob]]) -> list[Call]:
        """Send all stacks that can be serialised to the workers, and return one call for each of them."""
        calls = [call for stack in stacks if (call := self._packed(stack)) is not None]
        for call in calls:
            pool().give(call, self._helpers)
        return calls

    def _packed(self, jobs: Sequence[ResolvedJob] | Columns) -> Call | None:
        """Return a call for a stack of jobs; None if the stack cannot be serialised."""
        memory, held = pool().memory, list[Any]()
        model, start = (jobs.model, jobs.params) if isinstance(jobs, Columns) else (jobs[0].job.model, jobs[0].params)
        try:
            parcel = packed(jobs, pickle.Pickler)
            used = [self._number(thing) for thing in parcel.kept]
            tensors = [self._once(tensor) for tensor in parcel.tensors]
            text: Place | bytes = parcel.text
            if not isinstance(jobs, Columns):
                array, text = memory.copy_of(torch.frombuffer(bytearray(parcel.text), dtype=torch.uint8))
                held.append(array)
            rows, place = memory.new((len(jobs), aligned(model.size)), start.numpy().dtype)
        except Exception as error:  # classes of the user may raise any error
            self._keep_here(model, f"they cannot be sent: {described(error, MOST_OF_ERROR)}")
            return None
        self._statistics["sent_byte"] += len(parcel.text)
        keeps = {number: places for number, places, _ in self._kept.values()}
        order = Order(self._name, text, used, keeps, [its for _, its in tensors], place)
        return Call(self, jobs, order, [*held, *(array for array, _ in tensors)], rows[:, : model.size])

    def _keep_here(self, model: FlatModel, why: str) -> None:
        """Record that all further jobs of a model are trained in the main process, for the reason `why`."""
        self._stay.add(model)
        self._note(model, why)

    def _note(self, model: FlatModel, why: str) -> None:
        self._notes[f"jobs of {model.size} parameters are trained in the main process, as {why}"] = None

    def _number(self, thing: Kept) -> int:
        """Return the id of a model or of training data. At the first call, the object is copied to shared memory."""
        if thing not in self._kept:
            memory = pool().memory
            if isinstance(thing, FlatModel):
                constants = thing.constants
                pickled = torch.frombuffer(bytearray(pickled_without(thing, constants)), dtype=torch.uint8)
                array, place = memory.copy_of(pickled)
                shared = [(memory.move_here(tensor), type(tensor) is Parameter) for tensor in constants]
                kept: tuple[KeptModel | KeptData, Any] = KeptModel(place, shared), array  # constants hold their arrays
            else:
                kept = KeptData(memory.move_here(thing.x), memory.move_here(thing.y)), None  # tensors hold their arrays
            self._statistics["sent_byte"] += sum(memory.at(place).nbytes for place in kept[0].places)
            self._kept[thing] = next(pool().numbers), *kept
        return self._kept[thing][0]

    def _once(self, tensor: Tensor) -> tuple[Any, Place]:
        """Return a copy of a tensor in shared memory, and its location. A tensor is copied once per wavefront."""
        if id(tensor) not in self._sent:
            self._sent[id(tensor)] = tensor, *pool().memory.copy_of(tensor)
            self._statistics["sent_byte"] += tensor.nbytes
        return self._sent[id(tensor)][1:]

    def _collected(self, calls: list[Call]) -> Iterator[tuple[Call, Losses]]:
        """Yield each call when its jobs are trained, with their losses. The main process trains what no worker has.

        If several calls fail, the error of the first one in order is raised.
        """
        failed = None
        while calls:
            call = pool().next_of(calls, self._helpers)
            try:
                losses = self._losses(call)
            except Exception as error:
                failed = error
                del calls[calls.index(call) :]
            else:
                calls.remove(call)
                yield call, losses
        if failed is not None:
            raise failed

    def _losses(self, call: Call) -> Losses:
        """Return the losses of a call. The main process trains its jobs if no worker has, and raises their errors."""
        report = call.report
        if isinstance(report, TrainReport) and report.error is None:
            self._statistics["computing_s"] += report.computing_s
            self._statistics["received_byte"] += call.results.nbytes
            return report.losses
        if isinstance(report, TrainReport):
            self._note(call.model, f"a worker has failed, {report.error}")
        elif call.done:
            self._keep_here(call.model, f"a worker cannot load them: {report}")
        trained = self._here.train_into(call.single, torch.from_numpy(call.results))
        return {place: (loss, square) for place, loss, square in trained}
