"""The hand-written loops: no simulator, no network, no clock, just the arithmetic."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import Tensor, nn

from peers import loops
from peers.models import build_model
from peers.stopwatch import Stopwatch, Task, report
from peers.workloads import Workload, load_data

Loop = type[loops.Lean] | type[loops.Analytic]
Round = Callable[[Tensor, Tensor], Tensor]
"""From w [P] and the batches [C, S, B] of a cohort to the mean [P] of the trained models."""

IN_ONE_PROCESS = {
    "lean": loops.Lean,
    "naive": loops.Naive,
    "vmap": partial(loops.Stacked, gradient=loops.by_vmap),
    "stacked": partial(loops.Stacked, gradient=loops.by_autograd),
    "analytic": loops.Analytic,
}
IN_TWO_THREADS = {"analytic-threads": loops.Analytic}
IN_TWO_PROCESSES = {"two": loops.Lean, "analytic-two": loops.Analytic}
MIXING, SIGMA = 0.1, 0.5
"""Of W4: the share of an arriving model in the new one, and the spread of the computation times."""


def main() -> None:
    """Run one loop on one workload."""
    task = Task.from_command_line((*IN_ONE_PROCESS, *IN_TWO_THREADS, *IN_TWO_PROCESSES))
    workload = task.workload
    data = load_data(workload, task.folder)
    x, y = torch.from_numpy(data.x).flatten(0, 1), torch.from_numpy(data.y).flatten()
    model = build_model(workload.model)
    if task.variant in IN_TWO_PROCESSES:
        with Processes(IN_TWO_PROCESSES[task.variant], model, x, y, workload.lr) as pool:
            torch.set_num_threads(1)
            finish(task, model, Stopwatch(workload), pool.round)
    elif task.variant in IN_TWO_THREADS:
        torch.set_num_threads(1)
        threads = Threads(IN_TWO_THREADS[task.variant], model, x, y, workload.lr)
        finish(task, model, Stopwatch(workload), threads.round)
    elif workload.name == "W4":
        torch.set_num_threads(1)
        watch = Stopwatch(workload)
        w, steps = asynchronous(workload, loops.Lean(model, x, y, workload.lr), loops.flat(model), watch)
        report(task, watch, steps, as_arrays(model, w), "torch")
    else:
        finish(
            task,
            model,
            Stopwatch(workload, torch.set_num_threads),
            IN_ONE_PROCESS[task.variant](model, x, y, workload.lr).round,
        )


def finish(task: Task, model: nn.Module, watch: Stopwatch, train: Round) -> None:
    """All rounds, and the report."""
    workload, rng = task.workload, np.random.default_rng(1)
    w, steps = loops.flat(model), 0
    watch.round_done()
    for _ in range(workload.all_rounds):
        _, rows = loops.draw_batches(workload, rng)
        w = train(w, rows)
        steps += rows.shape[0] * rows.shape[1]
        watch.round_done()
    report(task, watch, steps, as_arrays(model, w), "torch")


def as_arrays(model: nn.Module, w: Tensor) -> list[np.ndarray]:
    """The parameters inside w [P] as arrays."""
    return [piece.numpy() for piece in loops.pieces(w, tuple(model.parameters()))]


def asynchronous(workload: Workload, lean: loops.Lean, w: Tensor, watch: Stopwatch) -> tuple[Tensor, int]:
    """S = 1: whoever is done first is mixed in and starts again; a heap of times is all there is of a clock."""
    rng, count = np.random.default_rng(1), workload.clients
    views = [slice(k * workload.samples, (k + 1) * workload.samples) for k in range(count)]
    at_work = [(float(rng.lognormal(sigma=SIGMA)), worker, w) for worker in range(count)]
    heapq.heapify(at_work)
    watch.round_done()
    for step in itertools.count(1):
        now_s, worker, given = at_work[0]
        with torch.no_grad():
            lean.vector.copy_(given)
        lean.step(lean.x[views[worker]], lean.y[views[worker]])
        w = torch.lerp(w, lean.vector, MIXING)
        heapq.heapreplace(at_work, (now_s + float(rng.lognormal(sigma=SIGMA)), worker, w))
        watch.round_done()
        if step == workload.all_rounds:
            return w, step
    raise AssertionError("unreachable")


class Threads:
    """Two threads of one process, each with one thread per operation.

    Args:
        loop: what each of them runs on its part of a cohort.
    """

    def __init__(self, loop: Loop, model: nn.Module, x: Tensor, y: Tensor, lr: float, count: int = 2) -> None:
        self.loops = [loop(model, x, y, lr) for _ in range(count)]
        self.pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))

    def round(self, w: Tensor, rows: Tensor) -> Tensor:
        """The mean [P] of the models that the clients' batches [C, S, B] make of w."""
        parts = rows.tensor_split(len(self.loops))
        sums = self.pool.map(lambda own, part: own.round(w, part) * len(part), self.loops, parts)
        return torch.stack(list(sums)).sum(0) / len(rows)


class Processes:
    """Two processes with one thread each, which share the samples, the model and their sums.

    Args:
        loop: what each of them runs on its part of a cohort.
    """

    def __init__(self, loop: Loop, model: nn.Module, x: Tensor, y: Tensor, lr: float, count: int = 2) -> None:
        self.w = loops.flat(model).share_memory_()
        self.sums = torch.zeros(count, len(self.w)).share_memory_()
        self.clients = 0
        self.pipes, self.workers = [], []
        context = mp.get_context("spawn")
        for place in range(count):
            here, there = context.Pipe()
            shared = (there, loop, model, x.share_memory_(), y.share_memory_(), lr, self.w, self.sums[place])
            self.workers.append(context.Process(target=work, args=shared, daemon=True))
            self.pipes.append(here)
        for worker in self.workers:
            worker.start()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self.pipes:
            pipe.send(None)
        for worker in self.workers:
            worker.join()

    def round(self, w: Tensor, rows: Tensor) -> Tensor:
        """The mean [P] of the models that the clients' batches [C, S, B] make of w."""
        self.start(w, rows)
        return self.mean()

    def start(self, w: Tensor, rows: Tensor) -> None:
        """Let the processes train, and return at once."""
        self.w.copy_(w)
        self.clients = len(rows)
        for pipe, part in zip(self.pipes, rows.tensor_split(len(self.pipes)), strict=True):
            pipe.send(part.numpy())

    def mean(self) -> Tensor:
        """The mean [P] of what they have trained, when all are done."""
        for pipe in self.pipes:
            pipe.recv()
        return self.sums.sum(0) / self.clients


def work(pipe, loop: Loop, model: nn.Module, x: Tensor, y: Tensor, lr: float, w: Tensor, total: Tensor) -> None:
    """A worker's life: batches in, the sum of the trained models out through shared memory."""
    torch.set_num_threads(1)
    own = loop(model, x, y, lr)
    while (rows := pipe.recv()) is not None:
        torch.mul(own.round(w, torch.from_numpy(rows)), len(rows), out=total)
        pipe.send(True)


if __name__ == "__main__":
    main()
