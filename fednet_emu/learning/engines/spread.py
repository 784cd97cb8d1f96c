"""The engine that divides jobs among threads.

Each thread has its own engine and a single intra-op thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from queue import SimpleQueue
from typing import TypeVar, final

import torch
from torch import Tensor

from fednet_emu.learning.graph.cohort import Columns
from fednet_emu.learning.graph.engine import Ended, Engine, Results, TrainResult
from fednet_emu.learning.graph.jobs import ResolvedJob

_T = TypeVar("_T")


@final
class SpreadEngine(Engine):
    """Engine that trains jobs in parallel threads, each of which uses one of the `engines`.

    Different jobs run in parallel, but a single operation is never divided among threads. Threads that divide an
    operation would wait for each other by spinning, which slows other processes on the same core. Three kinds of jobs
    run in the caller's thread: a single job, because it may use several intra-op threads; jobs of models that draw
    random numbers from torch, because all threads share torch's generator; and jobs of models on a GPU, to save GPU
    memory. An idle thread takes the next stack of jobs, so that results arrive roughly in the order of the stacks.
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = engines
        self._pool: ThreadPoolExecutor | None = None

    @property
    def choices(self) -> Sequence[str]:
        return self._engines[0].choices

    def cut(self, jobs: Sequence[ResolvedJob]) -> list[list[ResolvedJob]]:
        return self._engines[0].cut(jobs)

    def takes(self, columns: Columns) -> bool:
        return self._engines[0].takes(columns)

    def cut_cohort(self, columns: Columns) -> list[list[int]]:
        return self._engines[0].cut_cohort(columns)

    def is_alone(self, resolved: ResolvedJob) -> bool:
        return self._engines[0].is_alone(resolved)

    def run_stack(self, jobs: Sequence[ResolvedJob]) -> Results:
        return _in_one_thread(self._engines[0].run_stack(jobs))

    def train_into(self, jobs: Sequence[ResolvedJob], out: Tensor) -> Ended:
        return _in_one_thread(self._engines[0].train_into(jobs, out))

    def run(self, jobs: Sequence[ResolvedJob]) -> Results:
        stacks = self.cut(jobs)
        threads = min(len(self._engines), len(stacks))
        models = {resolved.job.model for resolved in jobs}
        if threads < 2 or any(model.draws or model.device.type != "cpu" for model in models):
            for stack in stacks:
                results = self._engines[0].run_stack(stack)
                yield from results if len(jobs) == 1 else _in_one_thread(results)
        else:
            yield from self._run_side_by_side(_Wavefront(stacks), threads)

    def _run_side_by_side(self, wavefront: _Wavefront, threads: int) -> Results:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(len(self._engines), "train", torch.set_num_threads, (1,))
        under_way = [self._pool.submit(wavefront.work, engine) for engine in self._engines[:threads]]
        try:
            ended = 0
            while ended < threads:
                found = wavefront.ready.get()
                ended += found is None
                while found:
                    yield found.popleft()
        finally:
            wavefront.stacks.clear()
            wait(under_way)  # also after an error, as two threads must not use one engine at once
        if wavefront.failed:
            raise min(wavefront.failed, key=itemgetter(0))[1]

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _in_one_thread(results: Iterator[_T]) -> Iterator[_T]:
    """Yield results, while each of them is computed with a single intra-op thread, as in the pool's threads."""
    while True:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            found = list(islice(results, 1))
        finally:
            torch.set_num_threads(before)
        if not found:
            return
        yield found.pop()  # keep no reference to the result


class _Wavefront:
    """The state that the threads share while they train a wavefront (a set of jobs that run together).

    Results of small models are passed to the caller several at a time, because waking the caller takes longer than
    reading a result. If several stacks fail, the error of the first one in order is reported.
    """

    def __init__(self, stacks: Sequence[list[ResolvedJob]]) -> None:
        self.stacks = deque(enumerate(stacks))
        self.ready: SimpleQueue[deque[tuple[ResolvedJob, TrainResult]] | None] = SimpleQueue()
        self.failed: list[tuple[int, Exception]] = []

    def work(self, engine: Engine) -> None:
        """Train stacks in the current thread until none is left or a stack has failed."""
        with suppress(IndexError):
            while True:
                self._train(engine, *self.stacks.popleft())
        self.ready.put(None)

    def _train(self, engine: Engine, number: int, stack: list[ResolvedJob]) -> None:
        held: deque[tuple[ResolvedJob, TrainResult]] = deque()
        try:
            for found in engine.run_stack(stack):
                held.append(found)
                if len(held) * found[1].params.nbytes >= _HELD_BYTE:
                    self.ready.put(held)
                    held = deque()
                del found
        except Exception as error:
            self.failed.append((number, error))
            self.stacks.clear()
        self.ready.put(held)


_HELD_BYTE = 1 << 24
