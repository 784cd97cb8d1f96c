"""What the settings of a scenario tell of its run before it starts: its cost, and the links at the start.

No data are read for it beyond headers of files. All that looks at a scenario before its run shares one `Outlook`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.emulation.cost import BYTE_PER_DEVICE, Cost, host_memory_byte, readable
from fednet_emu.files.data_folder import data_folder
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.data.datasets.base import Extent
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.links.links import CellEnvironment, CellLinks, network_links
from fednet_emu.network.settings import Uplink
from fednet_emu.radio.fading import Fading
from fednet_emu.radio.receiver.combining import ONE_ANTENNA
from fednet_emu.scenario.model import Problem, Scenario
from fednet_emu.units import linear_to_db


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
        """The size of the data; None if it is unknown."""
        return self.scenario.extent(data_folder(self.data_dir))

    @cached_property
    def cost(self) -> Cost:
        """What the run takes.

        Raises:
            ScenarioError: the model cannot be built for the data, or it is too large for any machine.
        """
        return Cost.of(self.scenario, self.extent)

    @cached_property
    def links(self) -> tuple[AtStart, AtStart]:
        """Uplinks and downlinks at the start; they take seconds for a million devices."""
        up, down = (AtStart(links.mean_snr, links.in_sight) for links in _links_at_start(self.scenario))
        return up, down


@dataclass(frozen=True)
class Needed:
    """What a link of one direction needs to carry anything.

    Attributes:
        sinr: the least SINR (linear) of a fading block.
        by_rate: whether the rate law needs it, rather than the threshold of the access scheme.
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
        law, threshold = channel.block_rate(narrows=way.narrows), way.access.threshold
        least = law.min_sinr * float(law.narrowest_part(channel.usable_hz))
        return cls(max(least, threshold), least >= threshold, channel.fading.combined(branches))

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
    law = channel.medium_rate(reception.branches(1), narrows=way.narrows)
    band = Band.of(channel.usable_hz, law, channel.medium_fading, reception=reception)
    patience = Patience(way.access.on(band))
    alike = (patience.expected_s(size_bit, links.mean_snr, los=los) for los in (True, False))
    return np.where(links.in_sight, *alike)


def serving_cells(scenario: Scenario) -> IntArray:
    """Number of the cell that serves each device at its initial position, [devices]."""
    links, _ = _links_at_start(scenario)
    return np.array([-1 - links.station_of(device) for device in range(scenario.devices.count)], np.int64)


def _links_at_start(scenario: Scenario) -> tuple[CellLinks, CellLinks]:
    streams, devices, network = Streams(scenario.seed), scenario.devices, scenario.network
    xy_m = devices.placement.positions_m(devices.count, streams("placement"))
    environment = CellEnvironment(scenario.channel, streams, network.power_control, antennas=network.reception.antennas)
    return network_links(environment, xy_m, network.cells.positions_m())
