"""Metamorphic laws: how a run must change, or must not, when its scenario is changed. No run here trains."""

from __future__ import annotations

import copy
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from fednet_emu.arrays import Array, Mask
from fednet_emu.emulation.build import build
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.local_rounds import LocalRounds
from fednet_emu.network.air.transfer import Message
from fednet_emu.records.ledger import SERVER
from fednet_emu.scenario.model import Scenario
from qa.swarm.plays import Play, played, scenario_of

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


NARROW_HZ = 1e3
"""A width that half of every drawn band exceeds, and the parts of its devices."""
UNDISTURBED = {
    "channel.fading_model": "per-block",
    "network.cells": "single",
    "network.power_control": "none",
    "devices.availability": "always",
    "devices.battery": None,
    "devices.mobility": "static",
}
"""Transfers whose rates are those of the rate law at every instant, whenever a transfer begins."""
WAYS = [("uplink", "tdma"), ("uplink", "ofdma"), ("uplink", "noma"), ("uplink", "full-reuse")]
WAYS += [("downlink", "tdma"), ("downlink", "ofdma"), ("downlink", "full-reuse")]


def half_the_bandwidth(settings: Settings) -> str | None:
    """With half the bandwidth no transfer of a fixed request ends earlier, whatever the rate law and the access scheme.

    The requests are one upload or one download of each device at the start. It is a law where a weak sender uses part
    of its band, and bands are wider than the narrowest part, and where a wide band fades as a narrow one does.
    """
    if getattr(scenario_of(settings).channel.fading, "delay_spread_s", None) is not None:
        return None
    width_hz = settings["channel"]["bandwidth_hz"]
    plain = {
        **UNDISTURBED,
        "channel.subcarrier_spacing_khz": None,
        "channel.narrowing": "on",
        "channel.narrowest_hz": NARROW_HZ,
    }
    return _no_earlier(settings, plain, {**plain, "channel.bandwidth_hz": width_hz / 2})


def half_the_power(settings: Settings) -> str | None:
    """With 3 dB less power of all senders no transfer of a fixed request ends earlier, narrowed or not."""
    keys = [f"channel.{end}.tx_power_dbm" for end in ("device", "base_station")]
    less = {key: settings["channel"][key.split(".")[1]]["tx_power_dbm"] - 3 for key in keys}
    return _no_earlier(settings, UNDISTURBED, {**UNDISTURBED, **less})


def _no_earlier(settings: Settings, more: Settings, less: Settings) -> str | None:
    """Transfers that end earlier with fewer resources; None if some are then lost, which may end at once."""
    sizes_bit = [SIZE_BIT] * settings["devices"]["count"]
    way, access = Random(f"way {settings['seed']}").choice(WAYS)
    uplink = {"network.uplink": {"access": access if way == "uplink" else "tdma"}}
    given = uplink if way == "uplink" else {**uplink, "network.downlink": {"access": access, "mode": "unicast"}}
    try:
        scenarios = [scenario_of(with_values(settings, {**given, **values})) for values in (more, less)]
    except ScenarioError:
        return None  # what else was drawn does not go with this access scheme
    with_more, with_less = (_transfers(scenario, sizes_bit, way) for scenario in scenarios)
    if with_less.lost.any():
        return None
    early = np.flatnonzero(with_less.ended_ns < with_more.ended_ns * (1 - SLACK) - len(sizes_bit))
    return "".join(f"dev-{d} at {with_less.ended_ns[d]} ns instead of {with_more.ended_ns[d]} ns; " for d in early)


class Uploads(NamedTuple):
    """The transfer of each device: when it begins and ends in ns, and whether it is lost."""

    started_ns: Array
    ended_ns: Array
    lost: Mask


def _transfers(scenario: Scenario, sizes_bit: list[int], way: str = "uplink") -> Uploads:
    """The uploads, or the downloads, of all devices if all are asked for at the start."""
    fed = build(scenario, timing_only=True)
    medium, up = getattr(fed.network, way), way == "uplink"
    ends = [(device, SERVER) if up else (SERVER, device) for device in range(len(sizes_bit))]
    sent = [medium.send(*pair, Message(None, size_bit)) for pair, size_bit in zip(ends, sizes_bit, strict=True)]
    fed.clock.run_process(_all(fed, sent))
    fed.close()
    column = fed.ledger.transfers.column
    order = np.argsort(np.maximum(column("sender"), column("receiver")))
    return Uploads(*(column(name)[order].astype(float) for name in ("started_ns", "ended_ns", "loss_reason")))


def _all(fed: Federation, events: list[Any]) -> Any:
    yield fed.all_of(events)


def a_later_deadline(settings: Settings) -> str | None:
    """In the first round, twice the deadline lets as many devices or more arrive.

    It is a law where devices send by themselves (a burst of all meets other channels when it begins later), and where a
    round has one deadline, not one in each of its edge rounds, turns or steps.
    """
    deadline_s, kind = settings["algorithm"].get("deadline_s"), settings["algorithm"]["kind"]
    several = kind == "hier-favg" or settings["algorithm"].get("variant") in ("sl", "psl")
    only_sums = scenario_of(settings).network.uplink.access.only_sums
    if deadline_s is None or several or only_sums:
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
    """A device more changes neither the place, the speed nor the mean links of the others.

    Satellites and picked vehicles are left out.
    """
    devices = settings["devices"]
    kinds = [devices.get(part, {}).get("kind") for part in ("placement", "speed", "mobility")]
    picks = devices.get("mobility", {}).get("pick", "first") != "first"  # of the vehicles of a recording
    if "list" in kinds or "walker" in kinds or picks:
        return None
    count, power = devices["count"], {"network.power_control": "none"}
    few, more = (
        build(scenario_of(with_values(settings, {**power, "devices.count": number})), timing_only=True)
        for number in (count, count + 1)
    )
    speeds = [[each.processors.flop_per_s(device) for device in range(count)] for each in (few, more)]
    faster = np.flatnonzero(np.not_equal(*speeds)).tolist()
    moved = np.flatnonzero(few.network.up_links.mean_snr[:count] != more.network.up_links.mean_snr[:count]).tolist()
    return f"other speeds of {faster}, other links of {moved}" if faster or moved else ""


def twice_the_time(settings: Settings) -> str | None:
    """With every time doubled and every rate halved, all happens in the same order, after twice the time.

    Rates and speeds are such that each duration is a whole number of nanoseconds, devices are there always or in given
    windows, energy, which doubles too, stops nothing and nobody, and nothing is lost: algorithms pause before they try
    again.
    """
    deadline_s = settings["algorithm"].get("deadline_s")
    plain = {
        "stop": {"rounds": settings["stop"].get("rounds", 2)},
        **({} if deadline_s is None else {"algorithm.deadline_s": max(round(deadline_s, 6), 1e-6)}),
        "channel.rate": {"kind": "fixed", "bit_rate_bps": 1e6},
        "channel.fading_model": "per-block",
        "devices.speed": {"kind": "fixed", "flop_per_s": 1e6},
        "devices.straggler": "none",
        "devices.battery": None,
        "network.uplink.trace": None,
        "network.downlink.trace": None,
    }
    if settings.get("network", {}).get("sidelink", {}).get("channel"):
        plain |= {f"network.sidelink.{key}": plain[key] for key in ("channel.rate", "channel.fading_model")}
    if "traffic" in settings:  # drawn gaps are rounded up to whole nanoseconds
        plain["traffic"] = [{**its, "gap": its["gap"] | {"kind": "fixed"}} for its in settings["traffic"]]
    if scenario_of(settings).network.uplink.access.only_sums:
        plain["network.uplink.access.symbols_per_slot"] = 1000  # else a longer slot carries more
    scenario = scenario_of(with_values(settings, plain))
    if scenario.devices.availability.kind not in ("always", "windows") or scenario.devices.mobility.kind != "static":
        return None
    ways = scenario.network.uplink, scenario.network.downlink
    if any(way.access.law(1e6) is not None or way.access.kind == "nr-grants" for way in ways):
        return None  # shares of rates of their own are rounded, or frames and slots last as a standard says
    sidelink = scenario.network.sidelink
    if any(way.delay.kind == "range" for way in (*ways, *([] if sidelink is None else [sidelink]))):
        return None  # light does not slow down
    if getattr(scenario.channel.fading, "delay_spread_s", None) is not None:
        return None  # as are the rates of independent parts of a band
    slow = scenario_of(_slower(scenario.model_dump(mode="json", by_alias=True)))
    one, two = played(scenario, timing_only=True), played(slow, timing_only=True)
    if one.ledger.transfers.column("loss_reason").any() or one.ledger.receptions.column("loss_reason").any():
        return None
    times = [_times(play) for play in (one, two)]
    return "" if [2 * time_ns for time_ns in times[0]] == times[1] else f"{times[0]} and {times[1]}"


def _slower(value: Any, name: str = "") -> Any:
    """Settings with every time doubled and every rate halved, by the units in their names; windows are by device."""
    if isinstance(value, dict):
        names = {key: "windows_s" if name == "devices" and key.isdigit() else key for key in value}
        return {key: _slower(inner, names[key]) for key, inner in value.items()}
    if isinstance(value, list):
        return [_slower(inner, name) for inner in value]
    if isinstance(value, float | int) and not isinstance(value, bool):
        if name.endswith(("_bps", "_per_s", "_m_s")):
            return value / 2
        if name.endswith("_s") and name != "checkpoint_s":
            return value * 2
    return value


def _times(play: Play) -> list[int]:
    """Every start and end (ns) in the books of a run."""
    return [
        time_ns
        for table in (play.ledger.transfers, play.ledger.computes, play.ledger.rounds)
        for name in ("started_ns", "ended_ns")
        for time_ns in table.column(name).tolist()
        if time_ns >= 0
    ]


def renumbered(settings: Settings) -> str | None:
    """Devices in another order: their uploads take the same times.

    It is a law where nothing is drawn for a number, and no tie is decided by it, as when all are heard equally well.
    """
    count = settings["devices"]["count"]
    access = scenario_of(settings).network.uplink.access.kind
    if count == 1 or access not in ("tdma", "ofdma", "noma", "full-reuse"):
        return None
    rng = Random(f"order {settings['seed']}")
    places = [[rng.uniform(10, 100), rng.uniform(10, 100)] for _ in range(count)]
    plain = {
        "channel.shadowing": "none",
        "channel.fading": "none",
        "channel.path_loss": {"kind": "log-distance", "exponent": 3},
        "channel.rate": {"kind": "shannon", "min_efficiency_bps_hz": 0},
        "channel.subcarrier_spacing_khz": None,
        "network.uplink": {"access": access},
        "network.cells": "single",
        "network.power_control": "none",
        "devices.availability": "always",
        "devices.battery": None,
        "devices.mobility": "static",
    }
    if "traffic" in settings:  # users without a placement take the places of the devices in their order
        plain["traffic"] = [{**its, "placement": {"kind": "disc", "radius_m": 100}} for its in settings["traffic"]]
    took_ns = []
    for devices in (range(count), range(count)[::-1]):
        there = {"kind": "list", "xy_m": [places[device] for device in devices]}
        scenario = scenario_of(with_values(settings, {**plain, "devices.placement": there}))
        started_ns, ended_ns, _ = _transfers(scenario, [SIZE_BIT * (1 + device) for device in devices])
        took_ns.append(np.sort(ended_ns - started_ns))
    same = np.allclose(*took_ns, rtol=SLACK, atol=count)
    return "" if same else f"{took_ns[0]} ns, and in the opposite order {took_ns[1]} ns"


LOSS = {"kind": "random", "probability": 0.3}
PATHS: dict[str, Any] = {"as arrays": LocalRounds.take, "one by one": lambda *_, **__: False}
"""Whether an exchange is played as arrays."""


def one_by_one(settings: Settings) -> str | None:
    """In a world without losses and absences, exchanges as arrays write the books of those with events."""
    rng = Random(f"one by one {settings['seed']}")
    access = rng.choice(["tdma", "tdma", "ofdma", "noma", {"kind": "full-reuse", "sinr_threshold_db": -20}])
    uplink = {"access": access} | rng.choice([{}, {"timeout_s": rng.choice([0.05, 0.5])}, {"message_loss": LOSS}])
    plain = {**UNDISTURBED, "network": {"uplink": uplink}, "evaluation.every_s": None}
    scenario, plays = scenario_of(with_values(settings, plain)), {}
    for path, take in PATHS.items():
        with patch.object(LocalRounds, "take", take):
            plays[path] = played(scenario, timing_only=True)
    if not plays["as arrays"].as_arrays:
        return None
    seen = [(play.ended, play.books) for play in plays.values()]
    return "" if seen[0] == seen[1] else f"{seen[0]} and {seen[1]}"


METAMORPHIC = {
    "one by one": one_by_one,
    "twice the time": twice_the_time,
    "renumbered": renumbered,
    "half the bandwidth": half_the_bandwidth,
    "half the power": half_the_power,
    "a later deadline": a_later_deadline,
    "no foresight": no_foresight,
    "one more device": one_more_device,
}
