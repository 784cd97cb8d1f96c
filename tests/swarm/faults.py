"""Faults at random events: something goes wrong in the middle of what a scenario was seen to do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from fednet_emu.algorithms import ALGORITHMS
from fednet_emu.records.ledger import Ledger
from tests.swarm.draw import Settings, refusal

Fault = Callable[[Settings, Ledger, Random], Settings | None]
"""Changes settings, given the records of a run without the fault; None where there is nothing to disturb."""

NEVER_S = 1e6
"""A time after the end of every run."""


def leaves(settings: Settings, ledger: Ledger, rng: Random) -> Settings | None:
    """A device goes away in the middle of a transfer, and comes back or not."""
    return _away(settings, ledger, rng, rng.uniform(0.01, 0.99), everybody=False)


def leaves_at_the_end(settings: Settings, ledger: Ledger, rng: Random) -> Settings | None:
    """A device goes away in the very nanosecond in which a transfer ends."""
    return _away(settings, ledger, rng, 1.0, everybody=False)


def silence(settings: Settings, ledger: Ledger, rng: Random) -> Settings | None:
    """All devices go away in the middle of a transfer, for a while: a burst of losses."""
    return _away(settings, ledger, rng, rng.uniform(0.01, 0.99), everybody=True)


def _away(settings: Settings, ledger: Ledger, rng: Random, share: float, *, everybody: bool) -> Settings | None:
    column = ledger.transfers.column
    on_air = np.flatnonzero((column("started_ns") >= 0) & (column("ended_ns") > column("started_ns")))
    if not len(on_air):
        return None
    row = int(rng.choice(list(on_air)))
    start_ns, end_ns = int(column("started_ns")[row]), int(column("ended_ns")[row])
    at_s = (start_ns + int(share * (end_ns - start_ns))) / 1e9
    back_s = at_s + rng.choice([1e-9, (end_ns - start_ns) / 1e9, 10.0])
    windows = [[0.0, at_s]] + ([[back_s, NEVER_S]] if rng.random() < 0.8 and back_s > at_s else [])
    ends = [int(end) for end in (column("sender")[row], column("receiver")[row]) if end >= 0]
    count = settings["devices"]["count"]
    who = range(count) if everybody else ends[:1] or [rng.randrange(count)]
    away = {"kind": "windows", "devices": {str(device): windows for device in who}}
    return _changed(settings, ("devices", "availability"), away)


def straggler(settings: Settings, ledger: Ledger, rng: Random) -> Settings | None:
    """A device becomes a thousand times slower in the middle of a computation."""
    column = ledger.computes.column
    rows = np.flatnonzero((column("started_ns") >= 0) & (column("device") >= 0))
    if not len(rows):
        return None
    row = int(rng.choice(list(rows)))
    from_s = float(column("started_ns")[row] + column("ended_ns")[row]) / 2e9
    slow = {"kind": "slow-window", "devices": [int(column("device")[row])], "factor": 1000, "from_s": from_s}
    return _changed(settings, ("devices", "straggler"), {**slow, "to_s": from_s + rng.choice([1.0, NEVER_S])})


def deadline(settings: Settings, ledger: Ledger, rng: Random) -> Settings | None:
    """The server waits for a part of the time that a round took; now and then for just that time."""
    column = ledger.rounds.column
    took_s = [float(took_ns) / 1e9 for took_ns in column("ended_ns") - column("started_ns") if took_ns > 0]
    if not took_s or "deadline_s" not in ALGORITHMS[settings["algorithm"]["kind"]].model_fields:
        return None
    share = rng.choice([rng.uniform(0.05, 1.0), 1.0])
    return _changed(settings, ("algorithm", "deadline_s"), rng.choice(took_s) * share)


def losses(settings: Settings, ledger: Ledger, rng: Random) -> Settings | None:
    """Half of the messages are lost, both ways."""
    loss = {"kind": "random", "probability": 0.5}
    return _changed(_changed(settings, ("network", "uplink", "loss"), loss), ("network", "downlink", "loss"), loss)


FAULTS: dict[str, Fault] = {
    "leaves in a transfer": leaves,
    "leaves as a transfer ends": leaves_at_the_end,
    "all leave": silence,
    "a thousand times slower": straggler,
    "a deadline": deadline,
    "half is lost": losses,
}


def _changed(settings: Settings, path: tuple[str, ...], value: Any) -> Settings:
    changed = copy.deepcopy(settings)
    parent = changed
    for key in path[:-1]:
        parent = parent.setdefault(key, {})
    parent[path[-1]] = value
    return changed


def faulted(settings: Settings, ledger: Ledger, rng: Random) -> tuple[Settings, str]:
    """Put a random fault into a scenario, and return its name; unchanged with an empty name if none fits."""
    name = rng.choice(list(FAULTS))
    changed = FAULTS[name](settings, ledger, rng)
    if changed is None or refusal(changed)[0]:
        return settings, ""
    return changed, name
