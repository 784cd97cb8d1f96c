"""The engine chosen by a fixed rule on model, batch and device, never by timing, so that runs are bit-identical."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, final

from fednet_emu.learning.engines.batched import BatchedEngine, best_form, jobs_per_stack
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.engines.stacks.form import Form, VmapForm
from fednet_emu.learning.graph.engine import Engine, Take, at
from fednet_emu.learning.graph.grouping import JobShape, group_by_shape
from fednet_emu.learning.graph.jobs import ResolvedJob
from fednet_emu.learning.models.flat import FlatModel

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
class RuleEngine:
    """Runs jobs of each shape on the engine that `choose` names for them.

    Args:
        threads: number of CPU threads that train jobs in parallel.
    """

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._forms: dict[FlatModel, Form] = {}
        self._engines: dict[Way, Engine] = {}
        self._chosen: dict[str, None] = {}

    @property
    def choices(self) -> list[str]:
        """The choices made so far, as text, in the order in which shapes appeared."""
        return list(self._chosen)

    def run(self, jobs: Sequence[ResolvedJob], take: Take) -> None:
        """Train the jobs; each result is handed over as soon as it is known.

        Raises:
            Diverged: a loss or a parameter stopped being finite; the text names the job and the step.
        """
        for shape, places in group_by_shape(jobs).items():
            way = choose(self.case(shape, len(places)), self._threads)
            self._note(way, shape)
            self._engine(way).run([jobs[place] for place in places], at(places, take))

    def close(self) -> None:
        """End the threads of all engines."""
        for engine in self._engines.values():
            engine.close()

    def case(self, shape: JobShape, jobs: int) -> Case:
        """The inputs of the rule for a number of jobs of one shape."""
        form = self._forms.get(shape.model)
        if form is None:
            form = self._forms[shape.model] = best_form(shape.model)
        by_hand = not isinstance(form, VmapForm)
        fits = jobs if by_hand else jobs_per_stack(form, shape)
        return Case(shape.model.device.type, shape.batchable, by_hand, fits, jobs)

    def _engine(self, way: Way) -> Engine:
        engine = self._engines.get(way)
        if engine is None:
            together = way == "batched"
            make = BatchedEngine if together else SerialEngine
            engine = self._engines[way] = SpreadEngine(make, self._threads, together=together)
        return engine

    def _note(self, way: Way, shape: JobShape) -> None:
        batches = f"full batches of {shape.width}" if shape.full_batch else f"batches of {shape.width}"
        self._chosen[f"engine {way}, by rule, for {batches}, {shape.model.size} parameters"] = None
