"""The engine that deals jobs to threads, each of which runs its own engine with one thread per operation."""

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
    """Runs jobs side by side in threads: parallel over jobs, never within an operation.

    Threads that share an operation wait for each other by spinning, which ruins whoever else wants the core; threads
    that share nothing but the data do not. A lone job runs in the caller's thread, and so do models that draw random
    numbers of torch, whose generator all threads would share, and models on a GPU, whose memory all would fill.

    Args:
        make: makes the engine of one thread.
        threads: how many.
    """

    def __init__(self, make: Callable[[], Engine], threads: int) -> None:
        self._engines = [make() for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads, "train", torch.set_num_threads, (1,))
        self._blas = ThreadpoolController().select(user_api="blas")

    def run(self, jobs: Sequence[ResolvedJob]) -> list[TrainResult]:
        """The results of the jobs, in their order.

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
        wait(under_way)  # an engine serves one thread at a time, after an error too
        results: dict[int, TrainResult] = {}
        for share, done in zip(dealt, under_way, strict=True):
            results.update(zip(share, done.result(), strict=True))
        return [results[place] for place in range(len(jobs))]


def _dealt(jobs: Sequence[ResolvedJob], shares: int) -> list[list[int]]:
    """The places of each share's jobs: equal parts of the work, neighbours in the data together."""
    order = sorted(range(len(jobs)), key=lambda place: jobs[place].job.first_row)
    work = np.array([_work(jobs[place]) for place in order], dtype=float)
    middle = np.cumsum(work) - work / 2
    cuts = np.searchsorted(middle, work.sum() * np.arange(1, shares) / shares)
    return [order[start:end] for start, end in pairwise([0, *cuts.tolist(), len(order)])]


def _stays(model: FlatModel) -> bool:
    return model.draws or model.device.type != "cpu"


def _work(resolved: ResolvedJob) -> int:
    return resolved.job.plan.n_samples_processed(resolved.job.n_samples)
