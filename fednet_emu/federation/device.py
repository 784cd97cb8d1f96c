"""The device objects that algorithms use. A device is a view of the federation's arrays, created on demand."""

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
"""Placeholder for the type `Federation`, which is not imported here because its module imports this module."""

Statistic = Literal["loss", "square", "samples"]
"""Name of a training statistic that a device sends if its exchange requests it.

`loss` is the mean loss over the training steps. `square` is the mean of the squared losses of all samples in the
batches of all steps, each measured before its step. `samples` is the number of different samples used in all steps.
"""


class Terms(TypedDict, total=False):
    """Keyword arguments of `Device.train` and `Device.training`, which change the samples or the local objective.

    Training starts from the parameters w. At the current parameters v, the direction of a step is scale * grad f(v) +
    linear + prox * (v - anchor) + l1 * sign(v), where f is the mean loss of a batch.

    Attributes:
        subset: indices of the samples to use, within the device's local samples; None for all.
        data: replacement for `task.data` with the same rows, for example with other labels.
        of: device whose samples are used in place of the local samples, such as the server with public samples.
        model: another model with the same parameters, in place of `task.model`.
        difference: whether the result is the trained parameters minus w, so that neither vector is kept in memory. For
            running statistics, as in batch norm, the result has their values after training.
        scale: factor of the gradient of the loss.
        linear: gradient [P], a deferred value, of a linear term that is added to the objective.
        drift: vector [P]; each step adds -lr times this vector after the optimizer, without momentum or clipping.
        prox: factor of the gradient of the proximal term, which keeps the parameters near `anchor`.
        anchor: model from which the proximal term measures distances; None for w.
        l1: weight of the sum of the absolute values of the parameters.
        loss: function from outputs [B, ...] and targets [B, ...] to the loss [B] of each sample.
        augment: augmentation of the inputs of a batch.
        mask: factors [P] by which the whole step is multiplied; 0 freezes a parameter. Jobs with equal masks share one
            tensor object.
        targets: deferred targets [n, ...] for `loss`, one for each sample.
        base: deferred frozen weights to which adapters are added.
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
    """Check the arguments of `Device.train`; raise an `AlgorithmError` if an argument is invalid."""
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
            raise AlgorithmError("k.train", what, "give the result of an operation, or fed.defer(function, ...)")


class Invitation(NamedTuple):
    """Information about an exchange that its participating devices can read."""

    cohort: Sequence[Device] = ()  # all devices of the exchange
    ends_s: float | None = None  # simulated time in s at which the server stops waiting; None to wait for all replies
    statistics: tuple[Statistic, ...] = ()  # training statistics that a device sends with its reply


_ALONE = Invitation()


class Device:
    """View of one device, or of the server (`index` -1). Views of the same device are equal and have equal hashes.

    Attributes:
        index: index of the device.
        invitation: information about the exchange in which the device participates.
        measured: statistics of the device's latest training in the exchange, in the order of `Invitation.statistics`.
    """

    __slots__ = ("_federation", "index", "invitation", "measured")

    def __init__(self, federation: Fed, index: int, invitation: Invitation | None = None) -> None:
        self._federation = federation
        self.index = index
        self.invitation = invitation or _ALONE
        self.measured: tuple[Deferred | int, ...] = ()

    @property
    def name(self) -> str:
        """Name of the device in logs and errors, for example `dev-3`."""
        return device_label(self.index)

    @property
    def n_samples(self) -> int:
        """Number of local training samples of the device."""
        count: int = self._federation.task.n_samples_of(self.index)
        return count

    @property
    def flop_per_s(self) -> float:
        """Computing speed of the device in FLOP/s."""
        return float(self._federation.processors.flop_per_s(self.index))

    @property
    def expected_rate_bps(self) -> float:
        """Uplink rate in bit/s if the device is alone in the band, at its current mean SNR and without fading."""
        return float(self._federation.network.expected_uplink_bps(self.index))

    @property
    def expected_downlink_rate_bps(self) -> float:
        """Downlink rate in bit/s if the device is alone in the band, at its current mean SNR and without fading."""
        return float(self._federation.network.expected_downlink_bps(self.index))

    def train(self, w: Deferred, plan: SgdPlan, *key: Any, **terms: Unpack[Terms]) -> Computation:
        """Start local training on the device's samples, and return an event whose value is a `Trained` (params, loss).

        The arguments are those of `training`, for example `yield k.train(w, plan, t)`.
        """
        work, fed = self.training(w, plan, *key, **terms), self._federation
        fed.asks()  # `compute`, inlined
        computation: Computation = fed.processors.run(self.index, work)
        return computation

    def training(self, w: Deferred, plan: SgdPlan, *key: Any, **terms: Unpack[Terms]) -> Work:
        """Return local training on the device as a computation that has not started; `compute` starts it.

        Args:
            w: the parameters to start from.
            plan: steps and batches.
            key: name of the random stream from which the device draws its batches, for example the index of the round.
            terms: samples, and further terms of the local objective; see `Terms`.

        Raises:
            AlgorithmError: an argument has a wrong type, or a keyword does not exist.
        """
        check_training(w, plan, terms)
        asked, fed, difference = self.invitation.statistics, self._federation, terms.pop("difference", False)
        if fed.orders.steps is not None and self.index >= 0:
            own = terms.get("subset")
            plan = fed.orders.plan(plan, self.index, self.n_samples if own is None else len(own))
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
        """Start a forward pass over all local samples; the value of the event is an `Evaluated` (loss, accuracy).

        A sequence of models is evaluated in one computation, and the value of the event is a list of results. The
        forward pass has no dropout and is deterministic.
        """
        return self.compute(self._federation.learner.evaluate(self, models))

    def loss(self, w: Deferred, *key: Any, batch_size: int | None = None) -> Computation:
        """Start a forward pass over one batch, drawn as in training; the value of the event is the mean loss.

        Args:
            w: the model.
            key: name of the random stream from which the device draws the batch, for example the round.
            batch_size: number of samples in the batch; None for all samples.
        """
        plan = SgdPlan(lr=0.0, batch_size=batch_size, steps=1)
        loss = self.training(w, plan, *key).result.loss
        flop = self._federation.task.model.forward_flop_per_sample * plan.batch_width(self.n_samples)
        return self.compute(Work(flop, loss, w.number, loss.number))

    def compute(self, work: Work) -> Computation:
        """Start `work` as soon as the device's processor is free; the value of the event is the result of `work`."""
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
