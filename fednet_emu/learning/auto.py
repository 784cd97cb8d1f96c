"""The engine that measures which engine runs jobs of a shape faster on this machine, and the table of all engines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

from fednet_emu.learning.batched import BatchedEngine
from fednet_emu.learning.engine import Engine, TrainResult
from fednet_emu.learning.flat import FlatModel
from fednet_emu.learning.grouping import JobShape, group_by_shape
from fednet_emu.learning.jobs import ResolvedJob
from fednet_emu.learning.serial import SerialEngine


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """Which engine was chosen for what, and why: host seconds per sample and step of both.

    Attributes:
        parameters: size of the model.
        full_batch: whether every step uses all samples of its device.
        width: samples per batch, rounded up to a power of two.
        jobs: jobs per wavefront, rounded up to a power of two.
        engine: name of the faster engine.
        serial_s: seconds per sample of the serial engine.
        batched_s: seconds per sample of the batched engine.
    """

    parameters: int
    full_batch: bool
    width: int
    jobs: int
    engine: str
    serial_s: float
    batched_s: float


class _Case(NamedTuple):
    """What a choice is made for; the data do not matter, the number of jobs does."""

    model: FlatModel
    full_batch: bool
    width: int
    terms: tuple[bool, bool]
    jobs: int


@dataclass(slots=True)
class _Trial:
    """Seconds per sample that each engine took so far; the first wavefront of each also warms it up."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {"serial": [], "batched": []})

    @property
    def is_over(self) -> bool:
        return all(len(taken) == 2 for taken in self.seconds.values())

    def next_engine(self) -> str:
        """The engine measured less often, or the faster one once the trial is over."""
        if self.is_over:
            return min(self.seconds, key=lambda name: min(self.seconds[name]))
        return min(self.seconds, key=lambda name: len(self.seconds[name]))


@final
class AutoEngine:
    """Runs the first four wavefronts of a shape on the serial and the batched engine in turn, then keeps the faster.

    The choice depends on the host's speed and so may differ between runs; results then differ by float rounding. A run
    that has to repeat bit by bit names its engine.
    """

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {"serial": SerialEngine(), "batched": BatchedEngine()}
        self._trials: dict[_Case, _Trial] = {}

    def run(self, jobs: Sequence[ResolvedJob]) -> list[TrainResult]:
        """The results of the jobs, in their order.

        Raises:
            ScenarioError: a loss or a parameter stopped being finite; the text names the job and the step.
        """
        results: dict[int, TrainResult] = {}
        for shape, places in group_by_shape(jobs).items():
            group = [jobs[place] for place in places]
            results.update(zip(places, self._run_group(shape, group), strict=True))
        return [results[place] for place in range(len(jobs))]

    @property
    def choices(self) -> list[Choice]:
        """The choices made so far, in the order in which their shapes appeared."""
        return [
            Choice(
                parameters=case.model.size,
                full_batch=case.full_batch,
                width=case.width,
                jobs=case.jobs,
                engine=trial.next_engine(),
                serial_s=min(trial.seconds["serial"]),
                batched_s=min(trial.seconds["batched"]),
            )
            for case, trial in self._trials.items()
            if trial.is_over
        ]

    def _run_group(self, shape: JobShape, group: list[ResolvedJob]) -> list[TrainResult]:
        if len(group) == 1 or not shape.batchable:
            return self._engines["serial"].run(group)
        terms = (shape.linear, shape.anchor)
        case = _Case(shape.model, shape.full_batch, shape.width, terms, 1 << (len(group) - 1).bit_length())
        trial = self._trials.setdefault(case, _Trial())
        name = trial.next_engine()
        if trial.is_over:
            return self._engines[name].run(group)
        start_s = time.perf_counter()
        results = self._engines[name].run(group)
        samples = sum(resolved.job.plan.n_samples_processed(resolved.job.n_samples) for resolved in group)
        trial.seconds[name].append((time.perf_counter() - start_s) / samples)
        return results


ENGINES: Mapping[str, Callable[[], Engine]] = {"serial": SerialEngine, "batched": BatchedEngine, "auto": AutoEngine}
"""Engines by the name they have in a scenario."""
