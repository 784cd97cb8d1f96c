"""Aggregation: what the server makes of the updates of a round; a mean, or a rule that a few bad updates cannot steer.

Median and trimmed mean: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018, https://proceedings.mlr.press/v80/yin18a.html. Krum and Multi-Krum: Blanchard, El Mhamdi,
Guerraoui, Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017,
https://papers.nips.cc/paper/6617-machine-learning-with-adversaries-byzantine-tolerant-gradient-descent.

Differences from the papers: what is aggregated is the change of the model in a round, where they aggregate gradients.
As messages are lost and devices are late, the number n of updates changes from round to round; in a round with fewer
than a rule needs, the model stays. As in the papers, every update counts alike but in the mean: a number of samples
is what a device says of itself.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from typing_extensions import override

from fednet_emu.algorithms.accountant import Privacy, epsilon
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.compression import NoCompression
from fednet_emu.federation import Accumulation, Arrived, Deferred, Federation, Streams


class Aggregation(Component):
    """A rule that makes one update of those that arrive in a round."""

    @property
    def least(self) -> int:
        """Fewest updates that it can aggregate."""
        return 1

    def of(self, fed: Federation, arrived: Arrived, weights: Sequence[float], rate: float | None) -> Deferred:
        """The update of the model that was sent.

        Args:
            fed: the federation.
            arrived: what has arrived, `least` or more, which is given away.
            weights: the weight of each.
            rate: probability with which each device was asked, independently of all others; None if it was not so.
        """
        return fed.defer(self.update, arrived.model, arrived.models)

    def privacy(self, rounds: int, rate: float | None) -> Privacy | None:
        """What so many rounds reveal of a device that is asked in each with probability `rate`; None for no bound."""
        return None

    @abstractmethod
    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        """The update [P] of w [P], given models [P], `least` or more; when all equal w, it is zero."""


class Mean(Aggregation):
    """The mean, weighted as the algorithm says; one bad update can move it anywhere."""

    def of(self, fed: Federation, arrived: Arrived, weights: Sequence[float], rate: float | None) -> Deferred:
        """The weighted mean, to which the models are added one by one."""
        return fed.accumulate(arrived.mean, arrived.models, arrived.model, weights)

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        """The mean of all."""
        return _updates(w, models).mean(0)


class Median(Aggregation):
    """The median of each parameter; of an even number of updates, the mean of the two in the middle."""

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        """The coordinate-wise median."""
        ordered, n = _updates(w, models).sort(0).values, len(models)
        return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


class TrimmedMean(Aggregation):
    """The mean of each parameter without its largest and its smallest values."""

    share: float | None = Field(None, ge=0, lt=0.5)
    """Share of the updates that is left out at either end, rounded down to a number; give this or `count`. Null with a
    null `count` is 0.1."""
    count: int | None = Field(None, ge=0)
    """Number of updates that are left out at either end; give this or `share`."""

    @model_validator(mode="after")
    def _one_measure(self) -> Self:
        if self.share is not None and self.count is not None:
            raise ValueError(f"one of share and count is enough, got {self.share} and {self.count}; leave one out")
        return self

    @property
    def least(self) -> int:
        """One more than is left out."""
        return 2 * (self.count or 0) + 1

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        """The coordinate-wise trimmed mean."""
        n = len(models)
        share = 0.1 if self.share is None else self.share
        out = math.floor(share * n + 1e-9) if self.count is None else self.count  # 0.29 * 100 < 29
        return _updates(w, models).sort(0).values[out : n - out].mean(0)


class DistanceBased(Aggregation):
    """A rule that trusts updates by their distance to others."""

    byzantine: int = Field(1, ge=0)
    """Number of devices that may send anything (f). An update is judged by its n - f - 2 nearest neighbours among n; in
    a round with fewer than 2 f + 3 updates the model stays."""

    @property
    def least(self) -> int:
        """The 2 f + 3 updates for which the paper has a guarantee."""
        return 2 * self.byzantine + 3

    def best(self, updates: Tensor, count: int) -> Tensor:
        """The `count` updates [count, P] with the smallest scores; of equal scores the first."""
        return updates[krum_scores(updates, self.byzantine).sort(stable=True).indices[:count]]


class Krum(DistanceBased):
    """The one update that is closest to its nearest neighbours."""

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        """The update with the smallest score."""
        return self.best(_updates(w, models), 1)[0]


class MultiKrum(DistanceBased):
    """The mean of the m updates that are closest to their nearest neighbours."""

    m: int | None = Field(None, gt=0)
    """Number of updates in the mean (m); all when fewer arrive. Null takes n - f of n."""

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        """The mean of the updates with the m smallest scores."""
        m = len(models) - self.byzantine if self.m is None else self.m
        return self.best(_updates(w, models), m).mean(0)


class DifferentiallyPrivate(Aggregation):
    """DP-FedAvg: the sum of clipped updates and Gaussian noise, over the number of devices that are asked on average.

    McMahan, Ramage, Talwar, Zhang: "Learning Differentially Private Recurrent Language Models", ICLR 2018,
    https://arxiv.org/abs/1710.06963. Each device's update, as a whole, is scaled down to at most `clip_norm`; all weigh
    1. It needs devices that are asked independently of each other: `selection: poisson`, or `all`. A round in which
    nobody is asked, or nothing arrives, has its noise all the same. `fednet check` says what `stop.rounds` will have
    cost, `epsilon` in the summary what was spent. Where devices come and go, it is reckoned without the gain of
    sampling, as then not only the draw decides who takes part.
    """

    kind = "dp"

    clip_norm: float = Field(gt=0)
    """Largest Euclidean norm of an update (S); a longer one is scaled down."""
    noise_multiplier: float = Field(ge=0)
    """Standard deviation of the noise on the sum, over `clip_norm` (z); `fe.noise_for` finds it for an epsilon."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """Probability of a loss of privacy above epsilon; well below one over the number of devices."""

    @property
    def least(self) -> int:
        """None: noise is added in any case."""
        return 0

    @override
    def of(self, fed: Federation, arrived: Arrived, weights: Sequence[float], rate: float | None) -> Deferred:
        assert rate is not None
        asked, w, name = rate * fed.n_devices, arrived.model, ("dp", fed.round)
        if not arrived:
            return fed.defer(self._noise, w, asked, fed.streams, name)
        return fed.accumulate(self._sum, arrived.models, w, len(arrived), asked, fed.streams, name)

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        """The mean of the clipped updates, without noise."""
        return torch.stack([self._clipped(w_k - w) for w_k in models]).mean(0)

    def _clipped(self, update: Tensor) -> Tensor:
        norm = update.norm(dtype=torch.float64)
        return update * (self.clip_norm / torch.clamp(norm, min=self.clip_norm)).to(update)

    def _sum(self, w: Tensor, count: int, asked: float, streams: Streams, name: tuple[str, int]) -> Accumulation:
        total = torch.zeros_like(w)
        for _ in range(count):
            total += self._clipped((yield) - w)
        return total / asked + self._noise(w, asked, streams, name)

    def _noise(self, w: Tensor, asked: float, streams: Streams, name: tuple[str, int]) -> Tensor:
        noise = torch.from_numpy(streams(*name).standard_normal(w.numel())).to(w)
        return noise * (self.noise_multiplier * self.clip_norm / asked)

    @override
    def privacy(self, rounds: int, rate: float | None) -> Privacy:
        q = 1.0 if rate is None else rate
        return Privacy(epsilon(self.noise_multiplier, delta=self.delta, rounds=rounds, rate=q), self.delta)

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        algorithm, uplink = scenario.algorithm, scenario.network.uplink
        if algorithm.asking_rate(scenario.devices.count) is None:
            what = f"needs devices that are asked independently, got selection: {algorithm.selection.kind}"
            yield "", f"{what}; choose poisson or all"
        if type(uplink.compression) is not NoCompression:
            what = f"compressing changes the norms that bound what is revealed, got {uplink.compression.kind}"
            yield "", f"{what}; leave network.uplink.compression out"


def krum_scores(updates: Tensor, byzantine: int) -> Tensor:
    """The sum of the squared distances of each update [n, P] to its n - byzantine - 2 nearest others, [n]."""
    distances = torch.stack([(updates - one).square().sum(1, dtype=torch.float64) for one in updates])
    distances.fill_diagonal_(-1.0)  # itself comes first, and is left out
    return distances.sort(1).values[:, 1 : len(updates) - byzantine - 1].sum(1)


def _updates(w: Tensor, models: Sequence[Tensor]) -> Tensor:
    return torch.stack([w_k - w for w_k in models])


AGGREGATIONS: dict[str, type[Aggregation]] = kinds(DifferentiallyPrivate, Krum, Mean, Median, MultiKrum, TrimmedMean)
"""Every kind of aggregation that is built in."""

AnyAggregation = Annotated[Aggregation, Slot("aggregation", AGGREGATIONS)]
"""Type of a field that holds one aggregation."""
