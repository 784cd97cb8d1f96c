"""Base classes of the algorithms that a scenario file can choose."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator
from typing_extensions import override

from fednet_emu.algorithms.accountant import Privacy, epsilon
from fednet_emu.algorithms.selection import AnySelection
from fednet_emu.algorithms.selection.base import RoundWork
from fednet_emu.algorithms.selection.cohort_sampler import CohortSampler
from fednet_emu.algorithms.selection.rules import Uniform
from fednet_emu.component.component import Component, ExactlyOne, Excludes
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
from fednet_emu.federation.payload import n_scalars

Patience = Annotated[float, Field(gt=0)]
"""Type of a setting `patience_s`: how long a lost message is sent again before its device is given up (s)."""
ROUND_S = 60.0
"""Default patience when all others wait for the device: one minute."""
ALONE_S = 604_800.0
"""Default patience when the others continue meanwhile and a device that is given up never returns: one week."""


_FLAGS = ("moves", "single_uploads", "plans_rounds", "at_edges")
_CHECKS = ("contradictions", "conflicts_with_losses")
FORMER = dict.fromkeys(_CHECKS, "conflicts(scenario)") | dict.fromkeys(_FLAGS, "uses = frozenset({...})")
"""What a class of version 0.1 may define, and what takes its place."""
EVENTS = 3
"""Transfers and computations of a device in a round: it receives, computes and sends."""


NO_SERVER_SPEED = Excludes(
    "server.flop_per_s", {None}, "computes on the server", "give server.flop_per_s", got="no speed of it", key="kind"
)
"""Rule of algorithms that compute on the server."""


class Algorithm(Component):
    """One paper's algorithm: its hyper-parameters are the fields, its pseudo-code is `run`."""

    uses: ClassVar[frozenset[str]] = frozenset()
    """What it may use; a scenario that gives another of these is refused.

    uplink-compression, downlink-compression: models in its exchanges (else it says `since` where it sends on the
    uplink), and `fed.published` for what it sends on the downlink; sums: replies of which it needs the mean alone;
    plans: rounds whose uplink is planned once it is known who takes part; polls: questions for the loss of a model;
    consensus: the mean of the devices' own models; edges: edge servers and their backhaul; sidelink: sending from
    device to device; server-samples, server-speed, validation-samples: what `server` has of these.
    """
    own_learning: ClassVar[bool] = False
    """Whether it brings its own data and model, so that a scenario gives none."""

    asynchronous: ClassVar[bool] = False
    """Whether the server steps whenever some updates have arrived, so that a round is no round of asking devices."""
    ships_no_base: ClassVar[str] = ""
    """Why the server cannot send all frozen weights to each device; empty where it can."""

    def conflicts_with_statistics(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go with running statistics, as of batch norm, as (key, what is wrong)."""
        if getattr(self, "private_sgd", None) is not None:
            yield "private_sgd", "hides gradients, and statistics of the samples would be sent as they are"

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        for name in FORMER.keys() & vars(cls).keys():
            raise TypeError(f"{cls.__name__}.{name}: is not called any more, got a definition; write {FORMER[name]}")

    @property
    def equal_weights(self) -> bool:
        """Whether all updates of a round weigh the same."""
        return False

    @abstractmethod
    def run(self, fed: Federation) -> Process:
        """The server's SimPy process; the algorithm is over when it returns."""

    @property
    def events_depend_on_learning(self) -> bool:
        """Whether learnt numbers can decide what is sent, to whom, or how long the run lasts.

        If so, a timing-only run, which trains nothing, is an approximation: it uses nominal values in their place.
        """
        return False

    def participants(self, count: int) -> int:
        """The largest number of devices, out of `count`, that take part in a round: the cohort, if there is one."""
        cohort = getattr(self, "cohort", None)
        return count if cohort is None else min(cohort_size(cohort, count), count)

    def answers(self, count: int) -> int:
        """The number of answers that end a round without losses, out of `count` devices: one of each participant."""
        return self.participants(count)

    def events(self, n_samples: int | None) -> int | None:
        """Number of transfers and computations of a device with so many samples in a round, about; None if unknown."""
        return EVENTS

    def asking_rate(self, count: int) -> float | None:
        """Probability with which each of `count` devices is asked in a round, if independently; None if not."""
        return None

    def privacy(self, rounds: int, count: int, *, always_there: bool) -> Privacy | None:
        """What so many rounds reveal at most of one of `count` devices; None for no bound.

        Unless all are `always_there`, not only a random draw decides who takes part.
        """
        return None

    def demands(self) -> Iterable[tuple[str, str, int]]:
        """Settings that need a minimum number of devices, as (key, what is wrong with fewer, that minimum)."""
        cohort = getattr(self, "cohort", None)
        if cohort is not None:
            yield "cohort", "invites more devices than there are", cohort_size(cohort, 1)

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(scenario)
        count = scenario.devices.count
        for key, what, least in self.demands():
            if least > count:
                yield key, f"{what}, got {least}; must be at most devices.count, {count}"

    def conflicts_with_sums(self) -> Iterable[tuple[str, str]]:
        """Settings that are invalid when the server receives nothing but sums of uploads, as (key, what is wrong)."""
        if "sums" not in self.uses:
            yield "kind", "its server reads every upload by itself"


class LocalTraining(ExactlyOne):
    """Settings of a device's local training, for algorithms to inherit."""

    alternatives: ClassVar[tuple[str, ...]] = ("local_epochs", "local_steps")
    otherwise: ClassVar[Mapping[str, Any]] = {"local_epochs": 1}

    lr: float = Field(0.1, ge=0)
    """Step size of the devices."""
    batch_size: int | None = Field(20, gt=0)
    """Samples per gradient step; null takes all of the device's samples."""
    local_epochs: int | None = Field(None, gt=0)
    """Passes over the device's samples per round; 1 unless this or `local_steps` is given."""
    local_steps: int | None = Field(None, gt=0)
    """Gradient steps per round, in the place of `local_epochs`."""
    local_optimizer: AnyOptimizer = Sgd()
    """Optimizer of the devices; its state begins anew in every round."""
    lr_schedule: AnySchedule = Constant()
    """How the step size of the devices, `lr`, changes from round to round."""
    clip_norm: float | None = Field(None, gt=0)
    """Longest gradient of a step: a longer one is scaled down to this Euclidean norm. Null for no limit."""
    private_sgd: PrivateSgd | None = None
    """Limit and noise for the gradients of single samples, so that a model that is sent hides them: DP-SGD. The summary
    says as `sample_epsilon` what a run reveals of a sample at most. Null for neither."""
    sends_models: ClassVar[bool] = False
    """Whether devices send nothing but models that their local steps have made."""
    plain_steps: ClassVar[bool] = False
    """Whether the algorithm's formulas hold for plain steps of one size only, so that it refuses any others."""

    @model_validator(mode="after")
    def _plain_where_assumed(self) -> Self:
        plain = self.local_optimizer == Sgd() and type(self.lr_schedule) is Constant and self.clip_norm is None
        if self.plain_steps and not plain:
            raise ValueError(
                "the formulas of this algorithm hold for plain steps of one size, got "
                f"local_optimizer={self.local_optimizer!r}, lr_schedule={self.lr_schedule!r} and "
                f"clip_norm={self.clip_norm}; leave them out"
            )
        if self.private_sgd is not None and not self.sends_models:
            raise ValueError("devices send more than models, which private_sgd does not hide; leave it out")
        return self

    def sample_privacy(self, rounds: int, n_samples: Iterable[int]) -> dict[str, float]:
        """The largest epsilon of a sample of devices with so many samples each, and the delta; empty without a bound.

        `sample_epsilon` counts one release of noise for each time that a device passes its samples. The other one
        takes each batch for a Poisson draw of its size, as is usual, though batches are shuffled.
        """
        private, plan = self.private_sgd, self.plan
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
        """The local steps of a device in a round; `Device.train` applies the schedule."""
        return SgdPlan(
            lr=self.lr,
            batch_size=self.batch_size,
            steps=self.local_steps,
            epochs=self.local_epochs,
            optimizer=self.local_optimizer,
            schedule=self.lr_schedule,
            clip_norm=self.clip_norm,
            private=self.private_sgd,
        )


class Synchronous(Algorithm, LocalTraining):
    """An algorithm in rounds: in each one the server invites a cohort, which trains locally, and waits for it."""

    uses: ClassVar[frozenset[str]] = frozenset({"uplink-compression", "downlink-compression", "plans", "polls"})

    cohort: CohortSize = 0.5
    """Devices invited per round: an int is their number, a float their share of all devices, 1.0 for all; fewer if
    fewer are present."""
    selection: AnySelection = Uniform()
    """Who is asked in a round."""
    deadline_s: float | None = Field(None, gt=0)
    """Longest time that the server waits for the devices of a round (simulated s); late devices are cancelled and left
    out of the round. Null waits for all devices."""
    retries: int = Field(0, ge=0)
    """Number of times that a lost upload is sent again."""

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
        """Invite a cohort in round t, and wait for it: the process's value is what has `Arrived`.

        Args:
            fed: the federation.
            t: the round, from 0.
            message: as for `Federation.exchange`; of a model, or of the first of several parts, all devices read what
                is published.
            client: process `client(fed, k, *parts, t, *args)` of a device.
            args: further arguments of `client`.
            down: numbers that a device receives, for estimates of times; those of the message when None.
            up: numbers that it sends; as many as it receives when None.
        """
        fed.graph.begin_wavefront()
        if isinstance(message, tuple):
            message = (fed.published(message[0]), *message[1:])
        elif not callable(message):
            message = fed.published(message)
        if "sampler" not in fed.memory:
            down = down or (fed.task.model.size if callable(message) else n_scalars(message))
            work, size = RoundWork(fed, self.plan, down, up or down), cohort_size(self.cohort, fed.n_devices)
            fed.memory["sampler"] = CohortSampler(fed, self.selection, size, work, self.deadline_s)
        sampler: CohortSampler = fed.memory["sampler"]
        cohort = yield from self.invited(fed, t, message, sampler)
        arrived: Arrived = yield from fed.exchange(
            cohort,
            message,
            client,
            t,
            *args,
            deadline_s=self.deadline_s,
            retries=self.retries,
            sums="sums" in self.uses,
            statistics=self.selection.reports,
        )
        sampler.note(arrived)
        return arrived

    def invited(self, fed: Federation, t: int, message: Any, sampler: CohortSampler) -> Process:
        """Process whose value is the devices to invite in round t, in order."""
        return sampler.cohort(t, message)

    @property
    def events_depend_on_learning(self) -> bool:
        """Whether the rule decides by losses."""
        return self.selection.needs_losses

    def participants(self, count: int) -> int:
        """The largest number of devices, out of `count`, that the rule asks in a round."""
        return self.selection.most(cohort_size(self.cohort, count), count)

    @override
    def asking_rate(self, count: int) -> float | None:
        return self.selection.rate(min(cohort_size(self.cohort, count), count), count)

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        """A rule that cannot choose so many of the devices, or asks what they do not know, as (key, what)."""
        yield from super().conflicts(scenario)
        if problem := self.selection.problem(cohort_size(self.cohort, scenario.devices.count)):
            yield "selection", f"{problem}; choose others"
        if self.private_sgd is not None and self.selection.needs_losses:
            yield "selection", "devices tell losses, which private_sgd does not hide; choose another"
        if self.selection.polls and "polls" not in self.uses:
            yield (
                "selection",
                "asks devices for the loss of a model that is sent to all, which there is not; choose another",
            )

    def conflicts_with_sums(self) -> Iterator[tuple[str, str]]:
        """A rule that asks devices, or relies on single uploads, and answers to single devices, as (key, what)."""
        yield from super().conflicts_with_sums()
        if self.selection.single_uploads:
            yield "selection", f"{self.selection.kind} {self.selection.single_uploads}"
        if self.retries:
            yield "retries", f"no upload can be sent again by itself, got {self.retries}"
