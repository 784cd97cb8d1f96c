"""Builds the components of an emulation (network, devices, learning task, training engine) from a scenario."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from multiprocessing import parent_process
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fednet_emu.analysis.data_split import DataSplit, Part
from fednet_emu.arrays import IntArray
from fednet_emu.devices.availability import Presence
from fednet_emu.devices.batteries import Batteries
from fednet_emu.devices.mobility.base import Paths
from fednet_emu.devices.powers import DevicePowers, PerDevice
from fednet_emu.devices.processors import Processors
from fednet_emu.emulation.hardware import Hardware, hardware, speeds
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.files.data_folder import data_folder, note, noting
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.data.attacks import deal_poisoned
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import Held, Partitioned, hold_out
from fednet_emu.learning.engines.ray.ray_engine import Cluster, RayEngine
from fednet_emu.learning.engines.rule import ENGINES
from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.engines.workers.workers_engine import WorkersEngine
from fednet_emu.learning.graph.augment import Augmentation
from fednet_emu.learning.graph.engine import Engine
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.host_time import HostTime
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.network.network import Network
from fednet_emu.records.ledger import DATA_SPLIT, IdleEnergy, Ledger
from fednet_emu.scenario.model import Problem, Scenario, Training
from fednet_emu.scenario.tree import path_text


class Dealt(NamedTuple):
    """The samples of a federation, assigned to the devices and the server."""

    samples: Samples  # training and test samples, after changes by an attack, by device groups and by feature noise
    splits: tuple[Partitioned, Partitioned]  # assignment of the training samples and of the test samples to the devices
    held: tuple[Held, Held]  # samples held out for the server: its own training samples and the validation samples
    groups: IntArray | None  # index of each device's group [devices]; None if the scenario has no groups

    def counts(self) -> DataSplit:
        """Return the number of samples on each device by label; in a regression, quantiles of each device's targets."""
        return _split(self.samples.train_y, self.samples.test_y, self.splits, self.samples.classes)


def _split(train_y: Tensor, test_y: Tensor, splits: Sequence[Partitioned], classes: int | None) -> DataSplit:
    labels = train_y.cpu().numpy(), test_y.cpu().numpy()
    return DataSplit(*(Part.of(y, its.order, its.offsets, classes) for y, its in zip(labels, splits, strict=True)))


def deal(scenario: Scenario, streams: Streams, data_dir: Path | None) -> Dealt:
    """Load the dataset, hold out the server's samples, split the other samples, and apply attack, groups and noise.

    A `ScenarioError` is raised if settings are incompatible, and a `DataError` if the data cannot be read.
    """
    (data, partition, _), server = scenario.learning(), scenario.server
    everything = data.limited(data.load(data_dir, streams("data")), streams("limit"))
    samples, *held = hold_out(everything, server.samples, server.validation_samples, streams("hold out"))
    count, attack, rng = scenario.devices.count, scenario.attack, streams("partition")
    if attack is None:
        splits = partition.split(samples, count, rng)
    else:
        samples, splits = deal_poisoned(attack, samples, partition, count, (rng, streams("attack")))
    groups = None
    if scenario.groups is not None:
        samples, groups = scenario.groups.seen(samples, splits, streams("groups")), scenario.groups.members(count)
    if scenario.feature_noise is not None:
        samples = scenario.feature_noise.seen(samples, splits, streams)
    return Dealt(samples, splits, (held[0], held[1]), groups)


def build(
    scenario: Scenario,
    *,
    data_dir: Path | str | None = None,
    timing_only: bool = False,
    learning: bool = True,
    host: HostTime | None = None,
    task: LearningTask | None = None,
) -> Federation:
    """Return the federation that emulates a valid scenario, ready to run.

    If `timing_only` is True, training and evaluation are skipped; simulated time, bits and energy are the same as with
    training. If `learning` is False, only the network and the devices are built, because external programs have the
    data and the model. `host` measures the host time of each activity of the emulator. `task` is the learning task of
    an earlier run with the same learning settings and seeds. A `ScenarioError` is raised if settings are incompatible,
    and a `DataError` if the data cannot be read.
    """
    folder = data_folder(data_dir)
    _refuse(scenario.untimed() if timing_only else iter(()))
    streams, clock = scenario.streams, Clock()
    ledger = Ledger(scenario.evaluation.columns)
    threads = scenario.training.threads or available_cores()
    if task is None and learning and not scenario.algorithm.own_learning:
        task = build_task(scenario, streams, folder, timing_only)
    if task is not None and task.split is not None:
        ledger.described[DATA_SPLIT] = task.split
    small = scenario.training.threads is None if task is None else task.model.flop_per_sample < _SMALL_MODEL_FLOP
    torch.set_num_threads(1 if small else threads)
    training = scenario.training if task is not None else scenario.training.model_copy(update={"workers": 1})
    hard = hardware(scenario, streams)
    paths = paths_of(scenario, streams, folder)
    presence = build_presence(scenario, clock, ledger, streams, paths, hard.powers.idle_w)
    device = _torch_device(scenario.training) if task is None else task.model.device
    pending_byte = torch.cuda.mem_get_info(device)[1] // 4 if device.type == "cuda" else 2**30
    engine = None if timing_only or not learning else build_engine(training, threads, host)
    return Federation(
        clock,
        streams,
        ledger,
        Graph(engine, pending_byte, host),
        task,
        build_network(scenario, clock, ledger, streams, presence, paths, folder, hard.powers),
        build_processors(scenario, clock, ledger, streams, hard, presence, folder),
        presence,
        scenario.stop,
        scenario.evaluation,
        timing_only=timing_only,
        workers=_number(scenario.training) or 1,
    )


def build_processors(
    scenario: Scenario,
    clock: Clock,
    ledger: Ledger,
    streams: Streams,
    hard: Hardware,
    presence: Presence,
    folder: Path | None,
) -> Processors:
    """Return the model of the processors of the devices and of the server."""
    devices = scenario.devices
    return Processors(
        clock,
        ledger,
        speeds(scenario, hard.which, streams, folder),
        scenario.server.flop_per_s,
        hard.energy,
        devices.straggler,
        streams.key("straggler"),
        presence.batteries,
        devices.cpu_frequency,
        hard.overhead_s if hard.overhead_s else None,
        hard.which,
        devices.slowdown,
    )


def build_engine(training: Training, threads: int, host: HostTime | None) -> Engine:
    """Return the training engine; connect to Ray first, or raise a `FednetError`, if the engine is `ray`."""
    if training.engine != "ray":
        return _local_engine(training, threads, host)
    own = training
    return RayEngine(Cluster(own.ray_address, _number(own), own.threads or 1, own.device, own.tf32), host)


def _local_engine(training: Training, threads: int, host: HostTime | None) -> Engine:
    """Return the engine of this host; workers train large stacks, except on a GPU and in a run of a sweep."""
    make = ENGINES[training.engine]
    here = make() if training.engine == "serial" else SpreadEngine([make() for _ in range(threads)])
    alone = parent_process() is not None or training.device != "cpu" or not hasattr(os, "fork")
    workers = _number(training) or (1 if training.engine == "serial" else threads)
    if alone or workers == 1:
        return here
    at_once = _number(training) is not None
    return WorkersEngine(training.engine, here, workers, at_once=at_once, host=host)


def _number(training: Training) -> int | None:
    return None if training.workers == "auto" else training.workers


def paths_of(scenario: Scenario, streams: Streams, data_dir: Path | None) -> Paths:
    """Draw the initial positions of the devices, and return their trajectories."""
    devices = scenario.devices
    xy_m = devices.placement.positions_m(devices.count, streams("placement"))
    paths = devices.mobility.paths(xy_m, devices.where_they_roam(), streams, data_dir)
    return scenario.network.cells.around(paths)


def build_presence(
    scenario: Scenario, clock: Clock, ledger: Ledger, streams: Streams, paths: Paths, idle_w: PerDevice
) -> Presence:
    """Return the model of device availability and batteries; also start to count the devices' idle energy."""
    devices, batteries = scenario.devices, None
    ledger.idle = IdleEnergy(idle_w.total)
    if devices.battery is not None:
        batteries = Batteries(devices.battery, devices.count, idle_w, clock, ledger, streams)
    return Presence(devices.availability.along(paths), streams.key("availability"), devices.count, batteries)


def build_task(scenario: Scenario, streams: Streams, data_dir: Path | None, timing_only: bool) -> LearningTask:
    """Return the learning task, which consists of the data, split among the devices, and the initial model."""
    device, network = _torch_device(scenario.training), scenario.learning()[2].located(data_dir)
    with noting() as files:
        samples, splits, held, groups = deal(scenario, streams, data_dir)
    for name, path in files.items():
        note(name, path)
    _refuse(unfit_augmentation(scenario, samples.input_shape))
    _refuse(unfit_metrics(scenario, samples))
    module = seeded_module(lambda: network.build(samples.input_shape, samples.outputs), streams.key("init") >> 1)
    loss = network.own_loss or _LOSS[samples.task]
    model = FlatModel(module.to(device), loss, samples.input_shape, samples.vocabulary)
    if model.shipped_bit and (why := scenario.algorithm.ships_no_base):
        raise ScenarioError(f"model: with {scenario.algorithm.kind} {why}, got a base with ship; leave it out")
    _refuse(unfit_statistics(scenario, model))
    labels = samples.train_y, samples.test_y, splits, samples.classes  # without the inputs, which are much larger
    return LearningTask(
        *(model, samples, splits, device, timing_only, held, scenario.attack, groups),
        split=lambda: _split(*labels).frame(),
        files=files,
    )


_LOSS = {
    "classification": "cross-entropy",
    "multi-label": "binary-cross-entropy",
    "next-token": "next-token",
    "regression": "squared-error",
}


def build_network(
    scenario: Scenario,
    clock: Clock,
    ledger: Ledger,
    streams: Streams,
    presence: Presence,
    paths: Paths,
    data_dir: Path | None = None,
    powers: DevicePowers | None = None,
) -> Network:
    """Return the network that connects the devices, which move along `paths`, with the base stations."""
    settings = scenario.network
    channel = scenario.channel.on_site(settings.cells.positions_m(), data_dir)
    ledger.stations_w = settings.cells.count * (channel.base_station.stated("idle_w") or 0.0)
    parts = clock, ledger, streams, presence, channel, paths, settings
    near = scenario.devices.placement
    return Network(*parts, data_dir=data_dir, powers=powers, traffic=scenario.traffic, placement=near)


def unfit_augmentation(scenario: Scenario, input_shape: tuple[int, ...]) -> Iterator[Problem]:
    """Yield the key path and an error text if the data augmentation does not fit samples of shape `input_shape`."""
    augment = getattr(scenario.algorithm, "augment", None)
    what = augment.unfit(input_shape) if isinstance(augment, Augmentation) else None
    if what:
        yield ("algorithm", "augment"), what


def unfit_statistics(scenario: Scenario, model: FlatModel) -> Iterator[Problem]:
    """Yield the key path and an error text for each setting that would treat batch-norm statistics as parameters."""
    if not model.n_statistics:
        return
    got = f"got a model with {model.n_statistics} running statistics, as of batch norm"
    remedy = "choose one without, for example with group norm"
    for key, why in scenario.algorithm.conflicts_with_statistics():
        yield ("algorithm", key), f"{why}, {got}; {remedy}"
    access = scenario.network.uplink.access
    if access.only_sums:
        yield ("network", "uplink", "access"), f"{access.kind} adds noise to what it carries, {got}; {remedy}"


def unfit_metrics(scenario: Scenario, samples: Samples) -> Iterator[Problem]:
    """Yield the key path and an error text for each metric that does not apply to a model of these samples."""
    for place, metric in enumerate(scenario.evaluation.metrics):
        own = scenario.learning()[2].own_loss
        what = f"measures scores of classes, got a model with {own}; leave it out" if own else metric.unfit(samples)
        if what:
            yield ("evaluation", "metrics", str(place)), what


def available_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_SMALL_MODEL_FLOP = 1e7
"""FLOP per sample below which several intra-op threads spend more time on synchronization than they save."""


def _torch_device(training: Training) -> torch.device:
    """Return the PyTorch device for training. For a GPU, also set whether matrix products may use the format TF32."""
    if training.engine == "ray":  # the GPUs belong to Ray's actors
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
