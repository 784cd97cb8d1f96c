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
from fednet_emu.federation.payload import n_scalars

Invited = Annotated[
    CohortSize,
    Field(
        description="Devices invited per round: an int is their number, a float their share of all devices, 1.0 for "
        "all; fewer if fewer are present."
    ),
]
"""Type of a setting `cohort`."""
Deadline = Annotated[
    float | None,
    Field(
        gt=0,
        description="Longest time that the server waits for the devices of a round (simulated s); late devices are "
        "cancelled and left out of the round. Null waits for all devices.",
    ),
]
"""Type of a setting `deadline_s` of a round."""
Patience = Annotated[float, Field(gt=0)]
"""Type of a setting `patience_s`: how long a lost message is sent again before its device is given up (s)."""
RoundPatience = Annotated[
    Patience,
    Field(
        description="How long a lost message is sent again before the round continues without its device (simulated s)."
    ),
]
"""Type of a setting `patience_s` of an algorithm whose rounds wait for all devices."""
ROUND_S = 60.0
"""Default patience when all other devices wait: one minute."""
ALONE_S = 604_800.0
"""Default patience when the other devices continue and a device that is given up never returns: one week."""

_FLAGS = ("moves", "single_uploads", "plans_rounds", "at_edges")
_CHECKS = ("contradictions", "conflicts_with_losses")
FORMER = dict.fromkeys(_CHECKS, "conflicts(scenario)") | dict.fromkeys(_FLAGS, "uses = frozenset({...})")
"""Names that a class of version 0.1 may define, each with its replacement."""
EVENTS = 3
"""Transfers and computations of a device in a round: it receives, computes and sends."""
NO_SERVER_SPEED = Excludes(
    "server.flop_per_s", {None}, "computes on the server", "give server.flop_per_s", got="no speed of it", key="kind"
)
"""Rule of algorithms that compute on the server."""


class Algorithm(Component):
    """One paper's algorithm: its hyper-parameters are the fields, its pseudo-code is `run`."""

    uses: ClassVar[frozenset[str]] = frozenset()
    """The parts of a scenario that the algorithm can use; a scenario that gives another of these is refused.

    uplink-compression, downlink-compression: models in its exchanges (else it gives `since` with its uplinks), and
    `fed.published` for the models that it sends on the downlink; sums: replies whose mean suffices; plans: rounds whose
    uplink is planned once the participants are known; polls: requests for the loss of a model; consensus: the mean of
    the devices' own models; edges: edge servers and their backhaul; sidelink: transfers from device to device;
    server-samples, server-speed, validation-samples: these settings of `server`; steps: different numbers of local
    steps per device."""
    own_learning: ClassVar[bool] = False
    """Whether the algorithm brings its own data and model, so that a scenario gives none."""
    asynchronous: ClassVar[bool] = False
    """Whether the server steps whenever some updates have arrived, so that a round invites no cohort."""
    ships_no_base: ClassVar[str] = ""
    """Why the server cannot send all frozen weights to each device; empty where it can."""
    equal_weights: ClassVar[bool] = False
    """Whether all updates of a round weigh the same."""

    def conflicts_with_statistics(self) -> Iterable[tuple[str, str]]:
        """Settings that cannot be combined with running statistics, as of batch norm: (key, error)."""
        if getattr(self, "private_sgd", None) is not None:
            yield "private_sgd", "hides gradients, and statistics of the samples would be sent as they are"

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        for name in FORMER.keys() & vars(cls).keys():
            raise TypeError(f"{cls.__name__}.{name}: is not called any more, got a definition; write {FORMER[name]}")

    @abstractmethod
    def run(self, fed: Federation) -> Process:
        """The server's SimPy process; the algorithm is over when it returns."""

    @property
    def events_depend_on_learning(self) -> bool:
        """Whether learnt numbers can decide about messages, their receivers, or the length of the run.

        If so, a timing-only run, which trains nothing, is an approximation with nominal values.
        """
        return False

    def participants(self, count: int) -> int:
        """The largest number of devices, out of `count`, that take part in a round: the cohort, if there is one."""
        cohort = getattr(self, "cohort", None)
        return count if cohort is None else min(cohort_size(cohort, count), count)

    def answers(self, count: int) -> int:
        """The number of replies that end a round without losses, out of `count` devices: one of each participant."""
        return self.participants(count)

    def events(self, n_samples: int | None) -> int | None:
        """Approximate number of transfers and computations per round of a device with `n_samples`; None if unknown."""
        return EVENTS

    def asking_rate(self, count: int) -> float | None:
        """Probability with which each of `count` devices is invited to a round, if independently; None if not."""
        return None

    def privacy(self, rounds: int, count: int, *, always_there: bool) -> Privacy | None:
        """Guarantee for one of `count` devices after `rounds` rounds; None for no bound.

        Unless all devices are `always_there`, participation depends on more than a random draw.
        """
        return None

    def demands(self) -> Iterable[tuple[str, str, int]]:
        """Settings that need a minimum number of devices: (key, error with fewer, that minimum)."""
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
        """Settings that are invalid when the server receives only sums of uploads: (key, error)."""
        if "sums" not in self.uses:
            yield "kind", "its server reads single uploads"


class LocalTraining(Algorithm):
    """An algorithm whose devices make epochs or steps of SGD on their own samples."""

    _one_length = exactly_one("local_epochs", "local_steps", local_epochs=1)

    lr: float = Field(0.1, ge=0)
    """Step size of the devices."""
    batch_size: int | None = Field(20, gt=0)
    """Samples per gradient step; null takes all of the device's samples."""
    local_epochs: int | None = Field(None, gt=0)
    """Passes over the device's samples per round; 1 unless this or `local_steps` is given."""
    local_steps: int | None = Field(None, gt=0)
    """Gradient steps per round, instead of `local_epochs`."""
    local_optimizer: AnyOptimizer = Sgd()
    """Optimizer of the devices; its state is reset in every round."""
    lr_schedule: AnySchedule = Constant()
    """How the step size of the devices, `lr`, changes from round to round."""
    clip_norm: float | None = Field(None, gt=0)
    """Longest gradient of a step: a longer one is scaled down to this Euclidean norm. Null for no limit."""
    private_sgd: PrivateSgd | None = None
    """Limit and noise for the gradients of single samples, so that an uploaded model hides them: DP-SGD. The summary
    gives the privacy loss of a sample in a run, at most, as `sample_epsilon`. Null for neither."""
    sends_models: ClassVar[bool] = False
    """Whether devices send only models that their local steps have made."""
    plain_steps: ClassVar[bool] = False
    """Whether the algorithm's formulas hold only for plain steps of one size, so that it refuses any others."""

    def _check(self) -> None:
        plain = self.local_optimizer == Sgd() and type(self.lr_schedule) is Constant and self.clip_norm is None
        if self.plain_steps and not plain:
            raise ValueError(
                "the formulas of this algorithm hold for plain steps of one size, got "
                f"local_optimizer={self.local_optimizer!r}, lr_schedule={self.lr_schedule!r} and "
                f"clip_norm={self.clip_norm}; leave them out"
            )
        if self.private_sgd is not None and not self.sends_models:
            raise ValueError("devices send more than models, which private_sgd does not hide; leave it out")

    def sample_privacy(self, rounds: int, n_samples: Iterable[int]) -> dict[str, float]:
        """Largest epsilon of a sample after `rounds` rounds, and delta; `n_samples` of each device. Empty without DP.

        `sample_epsilon` counts one release of noise for each pass of a device over its samples.
        `sample_epsilon_as_poisson` takes each batch for a Poisson draw of its size, as is usual, though batches are
        shuffled.
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


class LocalSteps(Algorithm):
    """An algorithm whose devices make a fixed number of plain SGD steps in a round."""

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
    """An algorithm in rounds: in each one the server invites a cohort, which trains locally, and waits for it."""

    uses: ClassVar[frozenset[str]] = frozenset({"uplink-compression", "downlink-compression", "plans", "polls"})

    cohort: Invited = 0.5
    selection: AnySelection = Uniform()
    """How the devices of a round are selected."""
    deadline_s: Deadline = None
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
        """Invite a cohort in round t, and wait for it: the process's value is the replies, `Arrived`.

        Args:
            fed: the federation.
            t: the round, from 0.
            message: as for `Federation.exchange`. The devices receive the published version of a model, or of the first
                of several parts.
            client: process `client(fed, k, *parts, t, *args)` of a device.
            args: further arguments of `client`.
            down: scalars that a device receives, for estimates of times; by default the size of the message or model.
            up: scalars that a device sends; by default as many as it receives.
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
        """Process whose value is the devices to invite in round t, in order."""
        return sampler.cohort(t, message)

    @property
    def asks_selection(self) -> bool:
        return True

    @property
    def events_depend_on_learning(self) -> bool:
        return self.selection.needs_losses

    def participants(self, count: int) -> int:
        return self.selection.most(cohort_size(self.cohort, count), count)

    def asking_rate(self, count: int) -> float | None:
        return self.selection.rate(min(cohort_size(self.cohort, count), count), count)

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(scenario)
        if problem := self.selection.problem(cohort_size(self.cohort, scenario.devices.count)):
            yield "selection", f"{problem}; choose others"
        if self.private_sgd is not None and self.selection.needs_losses:
            yield "selection", "devices report losses, which private_sgd does not hide; choose another"
        if self.selection.polls and "polls" not in self.uses:
            what = "needs the loss of a common model, but each device has its own; choose another"
            yield "selection", what

    def conflicts_with_sums(self) -> Iterator[tuple[str, str]]:
        yield from super().conflicts_with_sums()
        if self.selection.single_uploads:
            yield "selection", f"{self.selection.kind} {self.selection.single_uploads}"
        if self.retries:
            yield "retries", f"a single upload cannot be repeated, got {self.retries}"
