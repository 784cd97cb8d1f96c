"""Local training as a job: samples, initial parameters and steps, and the batches that result from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from torch import Tensor

from fednet_emu.arrays import IntArray
from fednet_emu.errors import AlgorithmError, ScenarioError
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.augment import Augmentation
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.optimizers import STACKED, Optimizer, Sgd
from fednet_emu.learning.graph.private_sgd import PrivateSgd
from fednet_emu.learning.graph.schedules import Constant, Schedule
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.models.losses import PerSampleLoss


@final
@dataclass(frozen=True, slots=True)
class SgdPlan:
    """Plan of stochastic gradient descent: step size, batches, their number, and the optimizer.

    With epochs, each epoch is a fresh permutation of the samples cut into batches, the last one smaller or
    dropped. With steps, the same sequence of batches is used for this number of steps. A batch that holds all samples
    is not shuffled.

    Attributes:
        lr: step size, not negative.
        batch_size: samples per batch; None takes all samples of the device.
        steps: number of steps; exactly one of steps and epochs is given.
        epochs: number of passes over the device's samples.
        drop_last: whether an incomplete batch at the end of an epoch is left out.
        optimizer: plain steps along the gradient, momentum or Adam; its state is reset for every job.
        schedule: factor of the step size in each round.
        clip_norm: longest gradient, all terms of the job included, that reaches the optimizer; None for no limit.
        private: limit and noise for the gradients of single samples (DP-SGD); None for neither.

    Raises:
        ScenarioError: a field is out of range, or not exactly one of steps and epochs is given.
    """

    lr: float
    batch_size: int | None = None
    steps: int | None = None
    epochs: int | None = None
    drop_last: bool = False
    optimizer: Optimizer = Sgd()  # noqa: RUF009  (frozen)
    schedule: Schedule = Constant()  # noqa: RUF009  (frozen)
    clip_norm: float | None = None
    private: PrivateSgd | None = None

    def __post_init__(self) -> None:
        problems = []
        if not (math.isfinite(self.lr) and self.lr >= 0):
            problems.append(f"sgd.lr: not a step size, got {self.lr}; give a finite number >= 0")
        if self.clip_norm is not None and not self.clip_norm > 0:
            problems.append(f"sgd.clip_norm: not a length, got {self.clip_norm}; give a number > 0 or None")
        if (self.steps is None) == (self.epochs is None):
            problems.append(
                f"sgd: length is ambiguous, got steps={self.steps} and epochs={self.epochs}; give one of them"
            )
        for name, value in (("batch_size", self.batch_size), ("steps", self.steps), ("epochs", self.epochs)):
            if value is not None and value < 1:
                problems.append(f"sgd.{name}: not a positive number, got {value}; give at least 1")
        if problems:
            raise ScenarioError(*problems)

    @property
    def is_plain(self) -> bool:
        """Whether a step is -lr times the gradient, and nothing else."""
        own = self.optimizer
        return type(own) is Sgd and not own.weight_decay and self.clip_norm is None and self.private is None

    def in_round(self, t: int) -> SgdPlan:
        """The plan of round t = 0, 1, ..., with the step size that the schedule has for it."""
        if type(self.schedule) is Constant:
            return self
        return replace(self, lr=self.lr * self.schedule.factor(t), schedule=Constant())

    def batch_width(self, n_samples: int) -> int:
        """Number of samples in a complete batch."""
        return n_samples if self.batch_size is None else min(self.batch_size, n_samples)

    def steps_per_epoch(self, n_samples: int) -> int:
        """Number of batches in a pass over `n_samples` samples."""
        width = self.batch_width(n_samples)
        return n_samples // width if self.drop_last else -(-n_samples // width)

    def n_steps(self, n_samples: int) -> int:
        """Number of gradient steps of a device with `n_samples` samples."""
        if self.steps is not None:
            return self.steps
        return (self.epochs or 0) * self.steps_per_epoch(n_samples)

    def batch_sizes(self, n_samples: int) -> list[int]:
        """Number of samples in the batch of each step."""
        width, per_epoch = self.batch_width(n_samples), self.steps_per_epoch(n_samples)
        last = min(n_samples - (per_epoch - 1) * width, width)
        return [width if (step + 1) % per_epoch else last for step in range(self.n_steps(n_samples))]

    def least_batch(self, n_samples: int) -> int:
        """Number of samples in the smallest batch of a device with `n_samples` samples."""
        width, per_epoch = self.batch_width(n_samples), self.steps_per_epoch(n_samples)
        reaches_the_last = self.n_steps(n_samples) >= per_epoch
        return n_samples - (per_epoch - 1) * width if reaches_the_last and not self.drop_last else width

    def n_samples_processed(self, n_samples: int) -> int:
        """Number of samples processed in all steps together, repetitions included."""
        if n_samples == 0:
            return 0
        if self.epochs is not None and not self.drop_last:
            return self.epochs * n_samples
        width = self.batch_width(n_samples)
        per_epoch = n_samples // width if self.drop_last else -(-n_samples // width)  # `steps_per_epoch`
        epochs, rest = divmod(self.n_steps(n_samples), per_epoch)
        return epochs * min(n_samples, per_epoch * width) + rest * width


@final
@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class TrainData:
    """Training samples of all devices, on the torch device that trains: x [N, ...] and y [N, ...]."""

    x: Tensor
    y: Tensor


@final
@dataclass(frozen=True, slots=True)
class Batches:
    """The rows of the data that each step of a job uses."""

    index: IntArray  # rows [steps, width]; an incomplete batch is padded with a row of the same device
    count: IntArray  # number of samples [steps] in each batch, without padding


@final
@dataclass(slots=True, eq=False)  # immutable, but not frozen: construction would take three times as long
class TrainJob:
    """One device's local training along scale * grad f(w) + linear + prox * (w - anchor) + l1 * sign(w) in every step.

    Here f is the mean loss over the batch of the step; with scale 1 and no other term a plain step of the plan is SGD,
    w <- w - lr * grad f(w). The step of the optimizer is followed by a step of -lr * drift. The result is a function of
    the fields and of the streams `streams(*rng_key)`, `streams(*rng_key, ...)` only, not of other jobs.

    Attributes:
        indices: rows of the data, an array or a slice; a slice is used in place, without a copy, for full batches.
        drift: vector [size] that every step adds after the optimizer, times -lr, or None; neither momentum nor clipping
            acts on it. With plain steps it is the same as `linear`.
        anchor: point [size] of the proximal term; None takes the parameters that the job starts from.
        mask: factors [size] of the whole step, zero where a parameter is frozen; None trains all. Jobs run
            together only if they share the same mask object.
        targets: targets for `loss` instead of the data's targets: values [n_samples, ...], one for each row of a slice;
            None for the data's targets.
        base: weights under adapters [base_size], used without a copy; None for the model's weights. Jobs run together
            only if they share the same value.
        flop: floating-point operations of all steps, as `FlatModel.flop_per_sample` counts them.
    """

    model: FlatModel  # the model and its loss
    data: TrainData  # the samples, of which `indices` are the device's own
    indices: IntArray | slice
    params: Deferred  # the parameters to start from
    plan: SgdPlan  # steps and batches
    streams: Streams  # the randomness of the run
    rng_key: tuple[Any, ...]  # name of the random stream of this job, such as ("batch", "dev-3", 12)
    label: str  # names the job in messages, such as "dev-3, round 12"
    scale: float | Deferred = 1.0  # factor of the loss gradient
    linear: Deferred | None = None  # gradient [size] of an added linear term, or None
    drift: Deferred | None = None
    prox: float | Deferred = 0.0  # factor of the proximal term towards the anchor
    anchor: Deferred | None = None
    l1: float = 0.0  # weight of the sum of the absolute values of all trainable parameters
    loss: PerSampleLoss | None = None  # loss per sample; None takes the model's own loss
    augment: Augmentation | None = None  # augmentation of the inputs of a batch; None for none
    mask: Tensor | None = None
    squares: bool = False  # whether the mean square of the samples' losses is also requested
    targets: Deferred | None = None
    base: Deferred | None = None

    n_samples: int = field(init=False)  # number of samples the device trains on
    first_row: int = field(init=False)  # the first of these rows of the data
    flop: float = field(init=False)

    def __post_init__(self) -> None:
        own = self.indices
        rows = range(*own.indices(self.data.y.shape[0])) if isinstance(own, slice) else own
        if len(rows) == 0:
            raise ScenarioError(
                f"{self.label}: nothing to train on, got 0 samples; give the device data or leave it out"
            )
        self.n_samples, self.first_row = len(rows), int(rows[0])
        self.flop = self.model.flop_per_sample * self.plan.n_samples_processed(self.n_samples)

    def noise_source(self) -> np.random.Generator:
        return self.streams(*self.rng_key, "dp")

    @property
    def is_full_batch(self) -> bool:
        """Whether every step uses all samples, so that no batches are drawn."""
        return self.plan.batch_width(self.n_samples) == self.n_samples

    @property
    def batchable(self) -> bool:
        """Whether the job may share a vectorised call: its model and optimizer may, and it minimises its own loss."""
        own = not self.l1 and self.loss is None and self.augment is None and self.targets is None
        return own and type(self.plan.optimizer) in STACKED and self.model.batchable

    def inputs(self) -> list[Deferred]:
        """The Deferreds that must be known before the job can run."""
        own = (self.params, self.scale, self.linear, self.drift, self.prox, self.anchor, self.targets, self.base)
        return [x for x in own if type(x) is Deferred]

    def resolve(self) -> ResolvedJob:
        """The job together with the values of its inputs, which are known by now."""
        params = self.params.value
        if params.numel() != self.model.size:
            what = f"starts from {params.numel()} numbers, got a model of {self.model.size} parameters"
            raise AlgorithmError(f"training ({self.label})", what, "return a model of its shape", line="")
        prox = float(self.prox.value if isinstance(self.prox, Deferred) else self.prox)
        return ResolvedJob(
            job=self,
            params=params,
            scale=float(self.scale.value if isinstance(self.scale, Deferred) else self.scale),
            linear=None if self.linear is None else self.linear.value,
            drift=None if self.drift is None else self.drift.value,
            prox=prox,
            anchor=(self.params if self.anchor is None else self.anchor).value if prox else None,
            targets=None if self.targets is None else self.targets.value,
            base=None if self.base is None else self.base.value,
        )

    def rows(self) -> IntArray:
        """Rows [n_samples] of the data that belong to the device."""
        if isinstance(self.indices, slice):
            return np.arange(*self.indices.indices(self.data.y.shape[0]), dtype=np.int64)
        return np.asarray(self.indices, dtype=np.int64)

    def batches(self, rng: np.random.Generator | None = None) -> Batches:
        """The batches of all steps, by the generator `streams(*rng_key)`, which is made here when `rng` is None.

        A full-batch job repeats its rows, so engines use `rows` for it instead.
        """
        rows, plan, n_samples = self.rows(), self.plan, self.n_samples
        steps, width = plan.n_steps(n_samples), plan.batch_width(n_samples)
        if width == n_samples:
            return Batches(np.broadcast_to(rows, (steps, width)), np.full(steps, width))
        rng = self.streams(*self.rng_key) if rng is None else rng
        per_epoch = plan.steps_per_epoch(n_samples)
        used = min(n_samples, per_epoch * width)
        if steps <= used // width:  # all batches are complete, and one permutation is enough
            return Batches(rng.permutation(rows)[: steps * width].reshape(steps, width), np.full(steps, width))
        order = np.full((-(-steps // per_epoch), per_epoch * width), rows[0])
        for epoch in order:
            epoch[:used] = rng.permutation(rows)[:used]
        count = np.full(steps, width)
        count[per_epoch - 1 :: per_epoch] = used - (per_epoch - 1) * width
        return Batches(order.reshape(-1, width)[:steps], count)


@final
@dataclass(slots=True, eq=False)  # as the job
class ResolvedJob:
    """A job whose inputs are known, as an engine runs it. `anchor` is None unless there is a proximal term."""

    job: TrainJob
    params: Tensor
    scale: float
    linear: Tensor | None
    drift: Tensor | None
    prox: float
    anchor: Tensor | None
    targets: Tensor | None = None
    base: Tensor | None = None

    @property
    def is_plain(self) -> bool:
        """Whether a step is -lr times the gradient of the loss, and nothing else."""
        job = self.job
        added = [self.linear, self.drift, self.anchor]
        terms = self.scale != 1.0 or any(term is not None for term in added) or job.l1
        return not terms and job.mask is None and job.plan.is_plain
