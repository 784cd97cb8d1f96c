"""What the settings of a scenario tell of its run before it starts: its cost, and the links at the start.

No data are read for it beyond headers of files. All that looks at a scenario before its run shares one `Outlook`.
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
from fednet_emu.devices.orbits.sky import SatelliteView
from fednet_emu.errors import ScenarioError
from fednet_emu.files.data_folder import data_folder
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.data.datasets.base import Extent
from fednet_emu.learning.models.adapters import shipped_bit
from fednet_emu.learning.models.base import Model, seeded_module
from fednet_emu.learning.models.user_module import GivenModule, UserModule
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.links.links import CellEnvironment, CellLinks, network_links
from fednet_emu.network.settings import Uplink
from fednet_emu.radio.fading import Fading
from fednet_emu.radio.receiver.combining import ONE_ANTENNA
from fednet_emu.scenario.model import Problem, Scenario
from fednet_emu.units import linear_to_db

BYTE_PER_DEVICE = 400
"""Memory that the network keeps of each device while it is built: measured at a million devices."""
BYTE_PER_EVENT = 100
"""Memory of the record of a transfer or computation."""
VECTORS = 3
"""Vectors of the size of the model that every run holds at once: the initial model, the present one, the next one."""
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Cost:
    """An estimate of what a run takes.

    Attributes:
        devices: the number of devices.
        rounds: the largest number of rounds; None if another limit ends the run.
        participants: the largest number of devices that hold an update at a time.
        answers: the number of devices that receive, compute and send in a round.
        parameters: the size of the model; None if it is known only when the data or the user's code are read.
        frozen: the number of its parameters that are not trained, which are in memory once and never sent with a model.
        shipped_bit: the bits of these that each device is sent once; 0 if it has them from the start.
        data_byte: the memory of the samples; 0 if unknown.
        upload_bit: the bits of a model on the uplink, headers aside, at most; None if unknown, or if no whole
            models are sent.
        events_each: the number of transfers and computations of each of these devices in a round; None if unknown.
    """

    devices: int
    rounds: int | None
    participants: int
    answers: int
    parameters: int | None
    data_byte: int
    upload_bit: int | None = None
    events_each: int | None = EVENTS
    frozen: int = 0
    shipped_bit: int = 0

    @classmethod
    def of(cls, scenario: Scenario, extent: Extent | None, data_dir: Path | None = None) -> Cost:
        """Estimate what a scenario takes; it may be too large to run.

        Raises:
            ScenarioError: the model cannot be built for the data, or it is too large for any machine.
        """
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
        """Memory of one vector of the size of the model, in float32."""
        return 4 * (self.parameters or 0)

    @property
    def events(self) -> int | None:
        """Transfers and computations of all rounds; None without a number of rounds, or if unknown in a round."""
        if self.rounds is None or self.events_each is None:
            return None
        return self.events_each * self.answers * self.rounds

    @property
    def least_byte(self) -> int:
        """Memory without which the run cannot start: devices, samples and the model itself."""
        return BYTE_PER_DEVICE * self.devices + self.data_byte + VECTORS * self.model_byte + 4 * self.frozen

    @property
    def most_byte(self) -> int:
        """Memory when all participants of a round hold an update and all rounds are recorded."""
        return self.least_byte + self.participants * self.model_byte + BYTE_PER_EVENT * (self.events or 0)

    def __str__(self) -> str:
        rounds = "rounds until another limit" if self.rounds is None else f"rounds up to {self.rounds:,}"
        size = "a model of unknown size" if self.parameters is None else f"a model of {self.parameters:,} parameters"
        if self.frozen:
            size += f" and {self.frozen:,} frozen ones"
        if self.shipped_bit:
            size += f", which each device is sent once in {self.shipped_bit:,} bits,"
        if self.upload_bit is not None and self.upload_bit < 8 * self.model_byte:
            size += f" sent up in {self.upload_bit:,} bits"
        if self.events_each is None:
            events = "an unknown number of events"
        elif self.events is None:
            events = f"about {self.events_each * self.answers:,} events a round"
        else:
            events = f"about {self.events:,} events"
        memory = f"{readable(self.least_byte)} of memory, with all records {readable(self.most_byte)}"
        if self.least_byte == self.most_byte or self.events is None:
            memory = f"{readable(self.most_byte)} of memory"
        return f"cost: devices {self.devices:,}, {rounds}, {size}, {events}, {memory} beside the program itself"


def host_memory_byte() -> float:
    """Return the memory in bytes of the machine, or of the control group of this process; inf if unknown."""
    limits = [math.inf]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
    for file in map(Path, _CGROUPS):
        text = file.read_text(encoding="ascii").strip() if file.is_file() else ""
        if text.isdecimal():
            limits.append(float(text))
    return min(limits)


def links_at_start(scenario: Scenario, data_dir: Path | str | None = None) -> tuple[CellLinks, CellLinks]:
    """Uplinks and downlinks of the cells with all devices at their initial positions, satellites straight above.

    Raises:
        DataError: recorded positions cannot be read.
    """
    streams, devices, network = Streams(scenario.seed), scenario.devices, scenario.network
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
    """Count the trained and frozen parameters and the shipped bits of a model; None, 0, 0 for the user's own code."""
    model = scenario.model
    if extent is None or extent.outputs is None or model is None or isinstance(model, UserModule | GivenModule):
        return None, 0, 0
    if not type(model).__module__.startswith("fednet_emu."):
        return None, 0, 0
    return _counted(type(model), model.located(data_dir).model_dump_json(), extent.input_shape, extent.outputs)


@lru_cache(maxsize=1024)
def _counted(kind: type[Model], settings: str, shape: tuple[int, ...], outputs: int) -> tuple[int, int, int]:
    """Count a model's parameters and shipped bits for inputs of a shape; the runs of a study share a few.

    The settings are text, because a model with a mapping among its settings has no hash.
    """
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
    """Return an amount of memory as text, `3.2 GB`."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size_byte >= size:
            return f"{size_byte / size:,.3g} {unit}"
    return f"{size_byte / 1e3:.3g} kB"


class AtStart(NamedTuple):
    """The links of one direction with all devices at their initial positions.

    Attributes:
        mean_snr: [devices] SNR (linear) alone on the whole band, averaged over fading.
        in_sight: [devices] whether there is line of sight.
    """

    mean_snr: Array
    in_sight: Mask


@dataclass(frozen=True, eq=False)
class Outlook:
    """A scenario, and what its settings tell of its run; each part is computed once, when it is first asked for.

    Attributes:
        scenario: the scenario; it may be too large to run.
        data_dir: the folder with data sets, whose headers are read; None takes it from the variable FEDNET_DATA.
    """

    scenario: Scenario
    data_dir: Path | str | None = None

    @cached_property
    def extent(self) -> Extent | None:
        """The size of the data; None if it is unknown, as it is for an algorithm that brings its own."""
        data = self.scenario.data
        return None if data is None else data.extent(data_folder(self.data_dir))

    @cached_property
    def cost(self) -> Cost:
        """What the run takes.

        Raises:
            ScenarioError: the model cannot be built for the data, or it is too large for any machine.
        """
        return Cost.of(self.scenario, self.extent, data_folder(self.data_dir))

    @property
    def secrecy(self) -> str:
        """What secure aggregation costs a device in a round; empty without it, or for a model of unknown size."""
        rule, n, m = self.scenario.network.uplink.secure_aggregation, self.cost.participants, self.cost.parameters
        if rule is None or m is None:
            return ""
        bit = rule.total_bit(n, m)
        times = f"{bit / (m * rule.input_bits):.3g} times a vector of {rule.input_bits} bit an entry"
        return (
            f"secure aggregation of {n:,} devices: 7 messages of each a round, {bit:,} bits beside the model, {times}"
        )

    @cached_property
    def links(self) -> tuple[AtStart, AtStart]:
        """Uplinks and downlinks at the start; they take seconds for a million devices."""
        up, down = (AtStart(links.mean_snr, links.in_sight) for links in links_at_start(self.scenario, self.data_dir))
        return up, down


@dataclass(frozen=True)
class Needed:
    """What a link of one direction needs to carry anything.

    Attributes:
        sinr: the least SINR (linear) of a fading block.
        by_rate: whether the rate law of the channel needs it, rather than the access scheme.
        fading: the fading of all antennas of the receiver combined.
    """

    sinr: float
    by_rate: bool
    fading: Fading

    @classmethod
    def by(cls, scenario: Scenario, way: Uplink) -> Needed:
        """What the links of a direction need."""
        channel, reception = scenario.channel, scenario.network.reception
        branches = reception.branches(1) if way.DIRECTION == "uplink" else 1
        brought, threshold = way.access.law(channel.usable_hz), way.access.threshold
        law = brought or channel.block_rate
        least = law.min_sinr * float(law.narrowest_part(channel.usable_hz))
        return cls(max(least, threshold), brought is None and least >= threshold, channel.fading.combined(branches))

    @property
    def by_whom(self) -> str:
        """What needs it."""
        return "the rate law" if self.by_rate else "the threshold of the access scheme"

    def mean_snr(self, in_sight: Mask) -> Array:
        """The mean SNR (linear) below which links [links] with or without line of sight never carry anything."""
        return self.sinr / np.where(in_sight, self.fading.peak(True), self.fading.peak(False))


def unaffordable(outlook: Outlook) -> Iterator[Problem]:
    """Find the parts of a scenario that cannot fit into the memory of this host.

    Yields:
        The key path of the part that needs most, and what is wrong.
    """
    host_byte, extent, count = host_memory_byte(), outlook.extent, outlook.scenario.devices.count
    device_byte, data_byte = BYTE_PER_DEVICE * count, extent.byte if extent else 0
    here = f"this host has {readable(host_byte)}"
    if device_byte > host_byte:
        what = f"takes {readable(device_byte)} of memory ({BYTE_PER_DEVICE} bytes a device), got {count}"
        yield ("devices", "count"), f"{what}; {here}"
    elif data_byte > host_byte:
        what = f"takes {readable(data_byte)} of memory, got {extent.samples if extent else 0} samples"
        yield ("data",), f"{what}; {here}"
    elif outlook.cost.least_byte > host_byte:
        what = f"takes {readable(outlook.cost.least_byte)} of memory with its data"
        yield ("model",), f"{what}, got {outlook.cost.parameters} parameters; {here}"


def unreachable(outlook: Outlook) -> Iterator[Problem]:
    """Find directions in which no device could ever deliver a message.

    That is the case if no mean SNR at the initial positions suffices for the lowest SINR that the rate law and the
    access scheme need, in the best fading block of 10^8. Recorded rates are ignored, so that no file is read.

    Yields:
        The key path of the setting to change, and what is wrong.
    """
    network = outlook.scenario.network
    for way, links in zip((network.uplink, network.downlink), outlook.links, strict=True):
        needed = Needed.by(outlook.scenario, way)
        if (links.mean_snr < needed.mean_snr(links.in_sight)).all():
            best_db, needed_db = linear_to_db(float(np.max(links.mean_snr))), linear_to_db(needed.sinr)
            yield (
                ("channel", "rate") if needed.by_rate else ("network", way.DIRECTION, "access"),
                f"nobody can reach it on the {way.DIRECTION}, the best mean SNR is {best_db:.1f} dB, got "
                f"{'a rate' if needed.by_rate else 'a threshold'} that needs {needed_db:.1f} dB; lower the threshold "
                "or the distances, or raise the power",
            )


def expected_s(scenario: Scenario, way: Uplink, links: AtStart, size_bit: int) -> Array:
    """How long a message is expected to take on each link [devices] alone in the band, at its mean rate."""
    channel = scenario.channel
    reception = scenario.network.reception if way.DIRECTION == "uplink" else ONE_ANTENNA
    law = channel.medium_rate(reception.branches(1))
    down = way.DIRECTION == "downlink"
    band = Band.of(channel.usable_hz, law, channel.medium_fading, reception=reception, down=down)
    patience = Patience(way.access.on(band))
    alike = (patience.expected_s(size_bit, links.mean_snr, los=los) for los in (True, False))
    return np.where(links.in_sight, *alike)
