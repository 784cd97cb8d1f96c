"""Build all parts of an emulation from a scenario and connect them; each part gets only what it needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.devices.availability import Presence
from fednet_emu.devices.batteries import Batteries
from fednet_emu.devices.powers import DevicePowers, PerDevice
from fednet_emu.devices.processors import Processors
from fednet_emu.emulation.cost import unaffordable
from fednet_emu.emulation.dealing import deal
from fednet_emu.emulation.hardware import hardware, speeds, unfit
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.files.data_folder import data_folder
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.engines.ray.ray_engine import Cluster, RayEngine
from fednet_emu.learning.engines.table import ENGINES
from fednet_emu.learning.graph.augment import Augmentation
from fednet_emu.learning.graph.engine import Engine
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.host_time import HostTime
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.models.torch_seed import seeded_module
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.links.links import CellLinks, Sky, network_links
from fednet_emu.network.network import Network
from fednet_emu.network.settings import Uplink
from fednet_emu.radio.fading import Fading
from fednet_emu.radio.receiver.combining import ONE_ANTENNA
from fednet_emu.records.idle_energy import IdleEnergy
from fednet_emu.records.ledger import DATA_SPLIT, Ledger
from fednet_emu.scenario.model import Problem, Scenario, Training
from fednet_emu.scenario.tree import path_text
from fednet_emu.units import linear_to_db


def build(
    scenario: Scenario,
    *,
    data_dir: Path | str | None = None,
    timing_only: bool = False,
    host: HostTime | None = None,
) -> Federation:
    """Build the emulation that a scenario describes, ready to run.

    Args:
        scenario: a valid scenario.
        data_dir: the folder with data sets; None takes it from the environment variable FEDNET_DATA.
        timing_only: whether to leave out training and evaluation; time, bits and energy stay the same.
        host: measures how the host's time is spent.

    Raises:
        ScenarioError: parts of the scenario are incompatible.
        DataError: the data cannot be read.
    """
    folder = data_folder(data_dir)
    _refuse(unaffordable(scenario, folder))
    _refuse(unfit(scenario))
    _refuse(scenario.untimed() if timing_only else iter(()))
    streams, clock, devices = Streams(scenario.seed), Clock(), scenario.devices
    ledger = Ledger(scenario.evaluation.columns)
    threads = scenario.training.threads or available_cores()
    task = None if scenario.algorithm.own_learning else build_task(scenario, streams, folder, timing_only, ledger)
    small = scenario.training.threads is None if task is None else task.model.flop_per_sample < _SMALL_MODEL_FLOP
    torch.set_num_threads(1 if small else threads)
    hard = hardware(scenario, streams)
    presence = build_presence(scenario, clock, ledger, streams, hard.powers.idle_w)
    processors = Processors(
        clock,
        ledger,
        speeds(scenario, hard.which, streams, folder),
        scenario.server.flop_per_s,
        hard.energy,
        devices.straggler,
        streams.key("straggler"),
        presence.batteries,
        devices.frequency,
        hard.overhead_s if hard.overhead_s else None,
        hard.which,
    )
    return Federation(
        clock,
        streams,
        ledger,
        Graph(
            None if timing_only else build_engine(scenario.training, threads, host),
            _pending_limit_byte(_torch_device(scenario.training) if task is None else task.model.device),
            host,
        ),
        task,
        build_network(scenario, clock, ledger, streams, presence, folder, hard.powers),
        processors,
        presence,
        scenario.stop,
        scenario.evaluation,
        timing_only=timing_only,
        workers=scenario.training.workers or 1,
    )


def build_engine(training: Training, threads: int, host: HostTime | None) -> Engine:
    """The engine that trains; with Ray, only now is a cluster started or asked.

    Raises:
        FednetError: Ray is missing, or the cluster cannot be reached or has no room.
    """
    if training.engine != "ray":
        return ENGINES[training.engine](threads)
    own = training
    return RayEngine(Cluster(own.ray_address, own.workers, own.threads or 1, own.device, own.tf32), host)


def build_presence(scenario: Scenario, clock: Clock, ledger: Ledger, streams: Streams, idle_w: PerDevice) -> Presence:
    """When devices are there, with their batteries if they have any; their idle power counts from now on."""
    devices, batteries = scenario.devices, None
    ledger.idle = IdleEnergy(idle_w.total)
    if devices.battery is not None:
        batteries = Batteries(devices.battery, devices.count, idle_w, clock, ledger, streams)
    return Presence(devices.availability, streams.key("availability"), devices.count, batteries)


def build_task(
    scenario: Scenario, streams: Streams, data_dir: Path | None, timing_only: bool, ledger: Ledger
) -> LearningTask:
    """Split the data among the devices, describe that in the ledger, and build the model."""
    device, network = _torch_device(scenario.training), scenario.learning()[2]
    samples, splits, held, groups = dealt = deal(scenario, streams, data_dir)
    ledger.described[DATA_SPLIT] = dealt.counts().frame()
    _refuse(unfit_augmentation(scenario, samples.input_shape))
    _refuse(unfit_metrics(scenario, samples))
    module = seeded_module(lambda: network.build(samples.input_shape, samples.outputs), streams.key("init") >> 1)
    model = FlatModel(module.to(device), _LOSS[samples.task], samples.input_shape, samples.vocabulary)
    return LearningTask(model, samples, splits, device, timing_only, held, scenario.attack, groups)


_LOSS = {"classification": "cross-entropy", "multi-label": "binary-cross-entropy", "regression": "squared-error"}


def build_network(
    scenario: Scenario,
    clock: Clock,
    ledger: Ledger,
    streams: Streams,
    presence: Presence,
    data_dir: Path | None = None,
    powers: DevicePowers | None = None,
) -> Network:
    """Place the devices, create their paths of movement, and build the network that connects them."""
    devices = scenario.devices
    xy_m = devices.placement.positions_m(devices.count, streams("placement"))
    paths = devices.mobility.paths(xy_m, devices.where_they_roam(), streams, data_dir)
    settings, channel = scenario.network, scenario.channel
    ledger.stations_w = settings.cells.count * (channel.base_station.stated("idle_w") or 0.0)
    return Network(clock, ledger, streams, presence, channel, paths, settings, data_dir=data_dir, powers=powers)


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


def unreachable(scenario: Scenario) -> Iterator[Problem]:
    """Find directions in which no device could ever deliver a message.

    That is the case if no mean SNR at the initial positions suffices for the lowest SINR that the rate law and the
    access scheme need, in the best fading block of 10^8. Recorded rates are ignored, so that no file is read.

    Yields:
        The key path of the setting to change, and what is wrong.
    """
    network = scenario.network
    for way, links in zip((network.uplink, network.downlink), links_at_start(scenario), strict=True):
        needed = Needed.by(scenario, way)
        if (links.mean_snr < needed.mean_snr(links.in_sight)).all():
            best_db, needed_db = linear_to_db(float(np.max(links.mean_snr))), linear_to_db(needed.sinr)
            yield (
                ("channel", "rate") if needed.by_rate else ("network", way.DIRECTION, "access"),
                f"nobody can reach it on the {way.DIRECTION}, the best mean SNR is {best_db:.1f} dB, got "
                f"{'a rate' if needed.by_rate else 'a threshold'} that needs {needed_db:.1f} dB; lower the threshold "
                "or the distances, or raise the power",
            )


def serving_cells(scenario: Scenario) -> IntArray:
    """Number of the cell that serves each device at its initial position, [devices]."""
    links, _ = _links_at_start(scenario)
    return np.array([-1 - links.station_of(device) for device in range(scenario.devices.count)], np.int64)


class AtStart(NamedTuple):
    """The links of one direction with all devices at their initial positions.

    Attributes:
        mean_snr: [devices] SNR (linear) alone on the whole band, averaged over fading.
        in_sight: [devices] whether there is line of sight.
    """

    mean_snr: Array
    in_sight: Mask


_latest: list[tuple[tuple[Any, ...], tuple[AtStart, AtStart]]] = []
"""The settings that `links_at_start` was last asked for, and what it has found: it is asked several times before a run,
and takes seconds for a million devices."""


def links_at_start(scenario: Scenario) -> tuple[AtStart, AtStart]:
    """Uplinks and downlinks with all devices at their initial positions, which no data are read for."""
    devices, network = scenario.devices, scenario.network
    settings = devices.placement, scenario.channel, network.cells, network.power_control, network.reception
    asked = scenario.seed, devices.count, *settings
    for known, found in _latest:
        if known == asked:
            return found
    up, down = (AtStart(links.mean_snr, links.in_sight) for links in _links_at_start(scenario))
    _latest[:] = [(asked, (up, down))]
    return up, down


def _links_at_start(scenario: Scenario) -> tuple[CellLinks, CellLinks]:
    streams, devices, network = Streams(scenario.seed), scenario.devices, scenario.network
    xy_m = devices.placement.positions_m(devices.count, streams("placement"))
    sky = Sky(scenario.channel, streams, network.power_control, antennas=network.reception.antennas)
    return network_links(sky, xy_m, network.cells.positions_m())


def expected_s(scenario: Scenario, way: Uplink, links: AtStart, size_bit: int) -> Array:
    """How long a message is expected to take on each link [devices] alone in the band, at its mean rate."""
    channel = scenario.channel
    reception = scenario.network.reception if way.DIRECTION == "uplink" else ONE_ANTENNA
    law = channel.medium_rate(reception.branches(1), narrows=way.narrows)
    band = Band.of(channel.usable_hz, law, channel.medium_fading, reception=reception)
    patience = Patience(way.access.on(band))
    alike = (patience.expected_s(size_bit, links.mean_snr, los=los) for los in (True, False))
    return np.where(links.in_sight, *alike)


def unfit_augmentation(scenario: Scenario, input_shape: tuple[int, ...]) -> Iterator[Problem]:
    """Find an augmentation that samples of this shape do not allow; yield its key path and what is wrong."""
    augment = getattr(scenario.algorithm, "augment", None)
    what = augment.unfit(input_shape) if isinstance(augment, Augmentation) else None
    if what:
        yield ("algorithm", "augment"), what


def unfit_metrics(scenario: Scenario, samples: Samples) -> Iterator[Problem]:
    """Find the metrics that cannot measure a model of these samples; yield their key paths and what is wrong."""
    for place, metric in enumerate(scenario.evaluation.metrics):
        what = metric.unfit(samples)
        if what:
            yield ("evaluation", "metrics", str(place)), what


def available_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_SMALL_MODEL_FLOP = 1e7
"""FLOP per sample below which several threads within one operation cost more in synchronization than they save."""


def _torch_device(training: Training) -> torch.device:
    """Return the device on which models are trained; for a GPU, also set whether it may use TF32.

    Raises:
        ScenarioError: the scenario asks for CUDA, which this host lacks.
    """
    if training.engine == "ray":  # its actors have the GPUs
        return torch.device("cpu")
    if training.device == "cuda" and not torch.cuda.is_available():
        raise ScenarioError("training.device: no CUDA device is here, got cuda; use cpu")
    if training.device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = training.tf32
    return torch.device(training.device)


def _refuse(problems: Iterator[Problem]) -> None:
    found = [f"{path_text(path)}: {what}" for path, what in problems]
    if found:
        raise ScenarioError(*found)


def _pending_limit_byte(device: torch.device) -> int:
    """Return the memory in bytes that results not computed yet may take; this limits the size of wavefronts."""
    return torch.cuda.mem_get_info(device)[1] // 4 if device.type == "cuda" else 2**30
