"""The engine that measures which other engine is fastest for jobs of a given shape on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, final

from fednet_emu.learning.engines.batched import BatchedEngine, stacks
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.engines.stacks.chain import chain_form
from fednet_emu.learning.engines.stacks.form import VmapForm
from fednet_emu.learning.graph.engine import Engine, Take, at
from fednet_emu.learning.graph.grouping import JobShape, group_by_shape
from fednet_emu.learning.graph.jobs import ResolvedJob
from fednet_emu.learning.models.flat import FlatModel

_TRIAL_JOBS = 128
"""Jobs in a trial on a CPU: enough for several stacks that fill its caches; more would only prolong slow trials."""

_TRIAL_ALONE = 32
"""Jobs in a trial of an engine that runs them one by one."""

_SURE_STEPS = 256
"""Number of steps, one by one on a CPU, after which the time to load code before the first step is negligible."""


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """The engine chosen for jobs of one shape, with the measurements behind it.

    Attributes:
        parameters: size of the model.
        full_batch: whether every step uses all samples of its device.
        width: samples per batch, rounded up to a power of two.
        jobs: jobs per wavefront, rounded up to a power of two; on a CPU, 128 stands for 128 or more.
        engine: name of the fastest engine.
        seconds: host seconds per sample of each engine.
    """

    parameters: int
    full_batch: bool
    width: int
    jobs: int
    engine: str
    seconds: Mapping[str, float]

    def __str__(self) -> str:
        batches = f"full batches of {self.width}" if self.full_batch else f"batches of {self.width}"
        taken = ", ".join(f"{name} {seconds * 1e6:.3g} us" for name, seconds in self.seconds.items())
        return (
            f"engine {self.engine} for wavefronts of up to {self.jobs} jobs, {batches}, {self.parameters} parameters; "
            f"measured per sample: {taken}"
        )


class _Case(NamedTuple):
    """The key of a choice: the shape of the jobs without their data, and their number."""

    model: FlatModel
    batchable: bool
    full_batch: bool
    width: int
    terms: tuple[bool, ...]
    jobs: int


class _Trial:
    """Seconds per sample of each engine so far; the first wavefront of each engine also warms it up.

    Each engine is measured twice, except one whose first measurement is conclusive and more than twice the best.
    """

    def __init__(self, engines: Sequence[str]) -> None:
        self._taken: dict[str, list[float]] = {name: [] for name in engines}
        self._known: set[str] = set()

    @property
    def is_vain(self) -> bool:
        return len(self._taken) == 1

    @property
    def is_over(self) -> bool:
        return self.is_vain or not self._open()

    @property
    def seconds(self) -> dict[str, float]:
        return {name: min(taken) for name, taken in self._taken.items()}

    def note(self, engine: str, seconds: float, *, says_enough: bool) -> None:
        self._taken[engine].append(seconds)
        if says_enough:
            self._known.add(engine)

    def next_engine(self) -> str:
        """The engine measured least often, or the fastest one once the trial is over."""
        if self.is_over:
            return min(self._taken, key=lambda name: min(self._taken[name], default=0.0))
        return min(self._open(), key=lambda name: len(self._taken[name]))

    def _open(self) -> list[str]:
        """The engines that still have to be measured."""
        best = min((seconds for taken in self._taken.values() for seconds in taken), default=0.0)
        return [
            name
            for name, taken in self._taken.items()
            if len(taken) < 2 and not (name in self._known and taken[0] > 2 * best)
        ]


@final
class AutoEngine:
    """Runs the first jobs of a shape on each suitable engine, then uses the fastest.

    Each engine is measured twice, unless the first time is conclusive, on a wavefront or on a part of a very large one.
    The choice depends on the host's speed and may differ between runs; results then differ by float rounding. The
    default, `RuleEngine`, makes runs bit-identical.

    Args:
        threads: number of CPU threads that train jobs in parallel.
    """

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._engines: dict[str, Engine] = {}
        self._trials: dict[_Case, _Trial] = {}

    def run(self, jobs: Sequence[ResolvedJob], take: Take) -> None:
        """Train the jobs; each result is handed over as soon as it is known.

        Raises:
            Diverged: a loss or a parameter stopped being finite; the text names the job and the step.
        """
        for shape, places in group_by_shape(jobs).items():
            self._run_group(shape, [jobs[place] for place in places], at(places, take))

    def close(self) -> None:
        """End the threads of all engines."""
        for engine in self._engines.values():
            engine.close()

    @property
    def choices(self) -> list[Choice]:
        """The choices made so far, in the order in which their shapes appeared."""
        return [
            Choice(case.model.size, case.full_batch, case.width, case.jobs, trial.next_engine(), trial.seconds)
            for case, trial in self._trials.items()
            if trial.is_over and not trial.is_vain
        ]

    def _run_group(self, shape: JobShape, group: list[ResolvedJob], take: Take) -> None:
        terms = (shape.linear, shape.drift, shape.anchor, shape.rule is not None)
        on_cpu = shape.model.device.type == "cpu"
        jobs = 1 << ((min(len(group), _TRIAL_JOBS) if on_cpu else len(group)) - 1).bit_length()
        case = _Case(shape.model, shape.batchable, shape.full_batch, shape.width, terms, jobs)
        trial = self._trials.get(case)
        if trial is None:
            trial = self._trials[case] = _Trial(self._suited(case, shape))
        done = 0
        while not trial.is_over and done < len(group):
            name = trial.next_engine()
            one_by_one = name.startswith("serial") and on_cpu
            part = group[done:]
            if on_cpu and len(group) >= 2 * _TRIAL_JOBS:  # a GPU needs all of them to be fully used
                part = part[: _TRIAL_ALONE if one_by_one else _TRIAL_JOBS]
            start_s = time.perf_counter()
            self._engine(name).run(part, at(range(done, len(group)), take))
            host_s = time.perf_counter() - start_s
            sizes = [(resolved.job.plan, resolved.job.n_samples) for resolved in part]
            samples = sum(plan.n_samples_processed(count) for plan, count in sizes)
            steps = sum(plan.n_steps(count) for plan, count in sizes)
            trial.note(name, host_s / samples, says_enough=one_by_one and steps >= _SURE_STEPS)
            done += len(part)
            if trial.is_over:
                self._let_go()
        if done < len(group):
            self._engine(trial.next_engine()).run(group[done:], at(range(done, len(group)), take))

    def _let_go(self) -> None:
        """Drop the engines that are no longer needed, to free their models and buffers."""
        if all(trial.is_over for trial in self._trials.values()):
            chosen = {trial.next_engine() for trial in self._trials.values()}
            for name in self._engines.keys() - chosen:
                self._engines.pop(name).close()

    def _suited(self, case: _Case, shape: JobShape) -> list[str]:
        """Names of the engines to try; on a GPU one thread suffices, and the candidates include the forms of a step."""
        on_gpu, is_chain = case.model.device.type == "cuda", chain_form(case.model) is not None
        in_threads = case.jobs > 1 and self._threads > 1 and not on_gpu and not case.model.draws
        names = ["serial", "serial in threads"] if in_threads else ["serial"]
        if case.batchable and (case.jobs > 1 or is_chain) and stacks(shape):
            names.append("batched in threads" if in_threads else "batched")
            if on_gpu and is_chain:
                names.append("vmap")
        return names

    def _engine(self, name: str) -> Engine:
        engine = self._engines.get(name)
        if engine is None:
            kind, _, threads = name.partition(" in ")
            together = kind != "serial"
            engine = self._engines[name] = SpreadEngine(
                _KINDS[kind], self._threads if threads else 1, together=together
            )
        return engine


_KINDS: Mapping[str, Callable[[], Engine]] = {
    "serial": SerialEngine,
    "batched": BatchedEngine,
    "vmap": partial(BatchedEngine, form=VmapForm),
}
