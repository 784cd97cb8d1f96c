"""Plausibility checks of devices, radios and messages; bounds and their sources are in `plausibility.csv`.

The checks cover the settings and the links at the devices' initial positions, for up to a million devices.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.devices.profiles import DeviceClass, Profile
from fednet_emu.emulation.hardware import law_of, unsplit
from fednet_emu.emulation.outlook import AtStart, Outlook, expected_s
from fednet_emu.learning.graph.optimizers import Adam, Momentum
from fednet_emu.network.planning.access import Planned
from fednet_emu.radio.channel import DeviceRadio
from fednet_emu.radio.energy import KAPPA, CmosEnergy, ComputeEnergy, PublishedEnergy
from fednet_emu.radio.nr.numerology import FR1_TOP_HZ
from fednet_emu.radio.profiles import Mark
from fednet_emu.radio.receiver.power_control import FullPower
from fednet_emu.scenario.model import Problem, Scenario
from fednet_emu.units import linear_to_db


class Bound(NamedTuple):
    """Plausible range of a quantity: limits (None if unlimited), unit, name, source, and kind of evidence (`mark`)."""

    low: float | None
    high: float | None
    unit: str
    what: str
    source: str
    mark: Mark

    @property
    def reach(self) -> str:
        if self.low is None:
            return "any" if self.high is None else f"at most {amount(self.high, self.unit)}"
        if self.high is None:
            return f"at least {amount(self.low, self.unit)}"
        low, high = amount(self.low, self.unit), amount(self.high, self.unit)
        return f"{low.removesuffix(f' {self.unit}')} to {high}"

    @property
    def cited(self) -> str:
        return self.source + {"recalled": ", from memory", "assumed": ", assumed"}.get(self.mark, "")

    def excludes(self, value: float) -> bool:
        too_low = self.low is not None and value < self.low
        return too_low or (self.high is not None and value > self.high)

    def judge(self, path: tuple[str, ...], value: float, got: str = "") -> Iterator[Problem]:
        """Yield a warning (key path, sentence) if `value` is out of range; `got` follows the value in the sentence."""
        if self.excludes(value):
            value_text = f"{amount(value, self.unit)}{got}"
            yield path, f"is not plausible, got {value_text}; {self.what}: {self.reach} ({self.cited})"


def amount(value: float, unit: str) -> str:
    """Return a value with its unit as text; for Hz, W and s, the unit has a prefix such as M or k."""
    if unit in ("Hz", "W", "s") and 1e-9 <= abs(value) < 1e12:
        size, prefix = next((size, prefix) for size, prefix in _PREFIXES if abs(value) >= size)
        return f"{value / size:.4g} {prefix}{unit}"
    plain = f"{value:.4g}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.3g}"
    return f"{plain.replace('e+', 'e').replace('e0', 'e').replace('e-0', 'e-')} {unit}"


_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))


def _bounds() -> dict[str, Bound]:
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    ends = ((float(end) if end else None for end in row[1:3]) for row in rows)
    return {row[0]: Bound(*end, *row[3:]) for row, end in zip(rows, ends, strict=True)}  # type: ignore[arg-type]


BOUNDS = _bounds()
"""Plausible ranges by name, from `plausibility.csv`."""

_LICENCE_EXEMPT = (
    (8.63e8, 8.7e8, "868 MHz"),
    (2.4e9, 2.4835e9, "2.4 GHz"),
    (5.15e9, 5.725e9, "5 GHz"),
    (5.725e9, 5.85e9, "5.8 GHz"),
)
_WIDTH_TO_HZ = ((8.63e8, "width"), (8.7e8, "width at 868 MHz"), (5.15e9, "width"), (FR1_TOP_HZ, "width of Wi-Fi"))
_FR2_HZ, _FR2_TOP_HZ = 24.25e9, 52.6e9
_FLOAT_BYTE = 4


def computing(outlook: Outlook) -> Iterator[Problem]:
    """Yield warnings about implausible clock frequencies, computing speeds, idle powers and computing powers.

    Computing power and energy efficiency are checked only if clock frequency and speed are plausible.
    """
    scenario, devices = outlook.scenario, outlook.scenario.devices
    # the speed of each device, or the median speed
    given = getattr(devices.speed, "flop_per_s", None) or getattr(devices.speed, "median_flop_per_s", None) or ()
    stated = np.atleast_1d(np.asarray(given, np.float64))
    clock = list(_clock(scenario))
    yield from clock
    for profile in devices.profiles or (None,):
        speeds = stated if profile is None or len(stated) else np.array([profile.compute.flop_per_s])
        where = "speed" if len(stated) else "profile"
        odd = [problem for speed in _extremes(speeds) for problem in BOUNDS["speed"].judge(("devices", where), speed)]
        yield from odd
        yield from _idle(scenario, profile)
        law = law_of(devices.compute_energy, profile)
        if law is not None and not clock and not odd:
            family = profile.device_class if profile is not None and devices.compute_energy is None else None
            path = ("devices", "compute_energy" if devices.compute_energy else where)
            yield from islice(_busy(law, speeds, path, family), 1)


def _clock(scenario: Scenario) -> Iterator[Problem]:
    law, path = scenario.devices.compute_energy, ("devices", "compute_energy")
    if isinstance(law, CmosEnergy | PublishedEnergy):
        yield from BOUNDS["clock"].judge((*path, "clock_hz"), law.clock_hz)
        kappa = law.kappa if isinstance(law, CmosEnergy) else KAPPA[law.preset]
        if kappa > 0:
            yield from BOUNDS["kappa"].judge((*path, "kappa" if isinstance(law, CmosEnergy) else "preset"), kappa)


def _idle(scenario: Scenario, profile: Profile | None) -> Iterator[Problem]:
    own_w = scenario.channel.device.idle_w
    if own_w:
        yield from BOUNDS["idle"].judge(("channel", "device", "idle_w"), own_w)
    elif own_w is None and profile is not None and profile.idle_w:
        yield from _of_class("idle", profile.device_class).judge(("devices", "profile"), profile.idle_w)


def _busy(law: ComputeEnergy, speeds: Array, path: tuple[str, ...], family: DeviceClass | None) -> Iterator[Problem]:
    for speed in _extremes(speeds):
        power_w = law.energy_j(speed, 1.0)
        if power_w > 0:
            yield from _of_class("busy", family).judge(path, power_w, " while a device computes")
            got = f", {amount(speed, 'FLOP/s')} at {amount(power_w, 'W')}"
            yield from _of_class("efficiency", family).judge(path, speed / power_w, got)


def _of_class(quantity: str, family: DeviceClass | None) -> Bound:
    return BOUNDS.get(f"{quantity} {family}", BOUNDS[quantity])


def _extremes(values: Array) -> list[float]:
    return sorted({float(values.min()), float(values.max())}) if len(values) else []


def memory(outlook: Outlook) -> Iterator[Problem]:
    """Yield warnings about profiles with too little memory for model, gradient and optimizer state."""
    scenario = outlook.scenario
    if not any(profile.memory_bytes for profile in scenario.devices.profiles):
        return
    parameters = outlook.cost.parameters
    if parameters is None:
        return
    optimizer = getattr(scenario.algorithm, "local_optimizer", None)
    vectors = 2 + isinstance(optimizer, Momentum) + 2 * isinstance(optimizer, Adam)
    needed_byte = _FLOAT_BYTE * vectors * parameters
    for profile in scenario.devices.profiles:
        if profile.memory_bytes is not None and needed_byte > profile.memory_bytes:
            where = f"{profile.title or 'a profile'} has {profile.memory_bytes:,.0f}"
            known = Bound(None, None, "", "", profile.source, profile.evidence.memory_bytes or "assumed").cited
            yield (
                ("model",),
                f"does not fit into the memory of a device, got {parameters:,} parameters, which take {needed_byte:,} "
                f"bytes with gradients and the state of the optimizer, without activations; {where} ({known})",
            )


def radiated(outlook: Outlook) -> Iterator[Problem]:
    """Yield warnings about transmit powers beyond the limits of the band or of the hardware profile."""
    channel = outlook.scenario.channel
    exempt = next((name for low, high, name in _LICENCE_EXEMPT if low <= channel.carrier_hz <= high), None)
    beams = " above 24 GHz" if channel.carrier_hz >= _FR2_HZ else ""
    for key, terminal, licensed in (
        ("device", channel.device, "handset"),
        ("base_station", channel.base_station, "base station"),
    ):
        bound = BOUNDS[exempt or licensed + beams]
        yield from bound.judge(("channel", key, "tx_power_dbm"), terminal.tx_power_dbm)
        if (its := terminal.profile) is not None and its.max_dbm is not None:
            what, mark = its.title or "the profile", its.marks["max_dbm"] or "assumed"
            bound = Bound(None, its.max_dbm, "dBm", what, its.source, mark)
            yield from bound.judge(("channel", key, "tx_power_dbm"), terminal.tx_power_dbm)


def power_while_sending(outlook: Outlook) -> Iterator[Problem]:
    """Yield warnings about constant powers while sending that were published for another transmit power."""
    scenario, network, side = outlook.scenario, outlook.scenario.network, outlook.scenario.network.sidelink
    access, control = network.uplink.access, network.power_control
    radios: list[tuple[tuple[str, ...], DeviceRadio, str]] = []
    if network.uplink.trace is None and not access.wired:
        acts = "" if isinstance(control, FullPower) else f"power_control {control.kind}"
        acts = acts or (f"access {access.kind}" if access.only_sums or isinstance(access, Planned) else "")
        radios.append((("channel", "device"), scenario.channel.device, acts))
    if side is not None:
        acts = "asymmetry.tx_power_sigma_db" if side.asymmetry.tx_power_sigma_db else ""
        radios.append((("network", "sidelink", "channel", "device"), side.channel.device, acts))
    for path, radio, acts in radios:
        for title, power_w, at_dbm in unsplit(scenario, radio):
            if acts or radio.tx_power_dbm != at_dbm:
                got = f"got {acts}" if acts else f"got {radio.tx_power_dbm:g} dBm"
                yield (
                    (*path, "tx_power_dbm"),
                    f"power while sending is {amount(power_w, 'W')} at any transmit power, {got}: no source splits "
                    f"that of {title} into amplifier and circuit; give {'.'.join(path)}.amplifier_efficiency",
                )


def width(outlook: Outlook) -> Iterator[Problem]:
    """Yield a warning if the bandwidth is narrower or wider than all real channels near the carrier frequency."""
    carrier_hz, bandwidth_hz = outlook.scenario.channel.carrier_hz, outlook.scenario.channel.bandwidth_hz
    above = "width above 7 GHz" if carrier_hz <= _FR2_TOP_HZ else "width above 52 GHz"
    name = next((name for top_hz, name in _WIDTH_TO_HZ if carrier_hz <= top_hz), above)
    hint = ", given in Hz, not MHz" if bandwidth_hz < 1e4 else ""
    yield from BOUNDS[name].judge(("channel", "bandwidth_hz"), bandwidth_hz, hint)


def heights(outlook: Outlook) -> Iterator[Problem]:
    """Yield warnings if base-station antennas are below the devices, or if heights do not fit the path-loss model."""
    channel, path = outlook.scenario.channel, ("channel", "base_station", "height_m")
    station_m, device_m = channel.base_station.height_m, channel.device.height_m
    if station_m < device_m:
        yield (
            path,
            f"is not plausible, got a base station at {station_m:g} m below the devices at {device_m:g} m; "
            "path-loss models take the higher antenna as the base station",
        )
    kind = channel.path_loss.kind
    for key, height_m in (("base_station", station_m), ("device", device_m)):
        bound = BOUNDS.get(f"{key} {kind}")
        if bound is not None:
            yield from bound.judge(("channel", key, "height_m"), height_m)


def strong_links(outlook: Outlook) -> Iterator[Problem]:
    """Yield a warning for each direction in which the median of the devices' mean SNR is too high for real radios."""
    network = outlook.scenario.network
    for way, links in zip((network.uplink, network.downlink), outlook.links, strict=True):
        if way.trace is None:
            median = float(np.median(links.mean_snr))
            if median > 0:
                got = " for half of the devices where they start"
                yield from BOUNDS["snr"].judge(("network", way.DIRECTION), linear_to_db(median), got)


def slots(outlook: Outlook) -> Iterator[Problem]:
    """Yield a warning if an upload of the median device, alone in the band at its mean rate, takes less than a slot."""
    scenario, size_bit = outlook.scenario, outlook.cost.upload_bit
    channel, uplink = scenario.channel, scenario.network.uplink
    if size_bit is None or uplink.trace is not None or uplink.access.only_sums:
        return
    if uplink.access.law(channel.usable_hz) is not None:  # the access scheme has its own frames
        return
    links, _ = outlook.links
    middle = len(links.mean_snr) // 2
    one = np.argpartition(links.mean_snr, middle)[middle : middle + 1]
    takes_s = float(expected_s(scenario, uplink, AtStart(links.mean_snr[one], links.in_sight[one]), size_bit)[0])
    subcarrier_spacing_khz = channel.subcarrier_spacing_khz or (60 if channel.carrier_hz <= FR1_TOP_HZ else 120)
    bound = BOUNDS["slot"]
    shorter = bound._replace(
        low=(bound.low or 0.0) * 15 / subcarrier_spacing_khz, what=f"a slot at {subcarrier_spacing_khz} kHz"
    )
    yield from shorter.judge(("network", "uplink"), takes_s, f" to upload a model of {size_bit:,} bits")


PLAUSIBLE: tuple[Callable[[Outlook], Iterator[Problem]], ...] = (
    *(computing, memory, radiated, power_while_sending),
    *(width, heights, strong_links, slots),
)
"""All functions that yield plausibility warnings, in the order in which they run."""


def as_table() -> str:
    """Return the plausible ranges as a Markdown table."""
    rows = dict.fromkeys(f"| {its.what} | {its.reach} | {its.cited} |" for its in BOUNDS.values())
    return "\n".join(("| what | plausible | source |", "|---|---|---|", *rows))
