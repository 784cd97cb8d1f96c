"""The engine that divides jobs among threads, each with its own engine and one thread per operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import final

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from fednet_emu.learning.graph.engine import Engine, TrainResult
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
    """

    def __init__(self, make: Callable[[], Engine], threads: int) -> None:
        self._engines = [make() for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads, "train", torch.set_num_threads, (1,))
        self._blas = ThreadpoolController().select(user_api="blas")

    def run(self, jobs: Sequence[ResolvedJob]) -> list[TrainResult]:
        """Train the jobs; returns their results in the same order.

        Raises:
            Diverged: a loss or a parameter stopped being finite; the text names the job and the step.
        """
        shares = min(len(self._engines), len(jobs))
        with self._blas.limit(limits=1):
            if shares < 2 or any(map(_stays, dict.fromkeys(resolved.job.model for resolved in jobs))):
                return self._engines[0].run(jobs)
            return self._run_side_by_side(jobs, shares)

    def _run_side_by_side(self, jobs: Sequence[ResolvedJob], shares: int) -> list[TrainResult]:
        dealt = _dealt(jobs, shares)
        under_way = [
            self._pool.submit(engine.run, [jobs[place] for place in share])
            for engine, share in zip(self._engines, dealt, strict=False)
        ]
        wait(under_way)  # also after an error: an engine must not be used by two threads at once
        results: dict[int, TrainResult] = {}
        for share, done in zip(dealt, under_way, strict=True):
            results.update(zip(share, done.result(), strict=True))
        return [results[place] for place in range(len(jobs))]


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
