"""The scenario, which is the configuration of a run; its fields are the keys of a scenario file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from fednet_emu.algorithms.accountant import Privacy
from fednet_emu.component.component import Component
from fednet_emu.devices.availability import Always, AnyAvailability
from fednet_emu.devices.batteries import Battery
from fednet_emu.devices.carbon import Carbon
from fednet_emu.devices.mobility import AnyMobility, Static
from fednet_emu.devices.mobility.regions import AnyRegion, DiscRegion, Region
from fednet_emu.devices.placement import AnyPlacement, Disc
from fednet_emu.devices.profiles import Profile
from fednet_emu.devices.speeds import AnySpeeds, Frequency, Slowdowns
from fednet_emu.devices.stragglers import AnyStraggler, NoStraggler
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.stop import Evaluation, Stop
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.data.attacks import AnyAttack
from fednet_emu.learning.data.datasets import AnyDataset
from fednet_emu.learning.data.datasets.base import Dataset
from fednet_emu.learning.data.datasets.mnist import Digits
from fednet_emu.learning.data.partitions import AnyPartition
from fednet_emu.learning.data.partitions.base import Partition
from fednet_emu.learning.data.partitions.rules import Iid
from fednet_emu.learning.data.views import AnyGroups, FeatureNoise
from fednet_emu.learning.models import AnyModel
from fednet_emu.learning.models.base import Model
from fednet_emu.network.settings import NetworkSettings
from fednet_emu.network.slices import problems as slice_problems
from fednet_emu.network.traffic.settings import Traffic
from fednet_emu.network.traffic.settings import problems as traffic_problems
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.energy import AnyComputeEnergy
from fednet_emu.scenario.algorithms import ALGORITHMS, AnyAlgorithm, brings_own_learning

Problem = tuple[tuple[str, ...], str]
"""A problem with a setting: the key path of the setting, and the error text."""

LEARNING = ("data", "partition", "model", "groups", "feature_noise", "attack")
"""Settings of the data and the model. They must be null if the algorithm brings its own data and model."""


class Devices(Component):
    """The devices of the federation."""

    filled: ClassVar[frozenset[str]] = frozenset({"profile"})
    """Settings that are taken from the library if they are missing. A setting that lacks required keys is completed
    from the library."""

    count: int = Field(20, gt=0)
    """Number of devices; they are numbered from 0."""
    placement: AnyPlacement = Disc(radius_m=100.0, inner_radius_m=10.0)
    """Initial positions of the devices. Ignored if `mobility` is a trace, which states the positions itself."""
    mobility: AnyMobility = Static()
    region: AnyRegion | None = None
    """Area in which devices move. Null uses the smallest disc around the origin that contains all initial positions."""
    profile: Profile | tuple[Profile, ...] | None = None
    """Hardware of the devices: the name of a file in profiles/, or a mapping from several names to shares of the
    devices. A profile states the computing speed, a fixed time per computation, and the power. The settings `speed`,
    `overhead_s` and `compute_energy` take precedence over the profile."""
    speed: AnySpeeds | None = None
    """Computing speed of the devices. Null uses the speed in `profile`."""
    overhead_s: float | None = Field(None, ge=0, le=1e6)
    """Fixed time in s that is added to each computation, besides the time for its operations. Null uses the time in
    `profile`, or 0 if the profile states none."""
    slowdown: Slowdowns = Field(default_factory=dict)
    """Factors by which the computing times of single devices are multiplied, by index or name: `{0: 10, dev-3: 2}`. A
    factor below 1 makes a device faster. The factor also applies to `overhead_s`. A device with a measured power draws
    this power for the whole changed time."""
    cpu_frequency: Frequency = Frequency()
    """Clock frequency of the devices' processors, relative to the frequency at which they reach their nominal speed."""
    compute_energy: AnyComputeEnergy | None = None
    """Energy of the devices' computations. Null uses the power in `profile`. If that is missing, too, the energy is not
    counted."""
    straggler: AnyStraggler = NoStraggler()
    availability: AnyAvailability = Always()
    battery: Battery | None = None
    """Battery of each device, which supplies its processor and its radio. Null gives devices unlimited energy."""

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        for device in self.slowdown:
            if not 0 <= device < self.count:
                yield f"slowdown.{device}", f"no such device, got {device}; must be from 0 to {self.count - 1}"

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The hardware profiles as a tuple; empty if no profile is set."""
        if self.profile is None or isinstance(self.profile, tuple):
            return self.profile or ()
        return (self.profile,)

    def where_they_roam(self) -> Region:
        """Return `region` or, if it is null, the smallest disc around the origin that contains all initial positions.

        The radius of the disc is at least 1 m.
        """
        if self.region is not None:
            return self.region
        reach_m = getattr(self.placement, "radius_m", None)
        if reach_m is None:
            reach_m = max(math.hypot(*xy_m) for xy_m in getattr(self.placement, "xy_m", ((1.0, 0.0),)))
        return DiscRegion(radius_m=max(reach_m, 1.0))


class Server(Component):
    """The server, which is located at the base station.

    The server's own samples are taken from the training data before the rest is divided among the devices.
    """

    flop_per_s: float | None = Field(None, gt=1e-3, le=1e21)
    """Computing speed of the server in FLOP/s. It is required by algorithms that train on the server; null is a server
    that does not compute. The energy of the server's computations is not counted."""
    samples: int = Field(0, ge=0)
    """Number of training samples that the server owns, for algorithms that train on the server or send samples to
    devices."""
    validation_samples: int = Field(0, ge=0)
    """Number of training samples that the server sets aside for validation. They are used by `stop.patience`, and by
    algorithms that choose models by validation error. Validation takes no simulated time."""

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        never = {
            "flop_per_s": ("server-speed", "computes nothing on the server"),
            "samples": ("server-samples", "does not train on them, so these samples have no effect"),
            "validation_samples": ("validation-samples", "chooses no model by its validation error"),
        }
        secure = scenario.network.uplink.secure_aggregation
        opens_masks = secure is not None and secure.prg_flop_per_entry > 0
        for key, (part, without) in never.items():
            value = getattr(self, key)
            waited_for = key == "validation_samples" and scenario.stop.patience is not None
            if value and not waited_for and not (key == "flop_per_s" and opens_masks):
                yield from scenario.unless_used(part, without, f"{value:g}", key)


class Training(Component):
    """How the training is executed on this host. These settings do not affect simulated time."""

    engine: Literal["by-rule", "serial", "batched", "ray"] = "by-rule"
    """Method by which the ready training jobs are executed. serial: one job after the other; batched: all jobs at once;
    by-rule: serial or batched, chosen by a fixed rule from the model, the batch size and the device, so that a run
    repeats bit for bit on the same machine; ray: on the actors of a Ray cluster, where each actor applies the same rule
    (needs the extra `ray`)."""
    ray_address: str | None = None
    """Address host:port of the Ray cluster, used with `engine: ray`; auto connects to the cluster on this machine. Null
    starts a new cluster on this machine for the duration of the run."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Hardware that trains the models and stores the data: cpu is the processor, cuda is a GPU. With `engine: ray`,
    cuda gives each actor a GPU of the cluster, and models are evaluated on the processor of this machine."""
    tf32: bool = False
    """Whether a GPU may round the factors of matrix products to the format TF32, which has 10 bits of mantissa. TF32 is
    faster, but the results of different engines then agree to three digits instead of five."""
    threads: int | None = Field(None, gt=0, le=1024)
    """Number of processor threads. A large model that is trained alone uses them as intra-op threads. With `workers:
    auto`, this is also the number of processes. Null uses all available cores. With `engine: ray`, this is the number
    of threads of each actor, and null means 1."""
    workers: Literal["auto"] | Annotated[int, Field(gt=0, le=1024)] = "auto"
    """Number of processes that train jobs in parallel, including the main process. It does not change the learnt
    values. The main process alone trains jobs that are too small to send, jobs of a sweep, and jobs on a GPU. auto uses
    one process per thread in sufficiently long runs, but 1 with `engine: serial`. With `engine: ray`, this is the
    number of actors, and auto uses the capacity of the cluster. Clients of a Flower app are trained in this number of
    further processes if several clients have messages at the same instant, or if their operation counts are known; for
    apps, auto means 1."""
    checkpoint_s: float | None = Field(2.0, gt=0)
    """Minimum host time between two checkpoints, in seconds. A run that was killed continues from its last checkpoint.
    Checkpoints are written at the end of a round. They are written less often if writing would take more than 1/64 of
    the host time. Null saves no checkpoints."""

    reuse: bool = True
    """Whether the run reuses training results that earlier runs have stored, and stores its own results for later runs.
    A result is reused only if it follows from the same computations, so results are the same to the last bit. false
    computes every value."""

    @field_validator("engine", mode="before")
    @classmethod
    def _no_stopwatch(cls, engine: Any) -> Any:
        if engine == "auto":
            raise ValueError("no engine measures which one is fastest, got auto; write by-rule, which needs no trials")
        return engine

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        own, on_ray = scenario.algorithm.own_learning, self.engine == "ray"
        if own and on_ray:
            yield "engine", "the algorithm has its own training, got ray; leave it out"
        if self.ray_address is not None and not on_ray:
            what = f"only the engine ray goes there, got {self.ray_address}"
            yield "ray_address", f"{what}; leave it out, or give engine: ray"
        if self.engine == "serial" and self.workers not in {"auto", 1} and not own:
            what = f"the engine serial trains one job after the other, got {self.workers}"
            yield "workers", f"{what}; leave it out, or give engine: by-rule"


class Scenario(Component):
    """The complete configuration of a run: the network, the data, the model, the algorithm, and the stop conditions."""

    waived: ClassVar[Mapping[str, Sequence[str]]] = {
        "algorithm": [kind for kind, its in ALGORITHMS.items() if its.own_learning]
    }
    """For each setting, by name: the kinds for which its otherwise required sub-settings may be null."""
    filled: ClassVar[frozenset[str]] = frozenset({"channel"})
    """Settings that are taken from the library if they are missing. A setting that lacks required keys is completed
    from the library."""

    title: str = ""
    """Readable title, which does not affect the run."""
    seed: int = Field(0, ge=0)
    """Seed of all random numbers of the run. Runs with the same seed have the same channels, stragglers and data."""
    scene_seed: int | None = Field(None, ge=0)
    """Seed of the scene, which consists of the data, their split, the initial model, and the devices' positions,
    speeds, profiles and shadowing. With a fixed `scene_seed`, runs with different `seed` have the same scene, but
    different random events. Null uses `seed`."""
    devices: Devices = Devices()
    server: Server = Server()
    channel: Channel
    network: NetworkSettings = NetworkSettings()
    traffic: tuple[Traffic, ...] = ()
    """Other users of the network, whose file transfers share the uplink and the downlink with the federation."""
    data: AnyDataset | None = Digits()
    partition: AnyPartition | None = Iid()
    """Rule that assigns the samples to the devices. May be null only if the algorithm brings its own data and model."""
    groups: AnyGroups | None = None
    """Groups of devices, each of which sees the data in a different transformation. Null makes no groups."""
    feature_noise: FeatureNoise | None = None
    """Noise that is added to the inputs, with a variance that increases from device to device. Null adds no noise."""
    model: AnyModel | None
    """The model to train. May be null only if the algorithm brings its own model."""
    algorithm: AnyAlgorithm
    attack: AnyAttack | None = None
    """The attack of malicious devices; null for no attack."""
    carbon: Carbon | None = None
    """Power grid that supplies devices and base stations, from which the CO2 emissions of the run in grams are
    computed. Null leaves out this result."""
    stop: Stop = Stop(rounds=50)
    evaluation: Evaluation = Evaluation()
    training: Training = Training()

    @model_validator(mode="before")
    @classmethod
    def _algorithms_may_bring_their_own(cls, given: Any) -> Any:
        """Return `given`; set missing data and model settings to null if the algorithm uses its own data and model."""
        if isinstance(given, Mapping) and brings_own_learning(given.get("algorithm")):
            return {**dict.fromkeys(LEARNING), **given}
        return given

    @property
    def streams(self) -> Streams:
        """The random streams of the run."""
        return Streams(self.seed, self.scene_seed)

    def learning(self) -> tuple[Dataset, Partition, Model]:
        """Return the data, the partition of the data, and the model.

        Raises:
            ScenarioError: the data, the partition or the model is null.
        """
        data, partition, model = self.data, self.partition, self.model
        if data is None or partition is None or model is None:
            raise ScenarioError(*(f"{key}: {what}" for key, what in self.conflicts(self)))
        return data, partition, model

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        """Yield (key, error text) for each missing or superfluous setting of data, model, traffic, slices, metrics."""
        kind, own = self.algorithm.kind, self.algorithm.own_learning
        for key in LEARNING:
            value, default = getattr(self, key), type(self).model_fields[key].default
            if own and value is not None:
                what = (
                    f"the algorithm {kind} brings its own data and model, got {(value.kind or type(value).__name__)!r}"
                )
                yield key, f"{what}; leave it out"
            elif not own and value is None and default is not None:
                yield key, f"is required, the algorithm {kind} does not bring its own, got null; give one"
        yield from ((f"traffic.{key}", what) for key, what in traffic_problems(self.traffic, self))
        yield from slice_problems(self.network.slices, self)
        if own and self.evaluation.metrics:
            what = f"the algorithm {kind} brings its own metrics, got {', '.join(self.evaluation.columns)}"
            yield "evaluation.metrics", f"{what}; leave them out"

    def untimed(self) -> Iterator[Problem]:
        """Yield the key path and the reason if a run of the scenario without training (timing-only) is impossible."""
        if self.algorithm.own_learning:
            kind = self.algorithm.kind
            what = f"the sizes and numbers of messages are known only when the clients run, got {kind}"
            yield ("timing_only",), f"{what}; run it with training"

    @property
    def events_depend_on_learning(self) -> bool:
        """True if training results can affect events or the end of the run. A timing-only run has no such results."""
        links = self.network.uplink, self.network.downlink
        return (
            self.algorithm.events_depend_on_learning
            or self.stop.depends_on_learning
            or any(link.compression.depends_on_values for link in links)
        )

    def contradictions(self) -> Iterator[Problem]:
        """Yield the key path and an error text for each setting that contradicts another setting."""
        for place, part in _parts(self):
            for key, what in part.conflicts(self):
                yield (*place, *filter(None, key.split("."))), what

    def users(self, part: str) -> str:
        """Return the names of the algorithms that support the setting or feature `part`, joined into one string."""
        return ", ".join(kind for kind, its in ALGORITHMS.items() if part in its.uses)

    def unless_used(self, part: str, without: str, got: str, key: str = "") -> Iterator[tuple[str, str]]:
        """Yield (key, error text) if the algorithm does not use the setting `key`.

        `part` is the name of the setting in the `uses` of algorithms; `without` describes an algorithm that lacks
        `part`.
        """
        algorithm = self.algorithm
        if part not in algorithm.uses:
            known = f"choose {self.users(part)}"
            remedy = known if algorithm.kind in ALGORITHMS else f'say uses = frozenset({{"{part}"}}) in the class'
            yield key, f"the algorithm {algorithm.kind} {without}, got {got}; leave it out, or {remedy}"

    def privacy(self, rounds: int) -> Privacy | None:
        """Return the privacy guarantee of one device after `rounds` rounds; None if there is no guarantee."""
        always = isinstance(self.devices.availability, Always) and self.devices.battery is None
        return self.algorithm.privacy(rounds, self.devices.count, always_there=always)

    def losses(self) -> list[str]:
        """Return the settings that can cause messages to be lost, each as a string `key: value`."""
        there, battery = self.devices.availability, self.devices.battery
        away = [] if isinstance(there, Always) else [f"devices.availability: {there.kind}"]
        empty = [] if battery is None else [f"devices.battery: {battery.capacity_j:g} J"]
        return [*self.network.losses(self.channel), *away, *empty]


def _parts(whole: Component, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Component]]:
    yield place, whole
    for name in type(whole).model_fields:
        part = getattr(whole, name)
        if isinstance(part, Component):
            yield from _parts(part, (*place, name))
