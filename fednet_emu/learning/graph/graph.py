"""The deferred graph, whose cheap computations and training jobs run only when a value is read.

When a value is read, nodes whose inputs are known (ready nodes) run until the value is known. Cheap nodes run first.
When only training jobs are ready, all of them run together as one wavefront, which is therefore as large as causality
allows. This is the agenda batching of DyNet (Neubig, Goldberg and Dyer, "On-the-fly Operation Batching in Dynamic
Computation Graphs", NeurIPS 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, final
from weakref import ref

from torch import Tensor

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.graph.accumulation import Accumulate, Accumulation
from fednet_emu.learning.graph.cohort import CohortJob
from fednet_emu.learning.graph.deferred import LATER, PENDING, Deferred, deferreds_in
from fednet_emu.learning.graph.engine import Engine
from fednet_emu.learning.graph.host_time import HostTime
from fednet_emu.learning.graph.jobs import ResolvedJob, TrainJob
from fednet_emu.learning.graph.later import Later
from fednet_emu.learning.graph.program import Program
from fednet_emu.learning.graph.work import (
    PARAMS,
    SQUARE,
    Call,
    Measured,
    OfCohort,
    Part,
    Pick,
    Trained,
    alive,
    evaluated,
    trained,
)

__all__ = ["Deferred", "Graph", "GraphStatistics", "Measured", "Trained"]

_GETTERS = (attrgetter, itemgetter, methodcaller)
_FEW = 4096

_BYTE_PER_SCALAR = 4
_BYTE_PER_NODE = 1024  # an upper estimate, which also counts the memory of results with few scalars
_BYTE_OF_LOSS = _BYTE_PER_SCALAR + _BYTE_PER_NODE


@final
@dataclass(slots=True)
class GraphStatistics:
    """Numbers of wavefronts (sets of jobs that run together), of jobs in them, and of jobs actually trained."""

    wavefronts: int = 0
    jobs: int = 0
    trained: int = 0

    @property
    def mean_wavefront(self) -> float:
        """Mean number of jobs per wavefront, which is zero before the first wavefront."""
        return self.jobs / self.wavefronts if self.wavefronts else 0.0


@final
class Graph:
    """Creates Deferreds, and computes their values when they are read.

    The order of computation does not affect the values. The graph keeps only weak references to pending results, so
    that a result to which nothing else refers is never computed. If `engine` is None, the graph is timing-only, which
    means that results have sizes but no values. If pending results need more memory than `pending_limit_byte`, all of
    them are computed, which does not change any value. `host` measures the host time of training and of deferred
    functions.

    The `program` is a digest of everything that determines the trained models. If it is given, values that are read are
    cached under their digests. As long as the program equals that of an earlier run, computations are only recorded, in
    order, and are postponed until a value is read that is not in the cache.
    """

    def __init__(
        self,
        engine: Engine | None,
        pending_limit_byte: int = 2**30,
        host: HostTime | None = None,
        program: Program | None = None,
    ) -> None:
        self.statistics = GraphStatistics()
        self.host = HostTime() if host is None else host
        self.engine = engine
        self._pending_limit_byte = pending_limit_byte
        self._pending_byte = 0
        self._created = 0
        self._ready_calls: list[tuple[int, ref[Deferred]]] = []
        self._ready_jobs: list[ref[Deferred]] = []
        self._begun: dict[Any, Deferred] = {}  # jobs of the started wavefront, trained even without references
        self._cohort: Deferred | None = None  # a cohort that is the started wavefront instead
        self._made: list[ref[Deferred]] = []  # keeps dead references until the next clean-up
        self._look_at = _FEW
        self._computing = False
        self.program: Program | None = None
        self._later: Later | None = None
        self._ended = False
        self._trains_by_itself = True
        if program is not None:
            self.use(program)

    def use(self, program: Program) -> None:
        """Cache values that are read, and reuse those of earlier runs of `program`; call it before any node exists."""
        self.program = program
        if self.engine is not None and program.is_known:
            graph = Graph(self.engine, host=self.host)
            graph._trains_by_itself, graph.statistics = False, self.statistics
            self._later = Later(graph, program.memo)

    def snapshot(self) -> dict[bytes, Any]:
        """Return all known values that are still referenced, by digest; only allowed if `at_rest` returns True."""
        return {node._digest: node._value for node in self._reachable() if node.done}

    def at_rest(self) -> bool:
        """Return True if the known values are a complete state of the graph, which can be stored.

        No value may be postponed or in computation, and no accumulation may have released some of its inputs.
        """
        return (
            not self._computing
            and self._later is None
            and not any(isinstance(node._work, Accumulate) and node._work.has_begun for node in self._reachable())
        )

    @property
    def puts_off(self) -> bool:
        """Whether computations are postponed, because an earlier run may have cached their values."""
        return self._later is not None

    def known_byte(self) -> int:
        """Return the memory in bytes of all known values that are still referenced."""
        return sum(node.size * _BYTE_PER_SCALAR for node in self._reachable() if node.done)

    def _reachable(self) -> list[Deferred]:
        nodes = alive(self._made)
        self._made = [ref(node) for node in nodes]
        self._look_at = 2 * len(nodes) + _FEW
        return nodes

    def constant(self, value: Any) -> Deferred:
        """Return a Deferred for a known tensor or number. The tensor must not be modified in place from now on."""
        self._created += 1
        node = Deferred(self._created, value.numel() if isinstance(value, Tensor) else 1, graph=self)
        if self.program is not None:
            node._digest = self.program.constant(value)
        node._settle(value)
        self._heed_an_end()
        return node

    def call(self, function: Callable[..., Any], *args: Any, size: int | None = None) -> Deferred:
        """Return a Deferred for the result of a cheap pure function.

        The function is called with its arguments, in which Deferreds are replaced by their values, also in nested
        tuples and lists. The function must not modify its arguments. `size` is the number of scalars in the result;
        None uses the size of the first Deferred argument. A getter of the module `operator` costs almost nothing if it
        is applied to a single Deferred.
        """
        inputs = deferreds_in(args)
        if size is None and not inputs:
            raise ValueError(f"call: size is unknown, got {function} without a Deferred argument; give size")
        picks = type(function) in _GETTERS and len(args) == 1 and type(args[0]) is Deferred
        work = Pick(function, args) if picks else Call(function, args)
        digest = b"" if self.program is None else self.program.call(function, args)
        node = self._node(inputs[0].size if size is None else size, work, inputs, digest)
        self._bound()
        return node

    def accumulate(
        self,
        function: Callable[..., Accumulation],
        parts: Sequence[Deferred],
        *args: Any,
        size: int | None = None,
    ) -> Deferred:
        """Return a Deferred for the result of a generator function that receives `parts` one at a time.

        Each `(yield)` in `function(*args)` receives the value of the next part, and the return value of the function is
        the result. A part is processed as soon as it and all earlier parts are known. It is then released, even if a
        list or a message still refers to it, unless an earlier node also waits for it. From now on, only accumulations
        may use the parts. `size` is the number of scalars in the result; None uses the size of the first Deferred in
        `args`, or else of the first part.
        """
        inputs = deferreds_in(args)
        if size is None:
            if not inputs and not parts:
                raise ValueError(f"accumulate: size is unknown, got {function} without a Deferred; give size")
            size = (inputs or parts)[0].size
        digest = b"" if self.program is None else self.program.call(function, args, parts)
        node = self._node(size, Accumulate(function, args, parts), inputs, digest)
        for part in parts:
            part.give()
        return node

    def train(self, job: TrainJob) -> Trained | Measured:
        """Return the deferred parameters, mean loss and, if `job.squares`, mean squared loss of a training job."""
        if self.engine is None:
            return self.untrained(job.model.size, squares=job.squares)
        loss = self._node(1, job, job.inputs(), digest := b"" if self.program is None else self.program.job(job))
        whole = [loss]
        params = self._node(job.model.size, _new(Part, (PARAMS, whole)), whole, digest + b"params")
        if not job.squares:
            self._bound()
            return _new(Trained, (params, loss))
        square = self._node(1, _new(Part, (SQUARE, whole)), whole, digest + b"square")
        self._bound()
        return Measured(params, loss, square)

    def train_cohort(
        self, job: CohortJob, own: Callable[[int], Mapping[str, Deferred]] | None = None
    ) -> list[Deferred]:
        """Return n Deferreds [devices], one for the trained parameters of each of the n devices of a cohort.

        Their attributes `number` are the same as if `train` were called for one device after the other. The function
        `own` takes the index of a device in the cohort. It returns the additional terms of the gradient that differ
        between devices, with keys as in `Columns.own`. `own` is None if no terms differ.
        """
        n, size, program = len(job.columns), job.columns.model.size, self.program
        if self._later is not None:  # postponed as single jobs, which form the same stacks
            return [self.train(job.single(place)).params for place in job.with_terms(own)]
        numbers = []
        for _ in job.with_terms(own):
            self._created += 2
            numbers.append(self._created)
        if self.engine is None:
            return [Deferred(number, size, None, self) for number in numbers]
        whole = self._node(1, job, job.inputs(), b"", numbers[0] - 1)
        nodes = [Deferred(number, size, _new(OfCohort, (whole,)), self) for number in numbers]
        if program is not None:
            for node, digest in zip(nodes, program.cohort(job), strict=True):
                node._digest = digest + b"params"
        job.results += map(ref, nodes)
        self._made += job.results
        self._pending_byte += n * (size + 1) * _BYTE_PER_SCALAR + 2 * n * _BYTE_PER_NODE - _BYTE_OF_LOSS
        self._bound()
        return nodes

    def untrained(self, size: int, *, squares: bool = False) -> Trained | Measured:
        """Return Deferreds without values for the results of a job in a timing-only graph.

        Their numbers are the same as in a run with training. `size` is the number of scalars in the parameters.
        """
        self._created += 2
        number = self._created
        trained = _new(Trained, (Deferred(number, size, None, self), Deferred(number - 1, 1, None, self)))
        if not squares:
            return trained
        self._created += 1
        return Measured(*trained, Deferred(self._created, 1, None, self))

    def read(self, deferred: Deferred) -> Any:
        """Return the value of a Deferred of this graph. If it is unknown, it is computed first.

        An error in a call or a job is raised here, with a note that names the call or job. The failed node stays
        pending. A `ScenarioError` is raised if the graph is timing-only, or if training diverges.
        """
        self._come_to(deferred)
        if deferred._value is LATER:
            self._compute([deferred])
        return deferred.value

    def recall(self, what: Any, nodes: Sequence[Deferred], compute: Callable[[], Any]) -> Any:
        """Return the cached result of `compute`, or call `compute` if the result is not in the cache.

        `compute` reads the `nodes` in this order, and is identified in the cache by the value of `what`.
        """
        program = self.program
        if program is None:
            return compute()
        if self._later is not None:
            for node in nodes:
                self._come_to(node)
        if self._later is not None:
            key = program.key(what, nodes)
            self._heed_an_end()
            try:
                return program.memo.get(key)
            except KeyError:
                pass
        found = compute()
        program.memo.put(program.key(what, nodes), found)
        return found

    def _come_to(self, deferred: Deferred) -> None:
        """Run nodes until the value of `deferred` is known or postponed."""
        deferred.check_not_given()
        if deferred._value is PENDING:
            self._computing = True
            with self.host.part("deferred functions"):
                while deferred._value is PENDING:
                    if not self._advance():
                        raise self._unreadable(deferred)
            self._computing = False

    def _compute(self, nodes: Sequence[Deferred]) -> None:
        assert self._later is not None
        self._computing = True
        with self.host.part("deferred functions"):
            self._later.compute([node._work for node in nodes])
        self._computing = False
        for node in nodes:
            node._settle(node._work.value)

    def _heed_an_end(self) -> None:
        """If values are no longer shared with other runs, use only values that this run itself has cached, if any."""
        if self._later is not None and self.program is not None and self.program.ended and not self._ended:
            self._ended = True
            if self.program.is_known:
                self._later.step(self.program.rolling, [])
            else:
                self._put_off_nothing(self._later)

    def _put_off_nothing(self, later: Later) -> None:
        """Compute postponed values, and postpone nothing from now on: the program equals no earlier one."""
        nodes = self._reachable()
        sums = [node._work for node in nodes if type(node._work) is Accumulate]
        wanted = [part for work in sums for part in work.known]
        put_off = [node for node in nodes if node._value is LATER]
        later.compute([*wanted, *(node._work for node in put_off)])
        self._compute(put_off)
        for work in sums:
            work.take_back()
        self._later = None
        if self._begun and self.engine is not None:
            self._begin_all(self.engine, list(self._begun.items()))

    def begin_wavefront(self) -> None:
        """Finish the training jobs that were started before. Then start the ready jobs, without waiting for their end.

        A synchronous round calls this method before it invites devices. The simulation of the round then continues
        while the engine trains the models of the previous round, if the engine supports this. Only one wavefront (set
        of jobs that run together) is active at a time. With every engine, the started jobs are trained together.
        Nothing is trained if the results may be in the cache.
        """
        if self.engine is None:
            return
        self._computing = True
        with self.host.part("deferred functions"):
            self.run_calls()
            if self._begun or self._cohort is not None:
                self._run_wavefront()
        self._computing = False
        self._begin(self.engine)

    def flush(self) -> None:
        """Compute all pending values that are still referenced."""
        self._computing = True
        with self.host.part("deferred functions"):
            while self._advance():
                pass
        self._computing = False
        self._pending_byte = 0

    def close(self) -> None:
        """Stop the threads and processes of the engine. Values that are read afterwards are still computed."""
        if self.engine is not None:
            self.engine.close()

    def _node(
        self,
        size: int,
        work: Call | Pick | Part | Accumulate | TrainJob | CohortJob,
        inputs: list[Deferred],
        digest: bytes,
        number: int | None = None,
    ) -> Deferred:
        for item in inputs:
            if item._given is not None and self._trains_by_itself:
                item.check_not_given()
        if number is None:
            self._created = number = self._created + 1
        if self.engine is None:
            return Deferred(number, size, None, self)
        node = Deferred(number, size, work, self)
        me = ref(node)
        self._made.append(me)
        node._digest = digest
        missing = 0
        for item in inputs:
            if item._value is PENDING:
                missing += 1
                if item._waiters is None:
                    item._waiters = [me]
                else:
                    item._waiters.append(me)
        node._missing = missing
        if not missing and type(work) is not Part:  # a `Part` is set when its job ends, not computed
            self._make_ready(node, me)
        self._pending_byte += size * _BYTE_PER_SCALAR + _BYTE_PER_NODE
        self._heed_an_end()
        return node

    def _wait(self, node: Deferred, item: Deferred) -> None:
        node._missing = 1
        item._waiters = [*(item._waiters or ()), ref(node)]

    def _make_ready(self, node: Deferred, me: ref[Deferred]) -> None:
        if type(node._work) in _JOBS:
            if self._trains_by_itself:
                self._ready_jobs.append(me)
                if self.engine is not None and self._later is None and type(node._work) is TrainJob:
                    self.engine.begin(node._work)
        else:
            heappush(self._ready_calls, (node.number, me))

    def _bound(self) -> None:
        """Limit the memory of pending results, and remove dead references from the list of nodes."""
        if len(self._made) > self._look_at:
            self._reachable()
        if self._pending_byte > self._pending_limit_byte:
            self.flush()

    def _advance(self) -> bool:
        return self._run_call() or self._run_wavefront()

    def _run_call(self) -> bool:
        while self._ready_calls:
            node = self._ready_calls[0][1]()
            if node is None or node._work is None or node._value is LATER:
                heappop(self._ready_calls)
                continue
            value = evaluated(node) if self._later is None else self._put_off(node)
            heappop(self._ready_calls)
            if value is PENDING:
                self._wait(node, node._work.waits_for)
            else:
                self._settle(node, value)
            return True
        return False

    def run_calls(self) -> None:
        """Run all deferred function calls whose inputs are known."""
        while self._run_call():
            pass

    def _put_off(self, node: Deferred) -> Any:
        """Postpone a call whose inputs are known; return `LATER`, or `PENDING` if it waits for its next input."""
        work = node._work
        return work.put_off(self._later.counterpart) if self._later and type(work) is Accumulate else LATER

    def _begin(self, engine: Engine) -> None:
        """Start the jobs whose inputs are known, in the order of rounds and devices."""
        nodes, self._ready_jobs = alive(self._ready_jobs), []
        nodes.sort(key=attrgetter("number"))
        if len(nodes) == 1 and type(nodes[0]._work) is CohortJob and nodes[0]._work.in_order:
            columns, awaited = nodes[0]._work.begin()
            if self.program is not None:
                self.program.wavefront(awaited)
            self._cohort = nodes[0]
            engine.begin_cohort(columns)
            return
        jobs: list[tuple[TrainJob | ResolvedJob, Deferred]] = []
        for node in nodes:
            if type(node._work) is CohortJob:  # a cohort among other jobs is split into single jobs
                columns, awaited = node._work.begin()
                jobs += zip(columns.jobs(), awaited, strict=True)
            else:
                jobs.append((node._work, node))
        with suppress(TypeError):  # keys of different types cannot be compared
            jobs.sort(key=_place)
        if jobs and self.program is not None:
            self.program.wavefront([node for _, node in jobs])
            if self._later is not None and not self.program.is_known:
                self._put_off_nothing(self._later)
        self._begin_all(engine, jobs)

    def _begin_all(self, engine: Engine, jobs: Sequence[tuple[TrainJob | ResolvedJob, Deferred]]) -> None:
        if self._later is not None:
            self._begun = dict(jobs)
            return
        self._begun = {job.resolve() if type(job) is TrainJob else job: node for job, node in jobs}
        if self._begun:
            engine.begin_all(list(self._begun))

    def train_together(self, nodes: list[Deferred]) -> None:
        """Run the pending training jobs of `nodes` together, after the function calls on which the jobs depend."""
        assert self.engine is not None
        self.run_calls()
        self._begin_all(self.engine, [(node._work, node) for node in nodes if node._value is PENDING])
        self._run_wavefront()

    def _run_wavefront(self) -> bool:
        """Run the started training jobs or, if there are none, the ready ones. Return False if there are no jobs.

        Afterwards, function calls that have become ready are run, but no further jobs.
        """
        if self.engine is None:
            return False
        if not self._begun and self._cohort is None:
            self._begin(self.engine)
        if self._cohort is not None:
            cohort, self._cohort = self._cohort, None
            self._train_cohort(self.engine, cohort)
            return True
        waiting, self._begun = self._begun, {}
        if not waiting:
            return False
        if self._later is not None:
            self._put_off_all(self._later, waiting)
            return True
        try:
            with self.host.part("training"):
                for resolved, result in trained(self.engine, waiting):
                    node = waiting.pop(resolved)
                    if type(node._work) is TrainJob:
                        self._settle(node, result)
                    else:
                        self._settle_one(node, result.params)
                    del result  # allows freeing the result before the next one exists
                    self.statistics.trained += 1
                    self.statistics.jobs += self._trains_by_itself
                    if self._ready_calls:
                        with self.host.brief_part("deferred functions"):
                            self.run_calls()
        finally:
            again = dict.fromkeys(_job_of(node) for node in waiting.values())
            self._ready_jobs += [ref(node) for node in again if node is not None]
        self._end_wavefront()
        return True

    def _train_cohort(self, engine: Engine, cohort: Deferred) -> None:
        """Run the started training jobs of a cohort. After each stack of jobs, run the calls that became ready."""
        columns, nodes = cohort._work.begun
        try:
            with self.host.part("training"):
                for places, models in engine.run_cohort(columns):
                    for place, params in zip(places, models, strict=True):
                        self._settle_one(nodes[place](), params)
                    del models, params
                    self.statistics.trained += len(places)
                    self.statistics.jobs += len(places)
                    if self._ready_calls:
                        with self.host.brief_part("deferred functions"):
                            self.run_calls()
        except BaseException:
            self._ready_jobs.append(ref(cohort))
            raise
        self._end_wavefront()

    def _settle_one(self, node: Deferred | None, params: Tensor) -> None:
        """Set the trained parameters of a device of a cohort, if they are still needed."""
        self._pending_byte -= _BYTE_OF_LOSS
        if node is None or node._work is None:
            return
        if node._waiters is None:
            node._settle(params)
            self._pending_byte -= node.size * _BYTE_PER_SCALAR + _BYTE_PER_NODE
        else:
            self._settle(node, params)

    def _put_off_all(self, later: Later, waiting: dict[Any, Deferred]) -> None:
        """Postpone the jobs of a wavefront and, after each job, the function calls whose inputs are then known."""
        jobs: list[Deferred] = []
        for job in list(waiting):
            node = waiting.pop(job)
            self._settle(node, LATER)
            jobs.append(node._work)
            del node
            self.statistics.jobs += 1
            self.run_calls()
        assert self.program is not None
        later.step(self.program.rolling, jobs)
        self._end_wavefront()

    def _end_wavefront(self) -> None:
        self.statistics.wavefronts += self._trains_by_itself
        if self.program is not None:
            self.program.over()

    def _settle(self, node: Deferred, value: Any) -> None:
        """Set the value of a node, and of the nodes that select a part of it.

        Nodes whose inputs are now all known are marked as ready. For a job, `value` is the whole `TrainResult`, of
        which the node of the job stores only the loss.
        """
        known = [(node, value)]
        while known:
            node, result = known.pop()
            if result is LATER and self._later is not None:
                value, node._work = LATER, self._later.put_off(node)
                node._value = LATER
            else:
                value = result.loss if type(node._work) is TrainJob else result
                node._settle(value)
            self._pending_byte -= node.size * _BYTE_PER_SCALAR + _BYTE_PER_NODE
            waiters, node._waiters = node._waiters, None
            for me in waiters or ():
                waiter = me()
                if waiter is None or waiter._work is None or waiter._value is not PENDING:
                    continue
                waiter._missing -= 1
                if waiter._missing:
                    continue
                if result is LATER and type(waiter._work) in (Part, Pick):
                    known.append((waiter, LATER))
                    continue
                if type(waiter._work) is Part:
                    known.append((waiter, waiter._work.function(result)))
                    continue
                if type(waiter._work) is Pick:
                    try:
                        known.append((waiter, waiter._work.function(value)))
                        continue
                    except Exception:
                        pass
                self._make_ready(waiter, me)

    def _unreadable(self, deferred: Deferred) -> Exception:
        if self.engine is None:
            return ScenarioError(
                f"timing-only run: a computed value is read, got {deferred!r}; "
                "run with training, or let the algorithm declare a nominal value"
            )
        return RuntimeError(f"{deferred!r} is not of this graph; read it where it was made")


_JOBS = (TrainJob, CohortJob)


def _job_of(node: Deferred) -> Deferred | None:
    """Return the node of the training job that produces the value of `node`; None if there is no such job."""
    work = node._work
    return work.cohort if type(work) is OfCohort else node if type(work) in _JOBS else None


def _place(one: tuple[TrainJob | ResolvedJob, Deferred]) -> Any:
    """Return the sort key of a job: its round, its device, and the rest of the name of its random stream."""
    job, _ = one
    key = (job if type(job) is TrainJob else job.job).rng_key
    return key[2:3], key[1:2], key[3:]


_new = tuple.__new__  # the constructor of a named tuple takes twice as long
