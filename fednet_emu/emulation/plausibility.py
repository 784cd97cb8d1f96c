"""Plausibility: whether devices, radios and messages could exist, each judged by a bound with its source.

All bounds are in `BOUNDS`; the site has them as a table. Settings are judged, and the links at the start
as arrays, as there may be a million devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
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
    """What is plausible of a quantity.

    Attributes:
        low: the least value; None for no bound.
        high: the largest value; None for no bound.
        unit: the unit of both.
        what: what has such values.
        source: where the bound comes from.
        mark: how well it is known, as in profiles.
    """

    low: float | None
    high: float | None
    unit: str
    what: str
    source: str
    mark: Mark

    @property
    def reach(self) -> str:
        """The bounds in words."""
        if self.low is None:
            return "any" if self.high is None else f"at most {amount(self.high, self.unit)}"
        if self.high is None:
            return f"at least {amount(self.low, self.unit)}"
        low, high = amount(self.low, self.unit), amount(self.high, self.unit)
        return f"{low.removesuffix(f' {self.unit}')} to {high}"

    @property
    def cited(self) -> str:
        """The source, and in words if the bound was not read there."""
        return self.source + {"recalled": ", from memory", "assumed": ", assumed"}.get(self.mark, "")

    def excludes(self, value: float) -> bool:
        """Whether a value is outside."""
        too_low = self.low is not None and value < self.low
        return too_low or (self.high is not None and value > self.high)

    def judge(self, path: tuple[str, ...], value: float, got: str = "") -> Iterator[Problem]:
        """Yield the key path and a sentence if a value is outside; `got` says more of what it is."""
        if self.excludes(value):
            yield (
                path,
                f"is not plausible, got {amount(value, self.unit)}{got}; {self.what}: {self.reach} ({self.cited})",
            )


def amount(value: float, unit: str) -> str:
    """A value with its unit, of hertz, watts and seconds with a prefix."""
    if unit in ("Hz", "W", "s") and 1e-9 <= abs(value) < 1e12:
        size, prefix = next((size, prefix) for size, prefix in _PREFIXES if abs(value) >= size)
        return f"{value / size:.4g} {prefix}{unit}"
    plain = f"{value:.4g}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.3g}"
    return f"{plain.replace('e+', 'e').replace('e0', 'e').replace('e-0', 'e-')} {unit}"


_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))

_HPL = "HPL at the wall, geerlingguy/top500-benchmark: 1.8e8 to 7.6e9"
_GPU = "training on a Jetson Nano 1.1e10, an RTX 3090 7.5e10, an M1 Max 8.2e10"
_SUCH = "around what was measured of such devices"
_UNION = "from microcontrollers to GPUs, the least and the most of all classes"
_TR = "3GPP TR 38.901 Table 7.4.1-1"
_WIDTHS = "3GPP TS 38.101-1 and -2 Table 5.3.2-1, a block has 12 subcarriers of 15 kHz"

_HANDHELD = Bound(0.75, 3.0, "m", "device to device", "WINNER+ D5.3 (B1) is for 1.5 m; half to twice that", "assumed")

BOUNDS: dict[str, Bound] = {
    "speed": Bound(1e6, 1e14, "FLOP/s", "a device that trains", "a decade and more beyond all profiles", "assumed"),
    "clock": Bound(1.6e7, 6e9, "Hz", "the clock of a processor", "microcontrollers to desktops", "recalled"),
    "kappa": Bound(
        *(1e-29, 5e-27, "J s^2", "kappa with a real clock"),
        *("power table of a phone of 2022: 2.5e-29 to 4.2e-29; Raspberry Pi 4: 9.1e-28", "derived"),
    ),
    # FLOP/J while training, by class
    "efficiency microcontroller": Bound(
        *(5e7, 3e9, "FLOP/J", "a microcontroller", "MLPerf Tiny, int8 inference: 1.4e9 to 6.9e9 op/J", "derived")
    ),
    "efficiency phone": Bound(5e7, 1e10, "FLOP/J", "a phone's processor", _HPL, "derived"),
    "efficiency board": Bound(5e7, 1e10, "FLOP/J", "a Linux board", _HPL, "derived"),
    "efficiency accelerator": Bound(1e9, 2e11, "FLOP/J", "an embedded GPU", _GPU, "derived"),
    "efficiency laptop": Bound(1e9, 2e11, "FLOP/J", "a laptop's GPU", _GPU, "derived"),
    "efficiency": Bound(5e7, 2e11, "FLOP/J", "devices that train", f"{_HPL}; {_GPU}", "derived"),
    # power of the whole device, by class
    "busy microcontroller": Bound(5e-3, 0.5, "W", "a busy microcontroller", _SUCH, "assumed"),
    "busy phone": Bound(0.5, 8.0, "W", "a busy phone", _SUCH, "assumed"),
    "busy board": Bound(1.0, 20.0, "W", "a busy Linux board", _SUCH, "assumed"),
    "busy accelerator": Bound(5.0, 75.0, "W", "a busy board with a GPU", _SUCH, "assumed"),
    "busy laptop": Bound(10.0, 150.0, "W", "a busy laptop", _SUCH, "assumed"),
    "busy": Bound(5e-3, 150.0, "W", "a device that computes", _UNION, "assumed"),
    "idle microcontroller": Bound(1e-6, 0.1, "W", "an idle microcontroller", _SUCH, "assumed"),
    "idle phone": Bound(0.02, 2.5, "W", "an idle phone", _SUCH, "assumed"),
    "idle board": Bound(0.4, 5.0, "W", "an idle Linux board", _SUCH, "assumed"),
    "idle accelerator": Bound(2.0, 12.0, "W", "an idle board with a GPU", _SUCH, "assumed"),
    "idle": Bound(1e-6, 12.0, "W", "a device that waits", _UNION, "assumed"),
    # radiated power
    "handset": Bound(None, 26, "dBm", "a handset", "3GPP TS 38.101-1, power class 2", "recalled"),
    "handset above 24 GHz": Bound(None, 43, "dBm", "a handset with its beam", "47 CFR 30.202", "recalled"),
    "base station": Bound(None, 49, "dBm", "a wide-area base station", "what is built", "recalled"),
    "base station above 24 GHz": Bound(None, 75, "dBm", "a station with its beam", "47 CFR 30.202", "recalled"),
    "868 MHz": Bound(None, 14, "dBm", "863 to 870 MHz, e.r.p.", "summary of EN 300 220: 25 mW", "table"),
    "2.4 GHz": Bound(None, 36, "dBm", "2.4 GHz, e.i.r.p.", "47 CFR 15.247 (b): 30 dBm and 6 dBi", "table"),
    "5 GHz": Bound(None, 30, "dBm", "5.15 to 5.725 GHz, e.i.r.p.", "EN 301 893", "recalled"),
    "5.8 GHz": Bound(None, 36, "dBm", "5.725 to 5.85 GHz, e.i.r.p.", "47 CFR 15.247", "recalled"),
    # width of the band
    "width": Bound(1.8e5, 1e8, "Hz", "one resource block to the widest carrier below 7.125 GHz", _WIDTHS, "table"),
    "width of Wi-Fi": Bound(1.8e5, 3.2e8, "Hz", "the widest Wi-Fi channel at 5 and 6 GHz", "802.11be", "recalled"),
    "width above 7 GHz": Bound(1.8e5, 4e8, "Hz", "one resource block to the widest carrier", _WIDTHS, "table"),
    "width above 52 GHz": Bound(1.8e5, 2.16e9, "Hz", "the widest channel at 60 GHz", "802.11ad", "recalled"),
    "width at 868 MHz": Bound(
        7.8e3, 7e6, "Hz", "the narrowest LoRa to the whole band", "SX1276 data sheet", "recalled"
    ),
    # heights of antennas, where the law takes any
    "base_station 3gpp-uma": Bound(12.5, 50.0, "m", "urban macro", f"{_TR} is for 25 m; half to twice that", "assumed"),
    "base_station 3gpp-umi": Bound(
        5.0, 20.0, "m", "street canyon", f"{_TR} is for 10 m; half to twice that", "assumed"
    ),
    "base_station 3gpp-inh": Bound(1.5, 6.0, "m", "offices", f"{_TR} is for 3 m; half to twice that", "assumed"),
    "base_station d2d-outdoor": _HANDHELD,
    "device d2d-outdoor": _HANDHELD,
    "snr": Bound(None, 60.0, "dB", "mean SNRs", "distortion of radios limits them to less", "assumed"),
    "slot": Bound(
        1e-3, None, "s", "a slot of 5G NR at 15 kHz; shorter as spacings are wider", "TS 38.211 4.3.2", "table"
    ),
}
"""Every bound, by name."""

_LICENCE_EXEMPT = (
    (8.63e8, 8.7e8, "868 MHz"),
    (2.4e9, 2.4835e9, "2.4 GHz"),
    (5.15e9, 5.725e9, "5 GHz"),
    (5.725e9, 5.85e9, "5.8 GHz"),
)
_WIDTH_TO_HZ = ((8.63e8, "width"), (8.7e8, "width at 868 MHz"), (5.15e9, "width"), (FR1_TOP_HZ, "width of Wi-Fi"))
_FR2_HZ, _FR2_TOP_HZ = 24.25e9, 52.6e9
_FLOAT_BYTE = 4


# ---- devices ---------------------------------------------------------------------------------------------------------


def computing(outlook: Outlook) -> Iterator[Problem]:
    """Judge clocks, speeds and powers, and, where clock and speed are plausible, what they say together."""
    scenario, devices = outlook.scenario, outlook.scenario.devices
    # one speed of each device, or that around which they spread
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
    """Judge what a device draws while it waits."""
    own_w = scenario.channel.device.idle_w
    if own_w:
        yield from BOUNDS["idle"].judge(("channel", "device", "idle_w"), own_w)
    elif own_w is None and profile is not None and profile.idle_w:
        yield from _of_class("idle", profile.device_class).judge(("devices", "profile"), profile.idle_w)


def _busy(law: ComputeEnergy, speeds: Array, path: tuple[str, ...], family: DeviceClass | None) -> Iterator[Problem]:
    """Judge what computing draws, and its FLOP/J, at the least and the largest of some speeds."""
    for speed in _extremes(speeds):
        power_w = law.energy_j(speed, 1.0)
        if power_w > 0:
            yield from _of_class("busy", family).judge(path, power_w, " while a device computes")
            got = f", {amount(speed, 'FLOP/s')} at {amount(power_w, 'W')}"
            yield from _of_class("efficiency", family).judge(path, speed / power_w, got)


def _of_class(quantity: str, family: DeviceClass | None) -> Bound:
    """The bound of a class of devices, or that of all."""
    return BOUNDS.get(f"{quantity} {family}", BOUNDS[quantity])


def _extremes(values: Array) -> list[float]:
    """The least and the largest of some values, once if they are equal."""
    return sorted({float(values.min()), float(values.max())}) if len(values) else []


def memory(outlook: Outlook) -> Iterator[Problem]:
    """Find profiles whose memory does not hold the model, its gradient and the state of the local optimizer."""
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


# ---- radios ----------------------------------------------------------------------------------------------------------


def radiated(outlook: Outlook) -> Iterator[Problem]:
    """Judge the radiated powers of devices and base stations by the rules of the band, and by their profiles."""
    channel = outlook.scenario.channel
    exempt = next((name for low, high, name in _LICENCE_EXEMPT if low <= channel.carrier_hz <= high), None)
    beams = " above 24 GHz" if channel.carrier_hz >= _FR2_HZ else ""
    for key, terminal, licensed in (
        ("device", channel.device, "handset"),
        ("base_station", channel.base_station, "base station"),
    ):
        bound = BOUNDS[exempt or licensed + beams]
        yield from bound.judge(("channel", key, "tx_power_dbm"), terminal.tx_power_dbm)
        if (its := terminal.profile) is not None and its.most_dbm is not None:
            what, mark = its.title or "the profile", its.marks["most_dbm"] or "assumed"
            bound = Bound(None, its.most_dbm, "dBm", what, its.source, mark)
            yield from bound.judge(("channel", key, "tx_power_dbm"), terminal.tx_power_dbm)


def power_while_sending(outlook: Outlook) -> Iterator[Problem]:
    """Find devices whose energy says nothing of their transmit power, where that is not the one of their profile."""
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
    """Judge the width of the band by the narrowest and widest that there are around its carrier."""
    carrier_hz, bandwidth_hz = outlook.scenario.channel.carrier_hz, outlook.scenario.channel.bandwidth_hz
    above = "width above 7 GHz" if carrier_hz <= _FR2_TOP_HZ else "width above 52 GHz"
    name = next((name for top_hz, name in _WIDTH_TO_HZ if carrier_hz <= top_hz), above)
    hint = ", given in Hz, not MHz" if bandwidth_hz < 1e4 else ""
    yield from BOUNDS[name].judge(("channel", "bandwidth_hz"), bandwidth_hz, hint)


def heights(outlook: Outlook) -> Iterator[Problem]:
    """Judge the heights of antennas: base stations above devices, and near the heights of the path-loss law."""
    channel, path = outlook.scenario.channel, ("channel", "base_station", "height_m")
    station_m, device_m = channel.base_station.height_m, channel.device.height_m
    if station_m < device_m:
        yield (
            path,
            f"is not plausible, got a base station at {station_m:g} m below the devices at {device_m:g} m; "
            "path-loss laws take the higher antenna as that of the base station",
        )
    kind = channel.path_loss.kind
    for key, height_m in (("base_station", station_m), ("device", device_m)):
        bound = BOUNDS.get(f"{key} {kind}")
        if bound is not None:
            yield from bound.judge(("channel", key, "height_m"), height_m)


# ---- links and messages ----------------------------------------------------------------------------------------------


def strong_links(outlook: Outlook) -> Iterator[Problem]:
    """Find directions in which the mean SNR of the median device is beyond that of radios."""
    network = outlook.scenario.network
    for way, links in zip((network.uplink, network.downlink), outlook.links, strict=True):
        if way.trace is None:
            median = float(np.median(links.mean_snr))
            if median > 0:
                got = " for half of the devices where they start"
                yield from BOUNDS["snr"].judge(("network", way.DIRECTION), linear_to_db(median), got)


def slots(outlook: Outlook) -> Iterator[Problem]:
    """Find uploads that the median device sends in less than a slot, at the mean rate alone in the band."""
    scenario, size_bit = outlook.scenario, outlook.cost.upload_bit
    channel, uplink = scenario.channel, scenario.network.uplink
    if size_bit is None or uplink.trace is not None or uplink.access.only_sums:
        return
    if uplink.access.law(channel.usable_hz) is not None:  # it brings frames of its own
        return
    links, _ = outlook.links
    middle = len(links.mean_snr) // 2
    one = np.argpartition(links.mean_snr, middle)[middle : middle + 1]
    takes_s = float(expected_s(scenario, uplink, AtStart(links.mean_snr[one], links.in_sight[one]), size_bit)[0])
    spacing_khz = channel.numerology_khz or (60 if channel.carrier_hz <= FR1_TOP_HZ else 120)
    bound = BOUNDS["slot"]
    shorter = bound._replace(low=(bound.low or 0.0) * 15 / spacing_khz, what=f"a slot at {spacing_khz} kHz")
    yield from shorter.judge(("network", "uplink"), takes_s, f" for an upload of {size_bit:,} bits")


PLAUSIBLE: tuple[Callable[[Outlook], Iterator[Problem]], ...] = (
    computing,
    memory,
    radiated,
    power_while_sending,
    width,
    heights,
    strong_links,
    slots,
)
"""What is judged, in this order."""


def as_table() -> str:
    """The bounds as a table in Markdown."""
    rows = dict.fromkeys(f"| {its.what} | {its.reach} | {its.cited} |" for its in BOUNDS.values())
    return "\n".join(("| what | plausible | source |", "|---|---|---|", *rows))
