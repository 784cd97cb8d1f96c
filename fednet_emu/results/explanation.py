"""What remedies could give a run: the same run replayed with one thing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fednet_emu.analysis.explanation import SAME, Explanation, Remedy
from fednet_emu.analysis.quantities import format_seconds
from fednet_emu.compression import NoCompression
from fednet_emu.devices.availability import Always
from fednet_emu.errors import FednetError
from fednet_emu.network.access import Switch
from fednet_emu.network.transport.transports import ConnectedTransport
from fednet_emu.radio.rates.nr_blocks import NrBlocks
from fednet_emu.radio.receiver.combining import SingleAntenna
from fednet_emu.records.ledger import device_label

if TYPE_CHECKING:
    from fednet_emu.analysis.run import RunRecords
    from fednet_emu.scenario.model import Devices, Scenario

DROPPED = 3
"""How many devices are left out by the remedy that leaves out the slowest."""
ETHERNET_BPS = 1e9
"""Speed of the ports of the remedy that replaces the radio."""
SPEEDS = ("flop_per_s", "median_flop_per_s")


def explained(run: RunRecords, scenario: Callable[[], Scenario], *, replay: bool = True) -> Explanation:
    """Explain a run; see `Run.explain`. The scenario is read only for a replay.

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
    rounds = {"stop": {"rounds": int(run.summary["rounds"])}}
    same = _replayed(meant, Remedy("as it is", rounds))
    if same.simulated_s is None:
        return replace(path, no_remedies=same.problem)
    if abs(same.simulated_s - path.took_s) > SAME * path.took_s:
        now, then = format_seconds(same.simulated_s), format_seconds(path.took_s)
        took = f"the run itself now takes {now}, not {then} as recorded"
        return replace(path, no_remedies=f"{took}; run it again with this version")
    tried = [_replayed(meant, replace(its, settings=its.settings | rounds)) for its in remedies(meant, path)]
    return replace(path, remedies=tried)


def remedies(scenario: Scenario, path: Explanation) -> Iterator[Remedy]:
    """Yield the remedies that a scenario has settings for."""
    if isinstance(scenario.network.uplink.compression, NoCompression):
        yield Remedy("half the bits of each upload", {"network.uplink.compression": "float16"})
    yield Remedy("twice the bandwidth", {"channel.bandwidth_hz": 2 * scenario.channel.bandwidth_hz})
    yield from _of_the_link(scenario)
    if scenario.network.edges is not None and (rate_bps := scenario.network.edges.backhaul.rate_bps) is not None:
        yield Remedy("twice the rate of the backhaul", {"network.edges.backhaul.rate_bps": 2 * rate_bps})
    power_dbm = scenario.channel.device.tx_power_dbm
    yield Remedy("devices that send with ten times the power", {"channel.device.tx_power_dbm": power_dbm + 10})
    faster = _faster(scenario.devices)
    if faster:
        yield Remedy("devices that compute twice as fast", faster)
    fixed_s = scenario.devices.overhead_s
    if fixed_s or (fixed_s is None and any(its.compute.overhead_s for its in scenario.devices.profiles)):
        yield Remedy("no fixed time of a computation", {"devices.overhead_s": 0.0})
    left_out = path.slowest(DROPPED)
    if left_out and isinstance(scenario.devices.availability, Always) and scenario.devices.count > len(left_out):
        gone = {"kind": "windows", "devices": {str(device): [] for device in left_out}}
        who = ", ".join(map(device_label, left_out))
        yield Remedy(f"without {who}, for whom others are asked", {"devices.availability": gone})


def _of_the_link(scenario: Scenario) -> Iterator[Remedy]:
    """Yield what another use of the link could give: fresh reports, connections that are kept, a cable."""
    network, rate = scenario.network, scenario.channel.rate
    if isinstance(rate, NrBlocks) and rate.feedback != "ideal":
        fresh = rate.model_dump(exclude={"feedback", "report_s", "delay_s"})
        yield Remedy("fresh channel reports", {"channel.rate": {"kind": rate.kind, **fresh}})
    if isinstance(network.transport, ConnectedTransport) and not network.transport.reuse:
        yield Remedy("one connection kept", {"network.transport.reuse": True})
    if network.uplink.idle is not None:
        yield Remedy("radio connections kept", {"network.uplink.idle": None})
    if not isinstance(network.uplink.access, Switch) and "edges" not in scenario.algorithm.uses:
        wire = {"kind": "switch", "port_bps": ETHERNET_BPS}
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
    """The settings with which devices compute twice as fast; none where it is not known which these are."""
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
        return "its events depend on what is learnt, which a replay of the clock does not know"
    if any(link.compression.depends_on_values for link in (scenario.network.uplink, scenario.network.downlink)):
        return "the sizes of its messages depend on what is learnt, which a replay of the clock does not know"
    if run.summary.get("status", "done") != "done":
        return "the run did not come to its end"
    return ""


def _replayed(scenario: Scenario, remedy: Remedy) -> Remedy:
    """The remedy with the time that the run then takes."""
    from fednet_emu.emulation.given import scenario_of
    from fednet_emu.emulation.play import play

    try:
        name, outlook = scenario_of(scenario, remedy.settings)
        took_s = float(play(outlook.scenario, name, None, timing_only=True).summary["simulated_s"])
    except FednetError as error:
        return replace(remedy, problem=" ".join(str(error).split()))
    return replace(remedy, simulated_s=took_s)
