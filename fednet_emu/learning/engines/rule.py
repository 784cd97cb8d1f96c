"""The rule that chooses an engine for training jobs.

The rule depends on the model, the batch and the device, but not on measured times, so that runs are bit-identical.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, final

from torch import Tensor

from fednet_emu.learning.engines.batched import STACK_PAYS, BatchedEngine, jobs_per_stack, shapes_of
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.stacks.form import VmapForm
from fednet_emu.learning.graph.cohort import Columns
from fednet_emu.learning.graph.engine import Ended, Engine, Results
from fednet_emu.learning.graph.grouping import JobShape, group_by_shape, shape_of
from fednet_emu.learning.graph.jobs import ResolvedJob

Way = Literal["serial", "batched"]
_MANY = 10**9


class Case(NamedTuple):
    """The inputs of the rule that chooses an engine. They describe jobs of one shape that are ready together."""

    device: str  # "cpu" or "cuda"
    batchable: bool  # whether the jobs may share a vectorised call; false with dropout, batch norm or Adam
    by_hand: bool  # whether gradients are hand-written (dense chains, on a GPU also convolutions)
    fits: int  # number of jobs whose stack fits into a CPU's caches or a GPU's memory
    jobs: int  # number of jobs


def choose(case: Case) -> Way:
    """Return the name of the engine that trains jobs of one shape.

    1. Jobs that cannot share a vectorised call run one by one.
    2. Chains of dense layers (softmax regression, MLPs) are stacked on a CPU. On a GPU all models are stacked, except
       a single job whose gradient is computed by PyTorch.
    3. Jobs of any other model on a CPU are stacked if at least `STACK_PAYS` of them fit into a core's caches, which is
       the case for small models. Jobs of larger models, such as the CNN of McMahan et al., run one by one.

    The measurements behind the rule are in `docs/concepts/engine.md`.
    """
    if not case.batchable:
        return "serial"
    if case.by_hand:
        return "batched"
    if case.device == "cuda":
        return "batched" if case.jobs > 1 else "serial"
    return "batched" if min(case.fits, case.jobs) >= STACK_PAYS else "serial"


@final
class RuleEngine(Engine):
    """Engine that trains the jobs of each shape with the engine that `choose` returns."""

    def __init__(self) -> None:
        self._batched = BatchedEngine()
        self._chosen: dict[str, None] = {}

    @property
    def choices(self) -> list[str]:
        return list(self._chosen)

    def run(self, jobs: Sequence[ResolvedJob]) -> Results:
        for stack in self.cut(jobs):
            yield from self.run_stack(stack)

    def cut(self, jobs: Sequence[ResolvedJob]) -> list[list[ResolvedJob]]:
        stacks: list[list[ResolvedJob]] = []
        for shape, group in group_by_shape(jobs).items():
            way = choose(self.case(shape, len(group)))
            self._note(way, shape)
            stacks += self._batched.stacks(shape, group) if way == "batched" else ([one] for one in group)
        return stacks

    def takes(self, columns: Columns) -> bool:
        return self._batched.takes(columns)

    def cut_cohort(self, columns: Columns) -> list[list[int]]:
        stacks: list[list[int]] = []
        for shape, group in shapes_of(columns):
            self._note("batched", shape)  # gradients are hand-written
            stacks += self._batched.stacks_of(columns, shape, group)
        return stacks

    def is_alone(self, resolved: ResolvedJob) -> bool:
        return choose(self.case(shape_of(resolved), _MANY)) == "serial"

    def run_stack(self, jobs: Sequence[ResolvedJob]) -> Results:
        return self._batched.run_stack(jobs)

    def train_into(self, jobs: Sequence[ResolvedJob], out: Tensor) -> Ended:
        return self._batched.train_into(jobs, out)

    def case(self, shape: JobShape, jobs: int) -> Case:
        """Return the inputs of the rule that chooses an engine, for `jobs` jobs of one shape."""
        form = self._batched.form_of(shape)
        by_hand = not isinstance(form, VmapForm)
        fits = jobs if by_hand else jobs_per_stack(form, shape)
        return Case(shape.model.device.type, shape.batchable, by_hand, fits, jobs)

    def _note(self, way: Way, shape: JobShape) -> None:
        batches = f"full batches of {shape.width}" if shape.full_batch else f"batches of {shape.width}"
        self._chosen[f"engine {way}, by rule, for {batches}, {shape.model.size} parameters"] = None


ENGINES: Mapping[str, Callable[[], Engine]] = {
    "by-rule": RuleEngine,
    "serial": SerialEngine,
    "batched": BatchedEngine,
}
"""Constructors of the single-threaded engines, by the names that scenarios use."""
