"""A device as an algorithm sees it: a view on the arrays of the federation, created when needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from torch import Tensor

from fednet_emu.arrays import IntArray
from fednet_emu.devices.processors import Computation, Work
from fednet_emu.errors import AlgorithmError, did_you_mean
from fednet_emu.learning.graph.augment import Augmentation
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.models.losses import PerSampleLoss
from fednet_emu.records.ledger import device_label

Fed = Any
"""A `Federation`, whose file imports this one."""

Statistic = Literal["loss", "square", "samples"]
"""One number about a device's training, which it sends on request.

loss: the mean loss of its steps; square: the mean of the squared losses of all samples of all steps, each before its
step; samples: how many of its samples, each counted once, these were.
"""


class Terms(TypedDict, total=False):
    """Keywords of `Device.train` and `Device.training`, beside the model, the plan and the key.

    A step goes along scale * grad f(w) + linear + prox * (w - anchor) + l1 * sign(w), f being the mean loss of a batch.

    Attributes:
        subset: the device's samples to use, by their place among its own; all when None.
        data: what stands for `task.data`, row by row, for example with other labels.
        of: whose samples are used, such as the server's that are public.
        model: another model with the same parameters.
        difference: whether the result is the trained parameters minus w instead; neither of the two is then held.
            Running statistics, as of batch norm, are in it as they are after training.
        scale: factor of the gradient of the loss.
        linear: gradient of an added linear term, a value of one number for each parameter.
        drift: what each step adds after the optimizer, times -lr: neither momentum nor clipping acts on it.
        prox: factor of the proximal term.
        anchor: the model of the proximal term; w when None.
        l1: weight of the sum of the absolute values of the parameters.
        loss: function of outputs [B, ...] and targets [B, ...] that gives the loss [B] of each sample.
        augment: augmentation of the inputs of a batch.
        mask: factors [P] of the whole step, a tensor; 0 freezes a parameter. One object for all jobs that share it.
        targets: value of the targets [n, ...] that `loss` compares the outputs with, one for each of the samples.
        base: value of the weights under adapters.
    """

    subset: IntArray | None
    data: TrainData | None
    of: Device | None
    model: FlatModel | None
    difference: bool
    scale: float | Deferred
    linear: Deferred | None
    drift: Deferred | None
    prox: float | Deferred
    anchor: Deferred | None
    l1: float
    loss: PerSampleLoss | None
    augment: Augmentation | None
    mask: Tensor | None
    targets: Deferred | None
    base: Deferred | None


_KEYWORDS = frozenset(Terms.__annotations__)
_VALUES = frozenset({"linear", "drift", "anchor", "targets", "base"})


def check_training(w: Any, plan: Any, terms: Mapping[str, Any]) -> None:
    """Raise an `AlgorithmError` for arguments of `Device.train` that it does not take."""
    if type(w) is not Deferred:
        what = f"starts from a model, got {w!r}"
        raise AlgorithmError("k.train", what, "look at `lost` before using a payload, and give a value of `fed.defer`")
    if type(plan) is not SgdPlan:
        what = f"makes the steps of a plan, got {plan!r}"
        raise AlgorithmError("k.train", what, "give an SgdPlan after the model, then the key")
    for name, value in terms.items():
        if name not in _KEYWORDS:
            what = f"has no keyword {name}, got {name}={value!r}"
            hint = did_you_mean(name, _KEYWORDS).removeprefix("; ")
            raise AlgorithmError("k.train", what, hint or f"its keywords are {', '.join(sorted(_KEYWORDS))}")
        if name in _VALUES and value is not None and type(value) is not Deferred:
            what = f"{name} is a value that may be computed later, got {type(value).__name__}"
            raise AlgorithmError("k.train", what, "give what a verb returns, or fed.defer(function, ...)")


class Invitation(NamedTuple):
    """What a device knows of the exchange in which it takes part.

    Attributes:
        cohort: who takes part.
        ends_s: when the server stops waiting, in simulated s; None when all have answered.
        statistics: numbers about its training that a device sends with its reply.
    """

    cohort: Sequence[Device] = ()
    ends_s: float | None = None
    statistics: tuple[Statistic, ...] = ()


_ALONE = Invitation()


class Device:
    """One device, or the server (whose `index` is -1). Views on the same device are equal, so they serve as keys.

    Attributes:
        index: its number.
        invitation: the exchange in which it takes part.
        measured: the statistics of its latest training in that exchange, in the order in which they were asked for.
    """

    __slots__ = ("_federation", "index", "invitation", "measured")

    def __init__(self, federation: Fed, index: int, invitation: Invitation | None = None) -> None:
        self._federation = federation
        self.index = index
        self.invitation = invitation or _ALONE
        self.measured: tuple[Deferred | int, ...] = ()

    @property
    def name(self) -> str:
        """The name in logs and errors, for example `dev-3`."""
        return device_label(self.index)

    @property
    def n_samples(self) -> int:
        """Number of the device's own training samples."""
        count: int = self._federation.task.n_samples_of(self.index)
        return count

    @property
    def flop_per_s(self) -> float:
        """Computing speed in FLOP/s."""
        return float(self._federation.processors.flop_per_s(self.index))

    @property
    def expected_rate_bps(self) -> float:
        """Rate in bit/s of the device's uplink, alone in the band, at its present mean SNR, without future fading."""
        return float(self._federation.network.expected_uplink_bps(self.index))

    @property
    def expected_downlink_rate_bps(self) -> float:
        """Rate in bit/s of the server's downlink to this device, defined as for `expected_rate_bps`."""
        return float(self._federation.network.expected_downlink_bps(self.index))

    def train(self, w: Deferred, plan: SgdPlan, *key: Any, **terms: Unpack[Terms]) -> Computation:
        """Event of local training on the device's own samples; its value is a `Trained` (params, loss).

        The arguments are those of `training`: for example `yield k.train(w, plan, t)`.
        """
        work, fed = self.training(w, plan, *key, **terms), self._federation
        fed.asks()  # as `compute`, without its call
        computation: Computation = fed.processors.run(self.index, work)
        return computation

    def training(self, w: Deferred, plan: SgdPlan, *key: Any, **terms: Unpack[Terms]) -> Work:
        """Local training as work for `compute`.

        Args:
            w: the parameters to start from.
            plan: steps and batches.
            key: names the batches' random stream beside the device, for example the round.
            terms: whose samples, and further terms of the local objective, as `Terms` has them.

        Raises:
            AlgorithmError: an argument has another type, or there is no such keyword.
        """
        check_training(w, plan, terms)
        asked, fed, difference = self.invitation.statistics, self._federation, terms.pop("difference", False)
        squares = "square" in asked
        work: Work = fed.learner.train(self, w, plan, key, fed.round, squares=squares, **terms)
        if asked:
            subset = terms.get("subset")
            n = self.n_samples if subset is None else len(subset)
            seen = min(n, plan.n_samples_processed(n))
            self.measured = tuple(seen if name == "samples" else getattr(work.result, name) for name in asked)
        if not difference:
            return work
        moved = work.result.params - fed.without_statistics(w)
        return work._replace(result=moved, output=moved.number)

    def evaluate(self, models: Deferred | Sequence[Deferred]) -> Computation:
        """Event of a forward pass over all samples of the device; its value is an `Evaluated` (loss, accuracy).

        Of several models it is a list of them, and one computation. Nothing is drawn at random: there is no dropout.
        """
        return self.compute(self._federation.learner.evaluate(self, models))

    def loss(self, w: Deferred, *key: Any, batch_size: int | None = None) -> Computation:
        """Event of a forward pass over one batch, as in training; its value is the mean loss.

        Args:
            w: the model.
            key: names the batch's random stream beside the device, for example the round.
            batch_size: samples of the batch; None for all.
        """
        plan = SgdPlan(lr=0.0, batch_size=batch_size, steps=1)
        loss = self.training(w, plan, *key).result.loss
        flop = self._federation.task.model.forward_flop_per_sample * plan.batch_width(self.n_samples)
        return self.compute(Work(flop, loss, w.number, loss.number))

    def compute(self, work: Work) -> Computation:
        """Do some work as soon as the processor is free; the event's value is the work's result."""
        self._federation.asks()
        computation: Computation = self._federation.processors.run(self.index, work)
        return computation

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return self.index == other.index and self._federation is other._federation

    def __hash__(self) -> int:
        return self.index

    def __repr__(self) -> str:
        return self.name
