"""Replay a run with remedies (changes to settings), and estimate the time that each remedy saves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from fednet_emu.analysis.critical_path import (
    DEADLINE,
    MEANING,
    NAMED,
    SAME,
    Explanation,
    Remedy,
    critical_path,
    parts_frame,
)
from fednet_emu.analysis.quantities import counted, format_seconds
from fednet_emu.compression import NoCompression
from fednet_emu.devices.availability import Always
from fednet_emu.emulation.given import changes, named
from fednet_emu.emulation.load import refuse_contradictions
from fednet_emu.emulation.outlook import Needed, Outlook, unreachable
from fednet_emu.emulation.play import play
from fednet_emu.errors import FednetError, ScenarioError, one_line
from fednet_emu.network.ethernet import Ethernet
from fednet_emu.network.slices import FEDERATION, OTHERS, Slice
from fednet_emu.network.slices import problems as slice_problems
from fednet_emu.network.transport.transports import ConnectedTransport
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.receiver.combining import SingleAntenna
from fednet_emu.records.ledger import SERVER, device_label
from fednet_emu.records.reasons import MEANINGS
from fednet_emu.records.summaries import deliveries
from fednet_emu.scenario.document import apply_overrides
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.tree import path_text
from fednet_emu.units import linear_to_db

if TYPE_CHECKING:
    from fednet_emu.analysis.run import RunRecords
    from fednet_emu.scenario.model import Devices, Scenario

DROPPED = 3
"""Number of devices (those with the longest time on critical paths) that a remedy excludes."""
ETHERNET_BPS = 1e9
"""Port speed in bit/s for the remedy that replaces the radio by Ethernet."""
SPEEDS = ("flop_per_s", "median_flop_per_s")


def explained(run: RunRecords, scenario: Callable[[], Scenario], *, replay: bool = True) -> Explanation:
    """Return the critical paths of a run and, if `replay` is True, the time that remedies save; see `Run.explain`.

    `scenario` is a function that returns the scenario of the run. It is called only if `replay` is True.

    Raises:
        DataError: the run has no rounds, or a table is missing or unreadable.
    """
    path = Explanation.of(run)
    if not replay:
        return path
    try:
        meant = scenario()
    except FednetError as error:
        return replace(path, no_remedies=f"its scenario cannot be read: {error}")
    problem = _not_replayed(run, meant)
    if problem:
        return replace(path, no_remedies=problem)
    try:
        same = Replay.of(_outlook(meant, {}, int(run.summary["rounds"])).scenario, run.name)
    except FednetError as error:
        return replace(path, no_remedies=one_line(error))
    now_s = float(same.rounds["ended_s"].iloc[-1])
    if abs(now_s - path.took_s) > SAME * path.took_s:
        now, then = format_seconds(now_s), format_seconds(path.took_s)
        took = f"the run itself now takes {now}, not {then} as recorded"
        return replace(path, no_remedies=f"{took}; run it again with this version")
    tried = (replayed(meant, its, same) for its in remedies(meant, path))
    return replace(path, remedies=[its for its in tried if its is not None])


def remedies(scenario: Scenario, path: Explanation) -> Iterator[Remedy]:
    """Yield the remedies (changes to settings that may shorten a run) that are applicable to a scenario."""
    if isinstance(scenario.network.uplink.compression, NoCompression):
        yield Remedy("uploads in half precision", {"network.uplink.compression": "float16"})
    side, bandwidth_hz = scenario.network.sidelink, {"channel.bandwidth_hz": 2 * scenario.channel.bandwidth_hz}
    if side is not None and side.channel != scenario.channel:
        bandwidth_hz["network.sidelink.channel.bandwidth_hz"] = 2 * side.channel.bandwidth_hz
    yield Remedy("twice the bandwidth", bandwidth_hz)
    yield from _of_the_link(scenario)
    edge_servers = scenario.network.edge_servers
    if edge_servers is not None and (rate_bps := edge_servers.backhaul.rate_bps) is not None:
        yield Remedy("twice the rate of the backhaul", {"network.edge_servers.backhaul.rate_bps": 2 * rate_bps})
    power_dbm = {"channel.device.tx_power_dbm": scenario.channel.device.tx_power_dbm + 10}
    if side is not None and side.channel != scenario.channel:
        power_dbm["network.sidelink.channel.device.tx_power_dbm"] = side.channel.device.tx_power_dbm + 10
    yield Remedy("devices that send with ten times the power", power_dbm)
    faster = _faster(scenario.devices)
    if faster:
        yield Remedy("devices that compute twice as fast", faster)
    fixed_s = scenario.devices.overhead_s
    if fixed_s or (fixed_s is None and any(its.compute.overhead_s for its in scenario.devices.profiles)):
        yield Remedy("no fixed time of a computation", {"devices.overhead_s": 0.0})
    yield from _of_other_users(scenario)
    left_out, algorithm = path.slowest(DROPPED), scenario.algorithm
    others = scenario.devices.count - len(left_out)
    some = not algorithm.asynchronous or algorithm.participants(scenario.devices.count) <= others
    if left_out and isinstance(scenario.devices.availability, Always) and others and some:
        gone = {"kind": "windows", "devices": {str(device): [] for device in left_out}}
        who = ", ".join(map(device_label, left_out))
        yield Remedy(f"without {who}, replaced by others", {"devices.availability": gone}, leaves_out=True)


def _of_other_users(scenario: Scenario) -> Iterator[Remedy]:
    if not scenario.traffic:
        return
    yield Remedy("without other users", {"traffic": [], "network.slices": {}})
    own = scenario.network.slices.get(FEDERATION, Slice())
    named = {name: its.model_dump(exclude_unset=True) for name, its in scenario.network.slices.items()}
    later = {name: {**named.get(name, {}), "priority": 1 + its.get("priority", 0)} for name, its in named.items()}
    later[OTHERS] = {"priority": 1, **later.get(OTHERS, {})}
    first = {**later, FEDERATION: {**own.model_dump(exclude_unset=True), "priority": 0}}
    if not any(slice_problems(scenario.network.slices | {FEDERATION: Slice()}, scenario)):
        yield Remedy("in a slice that goes first", {"network.slices": first})


def _of_the_link(scenario: Scenario) -> Iterator[Remedy]:
    network, rate = scenario.network, scenario.channel.rate
    if isinstance(rate, NrBlocks) and rate.feedback != "ideal":
        fresh = rate.model_dump(exclude={"feedback", "report_s", "delay_s"})
        yield Remedy("fresh channel reports", {"channel.rate": {"kind": rate.kind, **fresh}})
    if isinstance(network.transport, ConnectedTransport) and not network.transport.reuse:
        yield Remedy("one connection kept", {"network.transport.reuse": True})
    if network.uplink.idle is not None:
        yield Remedy("radio connections kept", {"network.uplink.idle": None})
    if not isinstance(network.uplink.access, Ethernet) and "edges" not in scenario.algorithm.uses:
        wire = {"kind": "ethernet", "port_bps": ETHERNET_BPS}
        ways = [(f"network.{way.DIRECTION}", way.trace) for way in (network.uplink, network.downlink)]
        settings: dict[str, Any] = {f"{way}.access": wire for way, _ in ways}
        settings |= {f"{way}.trace": None for way, trace in ways if trace is not None}
        if network.cells.count > 1:
            settings["network.cells"] = "single"
        if not isinstance(network.reception, SingleAntenna):
            settings["network.reception"] = "single"
        if isinstance(rate, NrBlocks) and rate.climbs:
            settings["channel.rate.feedback"] = "ideal"
        yield Remedy("Ethernet", settings)


def _faster(devices: Devices) -> dict[str, Any]:
    for name in SPEEDS:
        speed = getattr(devices.speed, name, None)
        if speed is not None:
            return {f"devices.speed.{name}": [2 * each for each in speed] if isinstance(speed, tuple) else 2 * speed}
    if devices.speed is not None and not devices.speed.relative:
        return {}
    single = not isinstance(devices.profile, tuple)
    places = ("devices.profile" if single else f"devices.profile.{place}" for place in range(len(devices.profiles)))
    speeds = (2 * its.compute.flop_per_s for its in devices.profiles)
    return {f"{place}.compute.flop_per_s": speed for place, speed in zip(places, speeds, strict=True)}


def _not_replayed(run: RunRecords, scenario: Scenario) -> str:
    if scenario.algorithm.own_learning:
        return "the sizes of its messages are known only when its clients run"
    if scenario.algorithm.events_depend_on_learning:
        return "its events depend on learning, which a replay does not have"
    if any(link.compression.depends_on_values for link in (scenario.network.uplink, scenario.network.downlink)):
        return "the sizes of its messages depend on learning, which a replay does not have"
    if run.summary.get("status", "done") != "done":
        return "the run did not end normally"
    return ""


@dataclass(frozen=True)
class Replay:
    """The records of a replay, which is a run of a scenario without training."""

    tables: Mapping[str, pd.DataFrame]

    @classmethod
    def of(cls, scenario: Scenario, name: str) -> Self:
        """Run a scenario without training, and return its records under the name `name`.

        Raises:
            FednetError: the scenario cannot be run.
        """
        return cls(play(scenario, name, None, timing_only=True).ledger.frames())

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Table of the rounds. Its column `so_far` is the number of updates that arrived by the end of each round."""
        rounds = self.tables["rounds"]
        return rounds.assign(so_far=rounds["arrived"].cumsum())

    @property
    def arrived(self) -> int:
        return int(self.rounds["so_far"].iloc[-1])

    @cached_property
    def messages(self) -> pd.DataFrame:
        """Table of the messages: `direction`, `loss_reason` and `device` (sender, or receiver if the server sends)."""
        ends = deliveries(self.tables["transfers"], self.tables["receptions"]).astype({"loss_reason": str})
        return ends.assign(device=ends["sender"].where(ends["sender"] > SERVER, ends["receiver"]))

    @property
    def through(self) -> set[tuple[int, str]]:
        """Pairs of a device and a direction in which at least one message of the device arrived."""
        came = self.messages[self.messages["loss_reason"] == ""]
        return set(zip(came["device"], came["direction"], strict=True))

    def path_s(self, rounds: int) -> pd.Series[float]:
        """Return the time of each kind of activity on the critical paths of the first `rounds` rounds, in seconds."""
        its = self.tables
        parts = critical_path(its["transfers"], its["computes"], its["rounds"].head(rounds), its.get("backhaul"))
        return parts_frame(parts).groupby("what")["took_s"].sum()


BY_CHANCE = ("erased", "away", "left", "end")
"""Reasons for the loss of a message that do not depend on whether the device is in range."""


def shed(before: Replay, after: Replay) -> str:
    """Return a text about the devices that a remedy disconnects, and their number of messages; empty if there is none.

    Messages of these devices arrive in the replay `before` (without the remedy), but not in the replay `after`.
    """
    gone = before.through - after.through
    lost = after.messages[~after.messages["loss_reason"].isin(["", *BY_CHANCE])]
    lost = lost[[pair in gone for pair in zip(lost["device"], lost["direction"], strict=True)]]
    if not len(lost):
        return ""
    reasons = lost.drop_duplicates("device").sort_values("device").groupby("loss_reason", sort=False)["device"]
    who = "; ".join(f"{_named(devices.tolist())} {MEANINGS[str(why)].in_words}" for why, devices in reasons)
    return f"{len(lost):,} of {len(after.messages):,} messages would be lost ({who})"


def _named(devices: Sequence[int]) -> str:
    more = f" and {len(devices) - NAMED} more" if len(devices) > NAMED else ""
    return ", ".join(map(device_label, devices[:NAMED])) + more


def replayed(scenario: Scenario, remedy: Remedy, same: Replay) -> Remedy | None:
    """Replay a scenario with a remedy until as many updates have arrived as in `same`, the replay without the remedy.

    Returns:
        The remedy with the simulated time of the replay, or with the reason why this time is unknown, for example
        because the remedy disconnects devices. None if the scenario does not accept the settings of the remedy, or if
        fewer updates arrive because no other devices replace the excluded devices.
    """
    rounds = len(same.rounds)
    try:
        outlook = _outlook(scenario, remedy.settings, rounds)
    except ScenarioError:
        return None
    for path, what in unreachable(outlook):
        return replace(remedy, problem=f"cannot be replayed, {path_text(path)}: {what}")
    try:
        then = Replay.of(outlook.scenario, remedy.title)
        if then.arrived < same.arrived and remedy.leaves_out:
            return None
        if not remedy.leaves_out and (lost := shed(same, then)):
            return replace(remedy, problem=lost)
        if 0 < then.arrived < same.arrived:  # fewer updates arrived by chance; more rounds make up for them
            more = math.ceil(MARGIN * rounds * same.arrived / then.arrived) + 1
            then = Replay.of(_outlook(scenario, remedy.settings, more).scenario, remedy.title)
    except FednetError as error:
        return replace(remedy, problem=f"cannot be replayed, {one_line(error)}")
    return weighed(remedy, same, then, weaker(Outlook(scenario), outlook))


MARGIN = 1.1
"""Factor by which the number of rounds of a second replay exceeds the estimate, if too few updates arrive in the first
replay."""


def weighed(remedy: Remedy, same: Replay, then: Replay, weak: str = "") -> Remedy:
    """Return the remedy with the simulated time until as many updates have arrived as without the remedy.

    `same` and `then` are the replays without and with the remedy. If the time is longer with the remedy, `problem`
    names the kind of activity that takes longer, followed by the text `weak`. If updates arrive only with the remedy,
    their number is `problem`.
    """
    rounds, enough = len(same.rounds), then.rounds["so_far"] >= same.arrived
    if then.arrived > same.arrived == 0:
        some = f"{counted(then.arrived, 'update')} arrive{'s' if then.arrived == 1 else ''}"
        return replace(remedy, problem=f"{some} in {counted(len(then.rounds), 'round')}, none without it")
    if not enough.any():
        few = f"{then.arrived:,} updates arrive in {counted(len(then.rounds), 'round')}, no more"
        return replace(remedy, problem=few)
    needed = last = rounds  # of the replays with and without the remedy
    if same.arrived:
        needed, last = (int((its.rounds["so_far"] >= same.arrived).argmax()) + 1 for its in (then, same))
    took_s, before_s = (float(its.rounds["ended_s"].iloc[n - 1]) for its, n in ((then, needed), (same, last)))
    found = replace(remedy, simulated_s=took_s, rounds=None if needed == last else needed)
    found = found if last == rounds else replace(found, before_s=before_s)
    if took_s <= before_s * (1 + SAME):
        return found
    longer_s = then.path_s(needed).sub(same.path_s(last), fill_value=0.0)
    if DEADLINE in longer_s.index:  # the path has no other activities before a deadline
        return replace(found, problem=weak.removeprefix(", "))
    return replace(
        found, problem=f"{MEANING[str(longer_s.idxmax())]} takes {format_seconds(longer_s.max())} longer{weak}"
    )


def weaker(before: Outlook, after: Outlook) -> str:
    """Return a text about the number of devices whose initial mean SNR is below the minimum of a link.

    The text is empty if the remedy has not increased this number for any link.
    """
    for place, way in enumerate(("uplink", "downlink")):
        needed = [Needed.by(its.scenario, getattr(its.scenario.network, way)).sinr for its in (before, after)]
        snrs = [its.links[place].mean_snr for its in (before, after)]
        weak = [int(np.count_nonzero(snr < least)) for snr, least in zip(snrs, needed, strict=True)]
        if weak[1] > weak[0]:
            count = f"{weak[1]:,} of {len(snrs[1]):,} devices, {weak[0]:,} before"
            return f", as the mean SNR is below the {linear_to_db(needed[1]):.1f} dB that the {way} needs for {count}"
    return ""


def _outlook(scenario: Scenario, settings: Mapping[str, Any], rounds: int) -> Outlook:
    changed: dict[str, Any] = {**settings, "stop": {"rounds": rounds}}
    outlook = Outlook(validate(type(scenario), apply_overrides(named(scenario)[1], changes(changed))))
    refuse_contradictions(outlook, None)
    return outlook
