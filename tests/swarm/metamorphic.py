"""Metamorphic laws: how a run must change, or must not, when its scenario is changed. No run here trains."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from fednet_emu.federation.federation import Federation
from fednet_emu.records.ledger import SERVER
from fednet_emu.scenario.emulation import build
from fednet_emu.scenario.model import Scenario
from tests.swarm.plays import Play, played, scenario_of

Settings = dict[str, Any]
SIZE_BIT = 10_000
SLACK = 1e-9
"""Relative error of a sum of floats."""


def with_values(settings: Settings, values: dict[str, Any]) -> Settings:
    """A copy with some settings changed, each given by its key path."""
    changed = copy.deepcopy(settings)
    for path, value in values.items():
        *above, name = path.split(".")
        parent = changed
        for key in above:
            parent = parent.setdefault(key, {})
        parent[name] = value
    return changed


def half_the_bandwidth(settings: Settings) -> str | None:
    """With half the bandwidth no transfer of a fixed request over TDMA ends earlier.

    The requests are one upload of each device at the start. It is a law where rates fall with the bandwidth at every
    instant (Shannon's rate without a floor, full power, no other cells) and nobody leaves before its turn comes.
    """
    shannon = {"kind": "shannon", "min_efficiency_bps_hz": 0}
    plain = {
        "channel.rate": shannon,
        "channel.numerology_khz": None,
        "channel.long_transfers": "walk",
        "network.uplink": {"access": "tdma"},
        "network.cells": "single",
        "network.power_control": "none",
        "devices.availability": "always",
    }
    half = {**plain, "channel.bandwidth_hz": settings["channel"]["bandwidth_hz"] / 2}
    whole_ns, half_ns = (_uploads_ns(scenario_of(with_values(settings, values))) for values in (plain, half))
    early = np.flatnonzero(half_ns < whole_ns * (1 - SLACK) - len(whole_ns))
    return "".join(f"dev-{d} at {half_ns[d]} ns instead of {whole_ns[d]} ns; " for d in early)


def _uploads_ns(scenario: Scenario) -> Any:
    """When the upload of each device ends, delivered or lost, if all are asked for at the start."""
    fed = build(scenario, timing_only=True)
    sent = [fed.network.uplink.send(device, SERVER, None, -1, SIZE_BIT) for device in range(fed.n_devices)]
    fed.clock.run_process(_all(fed, sent))
    fed.close()
    column = fed.ledger.transfers.column
    ended_ns = np.empty(fed.n_devices)
    ended_ns[column("sender")] = column("ended_ns")
    return ended_ns


def _all(fed: Federation, events: list[Any]) -> Any:
    yield fed.all_of(events)


def a_later_deadline(settings: Settings) -> str | None:
    """In the first round, twice the deadline lets as many devices or more arrive."""
    deadline_s = settings["algorithm"].get("deadline_s")
    if deadline_s is None:
        return None
    short, long = (
        played(scenario_of(with_values(settings, {"algorithm.deadline_s": wait_s})), timing_only=True)
        for wait_s in (deadline_s, 2 * deadline_s)
    )
    if not (short.rounds and long.rounds):
        return None
    arrived = [int(play.ledger.rounds.column("arrived")[0]) for play in (short, long)]
    return "" if arrived[0] <= arrived[1] else f"{arrived[0]} arrived by {deadline_s} s, {arrived[1]} by twice that"


def no_foresight(settings: Settings) -> str | None:
    """A run that goes on for one more round does until then what the shorter one did."""
    rounds = settings["stop"].get("rounds")
    if rounds is None or len(settings["stop"]) > 1:
        return None
    longer = played(scenario_of(with_values(settings, {"stop.rounds": rounds + 1})), timing_only=True)
    shorter = played(scenario_of(settings), timing_only=True)
    if shorter.rounds < rounds:
        return None
    end_ns = int(shorter.ledger.rounds.column("ended_ns")[-1])
    one, other = (_before(play, end_ns) for play in (shorter, longer))
    return "" if one == other else f"{len(one)} and {len(other)} events before {end_ns} ns, or other ones"


def _before(play: Play, end_ns: int) -> list[tuple[Any, ...]]:
    """The transfers and computations that ended before an instant."""
    found = []
    for table in (play.ledger.transfers, play.ledger.computes):
        names = [name for name, column in table.columns.items() if column.digest]
        rows = zip(*(table.column(name) for name in names), strict=True)
        found += [row for row, ended_ns in zip(rows, table.column("ended_ns"), strict=True) if ended_ns < end_ns]
    return found


def one_more_device(settings: Settings) -> str | None:
    """A device more changes neither the place, the speed nor the mean links of the others."""
    devices = settings["devices"]
    if "list" in (devices["placement"]["kind"], devices["speed"]["kind"]):
        return None
    count, power = devices["count"], {"network.power_control": "none"}
    few, more = (
        build(scenario_of(with_values(settings, {**power, "devices.count": number})), timing_only=True)
        for number in (count, count + 1)
    )
    speeds = [[each.processors.flop_per_s(device) for device in range(count)] for each in (few, more)]
    faster = np.flatnonzero(np.not_equal(*speeds)).tolist()
    moved = np.flatnonzero(few.network.up_links.mean_snr != more.network.up_links.mean_snr[:count]).tolist()
    return f"other speeds of {faster}, other links of {moved}" if faster or moved else ""


METAMORPHIC = {
    "half the bandwidth": half_the_bandwidth,
    "a later deadline": a_later_deadline,
    "no foresight": no_foresight,
    "one more device": one_more_device,
}
