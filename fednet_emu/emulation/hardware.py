"""Hardware of the devices: speeds and powers from hardware profiles, and from settings that replace profile values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fednet_emu.arrays import Array
from fednet_emu.devices.powers import DevicePowers, PerDevice, Stated
from fednet_emu.devices.profiles import Profile, dealt
from fednet_emu.kernel.streams import Streams
from fednet_emu.radio.channel import HANDSET_DBM, DeviceRadio, Terminal
from fednet_emu.radio.energy import ComputeEnergy, MeasuredEnergy
from fednet_emu.radio.profiles import MARKS, Mark, TransmitterProfile
from fednet_emu.scenario.model import Problem, Scenario


@dataclass(frozen=True)
class Hardware:
    """Speeds and powers of the devices of one run."""

    which: bytes  # index of each device's hardware profile, as one byte per device; 0 if there are no profiles
    powers: DevicePowers  # powers of the devices in W while idle, sending and receiving
    overhead_s: PerDevice  # fixed time in s that each computation of a device takes in addition to its operations
    energy: tuple[ComputeEnergy | None, ...]  # computing energy above idle power, by profile; None if unknown


def hardware(scenario: Scenario, streams: Streams) -> Hardware:
    """Assign profiles to the devices, and return their hardware. Settings of the scenario replace profile values."""
    devices, radio = scenario.devices, scenario.channel.device
    profiles: tuple[Profile | None, ...] = devices.profiles or (None,)
    which = dealt(devices.profiles, devices.count, lambda: streams("profile"))
    powers = DevicePowers.of(radio, which, tuple(map(_stated, profiles)))
    laws = (law_of(devices.compute_energy, profile) for profile in profiles)
    energy = tuple(
        None if law is None else law.beside(idle_w) for law, idle_w in zip(laws, powers.idle_w.values, strict=True)
    )
    overheads = (profile.compute.overhead_s if profile else None for profile in profiles)
    own_s = devices.overhead_s
    overhead_s = tuple((its or 0.0) if own_s is None else own_s for its in overheads)
    return Hardware(which, powers, PerDevice(overhead_s, which), energy)


def speeds(scenario: Scenario, which: bytes, streams: Streams, data_dir: Path | None) -> Array:
    """Return the speeds [devices] in FLOP/s from `devices.speed` or the profiles, divided by `devices.slowdown`."""
    devices = scenario.devices
    law, nominal = devices.speed, PerDevice(tuple(its.compute.flop_per_s for its in devices.profiles), which)
    drawn = nominal.all if law is None else law.draw(devices.count, streams("speed"), data_dir)
    if law is not None and law.relative:
        drawn = drawn * nominal.all
    drawn[list(devices.slowdown)] /= list(devices.slowdown.values())
    return drawn


def unfit(scenario: Scenario) -> Iterator[Problem]:
    """Yield errors about hardware profiles: a wrong number of profiles, no computing speed, or contradictory powers."""
    devices, profiles = scenario.devices, scenario.devices.profiles
    if devices.profile == () or len(profiles) > MOST_PROFILES:
        yield ("devices", "profile"), f"is 1 to {MOST_PROFILES} profiles, got {len(profiles)}; give this number"
    if not profiles and (devices.speed is None or devices.speed.relative):
        path = ("devices", "speed") if devices.speed is None else ("devices", "speed", "median_flop_per_s")
        yield path, "is missing, and no profile states the speed of devices; give it in FLOP/s, or devices.profile"
        return
    for profile in profiles or (None,):
        idle_w = _stated(profile).idle_w if scenario.channel.device.idle_w is None else scenario.channel.device.idle_w
        law = law_of(devices.compute_energy, profile)
        if isinstance(law, MeasuredEnergy) and law.active_w < (idle_w or 0.0):
            what = f"is the power of the whole device, idle power included, got {law.active_w:g} W"
            yield (
                ("devices", "compute_energy") if devices.compute_energy else ("channel", "device", "idle_w"),
                f"{what} while it computes and {idle_w:g} W while it waits; give at least that, or less idle_w",
            )
            return


MOST_PROFILES = 256
"""Maximum number of profiles, because the index of a device's profile is one byte."""


def _stated(profile: Profile | None) -> Stated:
    if profile is None:
        return Stated()
    radio = profile.radio
    return Stated(
        profile.idle_w, radio.tx_consumption_w, radio.rx_consumption_w, radio.max_dbm, radio.amplifier_efficiency
    )


def law_of(given: ComputeEnergy | None, profile: Profile | None) -> ComputeEnergy | None:
    """Return the energy model of computations: `given`, else a model with the profile's power, else None."""
    if given is not None:
        return given
    active_w = None if profile is None else profile.compute.active_w
    return None if active_w is None else MeasuredEnergy(active_w=active_w)


def unsplit(scenario: Scenario, radio: DeviceRadio) -> Iterator[tuple[str, float, float]]:
    """Yield the hardware profiles with a constant power while sending, which does not depend on the transmit power.

    For these profiles, no source relates the two powers. Each item is (title, power in W above idle power while
    sending, transmit power in dBm at which the source states this power).
    """
    profiles = scenario.devices.profiles or (None,)
    powers = DevicePowers.of(scenario.channel.device, b"", tuple(map(_stated, profiles)))
    for profile, its, transmitter in zip(profiles, powers.stated, powers.transmitters(radio), strict=True):
        if math.isinf(transmitter.efficiency):
            own = radio.profile if radio.whole_w is not None else profile
            at_dbm = its.max_dbm if radio.profile is None or own is profile else radio.profile.max_dbm
            title = own.title if own is not None else ""
            yield title or "the profile", transmitter.circuit_w, HANDSET_DBM if at_dbm is None else at_dbm


def notes(scenario: Scenario) -> Iterator[str]:
    """Yield notes for the user about privacy, energies that are not counted, and values with weak evidence."""
    devices, rounds = scenario.devices, scenario.stop.rounds
    if rounds is not None and (bound := scenario.privacy(rounds)) is not None:
        yield f"{rounds} rounds reveal at most epsilon = {bound.epsilon:.4g} of a device, at delta = {bound.delta:g}"
    if devices.compute_energy is None and not devices.profiles:
        yield (
            "the energy of computing is not counted: the power of the devices is unknown; give "
            "devices.profile, or devices.compute_energy"
        )
    yield from _ideal_amplifiers(scenario)
    for profile in devices.profiles:
        used = _used(scenario, profile)
        unknown = [name for name in used if profile.numbers[name] is None]
        yield from _evidence(profile.title, {name: profile.marks[name] for name in used}, unknown)
    side = scenario.network.sidelink
    radios = (scenario.channel.device, scenario.channel.base_station, *((side.channel.device,) if side else ()))
    for radio in radios:
        if (its := radio.profile) is not None:
            yield from _evidence(its.title, {name: its.marks[name] for name in _used_of_radio(radio, its)}, [])


def _ideal_amplifiers(scenario: Scenario) -> Iterator[str]:
    network, channel = scenario.network, scenario.channel
    powers = DevicePowers.of(channel.device, b"", tuple(map(_stated, scenario.devices.profiles or (None,))))
    ideal = {
        "device": any(its.efficiency == 1.0 for its in powers.transmitters(channel.device)),
        "base_station": channel.base_station.transmitter().efficiency == 1.0,
    }
    ideal["base_station"] &= scenario.algorithm.has_server
    for (key, is_ideal), way in zip(ideal.items(), (network.uplink, network.downlink), strict=True):
        if is_ideal and not way.access.wired and getattr(channel, key).amplifier_efficiency is None:
            yield (
                f"{key.replace('_', ' ')}s send with an ideal amplifier, 1 W drawn for each 1 W radiated: nothing "
                f"states what they draw; give channel.{key}.profile or channel.{key}.amplifier_efficiency"
            )


def _used_of_radio(radio: Terminal, profile: TransmitterProfile) -> list[str]:
    own = {name for name in profile.numbers if getattr(radio, name, None) is not None}
    replaced = {"max_dbm", *own, *(("tx_consumption_w",) if "circuit_w" in own else ())}
    return [name for name in profile.numbers if name not in replaced]


def _evidence(title: str, marks: Mapping[str, Mark | None], unknown: list[str]) -> Iterator[str]:
    known, name = {number: mark for number, mark in marks.items() if mark is not None}, title or "a profile"
    if known:
        weakest = max(known.values(), key=MARKS.index)
        weak = [number for number, mark in known.items() if mark == weakest]
        yield f"{name}: the weakest evidence is '{weakest}' ({', '.join(weak)})"
    if unknown:
        yield f"{name}: not known, and not counted: {', '.join(unknown)}"


def _used(scenario: Scenario, profile: Profile) -> list[str]:
    devices, radio = scenario.devices, scenario.channel.device
    own_efficiency = radio.stated("amplifier_efficiency")
    efficiency = own_efficiency or profile.radio.amplifier_efficiency
    own_power = radio.whole_w is not None or radio.stated("circuit_w") is not None
    replaced = {
        "flop_per_s": devices.speed is not None and not devices.speed.relative,
        "overhead_s": devices.overhead_s is not None,
        "active_w": devices.compute_energy is not None,
        "idle_w": radio.idle_w is not None,
        "tx_consumption_w": own_power,
        "max_dbm": own_power or efficiency is None or profile.radio.max_dbm is None,
        "amplifier_efficiency": radio.whole_w is not None or own_efficiency is not None or efficiency is None,
        "rx_consumption_w": radio.stated("rx_consumption_w") is not None,
        "memory_bytes": True,  # only warnings depend on the memory
    }
    return [name for name in profile.numbers if not replaced[name]]
