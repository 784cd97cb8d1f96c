"""Faults at random events: something goes wrong in the middle of what a scenario was seen to do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from fednet_emu.emulation.outlook import links_at_start
from fednet_emu.network.links.links import cell_of
from fednet_emu.records.ledger import Ledger
from fednet_emu.scenario.algorithms import ALGORITHMS
from qa.swarm.draw import Settings, refusal
from qa.swarm.plays import scenario_of

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


def cell_silent(settings: Settings, ledger: Ledger, rng: Random) -> Settings | None:
    """All devices that one of several cells serves at the start are gone for a while."""
    scenario = scenario_of(settings)
    ended_ns = ledger.transfers.column("ended_ns")
    if scenario.network.cells.count == 1 or not len(ended_ns):
        return None
    links, _ = links_at_start(scenario)
    serving = np.array([cell_of(links.station_of(device)) for device in range(scenario.devices.count)])  # cell of each
    silent = np.flatnonzero(serving == rng.choice(serving.tolist())).tolist()
    at_s = float(rng.uniform(0, 1) * ended_ns.max()) / 1e9
    windows = [[0.0, at_s], [at_s + rng.choice([0.01, 10.0]), NEVER_S]]
    away = {"kind": "windows", "devices": {str(device): windows for device in silent}}
    return _changed(settings, ("devices", "availability"), away)


def bursts(settings: Settings, ledger: Ledger, rng: Random) -> Settings | None:
    """A device comes and goes a dozen times, about as fast as its messages take."""
    column = ledger.transfers.column
    took_ns = (column("ended_ns") - column("started_ns"))[column("started_ns") >= 0]
    if not took_ns.sum():
        return None
    mean_s, now_s, edges = float(took_ns.mean()) / 1e9, 0.0, [0.0]
    for _ in range(24):
        now_s += rng.expovariate(1.0) * mean_s + 1e-9
        edges.append(now_s)
    windows = [list(pair) for pair in zip(edges[::2], [*edges[1::2], NEVER_S], strict=True)]
    away = {"kind": "windows", "devices": {str(rng.randrange(settings["devices"]["count"])): windows}}
    return _changed(settings, ("devices", "availability"), away)


def ties(settings: Settings, ledger: Ledger, rng: Random) -> Settings | None:
    """All devices are at one place, compute at one speed, and have a round number of bits per second: much ties."""
    place = {"kind": "list", "xy_m": [[30.0, 40.0] for _ in range(settings["devices"]["count"])]}
    settings = _changed(settings, ("devices", "placement"), place)
    settings = _changed(settings, ("devices", "speed"), {"kind": "fixed", "flop_per_s": 1e6})
    return _changed(settings, ("channel", "rate"), {"kind": "fixed", "bit_rate_bps": 1e6})


def not_a_number(settings: Settings, ledger: Ledger, rng: Random) -> Settings | None:
    """Steps so large that updates are infinite, or no numbers at all."""
    if "lr" not in settings["algorithm"]:
        return None
    return _changed(settings, ("algorithm", "lr"), rng.choice([1e12, 1e30]))


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
    return _changed(
        _changed(settings, ("network", "uplink", "message_loss"), loss), ("network", "downlink", "message_loss"), loss
    )


FAULTS: dict[str, Fault] = {
    "leaves in a transfer": leaves,
    "leaves as a transfer ends": leaves_at_the_end,
    "all leave": silence,
    "a thousand times slower": straggler,
    "a deadline": deadline,
    "half is lost": losses,
    "a cell goes silent": cell_silent,
    "comes and goes": bursts,
    "ties": ties,
    "not a number": not_a_number,
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
