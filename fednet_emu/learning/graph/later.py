"""Postponed computations of values that an earlier run may have cached.

They run only if the run reads a value that is missing in the cache. They are nodes of a separate graph, so that the
main graph holds the same values, for the same time, as in a run that computes everything. If a training job is needed,
its whole wavefront (the jobs that run together) is trained, so that results are bit-identical.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol, final

from fednet_emu.learning.graph.accumulation import Accumulate
from fednet_emu.learning.graph.deferred import LATER, PENDING, Deferred, deferreds_in, replaced
from fednet_emu.learning.graph.jobs import TrainJob
from fednet_emu.learning.graph.program import INPUTS, Memo
from fednet_emu.learning.graph.work import Part


class Computes(Protocol):
    """Interface of the graph of postponed computations, which runs training jobs on request."""

    def _node(self, size: int, work: Any, inputs: list[Deferred], digest: bytes) -> Deferred: ...

    def _reachable(self) -> list[Deferred]: ...

    def _settle(self, node: Deferred, value: Any) -> None: ...

    def train_together(self, nodes: list[Deferred]) -> None:
        """Run the pending training jobs of `nodes` together, after the function calls on which the jobs depend."""

    def run_calls(self) -> None:
        """Run all deferred function calls whose inputs are known."""


class Step(NamedTuple):
    """A postponed wavefront, which is a set of training jobs that run together.

    `rolling` is the digest of the learning program after the wavefront. `jobs` has the node and the work of each job,
    because a node loses its work if a snapshot sets its value.
    """

    rolling: bytes
    jobs: list[tuple[Deferred, TrainJob]]


@final
class Later:
    """The postponed computations of a run.

    Each of them is a node of the separate graph `graph`, and is called the counterpart of a node in the run's main
    graph. `memo` is the cache of values and snapshots of earlier runs.
    """

    def __init__(self, graph: Computes, memo: Memo) -> None:
        self._graph, self._memo = graph, memo
        self._steps: list[Step] = []
        self._taken: set[bytes] = set()

    def put_off(self, node: Deferred) -> Deferred:
        """Add a copy of `node` (its counterpart), with known or postponed inputs, to the postponed graph; return it."""
        work, inputs = node._work, []
        if type(work) is TrainJob:
            job = copy.copy(work)
            for name in INPUTS:
                value = getattr(job, name)
                if type(value) is Deferred:
                    setattr(job, name, self.counterpart(value))
            work, inputs = job, job.inputs()
        else:
            args = replaced(work.args, self.counterpart)
            inputs = deferreds_in(args)
            work = work.postponed(args) if type(work) is Accumulate else type(work)(work.function, args)
        return self._graph._node(node.size, work, inputs, node._digest)

    def counterpart(self, node: Deferred) -> Deferred:
        """Return the node of the graph of postponed computations that has the value of `node`, or can compute it."""
        if node._value is LATER:
            its: Deferred = node._work
            return its
        made = Deferred(node.number, node.size, None, self._graph)
        made._digest = node._digest
        made._settle(node._value)
        return made

    def step(self, rolling: bytes, jobs: list[Deferred]) -> None:
        """Record a postponed wavefront of `jobs`, which may be empty; it changes the digest to `rolling`."""
        self._steps.append(Step(rolling, [(job, job._work) for job in jobs]))

    def compute(self, wanted: Iterable[Deferred]) -> None:
        """Compute nodes of the graph of postponed computations, if possible from stored snapshots of earlier values."""
        targets = [node for node in wanted if node._value is PENDING]
        if not targets:
            return
        needed = self._needed(targets)
        for place in range(len(self._steps) - 1, -1, -1):
            if all(step > place for step in needed):
                break
            rolling = self._steps[place].rolling
            if rolling in self._memo.snapshots and rolling not in self._taken:
                self._taken.add(rolling)
                self._settle(self._memo.load(rolling))
                needed = self._needed(targets)
        for place in sorted(needed):
            self._graph.train_together([self._pending(*job) for job in self._steps[place].jobs])
            self._steps[place].jobs.clear()
        self._graph.run_calls()

    def _pending(self, job: Deferred, work: TrainJob) -> Deferred:
        """Return the job, or a copy if a snapshot has set its value.

        The copy is trained with the other jobs of the wavefront, because rounding errors depend on all jobs.
        """
        return job if job._value is PENDING else self._graph._node(job.size, work, work.inputs(), job._digest)

    def _needed(self, targets: list[Deferred]) -> set[int]:
        """Return the indices of the postponed wavefronts whose jobs are needed to compute the targets."""
        step_of = {id(job): place for place, step in enumerate(self._steps) for job, _ in step.jobs}
        found: set[int] = set()
        seen, left = set[int](), list(targets)
        while left:
            node = left.pop()
            if id(node) in seen or node._value is not PENDING or node._work is None:
                continue
            seen.add(id(node))
            if type(node._work) is TrainJob:
                place = step_of[id(node)]
                if place not in found:
                    found.add(place)
                    left += [item for _, work in self._steps[place].jobs for item in work.inputs()]
            elif type(node._work) is Accumulate:
                left += [*deferreds_in(node._work.args), *node._work.parts]
            else:
                left += deferreds_in(node._work.args)
        return found

    def _settle(self, values: dict[bytes, Any]) -> None:
        """Set pending postponed nodes to `values`, by node digest; a job needs all its requested results."""
        jobs = []
        for node in self._graph._reachable():
            if node._value is not PENDING or node._digest not in values:
                continue
            if type(node._work) is TrainJob:
                jobs.append(node)
            else:
                self._graph._settle(node, values[node._digest])
        for job in jobs:
            parts = [me() for me in job._waiters or ()]
            if all(part is None or type(part._work) is not Part or part._value is not PENDING for part in parts):
                job._work = None
                self._graph._settle(job, values[job._digest])
