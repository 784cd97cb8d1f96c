"""The engine that divides jobs among threads, each with its own engine and one thread per operation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import pairwise
from operator import itemgetter
from queue import SimpleQueue
from typing import final

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from typing_extensions import override

from fednet_emu.learning.graph.engine import Engine, Results, TrainResult
from fednet_emu.learning.graph.grouping import JobShape
from fednet_emu.learning.graph.jobs import ResolvedJob
from fednet_emu.learning.models.flat import FlatModel

Run = Callable[[Engine, Sequence[ResolvedJob]], Results]
"""How an engine is asked to train some jobs."""


@final
class SpreadEngine(Engine):
    """Runs jobs in parallel threads: parallel over jobs, never within an operation.

    Threads that share an operation wait for each other by spinning, which slows other processes on the same core;
    threads that share only the data do not. A single job runs in the caller's thread. So do models that draw random
    numbers from torch, because its generator is shared by all threads, and models on a GPU, to save GPU memory.

    Args:
        engines: the engine of each thread.
        together: whether such an engine trains jobs together, so that each thread is given one large share of them.
            Otherwise a thread that is free takes the next job, so that results come in about the order of the jobs.
    """

    def __init__(self, engines: Sequence[Engine], *, together: bool) -> None:
        self._engines = engines
        self._together = together
        self._pool: ThreadPoolExecutor | None = None
        self._blas = ThreadpoolController().select(user_api="blas")

    @override
    def run(self, jobs: Sequence[ResolvedJob]) -> Results:
        return self._spread(jobs, lambda engine, share: engine.run(share))

    @override
    def run_group(self, shape: JobShape, jobs: Sequence[ResolvedJob]) -> Results:
        return self._spread(jobs, lambda engine, share: engine.run_group(shape, share))

    def _spread(self, jobs: Sequence[ResolvedJob], run: Run) -> Results:
        threads = min(len(self._engines), len(jobs))
        with self._blas.limit(limits=1):
            if threads < 2 or any(map(_stays, dict.fromkeys(resolved.job.model for resolved in jobs))):
                yield from run(self._engines[0], jobs)
            else:
                shares = _dealt(jobs, threads) if self._together else [[resolved] for resolved in jobs]
                yield from self._run_side_by_side(_Wavefront(shares, run), threads)

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
            wavefront.shares.clear()
            wait(under_way)  # also after an error: an engine must not be used by two threads at once
        if wavefront.failed:
            raise min(wavefront.failed, key=itemgetter(0))[1]

    @override
    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class _Wavefront:
    """What the threads of a wavefront share.

    Attributes:
        shares: shares of the jobs that no thread has taken yet, with their numbers.
        ready: results on their way to the caller, several of small models together: to be woken takes the caller longer
            than to take one of them; None from each thread that has ended.
        failed: numbers of the shares that failed, with their errors; the first is the same whichever thread is faster.
    """

    def __init__(self, shares: Sequence[list[ResolvedJob]], run: Run) -> None:
        self.shares, self._run = deque(enumerate(shares)), run
        self.ready: SimpleQueue[deque[tuple[ResolvedJob, TrainResult]] | None] = SimpleQueue()
        self.failed: list[tuple[int, Exception]] = []

    def work(self, engine: Engine) -> None:
        """Run shares in this thread until none is left, or one has failed."""
        with suppress(IndexError):
            while True:
                self._train(engine, *self.shares.popleft())
        self.ready.put(None)

    def _train(self, engine: Engine, number: int, share: list[ResolvedJob]) -> None:
        held: deque[tuple[ResolvedJob, TrainResult]] = deque()
        try:
            for found in self._run(engine, share):
                held.append(found)
                if len(held) * found[1].params.nbytes >= _HELD_BYTE:
                    self.ready.put(held)
                    held = deque()
                del found
        except Exception as error:
            self.failed.append((number, error))
            self.shares.clear()
        self.ready.put(held)


_HELD_BYTE = 1 << 24


def _dealt(jobs: Sequence[ResolvedJob], shares: int) -> list[list[ResolvedJob]]:
    """Shares of about equal work, with jobs in the order of their data."""
    ordered = sorted(jobs, key=lambda resolved: resolved.job.first_row)
    work = np.array([_work(resolved) for resolved in ordered], dtype=float)
    middle = np.cumsum(work) - work / 2
    cuts = np.searchsorted(middle, work.sum() * np.arange(1, shares) / shares)
    return [ordered[start:end] for start, end in pairwise([0, *cuts.tolist(), len(ordered)])]


def _stays(model: FlatModel) -> bool:
    return model.draws or model.device.type != "cpu"


def _work(resolved: ResolvedJob) -> int:
    return resolved.job.plan.n_samples_processed(resolved.job.n_samples)
