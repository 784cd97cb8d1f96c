"""Change every key of drawn scenarios and compare all that comes out of the runs."""

from __future__ import annotations

import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from fednet_emu.emulation.play import play
from fednet_emu.errors import FednetError, ScenarioError
from fednet_emu.records.ledger import DESCRIBED
from fednet_emu.scenario.model import Scenario
from qa.inert.changes import changed, changes
from qa.inert.keys import Key, keys_of, labels
from qa.swarm import plays
from qa.swarm.draw import Settings, drawn
from qa.swarm.plays import Hangs, in_time, scenario_of, tasks_kept

KNOWN = Path(__file__).with_name("known.toml")
HOST = {"host_s", "host_parts", "wavefronts", "mean_wavefront", "exchanges", "elsewhere", "trained_jobs", "known_jobs"}
"""What a summary says of the host."""
LONGEST_S = 3
"""Processor time in s after which a run is cut off; most take some milliseconds."""
PLAYED = 4
"""Changed values of one key that are played in one scenario."""
ENOUGH = 20
"""Scenarios in which a key must have changed nothing to be called inert, as most keys act in some situations only."""
TRIES = 20
"""Scenarios after which a key that has changed nothing is left alone."""


@dataclass
class Sweep:
    """What is known of the keys so far, by label.

    Attributes:
        acting: those that change what comes out, each with the first scenario in which it did.
        nothing: in how many scenarios a key was changed, and nothing else was.
        refused: in how many scenarios every change of a key was refused.
        left_out: seeds whose scenarios take long.
        enough: in how many scenarios a key must have changed nothing to be called inert.
        broken: what went wrong, which no scenario that is accepted should.
    """

    acting: dict[str, int] = field(default_factory=dict)
    nothing: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    left_out: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    enough: int = ENOUGH

    def look_at(self, seeds: Sequence[int]) -> None:
        """Change the keys, as far as they are open, of that scenario of the seeds which has most of these."""
        with tasks_kept(), warnings.catch_warnings(), patch.object(plays, "LONGEST_S", LONGEST_S):
            warnings.simplefilter("ignore")
            among = [scenario_of(drawn(seed).settings) for seed in seeds]
            best = max(range(len(among)), key=lambda number: len(self._open(among[number])))
            self._change_all(seeds[best], among[best])

    def _open(self, scenario: Scenario) -> list[Key]:
        """The keys that are not known to act, and were not changed often in vain."""
        return [key for key in keys_of(scenario) if key.label not in self.acting and self.nothing[key.label] < TRIES]

    def _change_all(self, seed: int, scenario: Scenario) -> None:
        settings, began_s = scenario.model_dump(mode="json"), time.process_time()
        before = outcome(scenario_of(settings))
        if time.process_time() - began_s > LONGEST_S / 3:
            self.left_out.append(seed)
            return
        for key in self._open(scenario):
            if key.label not in self.acting:  # a label may stand for several keys
                self._change(seed, key, settings, before)

    def _change(self, seed: int, key: Key, settings: Settings, before: str) -> None:
        rng, played = Random(f"inert {seed} {key.label}"), 0
        for value in changes(key, rng, settings["devices"]["count"]):
            try:
                after = outcome(scenario_of(changed(settings, key.path, value)))
            except ScenarioError:
                continue
            except Exception as error:  # the sweep goes on, and tells of it
                self.broken.append(f"seed {seed}, {key.label} = {value!r}: {type(error).__name__}: {error}")
                return
            if after != before:
                self.acting[key.label] = seed
                return
            played += 1
            if played == PLAYED:
                break
        (self.nothing if played else self.refused)[key.label] += 1

    @property
    def inert(self) -> list[str]:
        """Keys that were changed often enough, and changed nothing, in order."""
        return sorted(label for label, n in self.nothing.items() if n >= self.enough and label not in self.acting)

    @property
    def undecided(self) -> list[str]:
        """Keys that changed nothing, but in few scenarios, in order."""
        return sorted(label for label, n in self.nothing.items() if 0 < n < self.enough and label not in self.acting)

    @property
    def always_refused(self) -> list[str]:
        """Keys no change of which was ever accepted, in order."""
        return sorted(label for label in self.refused if label not in self.acting and not self.nothing[label])

    @property
    def never_met(self) -> list[str]:
        """Keys that stood in no scenario, in order."""
        met = {*self.acting, *self.nothing, *self.refused}
        return sorted(label for label in set(labels()) if label not in met)


def outcome(scenario: Scenario) -> str:
    """A digest of all that comes out of a run: its summary, its tables and series, its final model, how it ended.

    Raises:
        ScenarioError: the scenario is refused while it is built or run.
    """
    whole = blake2b(digest_size=16)
    try:
        with in_time():
            ended = play(scenario, "drawn", None, keep_model=True)
    except ScenarioError:
        raise
    except (FednetError, Hangs) as error:
        return f"{type(error).__name__}: {error}"
    whole.update(repr(sorted((name, its) for name, its in ended.summary.items() if name not in HOST)).encode())
    frames = ended.ledger.frames()
    for name in sorted(frames.keys() - set(DESCRIBED)):
        frame = frames[name]
        whole.update(name.encode())
        whole.update(frame.to_csv(float_format="%.17g").encode())
    if ended.model is not None:
        for name, tensor in (pair for state in ended.model.states for pair in state.items()):
            whole.update(name.encode() + tensor.cpu().numpy().tobytes())
    return whole.hexdigest()


def known() -> dict[str, str]:
    """Patterns of the labels of keys that need not act, and why."""
    read: Mapping[str, Any] = tomllib.loads(KNOWN.read_text(encoding="utf-8"))
    return {label: str(reason) for label, reason in read.items()}


def unexplained(found: Iterable[str], exceptions: Iterable[str]) -> list[str]:
    """Those of the labels that no exception covers."""
    return [label for label in found if not any(fnmatchcase(label, pattern) for pattern in exceptions)]
