"""Base classes of the algorithms that a scenario file can choose."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import Field

from fednet_emu.algorithms.accountant import Privacy, epsilon
from fednet_emu.algorithms.selection import AnySelection
from fednet_emu.algorithms.selection.base import RoundWork
from fednet_emu.algorithms.selection.cohort_sampler import CohortSampler
from fednet_emu.algorithms.selection.rules import Uniform
from fednet_emu.component.component import Component, Excludes, exactly_one
from fednet_emu.federation import (
    AnyOptimizer,
    AnySchedule,
    Arrived,
    CohortSize,
    Constant,
    Federation,
    PrivateSgd,
    Process,
    Sgd,
    SgdPlan,
    cohort_size,
)
from fednet_emu.federation.updates import n_scalars

Invited = Annotated[
    CohortSize,
    Field(
        description="Devices invited per round: an int is their number, a float their share of all devices, 1.0 for "
        "all; fewer if fewer are present."
    ),
]
"""Type of a setting `cohort`: the number of devices, or the share of all devices, that are invited per round."""
Deadline = Annotated[
    float | None,
    Field(
        gt=0,
        description="Longest time that the server waits for the devices of a round (simulated s); late devices are "
        "cancelled and left out of the round. Null waits for all devices.",
    ),
]
"""Type of a setting `deadline_s`: the maximum time in s that the server waits for the devices of a round."""
Patience = Annotated[float, Field(gt=0)]
"""Type of a setting `patience_s`: the time in s for which a lost message is sent again before its device is left out.
"""
RoundPatience = Annotated[
    Patience,
    Field(
        description="How long a lost message is sent again before the round continues without its device (simulated s)."
    ),
]
"""Type of a setting `patience_s` (see `Patience`) of an algorithm whose rounds wait for all devices."""
ROUND_S = 60.0
"""Default `patience_s` in s if all other devices wait for the lost message: one minute."""
ALONE_S = 604_800.0
"""Default `patience_s` in s if no other device waits for the lost message: one week. After this time, the device of the
lost message is excluded from the rest of the run."""

_FLAGS = ("moves", "single_uploads", "plans_rounds", "at_edges")
_CHECKS = ("contradictions", "conflicts_with_losses")
FORMER = dict.fromkeys(_CHECKS, "conflicts(scenario)") | dict.fromkeys(_FLAGS, "uses = frozenset({...})")
"""Names that an algorithm class written for version 0.1 may define, each with the definition that replaces it."""
EVENTS = 3
"""Number of transfers and computations of a device in a round: one download, one computation, one upload."""
NO_SERVER_SPEED = Excludes(
    "server.flop_per_s", {None}, "computes on the server", "give server.flop_per_s", got="no speed of it", key="kind"
)
"""Rule that makes a scenario invalid if its algorithm computes on the server and the speed of the server is not set."""


class Algorithm(Component):
    """Base class of algorithms: the fields are the hyper-parameters, and `run` is the server's process."""

    uses: ClassVar[frozenset[str]] = frozenset()
    """Names of the optional features of a scenario that the algorithm supports; a scenario that uses any other of these
    features is invalid.

    uplink-compression, downlink-compression: compressed models. An algorithm that does not send models with
    `fed.exchange` passes `since` with each uplink, and calls `fed.published` before it sends a model down. sums: an
    uplink that delivers only the sum of the replies; plans: rounds whose uplink is planned once the participants are
    known; polls: requests for the loss of a model; consensus: the mean of the devices' own models; edges: edge servers
    and their backhaul; sidelink: transfers from device to device; server-samples, server-speed, validation-samples: the
    settings of `server` for samples, speed and validation samples; steps: different numbers of local steps per device.
    """
    own_learning: ClassVar[bool] = False
    """Whether the algorithm provides its own data and model, so that a scenario must not define them."""
    asynchronous: ClassVar[bool] = False
    """Whether the server updates its model as updates arrive, without rounds that have a cohort."""
    ships_no_base: ClassVar[str] = ""
    """Reason why the server cannot send all frozen weights to each device; empty if the server can."""
    exchanges_models: ClassVar[bool] = True
    """Whether devices and server send each other whole models, by which warnings about slow links judge a link."""
    equal_weights: ClassVar[bool] = False
    """Whether all updates of a round have equal weights."""

    def conflicts_with_statistics(self) -> Iterable[tuple[str, str]]:
        """Yield the settings that cannot be combined with running statistics (batch norm), as pairs (key, error)."""
        if getattr(self, "dp_sgd", None) is not None:
            yield "dp_sgd", "hides gradients, and statistics of the samples would be sent as they are"

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        for name in FORMER.keys() & vars(cls).keys():
            raise TypeError(f"{cls.__name__}.{name}: is not called any more, got a definition; write {FORMER[name]}")

    @abstractmethod
    def run(self, fed: Federation) -> Process:
        """Return the server's SimPy process, which ends when the algorithm is finished."""

    @property
    def events_depend_on_learning(self) -> bool:
        """True if the results of training can affect which messages are sent, to whom, or the length of the run.

        In this case a timing-only run, which trains nothing, uses nominal values, and its events are an approximation.
        """
        return False

    @property
    def has_server(self) -> bool:
        """Whether devices exchange messages with a server. Algorithms with `consensus` in `uses` have no server."""
        return "consensus" not in self.uses

    def participants(self, count: int) -> int:
        """Return the maximum number of participants of a round: the cohort size, or `count` if there is no cohort."""
        cohort = getattr(self, "cohort", None)
        return count if cohort is None else min(cohort_size(cohort, count), count)

    def answers(self, count: int) -> int:
        """Return the number of replies in a round without losses; by default one reply from each participant."""
        return self.participants(count)

    def events(self, n_samples: int | None) -> int | None:
        """Return the approximate number of transfers and computations per round of a device; None if unknown."""
        return EVENTS

    def asking_rate(self, count: int) -> float | None:
        """Return the probability of inviting each of `count` devices to a round; None if invitations are dependent."""
        return None

    def privacy(self, rounds: int, count: int, *, always_there: bool) -> Privacy | None:
        """Return the privacy guarantee for one of `count` devices after `rounds` rounds; None if there is no bound.

        If `always_there` is False, participation depends on the presence of devices as well as on random sampling.
        """
        return None

    def demands(self) -> Iterable[tuple[str, str, int]]:
        """Yield (key, error message, minimum) for each setting that needs a minimum number of devices."""
        cohort = getattr(self, "cohort", None)
        if cohort is not None:
            yield "cohort", "invites more devices than there are", cohort_size(cohort, 1)

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(scenario)
        count = scenario.devices.count
        for key, what, least in self.demands():
            if least > count:
                yield key, f"{what}, got {least}; must be at most devices.count, {count}"

    def conflicts_with_sums(self) -> Iterable[tuple[str, str]]:
        """Yield the settings that are invalid if the server receives only sums of uploads, as pairs (key, error)."""
        if "sums" not in self.uses:
            yield "kind", "its server reads single uploads"


class LocalTraining(Algorithm):
    """An algorithm whose devices train on their own samples, for a number of epochs or SGD steps per round."""

    _one_length = exactly_one("local_epochs", "local_steps", local_epochs=1)

    lr: float = Field(0.1, ge=0)
    """Step size of the devices."""
    batch_size: int | None = Field(20, gt=0)
    """Samples per gradient step; null takes all of the device's samples."""
    local_epochs: int | None = Field(None, gt=0)
    """Number of passes over the device's samples per training; null is 1 if `local_steps` is also null. A device trains
    once per round, but once per edge round with `hier-favg` and once per local model step with `pfedme`."""
    local_steps: int | None = Field(None, gt=0)
    """Number of gradient steps per training; can be set instead of `local_epochs`."""
    local_optimizer: AnyOptimizer = Sgd()
    """Optimizer of the devices; its state is reset in every round."""
    lr_schedule: AnySchedule = Constant()
    """How the step size of the devices, `lr`, changes from round to round."""
    clip_norm: float | None = Field(None, gt=0)
    """Maximum Euclidean norm of the gradient of a step; larger gradients are scaled down to this norm. Null for no
    limit."""
    dp_sgd: PrivateSgd | None = None
    """DP-SGD: per-sample gradients are clipped and noise is added, which hides single samples in uploaded models. The
    summary of a run contains the upper bound on a sample's privacy loss as `sample_epsilon`. Null disables DP-SGD."""
    sends_models: ClassVar[bool] = False
    """Whether devices send only models that result from their local steps."""
    plain_steps: ClassVar[bool] = False
    """Whether the algorithm's formulas hold only for plain SGD with a constant step size, so that other settings are
    invalid."""

    def _check(self) -> None:
        plain = self.local_optimizer == Sgd() and type(self.lr_schedule) is Constant and self.clip_norm is None
        if self.plain_steps and not plain:
            raise ValueError(
                "the formulas of this algorithm hold for plain steps of one size, got "
                f"local_optimizer={self.local_optimizer!r}, lr_schedule={self.lr_schedule!r} and "
                f"clip_norm={self.clip_norm}; leave them out"
            )
        if self.dp_sgd is not None and not self.sends_models:
            raise ValueError("devices send more than models, which dp_sgd does not hide; leave it out")

    def sample_privacy(self, rounds: int, n_samples: Iterable[int]) -> dict[str, float]:
        """Return the largest privacy loss epsilon of any sample after `rounds` rounds, and delta, as a dict.

        The dict is empty if DP-SGD is disabled. `n_samples` contains the number of samples of each device. The value
        `sample_epsilon` counts one noisy release for each pass of a device over its samples. The value
        `sample_epsilon_as_poisson` makes the usual assumption that each batch is a Poisson sample, although batches are
        taken from shuffled samples here.
        """
        private, plan = self.dp_sgd, self.plan
        if private is None:
            return {}
        z, delta, sure, usual = private.noise_multiplier, private.delta, 0.0, 0.0
        for n in {count for count in n_samples if count}:
            steps, passes = rounds * plan.n_steps(n), rounds * -(-plan.n_steps(n) // plan.steps_per_epoch(n))
            sure = max(sure, epsilon(z, delta=delta, rounds=passes))
            usual = max(usual, epsilon(z, delta=delta, rounds=steps, rate=plan.batch_width(n) / n))
        return {"sample_epsilon": sure, "sample_epsilon_as_poisson": usual, "sample_delta": delta}

    @cached_property
    def plan(self) -> SgdPlan:
        """The plan of a device's local steps in a round; `lr_schedule` is not applied here but in `Device.train`."""
        return SgdPlan(
            lr=self.lr,
            batch_size=self.batch_size,
            steps=self.local_steps,
            epochs=self.local_epochs,
            optimizer=self.local_optimizer,
            schedule=self.lr_schedule,
            clip_norm=self.clip_norm,
            private=self.dp_sgd,
        )


class LocalSteps(Algorithm):
    """An algorithm whose devices take a fixed number of plain SGD steps per round."""

    lr: float = Field(ge=0)
    """Step size of the devices."""
    batch_size: int | None = Field(gt=0)
    """Samples per gradient step; null takes all of the device's samples."""
    local_steps: int = Field(gt=0)
    """Gradient steps per round."""

    @cached_property
    def plan(self) -> SgdPlan:
        return SgdPlan(lr=self.lr, batch_size=self.batch_size, steps=self.local_steps)


class Synchronous(LocalTraining):
    """An algorithm with rounds: the server invites a cohort to train locally, and waits for the cohort's replies."""

    uses = frozenset({"uplink-compression", "downlink-compression", "plans", "polls"})

    cohort: Invited = 0.5
    selection: AnySelection = Uniform()
    """Rule that selects the devices of a round."""
    deadline_s: Deadline = None
    retries: int = Field(0, ge=0)
    """Maximum number of times that a lost upload is sent again."""

    def round(
        self,
        fed: Federation,
        t: int,
        message: Any,
        client: Any,
        *args: Any,
        down: int | None = None,
        up: int | None = None,
    ) -> Process:
        """Invite a cohort in round `t`, and wait for its replies; the process returns the replies as `Arrived`.

        `message` is as for `Federation.exchange`. If it is a model, or a tuple that starts with one, devices receive
        the published (perhaps compressed) version of this model. Device `k` runs the process
        `client(fed, k, *parts, t, *args)`, where `parts` are the values in the received message. For time estimates,
        `down` is the number of scalars that a device receives (by default the size of the message or model), and `up`
        the number that it sends (by default as many as it receives).
        """
        fed.graph.begin_wavefront()
        if isinstance(message, tuple):
            message = (fed.published(message[0]), *message[1:])
        elif not callable(message):
            message = fed.published(message)

        def made() -> CohortSampler:
            received = down or (fed.task.model.size if callable(message) else n_scalars(message))
            work, size = RoundWork(fed, self.plan, received, up or received), cohort_size(self.cohort, fed.n_devices)
            return CohortSampler(fed, self.selection, size, work, self.deadline_s)

        sampler = fed.state(CohortSampler, made)
        cohort = yield from self.invited(fed, t, message, sampler)
        arrived: Arrived = yield from fed.exchange(
            cohort,
            message,
            client,
            t,
            *args,
            deadline_s=self.deadline_s if fed.orders.deadline_s is None else fed.orders.deadline_s,
            retries=self.retries,
            sums="sums" in self.uses,
            statistics=sampler.reports,
        )
        sampler.note(arrived)
        return arrived

    def invited(self, fed: Federation, t: int, message: Any, sampler: CohortSampler) -> Process:
        """Process that returns the list of the devices to invite in round `t`."""
        return sampler.cohort(t, message)

    @property
    def asks_selection(self) -> bool:
        return True

    @property
    def events_depend_on_learning(self) -> bool:
        return self.selection.needs_losses

    def participants(self, count: int) -> int:
        return self.selection.most(cohort_size(self.cohort, count), count)

    def answers(self, count: int) -> int:
        rate = self.asking_rate(count)
        return self.participants(count) if rate is None else max(1, round(rate * count))

    def asking_rate(self, count: int) -> float | None:
        return self.selection.rate(min(cohort_size(self.cohort, count), count), count)

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(scenario)
        if problem := self.selection.problem(cohort_size(self.cohort, scenario.devices.count)):
            yield "selection", f"{problem}; choose others"
        if self.dp_sgd is not None and self.selection.needs_losses:
            yield "selection", "devices report losses, which dp_sgd does not hide; choose another"
        if self.selection.polls and "polls" not in self.uses:
            what = "needs the loss of a common model, but each device has its own; choose another"
            yield "selection", what

    def conflicts_with_sums(self) -> Iterator[tuple[str, str]]:
        yield from super().conflicts_with_sums()
        if self.selection.single_uploads:
            yield "selection", f"{self.selection.kind} {self.selection.single_uploads}"
        if self.retries:
            yield "retries", f"a single upload cannot be repeated, got {self.retries}"
