"""Aggregation of the updates of a round: the mean, or a rule that is robust to a few bad updates.

Median and trimmed mean: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018, https://proceedings.mlr.press/v80/yin18a.html. Krum and Multi-Krum: Blanchard, El Mhamdi,
Guerraoui, Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017,
https://papers.nips.cc/paper/6617-machine-learning-with-adversaries-byzantine-tolerant-gradient-descent.

Differences from the papers: the rules aggregate the changes of the model in a round, whereas the papers aggregate
gradients. As messages are lost and devices are late, the number n of updates changes from round to round; in a round
with fewer updates than a rule needs, the model does not change. As in the papers, only the mean weights updates by the
number of samples, because a malicious device could report a false number. Running statistics (batch norm) are
aggregated by the same rule as parameters: robust rules keep an entry within the range of the received values, whereas a
single bad update could move a mean anywhere.
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
    """A rule that aggregates the updates of a round into one update."""

    needs_singles: ClassVar[bool] = True
    """Whether the rule needs each single update; if false, the mean of the models that arrive is sufficient."""
    reveals_statistics: ClassVar[bool] = False
    """Whether the rule guarantees differential privacy, which is lost if devices send running statistics (batch norm).
    """
    least: ClassVar[int] = 1
    """Minimum number of updates that the rule can aggregate."""

    def sent_along(self, fed: Federation) -> tuple[Deferred, ...]:
        return ()

    def reply(self, fed: Federation, k: Device, w: Deferred, params: Deferred, *told: Deferred) -> Any:
        """Return the upload of device `k` after training from `w` to `params`; a rule may clip it and add noise."""
        return params

    @property
    def protected(self) -> Callable[..., Any] | None:
        """The function that computes the reply of a `LocalStep`; None if devices send the plain trained parameters."""
        if type(self).reply is Aggregation.reply:
            return None
        return lambda fed, k, params, w, *more: self.reply(fed, k, w, params, *more[:-1])  # last in `more`: the round

    def of(self, fed: Federation, arrived: Arrived, weights: Sequence[float], rate: float | None) -> Deferred:
        """Return the aggregated update, by which the server changes the model that it sent.

        `arrived` has at least `least` replies, whose models are removed from memory, and `weights` a weight for each.
        `rate` is the probability of inviting each device, or None if devices are not invited independently.
        """
        return fed.defer(self.update, arrived.model, arrived.models)

    def privacy(self, rounds: int, rate: float | None) -> Privacy | None:
        """Return the privacy guarantee after `rounds` rounds with the invitation probability `rate`, or None."""
        return None

    @abstractmethod
    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        """Return the update [P] of `w` [P], from at least `least` models [P]; it is zero if all models equal `w`."""


class Mean(Aggregation):
    """The mean of the updates, with the weights of the algorithm; a single bad update can move the mean anywhere."""

    needs_singles = False

    def of(self, fed: Federation, arrived: Arrived, weights: Sequence[float], rate: float | None) -> Deferred:
        return fed.accumulate(arrived.mean, arrived.models, arrived.model, weights)

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        return _updates(w, models).mean(0)


class Median(Aggregation):
    """The median of each parameter; for an even number of updates, the mean of the two middle values."""

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        ordered, n = _updates(w, models).sort(0).values, len(models)
        return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


class TrimmedMean(Aggregation):
    """The mean of each parameter after its largest and its smallest values are left out."""

    share: float | None = Field(None, ge=0, lt=0.5)
    """Share of the updates that is left out at each end, rounded down to a whole number of updates; give this or
    `count`. If both are null, the share is 0.1."""
    count: int | None = Field(None, ge=0)
    """Number of updates that are left out at each end; give this or `share`."""

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
    """A rule that selects updates by their distances to other updates; the paper's guarantee needs 2 f + 3 updates."""

    byzantine: int = Field(1, ge=0)
    """Number of devices that may send arbitrary updates (f). The score of an update is the sum of its squared distances
    to the nearest n - f - 2 of the n updates. In a round with fewer than 2 f + 3 updates the model does not change."""

    @property
    def least(self) -> int:  # type: ignore[override]
        return 2 * self.byzantine + 3

    def best(self, updates: Tensor, count: int) -> Tensor:
        """Return the `count` updates [count, P] with the lowest scores; of equal scores, the earlier comes first."""
        return updates[krum_scores(updates, self.byzantine).sort(stable=True).indices[:count]]


class Krum(DistanceBased):
    """The single update with the smallest sum of squared distances to its nearest neighbours."""

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        return self.best(_updates(w, models), 1)[0]


class MultiKrum(DistanceBased):
    """The mean of the m updates with the smallest sums of squared distances to their nearest neighbours."""

    m: int | None = Field(None, gt=0)
    """Number of updates in the mean (m); if fewer updates arrive, all of them are averaged. Null averages n - f of n
    updates, where f is `byzantine`."""

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        m = len(models) - self.byzantine if self.m is None else self.m
        return self.best(_updates(w, models), m).mean(0)


def krum_scores(updates: Tensor, byzantine: int) -> Tensor:
    """Return the sum [n] of squared distances from each of `updates` [n, P] to its n - `byzantine` - 2 neighbours."""
    distances = torch.stack([(updates - one).square().sum(1, dtype=torch.float64) for one in updates])
    distances.fill_diagonal_(-1.0)  # the distance to the update itself sorts first, and is left out
    return distances.sort(1).values[:, 1 : len(updates) - byzantine - 1].sum(1)


def _updates(w: Tensor, models: Sequence[Tensor]) -> Tensor:
    return torch.stack([w_k - w for w_k in models])
