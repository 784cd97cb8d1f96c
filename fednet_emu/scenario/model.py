"""The scenario: the configuration of a run, whose fields are the keys of a scenario file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from fednet_emu.algorithms import ALGORITHMS, AnyAlgorithm, brings_own_learning
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Waived
from fednet_emu.compression import NoCompression
from fednet_emu.devices.availability import Always, AnyAvailability, Windows
from fednet_emu.devices.battery import Battery
from fednet_emu.devices.frequency import Frequency
from fednet_emu.devices.mobility import AnyMobility, Static
from fednet_emu.devices.mobility.regions import AnyRegion, DiscRegion, Region
from fednet_emu.devices.placement import AnyPlacement, Disc
from fednet_emu.devices.profiles import Profile
from fednet_emu.devices.speeds import AnySpeeds
from fednet_emu.devices.stragglers import AnyStraggler, NoStraggler, SlowWindow
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.stop import Evaluation, Stop
from fednet_emu.learning.data.attacks import AnyAttack
from fednet_emu.learning.data.datasets import AnyDataset
from fednet_emu.learning.data.datasets.base import Dataset, Extent
from fednet_emu.learning.data.datasets.digits import Digits
from fednet_emu.learning.data.datasets.synthetic_regression import SyntheticRegression
from fednet_emu.learning.data.feature_noise import FeatureNoise
from fednet_emu.learning.data.groups import AnyGroups
from fednet_emu.learning.data.partitions import AnyPartition
from fednet_emu.learning.data.partitions.base import Partition
from fednet_emu.learning.data.partitions.iid import Iid
from fednet_emu.learning.models import AnyModel
from fednet_emu.learning.models.base import Model
from fednet_emu.network.access import Planned
from fednet_emu.network.access.contention import Noma, Shared, SlottedAloha
from fednet_emu.network.settings import NetworkSettings
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.energy import AnyComputeEnergy
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.radio.receiver.combining import SingleAntenna
from fednet_emu.scenario.unused import PARTS, unused
from fednet_emu.units import linear_to_db

Problem = tuple[tuple[str, ...], str]
"""The key path of a setting, and what is wrong with it."""

LEARNING, ON_OUR_DATA = ("data", "partition", "model"), ("groups", "feature_noise", "attack")
"""Settings that a scenario gives unless its algorithm brings its own learning, and those that then make no sense."""


class Devices(Component):
    """The devices of the federation."""

    count: int = Field(20, gt=0)
    """Number of devices; they are numbered from 0."""
    placement: AnyPlacement = Disc(radius_m=100.0, inner_radius_m=10.0)
    """Where devices are at the start, unless `mobility` is a trace that says so itself."""
    mobility: AnyMobility = Static()
    region: AnyRegion | None = None
    """Area in which devices move; null takes the disc around the origin that reaches as far as the placement."""
    profile: Profile | tuple[Profile, ...] | None = None
    """Devices that exist, by the name of a file in profiles/, or a mixture: names with their shares. It states speed,
    time and power; a setting beside it wins."""
    speed: AnySpeeds | None = None
    """How fast devices compute; null takes what `profile` states."""
    overhead_s: float | None = Field(None, ge=0, le=1e6)
    """Time in s that each computation takes beside its operations over the speed; null takes what `profile` states, and
    0 without."""
    frequency: Frequency = Frequency()
    """The clocks of the processors: which part of their speed devices use."""
    compute_energy: AnyComputeEnergy | None = None
    """What computations draw; null takes the power that `profile` states. Without either it is not counted."""
    straggler: AnyStraggler = NoStraggler()
    availability: AnyAvailability = Always()
    battery: Battery | None = None
    """The battery of each device, which `compute_energy` and the radios of `channel` draw from; null for devices that
    never run out of energy."""

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles; none if there is no profile."""
        if self.profile is None or isinstance(self.profile, tuple):
            return self.profile or ()
        return (self.profile,)

    def where_they_roam(self) -> Region:
        """Return the given region, or else the disc around the origin that just covers the placement, at least 1 m."""
        if self.region is not None:
            return self.region
        reach_m = getattr(self.placement, "radius_m", None)
        if reach_m is None:
            reach_m = max(math.hypot(*xy_m) for xy_m in getattr(self.placement, "xy_m", ((1.0, 0.0),)))
        return DiscRegion(radius_m=max(reach_m, 1.0))


class Server(Component):
    """The server at the base station. Its samples are taken from the training data before the devices get theirs."""

    flop_per_s: float | None = Field(None, gt=1e-3, le=1e21)
    """Computing speed in FLOP/s; null if the server does not compute. Algorithms that train on the server need it.
    The energy of the server's computations is not counted."""
    samples: int = Field(0, ge=0)
    """Number of labelled training samples that the server owns, for algorithms that train on the server."""
    validation_samples: int = Field(0, ge=0)
    """Number of training samples set aside for algorithms that choose between models by their validation error.
    Validation takes no simulated time."""


class Training(Component):
    """How this host runs the training. These settings do not change simulated time."""

    engine: Literal["by-rule", "serial", "batched", "ray"] = "by-rule"
    """serial: trains one job after the other; batched: trains all ready jobs at once; by-rule: chooses by a fixed rule
    from model, batch size and device, so that a run repeats bit for bit on the same machine; ray: deals the jobs to
    actors of a Ray cluster, each with an engine by rule (needs the extra `ray`)."""
    ray_address: str | None = None
    """With engine: ray, host:port of the cluster, or auto for the one that runs on this machine. null starts one on
    this machine for the time of the run."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where models are trained and data are kept: cpu is the processor, cuda a GPU. With engine: ray, cuda gives each
    actor a GPU of the cluster; models are then evaluated on the processor."""
    tf32: bool = False
    """Whether a GPU may round the factors of products to TF32 (10 bits of mantissa). This is faster, but results of
    different engines then agree to three digits instead of five."""
    threads: int | None = Field(None, gt=0, le=1024)
    """Number of processor threads, and of worker processes where these are auto. A single job of a large model uses the
    threads within one operation. null takes all cores that the process may use. With engine: ray it is the number of
    each actor, and null is 1."""
    workers: Literal["auto"] | Annotated[int, Field(gt=0, le=1024)] = "auto"
    """Number of processes that train several jobs in parallel; the numbers learnt are the same with any number. 1
    trains in the process of the run, as jobs do that are too small to be worth sending, runs of a sweep, and a GPU.
    auto takes one process per thread, in runs long enough to gain by it; with engine: serial, it is 1. With engine: ray
    it is the number of actors; auto takes as many as the cluster has room for. The clients of a Flower app train in
    them that have messages in the same instant, or whose operations are known; auto is 1."""
    checkpoint_s: float | None = Field(2.0, gt=0)
    """Least host time between two checkpoints, in seconds; null saves none. A run that was killed continues from the
    last one. They are written at the ends of rounds, and less often where they would take more than 1/64 of the host
    time."""

    @field_validator("engine", mode="before")
    @classmethod
    def _no_stopwatch(cls, engine: Any) -> Any:
        if engine == "auto":
            raise ValueError("no engine measures which one is fastest, got auto; write by-rule, which needs no trials")
        return engine


class Scenario(Component):
    """A scenario: the network, the data, the model, the algorithm, and when to stop."""

    waived: ClassVar[Waived] = Waived(
        LEARNING, "algorithm", tuple(kind for kind, its in ALGORITHMS.items() if its.own_learning)
    )

    filled: ClassVar[frozenset[str]] = frozenset({"channel"})
    """Required settings that a document takes from the library where they are left out."""

    title: str = ""
    """A readable title; it does not affect the run."""
    seed: int = Field(0, ge=0)
    """Seed of all random numbers of the run; runs with equal seeds have equal channels, stragglers and data."""
    devices: Devices = Devices()
    server: Server = Server()
    channel: Channel
    network: NetworkSettings = NetworkSettings()
    data: AnyDataset | None = Digits()
    partition: AnyPartition | None = Iid()
    """How the samples are split among the devices; null only where the algorithm brings its own data and model."""
    groups: AnyGroups | None = None
    """Groups of devices that see the data in different ways; null if all devices see the same data."""
    feature_noise: FeatureNoise | None = None
    """Noise of the inputs that grows from device to device; null for none."""
    model: AnyModel | None
    """The model that is trained; null only where the algorithm brings its own."""
    algorithm: AnyAlgorithm
    attack: AnyAttack | None = None
    """The attack that malicious devices carry out; null for no attack."""
    stop: Stop = Stop(rounds=50)
    evaluation: Evaluation = Evaluation()
    training: Training = Training()

    @model_validator(mode="before")
    @classmethod
    def _algorithms_may_bring_their_own(cls, given: Any) -> Any:
        """Take data, partition and model as null where they are left out because the algorithm brings its own."""
        if isinstance(given, Mapping) and brings_own_learning(given.get("algorithm")):
            return {**dict.fromkeys(LEARNING), **given}
        return given

    def learning(self) -> tuple[Dataset, Partition, Model]:
        """The data, their partition and the model.

        Raises:
            ScenarioError: one of them is null.
        """
        data, partition, model = self.data, self.partition, self.model
        if data is None or partition is None or model is None:
            raise ScenarioError(*(f"{path[0]}: {what}" for path, what in self._unlearnable()))
        return data, partition, model

    def extent(self, data_dir: Path | None) -> Extent | None:
        """The size of the data; None if it is unknown, as it is for an algorithm that brings its own."""
        return None if self.data is None else self.data.extent(data_dir)

    def _unlearnable(self) -> Iterator[Problem]:
        """Find what is given of data, partition and model though the algorithm brings its own, and what is missing."""
        kind, own = self.algorithm.kind, self.algorithm.own_learning
        for key in (*LEARNING, *(ON_OUR_DATA if own else ())):
            value = getattr(self, key)
            if own and value is not None:
                what = (
                    f"the algorithm {kind} brings its own data and model, got {(value.kind or type(value).__name__)!r}"
                )
                yield (key,), f"{what}; leave it out"
            elif not own and value is None:
                yield (key,), f"is required, the algorithm {kind} does not bring its own, got null; give one"
        if own and self.evaluation.metrics:
            what = f"the algorithm {kind} brings its own metrics, got {', '.join(self.evaluation.columns)}"
            yield ("evaluation", "metrics"), f"{what}; leave them out"

    def untimed(self) -> Iterator[Problem]:
        """Find why there can be no timing-only run."""
        if self.algorithm.own_learning:
            kind = self.algorithm.kind
            what = f"the sizes and numbers of messages are known only when the clients run, got {kind}"
            yield ("timing_only",), f"{what}; run it with training"

    @property
    def events_depend_on_learning(self) -> bool:
        """Whether events or the end of the run can depend on learnt values, which a timing-only run does not have."""
        links = self.network.uplink, self.network.downlink
        return (
            self.algorithm.events_depend_on_learning
            or self.stop.asks_for_accuracy
            or any(link.compression.depends_on_values for link in links)
        )

    def contradictions(self) -> Iterator[Problem]:
        """Find settings that are valid by themselves but not together.

        Yields:
            The key path of a setting, and what is wrong.
        """
        count = self.devices.count
        yield from self._unlearnable()
        yield from (
            (("algorithm", *key.split(".")), f"{what}, got {value}; must be at most devices.count, {count}")
            for key, what, value in self.algorithm.demands()
            if value > count
        )
        yield from ((("algorithm", *key.split(".")), what) for key, what in self.algorithm.contradictions(count))
        training = self.training
        if training.engine == "ray" and self.algorithm.own_learning:
            yield ("training", "engine"), "the algorithm trains by itself, got ray; leave it out"
        if training.ray_address is not None and training.engine != "ray":
            yield (
                ("training", "ray_address"),
                f"only the engine ray goes there, got {training.ray_address}; leave it out, or give engine: ray",
            )
        if training.engine == "serial" and training.workers not in {"auto", 1} and not self.algorithm.own_learning:
            what = f"the engine serial trains one job after the other, got {training.workers}"
            yield ("training", "workers"), f"{what}; leave it out, or give engine: by-rule"
        if self.attack is not None:
            yield from ((("attack", key), what) for key, what in self.attack.contradictions(count))
        yield from ((("algorithm", key), what) for key, what in self.algorithm.conflicts_with_losses(self._losses()))
        yield from self._never_two_at_once()
        yield from self._not_by_sums()
        yield from self._nothing_to_compress()
        yield from self._nothing_to_plan()
        yield from self._not_with_antennas()
        yield from unused(self.algorithm, {key: getattr(getattr(self, key[0]), key[1]) for key in PARTS})
        listed = {
            ("devices", "placement", "xy_m"): getattr(self.devices.placement, "xy_m", None),
            ("devices", "speed", "flop_per_s"): getattr(self.devices.speed, "flop_per_s", None),
        }
        for path, values in listed.items():
            if isinstance(values, tuple) and len(values) != count:
                yield path, f"not one for each device, got {len(values)}; must be as many as devices.count, {count}"
        if self.stop.only_accuracy and isinstance(self.data, SyntheticRegression):
            yield ("stop", "accuracy"), "a regression has no accuracy, got no other limit; give rounds or simulated_s"
        named = {
            ("devices", "straggler", "devices"): self.devices.straggler,
            ("devices", "availability", "devices"): self.devices.availability,
        }
        for path, component in named.items():
            if isinstance(component, SlowWindow | Windows):
                unknown = [device for device in component.devices if not 0 <= device < count]
                if unknown:
                    yield path, f"no such devices, got {unknown}; must be from 0 to {count - 1}"

    def _losses(self) -> list[str]:
        """Name the settings that can cause messages to be lost."""
        there = self.devices.availability
        away = [] if isinstance(there, Always) else [f"devices.availability: {getattr(there, 'kind', '?')}"]
        empty = [] if self.devices.battery is None else [f"devices.battery: {self.devices.battery.capacity_j:g} J"]
        return [*self.network.losses(self.channel), *away, *empty]

    def _nothing_to_compress(self) -> Iterator[Problem]:
        """Find links whose compression would never be used."""
        kind, uses = self.algorithm.kind, self.algorithm.uses
        for link in (self.network.uplink, self.network.downlink):
            if not isinstance(link.compression, NoCompression) and f"{link.DIRECTION}-compression" not in uses:
                yield (
                    ("network", link.DIRECTION, "compression"),
                    f"the algorithm {kind} has nothing to compress on the {link.DIRECTION}, no movement since a model "
                    f"that both ends know, got {getattr(link.compression, 'kind', type(link.compression).__name__)}; "
                    "leave it out",
                )

    def _not_by_sums(self) -> Iterator[Problem]:
        """Find what needs the upload of every device by itself, where the server receives sums only."""
        access = self.network.uplink.access
        if not access.only_sums:
            return
        got = access.kind
        kind = self.algorithm.kind
        for key, what in self.algorithm.conflicts_with_sums():
            where = kind if key == "kind" else f"algorithm.{key}"
            yield (
                ("network", "uplink", "access"),
                f"the server receives nothing but sums of uploads, which is not enough for {where}: {what}; got {got}, "
                "choose ofdma or tdma, or change the algorithm",
            )
        for path, what in self.network.conflicts_with_sums():
            yield ("network", *path.split(".")), f"{what}, or choose another access than {got}"

    def _nothing_to_plan(self) -> Iterator[Problem]:
        """Find a planned uplink where no rounds are planned, or not with this rate law."""
        if not isinstance(self.network.uplink.access, Planned):
            return
        path = ("network", "uplink", "access")
        kind, law = (part.kind for part in (self.algorithm, self.channel.rate))
        if "plans" not in self.algorithm.uses:
            able = ", ".join(name for name, algorithm in ALGORITHMS.items() if "plans" in algorithm.uses)
            what = f"the algorithm {kind} does not say who takes part when a round starts, got planned"
            yield path, f"{what}; choose another access, or one of {able}"
        if not isinstance(self.channel.rate, Shannon):
            what = f"plans are closed forms of channel.rate shannon, got planned with {law}"
            yield path, f"{what}; choose another access, or that rate law"

    def _not_with_antennas(self) -> Iterator[Problem]:
        """Find what several antennas of the base stations do not go with."""
        up, reception, path = self.network.uplink, self.network.reception, ("network", "reception")
        if isinstance(reception, SingleAntenna):
            return
        kind, access = (part.kind for part in (reception, up.access))
        if isinstance(up.access, Noma):
            yield path, f"successive cancellation is that of one antenna, got {kind} with {access}; choose shared"
        if reception.NULLS and isinstance(up.access, SlottedAloha):
            what = f"it is not known who sends in a slot, so that nobody can be nulled, got {kind} with {access}"
            yield path, f"{what}; choose mrc, or shared"
        if up.trace is not None:
            yield path, f"recorded rates are those of the receiver that was there, got {kind}; leave it out"
        most = min(up.access.capacity or self.devices.count, self.devices.count) if up.access.overlapping else 1
        if reception.branches(most) < 1:
            what = f"so many antennas cannot null all senders of a cell, got {reception.antennas} for {most}"
            yield path, f"{what}; give more, or network.uplink.access max_senders: {reception.antennas}"
        if most > 1 and reception.NULLS and self.channel.medium_rate() != self.channel.rate:
            what = f"the law of the gains changes with the number of senders, got {kind} with long_transfers: ergodic"
            yield path, f"{what}; set channel.long_transfers: walk, or choose mrc"
        try:
            self.channel.fading.combined(reception.antennas)
        except ScenarioError as problem:
            yield path, str(problem)

    def _never_two_at_once(self) -> Iterator[Problem]:
        """Find a shared uplink that permits simultaneous transmissions although its receiver can never decode two."""
        access, several = (
            self.network.uplink.access,
            self.network.cells.count > 1 or self.network.reception.antennas > 1,
        )
        if not isinstance(access, Shared) or several or self.devices.count == 1:
            return
        threshold = max(self.channel.rate.min_sinr, access.threshold)
        if access.max_senders != 1 and threshold >= 1:
            yield (
                ("network", "uplink", "access"),
                "one receiver without cancellation can never decode two at once, since their SINRs cannot both reach "
                f"0 dB, got shared with a threshold of {linear_to_db(threshold):.1f} dB; lower the threshold below "
                "0 dB, set max_senders: 1, or choose noma, slotted-aloha, ofdma or tdma",
            )
