"""Estimates before a run from the settings of its scenario: the cost of the run, and the links at the start.

Only the headers of data files are read. All checks of a scenario share one `Outlook`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fednet_emu.algorithms.base import EVENTS
from fednet_emu.arrays import Array, Mask
from fednet_emu.devices.orbits import SatelliteView
from fednet_emu.errors import ScenarioError
from fednet_emu.files.data_folder import data_folder
from fednet_emu.learning.data.datasets.base import Extent
from fednet_emu.learning.models.adapters import shipped_bit
from fednet_emu.learning.models.base import Model, seeded_module
from fednet_emu.learning.models.user_module import GivenModule, UserModule
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.links.links import CellEnvironment, CellLinks, network_links
from fednet_emu.network.settings import Uplink
from fednet_emu.network.slices import OTHERS
from fednet_emu.network.traffic.users import users_of
from fednet_emu.radio.fading import Fading
from fednet_emu.radio.receiver.combining import ONE_ANTENNA
from fednet_emu.scenario.model import Problem, Scenario
from fednet_emu.units import linear_to_db

BYTE_PER_DEVICE = 400
"""Memory in bytes per device while the network is built, measured with a million devices."""
BYTE_PER_EVENT = 100
"""Memory in bytes of the record of one transfer or computation."""
VECTORS = 3
"""Number of model vectors in memory in every run: the initial, the current and the next model."""
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Cost:
    """An estimate of the size of a run."""

    devices: int  # number of devices
    rounds: int | None  # maximum number of rounds; None if another limit ends the run
    participants: int  # maximum number of devices whose updates are in memory at the same time
    answers: int  # number of devices that receive a message, compute and send a reply in a round
    parameters: int | None  # number of trained parameters of the model; None if it depends on unread data or user code
    data_byte: int  # memory of the samples in bytes; 0 if unknown
    upload_bit: int | None = None  # maximum size of a model on the uplink, without headers; None if unknown or not sent
    events_each: int | None = EVENTS  # number of transfers and computations of a device in a round; None if unknown
    frozen: int = 0  # number of untrained parameters of the model, which are stored once and not part of updates
    shipped_bit: int = 0  # size of the frozen parameters that each device receives once; 0 if devices have them

    @classmethod
    def of(cls, scenario: Scenario, extent: Extent | None, data_dir: Path | None = None) -> Cost:
        """Return an estimate of the size of a run; raise `ScenarioError` if the model cannot be built for the data."""
        count, (parameters, frozen, shipped_bit) = scenario.devices.count, _parameters(scenario, extent, data_dir)
        sends_models = "uplink-compression" in scenario.algorithm.uses
        samples = None if extent is None or extent.samples is None else max(1, -(-extent.samples // count))
        return cls(
            devices=count,
            rounds=scenario.stop.rounds,
            participants=scenario.algorithm.participants(count),
            answers=scenario.algorithm.answers(count),
            parameters=parameters,
            data_byte=extent.byte if extent else 0,
            upload_bit=scenario.network.uplink.compression.bit(parameters) if parameters and sends_models else None,
            events_each=scenario.algorithm.events(samples),
            frozen=frozen,
            shipped_bit=shipped_bit,
        )

    @property
    def model_byte(self) -> int:
        return 4 * (self.parameters or 0)

    @property
    def events(self) -> int | None:
        """Total number of transfers and computations in all rounds; None if unknown."""
        if self.rounds is None or self.events_each is None:
            return None
        return self.events_each * self.answers * self.rounds

    @property
    def min_byte(self) -> int:
        """Minimum memory of the run in bytes: devices, samples and model."""
        return BYTE_PER_DEVICE * self.devices + self.data_byte + VECTORS * self.model_byte + 4 * self.frozen

    @property
    def max_byte(self) -> int:
        """Maximum memory of the run in bytes, with one update per participant and the records of all rounds."""
        return self.min_byte + self.participants * self.model_byte + BYTE_PER_EVENT * (self.events or 0)

    def __str__(self) -> str:
        rounds = "rounds until another limit" if self.rounds is None else f"rounds up to {self.rounds:,}"
        size = "a model of unknown size" if self.parameters is None else f"a model of {self.parameters:,} parameters"
        if self.frozen:
            size += f" and {self.frozen:,} frozen ones"
        if self.shipped_bit:
            size += f", which each device is sent once in {self.shipped_bit:,} bits,"
        if self.upload_bit is not None and self.upload_bit < 8 * self.model_byte:
            size += f", which has {self.upload_bit:,} bits if compressed for the uplink"
        if self.events_each is None:
            events = "an unknown number of events"
        elif self.events is None:
            events = f"about {self.events_each * self.answers:,} events a round"
        else:
            events = f"about {self.events:,} events"
        memory = f"{readable(self.min_byte)} of memory, with all records {readable(self.max_byte)}"
        if self.min_byte == self.max_byte or self.events is None:
            memory = f"{readable(self.max_byte)} of memory"
        return f"cost: devices {self.devices:,}, {rounds}, {size}, {events}, {memory} on top of the program"


def host_memory_byte() -> float:
    """Return the memory limit of this process in bytes, from the machine or its control group; inf if unknown."""
    limits = [math.inf]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
    for file in map(Path, _CGROUPS):
        text = file.read_text(encoding="ascii").strip() if file.is_file() else ""
        if text.isdecimal():
            limits.append(float(text))
    return min(limits)


def links_at_start(scenario: Scenario, data_dir: Path | str | None = None) -> tuple[CellLinks, CellLinks]:
    """Return the uplinks and downlinks with devices at their initial positions and satellites directly overhead."""
    streams, devices, network = scenario.streams, scenario.devices, scenario.network
    xy_m = devices.placement.positions_m(devices.count, streams("placement"))
    if devices.mobility.places:
        paths = devices.mobility.paths(xy_m, devices.where_they_roam(), streams, data_folder(data_dir))
        paths = network.cells.around(paths)
        xy_m = (
            paths.overhead_m() if isinstance(paths, SatelliteView) else paths.positions_m(np.arange(devices.count), 0.0)
        )
    stations_m = network.cells.positions_m()
    channel = scenario.channel.on_site(stations_m, data_folder(data_dir))
    environment = CellEnvironment(channel, streams, network.power_control, antennas=network.reception.antennas)
    return network_links(environment, xy_m, stations_m)


def _parameters(scenario: Scenario, extent: Extent | None, data_dir: Path | None) -> tuple[int | None, int, int]:
    """Return the numbers of trained and frozen parameters, and the size in bits of what each device receives once.

    The result is (None, 0, 0) if the size of the data or model is unknown, as for models from user code.
    """
    model = scenario.model
    if extent is None or extent.outputs is None or model is None or isinstance(model, UserModule | GivenModule):
        return None, 0, 0
    if not type(model).__module__.startswith("fednet_emu."):
        return None, 0, 0
    return _counted(type(model), model.located(data_dir).model_dump_json(), extent.input_shape, extent.outputs)


@lru_cache(maxsize=1024)
def _counted(kind: type[Model], settings: str, shape: tuple[int, ...], outputs: int) -> tuple[int, int, int]:
    model = kind.model_validate_json(settings)
    try:
        with torch.device("meta"):
            module = seeded_module(lambda: model.build(shape, outputs), 0)
    except (RuntimeError, OverflowError, TypeError, ValueError) as error:
        what = str(error).splitlines()[0]
        raise ScenarioError(f"model: cannot be built ({what}), got {model!r}; give smaller layers") from error
    trained = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
    return trained, sum(parameter.numel() for parameter in module.parameters()) - trained, shipped_bit(module)


def readable(size_byte: float) -> str:
    """Format an amount of memory, for example `3.2 GB`."""
    for unit, size in (("ZB", 1e21), ("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size_byte >= 0.9995 * size:
            return f"{size_byte / size:.3g} {unit}"
    return f"{size_byte / 1e3:.3g} kB"


class AtStart(NamedTuple):
    """Links [devices] in one direction at the initial positions, with the mean SNR (linear) on the whole band."""

    mean_snr: Array
    in_sight: Mask


@dataclass(frozen=True, eq=False)
class Outlook:
    """A scenario and estimates of its run, each computed on first access. The scenario may be too large to run.

    `data_dir` is the folder of datasets, whose headers are read; None for the folder given by FEDNET_DATA.
    """

    scenario: Scenario
    data_dir: Path | str | None = None

    @cached_property
    def extent(self) -> Extent | None:
        """Number and shape of the samples; None if unknown, for example for an algorithm with its own data."""
        data = self.scenario.data
        return None if data is None else data.extent(data_folder(self.data_dir))

    @cached_property
    def cost(self) -> Cost:
        return Cost.of(self.scenario, self.extent, data_folder(self.data_dir))

    @property
    def secrecy(self) -> str:
        """Sentence about the cost of secure aggregation; empty if it is not used or the model size is unknown."""
        rule, n, m = self.scenario.network.uplink.secure_aggregation, self.cost.participants, self.cost.parameters
        if rule is None or m is None:
            return ""
        bit = rule.total_bit(n, m)
        times = f"{bit / (m * rule.input_bits):.3g} times a vector of {rule.input_bits} bit an entry"
        return (
            f"secure aggregation of {n:,} devices: 7 messages of each a round, {bit:,} bits on top of a model, {times}"
        )

    @property
    def company(self) -> str:
        """Sentence about the load of other users and the host time to simulate their files; empty if there are none."""
        rate = host_s = 0.0
        loads = []
        for its in crowds(self):
            access = getattr(self.scenario.network, its.direction).access
            rate, host_s = rate + its.files_per_s, host_s + its.files_per_s * HOST_S.get(access.kind, OTHER_HOST_S)
            part = "rate of a lone sender on the " * access.overlapping + its.direction
            loads.append(f"{its.name} {its.least}{its.loads.max():.2g} of the {part}")
        cost = f"other users: {rate:,.3g} files/s, about {host_s:.2g} s of host time per simulated s"
        return f"{cost}; {', '.join(loads)}" if loads else ""

    @cached_property
    def links(self) -> tuple[AtStart, AtStart]:
        """Uplinks and downlinks at the initial positions of the devices; for a million devices, this takes seconds."""
        up, down = (AtStart(links.mean_snr, links.in_sight) for links in links_at_start(self.scenario, self.data_dir))
        return up, down


class Crowd(NamedTuple):
    """Load that a class of other users offers, estimated from the distributions of file sizes and gaps."""

    name: str
    direction: str
    slice: str
    users: int
    files_per_s: float
    offered_bps: float
    loads: Array
    """Load of each cell [cells]: the airtime in s that the files arriving per second would need if each were sent alone
    in the band. Queues grow without limit if the load is 1 or more, unless simultaneous senders use the same band."""
    is_bound: bool
    """True if the loads are lower bounds, because contention or a transport protocol takes further time."""
    out_of_reach: int
    """Number of users whose link carries no data."""

    @property
    def least(self) -> str:
        return "at least " * self.is_bound


HOST_S = {"tdma": 2e-5}
"""Measured host time in s to simulate one file, by access scheme; `OTHER_HOST_S` for schemes not listed here."""
OTHER_HOST_S = 1e-4


def crowds(outlook: Outlook) -> Iterator[Crowd]:
    """Yield the loads of the classes of other users whose file arrivals are drawn from a distribution."""
    scenario, data_dir = outlook.scenario, data_folder(outlook.data_dir)
    streams, network, devices = scenario.streams, scenario.network, scenario.devices
    wire_bit = network.overhead.wire_bit
    for its in scenario.traffic:
        if its.size is None or its.gap is None or its.after == "end" or its.gap.mean <= 0:
            continue
        users = users_of([its.model_copy(update={"slice": None})], devices.placement, 0, streams, wire_bit)
        stations_m = network.cells.positions_m()
        channel, antennas = scenario.channel.on_site(stations_m, data_dir), network.reception.antennas
        own = CellEnvironment(channel, streams, network.power_control, antennas=antennas, numbers=users.numbers)
        links = network_links(own, users.xy_m, stations_m)[its.direction == "downlink"]
        size_bit = wire_bit(round(8 * its.size.mean))
        way, start = getattr(network, its.direction), AtStart(links.mean_snr, links.in_sight)
        takes_s = expected_s(scenario, way, start, size_bit)
        rate = (1 if its.place == "per-file" else its.users) / its.gap.mean
        reached, cells = np.isfinite(takes_s), len(stations_m)
        loads = np.bincount(links.serving[reached], takes_s[reached], cells) * rate / len(takes_s)
        own_slice = its.slice if its.slice and network.slices else OTHERS
        waits = network.transport.kind != "none" or way.delay.kind != "none"
        is_bound = waits or way.access.kind in ("dcf", "slotted-aloha")
        lost = int(np.count_nonzero(~reached))
        yield Crowd(its.name, its.direction, own_slice, len(takes_s), rate, rate * size_bit, loads, is_bound, lost)


@dataclass(frozen=True)
class Needed:
    """Minimum SINR that a link in one direction needs to carry any data, and the fading of the link."""

    sinr: float
    """Minimum SINR (linear) of a fading block in which data can be transmitted."""
    by_rate: bool
    """True if the rate model of the channel sets the minimum SINR; False if the access scheme does."""
    fading: Fading
    """Fading of the combined signal of all antennas of the receiver."""

    @classmethod
    def by(cls, scenario: Scenario, way: Uplink) -> Needed:
        channel, reception = scenario.channel, scenario.network.reception
        branches = reception.branches(1) if way.DIRECTION == "uplink" else 1
        brought, threshold = way.access.law(channel.usable_hz), way.access.threshold
        law = brought or channel.block_rate
        least = law.min_sinr * float(law.narrowest_part(channel.usable_hz))
        return cls(max(least, threshold), brought is None and least >= threshold, channel.fading.combined(branches))

    @property
    def by_whom(self) -> str:
        return "the rate law" if self.by_rate else "the threshold of the access scheme"

    def mean_snr(self, in_sight: Mask) -> Array:
        """Return the mean SNR (linear) [links] below which a link never carries data; `in_sight` is line of sight."""
        return self.sinr / np.where(in_sight, self.fading.peak(True), self.fading.peak(False))


def unaffordable(outlook: Outlook) -> Iterator[Problem]:
    """Yield an error if the devices, the data or the model of a scenario do not fit into the memory of this host."""
    host_byte, extent, count = host_memory_byte(), outlook.extent, outlook.scenario.devices.count
    device_byte, data_byte = BYTE_PER_DEVICE * count, extent.byte if extent else 0
    here = f"this host has {readable(host_byte)}"
    if device_byte > host_byte:
        what = f"takes {readable(device_byte)} of memory ({BYTE_PER_DEVICE} bytes a device), got {count}"
        yield ("devices", "count"), f"{what}; {here}"
    elif data_byte > host_byte:
        what = f"takes {readable(data_byte)} of memory, got {extent.samples if extent else 0} samples"
        yield ("data",), f"{what}; {here}"
    elif outlook.cost.min_byte > host_byte:
        what = f"takes {readable(outlook.cost.min_byte)} of memory with its data"
        yield ("model",), f"{what}, got {outlook.cost.parameters} parameters; {here}"


def unreachable(outlook: Outlook) -> Iterator[Problem]:
    """Yield an error for each direction (uplink or downlink) in which no device can ever deliver a message.

    In such a direction, even the best of 10^8 fading blocks does not raise the SNR of any device at its initial
    position to the minimum SINR that the rate model and the access scheme require. Recorded rates are not read.
    """
    network = outlook.scenario.network
    if not outlook.scenario.algorithm.has_server:
        return
    for way, links in zip((network.uplink, network.downlink), outlook.links, strict=True):
        needed = Needed.by(outlook.scenario, way)
        if (links.mean_snr < needed.mean_snr(links.in_sight)).all():
            best_db, needed_db = linear_to_db(float(np.max(links.mean_snr))), linear_to_db(needed.sinr)
            yield (
                ("channel", "rate") if needed.by_rate else ("network", way.DIRECTION, "access"),
                f"no device can reach it on the {way.DIRECTION}, the best mean SNR is {best_db:.1f} dB, got "
                f"{'a rate' if needed.by_rate else 'a threshold'} that needs {needed_db:.1f} dB; lower the threshold "
                "or the distances, or raise the power",
            )


def expected_s(scenario: Scenario, way: Uplink, links: AtStart, size_bit: int) -> Array:
    """Return the expected duration [devices] in s of a message of `size_bit` bits, each sent alone in the band."""
    channel = scenario.channel
    reception = scenario.network.reception if way.DIRECTION == "uplink" else ONE_ANTENNA
    law = channel.medium_rate(reception.branches(1))
    down = way.DIRECTION == "downlink"
    band = Band.of(channel.usable_hz, law, channel.medium_fading, reception=reception, down=down)
    alone = CellLinks(np.ones((1, 1)), [0])
    patience = Patience(way.access.use(band, alone, 1, 1).band)
    alike = (patience.expected_s(size_bit, links.mean_snr, los=los) for los in (True, False))
    return np.where(links.in_sight, *alike)
