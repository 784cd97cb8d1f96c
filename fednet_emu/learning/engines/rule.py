"""The engine chosen by a fixed rule on model, batch and device, never by timing, so that runs are bit-identical."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, final

from typing_extensions import override

from fednet_emu.learning.engines.batched import BatchedEngine, jobs_per_stack
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.engines.stacks.form import VmapForm
from fednet_emu.learning.graph.engine import Engine, Results
from fednet_emu.learning.graph.grouping import JobShape, group_by_shape
from fednet_emu.learning.graph.jobs import ResolvedJob

Way = Literal["serial", "batched"]

STACK_PAYS = 10
"""Smallest number of jobs in a stack for which PyTorch's `vmap` is faster than one job after the other on a CPU."""


class Case(NamedTuple):
    """The inputs of the rule: jobs of one shape that are ready together.

    Attributes:
        device: "cpu" or "cuda".
        batchable: whether the jobs may share a vectorised call: not with dropout, batch norm or Adam.
        by_hand: whether gradients are hand-written: chains of dense layers, and on a GPU also of convolutions.
        fits: number of jobs that fit together, with batches and activations, into a CPU's caches or a GPU's memory.
        jobs: number of jobs.
    """

    device: str
    batchable: bool
    by_hand: bool
    fits: int
    jobs: int


def choose(case: Case, threads: int = 1) -> Way:
    """The engine for jobs of one shape, which are divided equally among threads.

    1. Jobs that cannot share a call run one by one.
    2. Chains of dense layers (softmax regression, MLPs) are stacked on a CPU. On a GPU all models are stacked, except
       a single job whose gradient is PyTorch's own.
    3. Any other model on a CPU is stacked if each thread gets stacks of at least `STACK_PAYS` jobs that fit into its
       caches, which holds for small models. Larger ones, such as the CNN of McMahan et al., run one by one.

    `docs/concepts/engine.md` has the measurements behind it.
    """
    if not case.batchable:
        return "serial"
    if case.by_hand:
        return "batched"
    if case.device == "cuda":
        return "batched" if case.jobs > 1 else "serial"
    return "batched" if min(case.fits, case.jobs // threads) >= STACK_PAYS else "serial"


@final
class RuleEngine(Engine):
    """Runs jobs of each shape on the engine that `choose` names for them.

    Args:
        threads: number of CPU threads that train jobs in parallel.
    """

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._stacks = [BatchedEngine() for _ in range(threads)]
        self._engines: dict[Way, Engine] = {}
        self._chosen: dict[str, None] = {}

    @property
    @override
    def choices(self) -> list[str]:
        return list(self._chosen)

    @override
    def run(self, jobs: Sequence[ResolvedJob]) -> Results:
        for shape, group in group_by_shape(jobs).items():
            way = choose(self.case(shape, len(group)), self._threads)
            self._note(way, shape)
            yield from self._engine(way).run_group(shape, group)

    @override
    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()

    def case(self, shape: JobShape, jobs: int) -> Case:
        """The inputs of the rule for a number of jobs of one shape."""
        form = self._stacks[0].form_of(shape.model)
        by_hand = not isinstance(form, VmapForm)
        fits = jobs if by_hand else jobs_per_stack(form, shape)
        return Case(shape.model.device.type, shape.batchable, by_hand, fits, jobs)

    def _engine(self, way: Way) -> Engine:
        if way not in self._engines:
            alone = [SerialEngine() for _ in range(self._threads)]
            together = way == "batched"
            self._engines[way] = SpreadEngine(self._stacks if together else alone, together=together)
        return self._engines[way]

    def _note(self, way: Way, shape: JobShape) -> None:
        batches = f"full batches of {shape.width}" if shape.full_batch else f"batches of {shape.width}"
        self._chosen[f"engine {way}, by rule, for {batches}, {shape.model.size} parameters"] = None
