"""Training jobs, which describe the local training of a device, and the plan of the steps and batches."""

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
from fednet_emu.learning.graph.dp_sgd import PrivateSgd
from fednet_emu.learning.graph.optimizers import STACKED, Optimizer, Sgd
from fednet_emu.learning.graph.schedules import Constant, Schedule
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.models.losses import PerSampleLoss


@final
@dataclass(frozen=True, slots=True)
class SgdPlan:
    """Plan of a device's stochastic gradient descent: step size, batches, number of steps, and optimizer.

    In each epoch, a new random permutation of the samples is cut into batches. The last batch of an epoch may be
    incomplete; if `drop_last` is True, it is then left out. If `steps` is given, batches are drawn in the same way
    until this number of steps is reached. If a batch contains all samples, they are not shuffled.

    Attributes:
        lr: step size, not negative.
        batch_size: number of samples per batch; None uses all samples of the device.
        steps: number of steps; exactly one of `steps` and `epochs` is given.
        epochs: number of passes over the device's samples.
        drop_last: whether an incomplete batch at the end of an epoch is left out.
        optimizer: rule that turns gradients into steps. Its state is reset for every job.
        schedule: factor by which the step size is multiplied in each round.
        clip_norm: maximum Euclidean norm of the gradient that the optimizer receives, which includes all terms of the
            job. Longer gradients are scaled down. None means no limit.
        private: settings of DP-SGD, which limits the gradients of single samples and adds noise; None for no DP-SGD.

    Raises:
        ScenarioError: a field is out of range, or not exactly one of `steps` and `epochs` is given.
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
        """Whether each training step is exactly minus the step size times the gradient, as in plain SGD."""
        own = self.optimizer
        return type(own) is Sgd and not own.weight_decay and self.clip_norm is None and self.private is None

    def in_round(self, t: int) -> SgdPlan:
        """Return the plan for round t = 0, 1, ..., with the step size according to the schedule."""
        if type(self.schedule) is Constant:
            return self
        return replace(self, lr=self.lr * self.schedule.factor(t), schedule=Constant())

    def batch_width(self, n_samples: int) -> int:
        return n_samples if self.batch_size is None else min(self.batch_size, n_samples)

    def steps_per_epoch(self, n_samples: int) -> int:
        width = self.batch_width(n_samples)
        return n_samples // width if self.drop_last else -(-n_samples // width)

    def n_steps(self, n_samples: int) -> int:
        if self.steps is not None:
            return self.steps
        return (self.epochs or 0) * self.steps_per_epoch(n_samples)

    def batch_sizes(self, n_samples: int) -> list[int]:
        """Return the number of samples in the batch of each step."""
        width, per_epoch = self.batch_width(n_samples), self.steps_per_epoch(n_samples)
        last = min(n_samples - (per_epoch - 1) * width, width)
        return [width if (step + 1) % per_epoch else last for step in range(self.n_steps(n_samples))]

    def min_batch(self, n_samples: int) -> int:
        """Return the number of samples in the smallest batch that a device with `n_samples` samples uses."""
        width, per_epoch = self.batch_width(n_samples), self.steps_per_epoch(n_samples)
        reaches_the_last = self.n_steps(n_samples) >= per_epoch
        return n_samples - (per_epoch - 1) * width if reaches_the_last and not self.drop_last else width

    def n_samples_processed(self, n_samples: int) -> int:
        """Return the total number of samples processed in all steps, where a repeated sample counts each time."""
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
    """Training samples of all devices: N inputs `x` [N, ...] and their targets `y` [N, ...].

    The tensors are on the torch device that trains.
    """

    x: Tensor
    y: Tensor


@final
@dataclass(frozen=True, slots=True)
class Batches:
    """Row indices of the samples that each step of a training job uses."""

    index: IntArray  # rows [steps, width]; a row of the device pads incomplete batches
    count: IntArray  # [steps] number of samples in each batch, without padding


@final
@dataclass(slots=True, eq=False)  # immutable, but `frozen` would triple the construction time
class TrainJob:
    """Local training of one device, with optional terms that are added to the gradient of the loss.

    In every step, the optimizer receives scale * grad f(w) + linear + prox * (w - anchor) + l1 * sign(w), where f is
    the mean loss over the batch and w are the parameters. If the scale is 1 and there is no other term, a step of plain
    SGD is w <- w - lr * grad f(w), where lr is the step size. After the optimizer's step, -lr * drift is added. The
    result depends only on the fields and on the random streams whose names begin with `rng_key`, not on other jobs.

    Attributes:
        indices: the device's rows of the data, as an array or a slice. Full batches of a slice are not copied.
        drift: vector [size], or None. Each step adds -lr times this vector after the optimizer's step, so that neither
            momentum nor clipping affects it. For plain SGD steps, `drift` has the same effect as `linear`.
        anchor: parameters [size] to which the proximal term pulls; None uses those from which the job starts.
        mask: factors [size] by which the whole step is multiplied, zero for frozen parameters; None trains all
            parameters. Jobs are trained together only if they have the same mask object.
        targets: targets [n_samples, ...] for the function `loss`, one for each sample of the device; `indices` must
            then be a slice. None uses the targets in the data.
        base: frozen weights [base_size] of the layers with adapters, which are not copied; None uses those of the
            model. Jobs are trained together only if they have the same base.
        flop: number of floating-point operations of all steps, as `FlatModel.flop_per_sample` counts them.
    """

    model: FlatModel  # the model and its loss
    data: TrainData  # the samples of all devices
    indices: IntArray | slice
    params: Deferred  # initial parameters
    plan: SgdPlan  # steps, batches and optimizer
    streams: Streams  # random streams of the run
    rng_key: tuple[Any, ...]  # name of the random stream of this job, such as ("batch", "dev-3", 12)
    label: str  # name of the job in messages, such as "dev-3, round 12"
    scale: float | Deferred = 1.0  # factor of the loss gradient
    linear: Deferred | None = None  # gradient [size] of an added linear term, or None
    drift: Deferred | None = None
    prox: float | Deferred = 0.0  # factor of the proximal term towards the anchor
    anchor: Deferred | None = None
    l1: float = 0.0  # weight of the sum of the absolute values of all trainable parameters
    loss: PerSampleLoss | None = None  # loss per sample; None uses the loss of the model
    augment: Augmentation | None = None  # random change of a batch's inputs, or None
    mask: Tensor | None = None
    squares: bool = False  # whether the mean squared loss of the samples is requested
    targets: Deferred | None = None
    base: Deferred | None = None

    n_samples: int = field(init=False)  # number of the device's samples
    first_row: int = field(init=False)  # the first row of `indices`
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
        """Whether every step uses all samples of the device, so that no batches are drawn."""
        return self.plan.batch_width(self.n_samples) == self.n_samples

    @property
    def batchable(self) -> bool:
        """Whether the model, its loss and the optimizer let the job share a vectorised call with other jobs."""
        own = not self.l1 and self.loss is None and self.augment is None and self.targets is None
        return own and type(self.plan.optimizer) in STACKED and self.model.batchable

    def inputs(self) -> list[Deferred]:
        """Return the Deferreds whose values must be known before the job can run."""
        own = (self.params, self.scale, self.linear, self.drift, self.prox, self.anchor, self.targets, self.base)
        return [x for x in own if type(x) is Deferred]

    def resolve(self) -> ResolvedJob:
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
        """Return the rows [n_samples] of the data that belong to the device."""
        if isinstance(self.indices, slice):
            return np.arange(*self.indices.indices(self.data.y.shape[0]), dtype=np.int64)
        return np.asarray(self.indices, dtype=np.int64)

    def batches(self, rng: np.random.Generator | None = None) -> Batches:
        """Draw the batches of all steps from `rng`, or from the job's own random stream if `rng` is None.

        For full-batch jobs, engines use `rows` instead, because every batch consists of all rows.
        """
        rows, plan, n_samples = self.rows(), self.plan, self.n_samples
        steps, width = plan.n_steps(n_samples), plan.batch_width(n_samples)
        if width == n_samples:
            return Batches(np.broadcast_to(rows, (steps, width)), np.full(steps, width))
        rng = self.streams(*self.rng_key) if rng is None else rng
        per_epoch = plan.steps_per_epoch(n_samples)
        used = min(n_samples, per_epoch * width)
        if steps <= used // width:  # complete batches from a single permutation
            return Batches(rng.permutation(rows)[: steps * width].reshape(steps, width), np.full(steps, width))
        order = np.full((-(-steps // per_epoch), per_epoch * width), rows[0])
        for epoch in order:
            epoch[:used] = rng.permutation(rows)[:used]
        count = np.full(steps, width)
        count[per_epoch - 1 :: per_epoch] = used - (per_epoch - 1) * width
        return Batches(order.reshape(-1, width)[:steps], count)


@final
@dataclass(slots=True, eq=False)  # like `TrainJob`
class ResolvedJob:
    """A training job with the values of its deferred inputs; `anchor` is None without a proximal term."""

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
        """Whether each training step is exactly minus the step size times the gradient of the loss, as in plain SGD."""
        job = self.job
        added = [self.linear, self.drift, self.anchor]
        terms = self.scale != 1.0 or any(term is not None for term in added) or job.l1
        return not terms and job.mask is None and job.plan.is_plain
