"""Aggregation of the updates of a round: a mean, or a rule that a few bad updates cannot steer.

Median and trimmed mean: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018, https://proceedings.mlr.press/v80/yin18a.html. Krum and Multi-Krum: Blanchard, El Mhamdi,
Guerraoui, Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017,
https://papers.nips.cc/paper/6617-machine-learning-with-adversaries-byzantine-tolerant-gradient-descent.

Differences from the papers: the rules aggregate the change of the model in a round, where the papers aggregate
gradients. As messages are lost and devices are late, the number n of updates changes from round to round; in a round
with fewer updates than a rule needs, the model stays. As in the papers, only the mean weights updates, because a device
reports its own number of samples. Running statistics, as of batch norm, are aggregated by the same rule as parameters:
each of these rules keeps an entry within the range of the received values, and one bad update could steer a mean.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.accountant import Privacy
from fednet_emu.component.component import Component
from fednet_emu.federation import Arrived, Deferred, Device, Federation


class Aggregation(Component):
    """A rule that aggregates the updates of a round into one."""

    needs_singles: ClassVar[bool] = True
    """Whether the rule needs more than the mean of the models that arrive."""
    reveals_statistics: ClassVar[bool] = False
    """Whether the rule promises privacy that the running statistics of a model would break."""
    least: ClassVar[int] = 1
    """Fewest updates that the rule can aggregate."""

    def sent_along(self, fed: Federation) -> tuple[Deferred, ...]:
        return ()

    def reply(self, fed: Federation, k: Device, w: Deferred, params: Deferred, *told: Deferred) -> Any:
        """The upload of device k after training from w to `params`: these, unless the rule protects them."""
        return params

    @property
    def protected(self) -> Callable[..., Any] | None:
        """The reply of a `LocalStep`, by `reply`; None where devices send their trained parameters."""
        if type(self).reply is Aggregation.reply:
            return None
        return lambda fed, k, params, w, *more: self.reply(fed, k, w, params, *more[:-1])  # `more` ends with the round

    def of(self, fed: Federation, arrived: Arrived, weights: Sequence[float], rate: float | None) -> Deferred:
        """The aggregated update of the model that was sent.

        `arrived` has `least` replies or more, whose models are given away, and `weights` the weight of each. `rate` is
        the probability with which each device was invited, if independently of all others, else None.
        """
        return fed.defer(self.update, arrived.model, arrived.models)

    def privacy(self, rounds: int, rate: float | None) -> Privacy | None:
        """Guarantee for a device invited to each of `rounds` rounds with probability `rate`; None for no bound."""
        return None

    @abstractmethod
    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        """The update [P] of w [P], given models [P], `least` or more; when all equal w, it is zero."""


class Mean(Aggregation):
    """The mean, with the weights of the algorithm; one bad update can move it anywhere."""

    needs_singles = False

    def of(self, fed: Federation, arrived: Arrived, weights: Sequence[float], rate: float | None) -> Deferred:
        return fed.accumulate(arrived.mean, arrived.models, arrived.model, weights)

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        return _updates(w, models).mean(0)


class Median(Aggregation):
    """The median of each parameter; of an even number of updates, the mean of the two in the middle."""

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        ordered, n = _updates(w, models).sort(0).values, len(models)
        return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


class TrimmedMean(Aggregation):
    """The mean of each parameter without its largest and its smallest values."""

    share: float | None = Field(None, ge=0, lt=0.5)
    """Share of the updates that is left out at either end, rounded down to a number; give this or `count`. Null with a
    null `count` is 0.1."""
    count: int | None = Field(None, ge=0)
    """Number of updates that are left out at either end; give this or `share`."""

    def _check(self) -> None:
        if self.share is not None and self.count is not None:
            raise ValueError(f"one of share and count is enough, got {self.share} and {self.count}; leave one out")

    @property
    def least(self) -> int:  # type: ignore[override]
        return 2 * (self.count or 0) + 1

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        n = len(models)
        share = 0.1 if self.share is None else self.share
        out = math.floor(share * n + 1e-9) if self.count is None else self.count  # 0.29 * 100 < 29
        return _updates(w, models).sort(0).values[out : n - out].mean(0)


class DistanceBased(Aggregation):
    """A rule that trusts updates by their distance to others; the paper's guarantee needs 2 f + 3 updates."""

    byzantine: int = Field(1, ge=0)
    """Number of devices that may send anything (f). An update is judged by its n - f - 2 nearest neighbours among n; in
    a round with fewer than 2 f + 3 updates the model stays."""

    @property
    def least(self) -> int:  # type: ignore[override]
        return 2 * self.byzantine + 3

    def best(self, updates: Tensor, count: int) -> Tensor:
        """The `count` updates [count, P] with the smallest scores; of equal scores the first."""
        return updates[krum_scores(updates, self.byzantine).sort(stable=True).indices[:count]]


class Krum(DistanceBased):
    """The one update that is closest to its nearest neighbours."""

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        return self.best(_updates(w, models), 1)[0]


class MultiKrum(DistanceBased):
    """The mean of the m updates that are closest to their nearest neighbours."""

    m: int | None = Field(None, gt=0)
    """Number of updates in the mean (m); all when fewer arrive. Null takes n - f of n."""

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        m = len(models) - self.byzantine if self.m is None else self.m
        return self.best(_updates(w, models), m).mean(0)


def krum_scores(updates: Tensor, byzantine: int) -> Tensor:
    """The sum of the squared distances of each update [n, P] to its n - byzantine - 2 nearest others, [n]."""
    distances = torch.stack([(updates - one).square().sum(1, dtype=torch.float64) for one in updates])
    distances.fill_diagonal_(-1.0)  # the update itself sorts first, and is left out
    return distances.sort(1).values[:, 1 : len(updates) - byzantine - 1].sum(1)


def _updates(w: Tensor, models: Sequence[Tensor]) -> Tensor:
    return torch.stack([w_k - w for w_k in models])
