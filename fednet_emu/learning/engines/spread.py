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

from fednet_emu.learning.graph.engine import Engine, Take, TrainResult, at
from fednet_emu.learning.graph.jobs import ResolvedJob
from fednet_emu.learning.models.flat import FlatModel


@final
class SpreadEngine:
    """Runs jobs in parallel threads: parallel over jobs, never within an operation.

    Threads that share an operation wait for each other by spinning, which slows other processes on the same core;
    threads that share only the data do not. A single job runs in the caller's thread. So do models that draw random
    numbers from torch, because its generator is shared by all threads, and models on a GPU, to save GPU memory.

    Args:
        make: makes the engine of one thread.
        threads: number of threads.
        together: whether such an engine trains jobs together, so that each thread is given one large share of them.
            Otherwise a thread that is free takes the next job, so that results come in about the order of the jobs.
    """

    def __init__(self, make: Callable[[], Engine], threads: int, *, together: bool) -> None:
        self._engines = [make() for _ in range(threads)]
        self._together = together
        self._pool: ThreadPoolExecutor | None = None
        self._blas = ThreadpoolController().select(user_api="blas")

    def run(self, jobs: Sequence[ResolvedJob], take: Take) -> None:
        """Train the jobs; each result is handed over in the caller's thread as soon as it is known.

        Raises:
            Diverged: a loss or a parameter stopped being finite; the text names the job and the step.
        """
        threads = min(len(self._engines), len(jobs))
        with self._blas.limit(limits=1):
            if threads < 2 or any(map(_stays, dict.fromkeys(resolved.job.model for resolved in jobs))):
                self._engines[0].run(jobs, take)
            else:
                self._run_side_by_side(jobs, threads, take)

    def _run_side_by_side(self, jobs: Sequence[ResolvedJob], threads: int, take: Take) -> None:
        shares = _dealt(jobs, threads) if self._together else [[place] for place in range(len(jobs))]
        wavefront = _Wavefront(jobs, deque(shares))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(len(self._engines), "train", torch.set_num_threads, (1,))
        under_way = [self._pool.submit(wavefront.work, engine) for engine in self._engines[:threads]]
        try:
            ended = 0
            while ended < threads:
                ended += _hand_over(wavefront.ready.get(), take)
        finally:
            wavefront.shares.clear()
            wait(under_way)  # also after an error: an engine must not be used by two threads at once
        if wavefront.failed:
            raise min(wavefront.failed, key=itemgetter(0))[1]

    def close(self) -> None:
        """End the threads; a later `run` starts them anew."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class _Wavefront:
    """What the threads of a wavefront share.

    Attributes:
        shares: places of the jobs in each share that no thread has taken yet.
        ready: results on their way to the caller, several of small models together: to be woken takes the caller longer
            than to take one of them; None from each thread that has ended.
        failed: shares that failed, with their errors; the first share is the same whichever thread is faster.
    """

    def __init__(self, jobs: Sequence[ResolvedJob], shares: deque[list[int]]) -> None:
        self._jobs, self.shares = jobs, shares
        self.ready: SimpleQueue[deque[tuple[int, TrainResult]] | None] = SimpleQueue()
        self.failed: list[tuple[list[int], Exception]] = []

    def work(self, engine: Engine) -> None:
        """Run shares in this thread until none is left, or one has failed."""
        with suppress(IndexError):
            while True:
                self._run(engine, self.shares.popleft())
        self.ready.put(None)

    def _run(self, engine: Engine, share: list[int]) -> None:
        held: deque[tuple[int, TrainResult]] = deque()

        def take(place: int, result: TrainResult) -> None:
            held.append((place, result))
            if len(held) * result.params.nbytes >= _HELD_BYTE:
                self._send(held)

        try:
            engine.run([self._jobs[place] for place in share], at(share, take))
        except Exception as error:
            self.failed.append((share, error))
            self.shares.clear()
        self._send(held)

    def _send(self, held: deque[tuple[int, TrainResult]]) -> None:
        self.ready.put(held.copy())
        held.clear()


_HELD_BYTE = 1 << 24


def _hand_over(found: deque[tuple[int, TrainResult]] | None, take: Take) -> bool:
    """Hand over results; True if it is the end of a thread instead. Nothing keeps a result after it was taken."""
    if found is None:
        return True
    while found:
        take(*found.popleft())
    return False


def _dealt(jobs: Sequence[ResolvedJob], shares: int) -> list[list[int]]:
    """Job indices of each share: shares of about equal work, with jobs in the order of their data."""
    order = sorted(range(len(jobs)), key=lambda place: jobs[place].job.first_row)
    work = np.array([_work(jobs[place]) for place in order], dtype=float)
    middle = np.cumsum(work) - work / 2
    cuts = np.searchsorted(middle, work.sum() * np.arange(1, shares) / shares)
    return [order[start:end] for start, end in pairwise([0, *cuts.tolist(), len(order)])]


def _stays(model: FlatModel) -> bool:
    return model.draws or model.device.type != "cpu"


def _work(resolved: ResolvedJob) -> int:
    return resolved.job.plan.n_samples_processed(resolved.job.n_samples)
