"""Play a drawn scenario once, and keep what its books and its end say."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from fednet_emu.devices import processors
from fednet_emu.emulation import build as emulation
from fednet_emu.emulation.build import build, build_task
from fednet_emu.emulation.load import checked
from fednet_emu.emulation.record import _laws
from fednet_emu.errors import Deadlock, Diverged, FednetError
from fednet_emu.federation import rounds
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.kernel.streams import Streams
from fednet_emu.records.ledger import DESCRIBED, Ledger
from fednet_emu.scenario.document import from_mapping
from fednet_emu.scenario.model import Scenario
from tests.algorithms.small import remembering

LEARNT = {"data", "partition", "server", "attack", "groups", "feature_noise", "model", "evaluation", "training"}
"""Parts of a scenario that its learning task depends on, with its seed and the number of devices."""
SOONER = {(rounds, "AWAY_S"): 100.0, (rounds, "MAX_FRUITLESS_ROUNDS"): 100, (processors, "MOST_PAUSES"): 500}
"""Limits after which a run that gets nowhere is given up, ten times as soon as elsewhere, or more."""
LONGEST_S = 120
"""Processor time in s after which a run, which takes milliseconds, is taken to hang."""


class Hangs(Exception):  # noqa: N818  (what it does)
    """A run takes minutes of processor time."""


@dataclass(frozen=True)
class Play:
    """One run of a scenario.

    Attributes:
        ended: `done`, `diverged` or `deadlock`.
        why: the text of the deadlock.
        events: the digest of the event log.
        ledger: the records.
        rounds: rounds that have ended.
        statistics: what was computed, and in how many wavefronts.
        flop_per_sample: cost of a gradient of one sample.
        scenario: what was played.
        as_arrays: number of exchanges that were played as arrays.
        laws: checks the conservation laws; an empty text for each law that holds.
    """

    ended: str
    why: str
    events: str
    ledger: Ledger
    rounds: int
    statistics: Any
    flop_per_sample: float
    scenario: Scenario
    as_arrays: int
    laws: Callable[[], dict[str, str]]

    @property
    def flop(self) -> float:
        """Floating-point operations of all computations."""
        return float(self.ledger.computes.column("flop").sum())

    @property
    def steps(self) -> float:
        """Steps of stochastic gradient descent, if all that was computed are such steps."""
        batch = getattr(self.scenario.algorithm, "batch_size", None) or math.inf
        return self.flop / (self.flop_per_sample * batch)

    @property
    def jobs(self) -> tuple[int, int]:
        """Number of wavefronts and of jobs in them, trained or known."""
        return self.statistics.wavefronts, self.statistics.jobs

    @cached_property
    def books(self) -> str:
        """Digest of all that happened: all columns of all tables, to the last bit, and the series."""
        whole = blake2b(digest_size=16)
        frames = self.ledger.frames()
        for name in sorted(frames.keys() - set(DESCRIBED)):
            frame = frames[name]
            whole.update(name.encode())
            whole.update(frame.to_csv(float_format="%.17g").encode())
        return whole.hexdigest()

    @cached_property
    def broken(self) -> dict[str, str]:
        """The conservation laws that do not hold, with what breaks them."""
        return {law: text for law, text in self.laws().items() if text}


@contextmanager
def tasks_kept() -> Iterator[None]:
    """Inside the block, runs of the same devices, data and model share one learning task; nothing may change it.

    Runs that get nowhere are given up `SOONER`.
    """
    kept: dict[str, LearningTask] = {}

    def once(scenario: Scenario, streams: Streams, data_dir: Path | None, timing_only: bool) -> LearningTask:
        parts = scenario.model_dump_json(include=LEARNT)
        key = f"{timing_only} {scenario.seed} {scenario.scene_seed} {scenario.devices.count} {parts}"
        if key not in kept:
            kept[key] = build_task(scenario, streams, data_dir, timing_only)
        return kept[key]

    with ExitStack() as patches:
        for (module, name), value in {**SOONER, (emulation, "build_task"): once}.items():
            patches.enter_context(patch.object(module, name, value))
        yield


def scenario_of(settings: dict[str, Any], **changes: Any) -> Scenario:
    """Check settings, with some of the keys of `training` changed.

    Raises:
        ScenarioError: they are refused.
    """
    training = {**settings.get("training", {}), **changes}
    return checked(from_mapping({**settings, "training": training}, "drawn"))


def played(scenario: Scenario, *, timing_only: bool = False) -> Play:
    """Play a scenario to its end.

    Raises:
        FednetError: the scenario is refused while it is built or run.
    """
    return _end(build(scenario, timing_only=timing_only), scenario)


def resumed(scenario: Scenario, after_round: int) -> Play:
    """Play a scenario to the end of a round, save a checkpoint as a file has it, and play to the end from there."""
    first, again = build(scenario), build(scenario)
    first.observers.append(_cut(after_round))
    with TemporaryDirectory() as folder:
        saver = remembering(first, Path(folder))
        try:
            with in_time():
                first.run(scenario.algorithm)
        except KeyboardInterrupt:
            saver.save(first)
        remembering(again, Path(folder))
        return _end(again, scenario)


def after_another(scenario: Scenario, other: Scenario, rng: Random) -> Play:
    """Play a scenario with the store of a run of another one, of which a random part of the files may be gone."""
    first, again = build(other), build(scenario)
    with TemporaryDirectory() as folder:
        store = Path(folder)
        saver = remembering(first, None, store)
        first.observers.append(lambda fed: saver.save(fed) if rng.random() < 0.5 else None)
        with suppress(FednetError):  # its own end is judged elsewhere
            _end(first, other)
        saver.finish(first)
        gone = rng.choice([0.0, 0.5])
        for path in sorted(store.glob("*/*")):
            if rng.random() < gone:
                path.unlink()
        remembering(again, None, store)
        return _end(again, scenario)


def _end(fed: Federation, scenario: Scenario) -> Play:
    ended, why = "done", ""
    try:
        with in_time():
            fed.run(scenario.algorithm)
    except Diverged:
        ended = "diverged"
    except Deadlock as deadlock:
        ended, why = "deadlock", str(deadlock)
    fed.close()
    return Play(
        ended,
        why,
        fed.ledger.event_digest(),
        fed.ledger,
        fed.round,
        fed.graph.statistics,
        fed.task.model.flop_per_sample,
        scenario,
        fed.local_rounds.played,
        partial(_laws, fed, fed.ledger),
    )


def _cut(after_round: int) -> Callable[[Federation], None]:
    def observe(fed: Federation) -> None:
        if fed.round == after_round:
            raise KeyboardInterrupt

    return observe


@contextmanager
def in_time() -> Iterator[None]:
    """Raise `Hangs` inside the block after `LONGEST_S` of processor time."""

    def late(*_: Any) -> None:
        raise Hangs(f"it takes more than {LONGEST_S} s of processor time")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
