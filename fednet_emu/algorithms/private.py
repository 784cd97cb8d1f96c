"""Aggregation with differential privacy: the server adds noise to a sum, or every device adds noise to its update.

Central: McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018,
https://arxiv.org/abs/1710.06963; clipping at a quantile of the update norms: Andrew, Thakkar, McMahan, Ramaswamy,
"Differentially Private Learning with Adaptive Clipping", NeurIPS 2021, https://arxiv.org/abs/1905.03871, Algorithm 1.

Symbols: S is `clip_norm`, z `noise_multiplier`, gamma `quantile`, eta_C `lr`, sigma_b `count_noise`, b_k the indicator
that a device sends, and q N the mean number of invited devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms import privacy_loss
from fednet_emu.algorithms.accountant import Accountant, Privacy, epsilon
from fednet_emu.algorithms.aggregation import Aggregation
from fednet_emu.component.component import Component
from fednet_emu.compression import NoCompression
from fednet_emu.federation import Accumulation, Arrived, Deferred, Device, Federation, MeanOf, Streams

COUNT_NOISE = 20
"""Mean number of invited devices divided by the default standard deviation of the noise on the count."""


class _Private(Aggregation):
    """Base class of the aggregation rules with differential privacy: clipped updates with Gaussian noise."""

    needs_singles = False
    reveals_statistics = True
    clip_norm: float = Field(gt=0)
    """Maximum Euclidean norm S of an update; an update with a larger norm is scaled down to this norm."""
    noise_multiplier: float = Field(ge=0)
    """Standard deviation of the noise divided by `clip_norm` (z); `fe.noise_multiplier_for` computes it for a given
    epsilon."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """Probability of a privacy loss above epsilon (delta); should be well below 1 / (number of devices)."""

    def update(self, w: Tensor, models: Sequence[Tensor]) -> Tensor:
        return torch.stack([clipped(w_k, w, self.clip_norm) - w for w_k in models]).mean(0)

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        algorithm = scenario.algorithm
        if algorithm.selection.needs_losses:
            what = f"devices report losses without noise, got selection: {algorithm.selection.kind}"
            yield "", f"{what}; choose another"
        if getattr(algorithm, "adaptive", False):
            yield "", "devices report losses without noise, got adaptive: true; leave that out"


class LocalPrivacy(_Private):
    """Local privacy: each device clips its update and adds the noise itself, so that it need not trust the server.

    The noise of the mean of n updates then has n times the variance of noise added by a server. Epsilon compares a
    device that sends an update in every round with a device that sends no updates; random sampling of devices does not
    lower epsilon, because the server knows the sender of each update. All updates have the weight 1. Post-processing of
    an update (compression, a sum over the air) does not increase epsilon.
    """

    kind = "local-dp"

    def reply(self, fed: Federation, k: Device, w: Deferred, params: Deferred, *told: Deferred) -> Any:
        name = ("dp", k.index, fed.round)
        return fed.defer(noised, params, w, self.clip_norm, self.noise_multiplier, fed.streams, name)

    def of(self, fed: Federation, arrived: Arrived, weights: Sequence[float], rate: float | None) -> Deferred:
        return fed.accumulate(arrived.mean, arrived.models, arrived.model, [1.0] * len(arrived))

    def privacy(self, rounds: int, rate: float | None) -> Privacy:
        return Privacy(epsilon(self.noise_multiplier, delta=self.delta, rounds=rounds), self.delta)


class AdaptiveClipping(Component):
    """A clipping norm that follows a quantile of the norms of the updates."""

    quantile: float = Field(0.5, gt=0, lt=1)
    """Share of the updates whose norm should be below the clipping norm (gamma)."""
    lr: float = Field(0.2, gt=0)
    """Step size eta_C: in each round the clipping norm is multiplied by exp(eta_C (`quantile` - share of updates below
    it))."""
    count_noise: float | None = Field(None, gt=0)
    """Standard deviation sigma_b of the noise on the number of updates below the clipping norm; null is 1/20 of the
    mean number of invited devices, as in the paper."""

    def noise(self, asked: float) -> float:
        return asked / COUNT_NOISE if self.count_noise is None else self.count_noise

    def moved(self, limit: float, within: Sequence[float], asked: float, streams: Streams, name: Any) -> float:
        """Return the clipping norm of the next round, after a round with the clipping norm `limit`.

        `within` contains 1 for each update with a norm of at most `limit`, else 0. `asked` is the mean number of
        invited devices. The number of updates within the norm is noisy; the noise is from the random stream `name`.
        """
        drawn = float(streams(*name, "count").standard_normal())
        share = (sum(within) + self.noise(asked) * drawn) / asked
        return limit * math.exp(-self.lr * (share - self.quantile))


class CentralPrivacy(_Private):
    """DP-FedAvg: the sum of clipped updates, plus Gaussian noise, divided by the mean number of invited devices.

    McMahan, Ramage, Talwar, Zhang, ICLR 2018. Each device scales its whole update down to a norm of at most
    `clip_norm`; all updates have the weight 1. Devices must be invited independently of each other: `selection:
    poisson`, or `all`. Noise is added even in a round without invitations or replies. `fednet check` gives the privacy
    loss of `stop.rounds` rounds; `epsilon` in the summary and in the series `privacy` is the loss so far. If devices
    can be absent, epsilon is computed without privacy amplification by sampling, because participation then depends on
    more than random sampling.
    """

    kind = "dp"
    least = 0  # noise is added even in a round without updates

    accountant: Accountant = "rdp"
    """How epsilon is computed if devices are sampled. rdp: by Renyi divergences, which is fast; pld: by privacy loss
    distributions, which gives a smaller epsilon, but takes tenths of a second per round."""
    adaptive: AdaptiveClipping | None = None
    """Adaptive clipping: how the clipping norm follows the update norms, starting at `clip_norm`. The server sends the
    clipping norm with the model, and each device sends with its update whether the norm of the update was at most the
    clipping norm: one scalar in each direction. The server adds noise to the sum of the updates and to the number of
    updates within the norm; `noise_multiplier` is the noise of both together, so epsilon does not change. Null keeps
    the clipping norm constant."""

    @property
    def needs_singles(self) -> bool:  # type: ignore[override]
        return self.adaptive is not None  # sums of models do not contain the count

    def sum_noise(self, asked: float) -> float:
        """Return the standard deviation of the noise on the sum of updates, divided by the clipping norm (z_Delta).

        With adaptive clipping, the value is above `noise_multiplier`, so that the sum and the count together have the
        privacy guarantee of `noise_multiplier`.
        """
        z = self.noise_multiplier
        if self.adaptive is None or z == 0:
            return z
        return 1 / math.sqrt(1 / z**2 - 1 / (2 * self.adaptive.noise(asked)) ** 2)

    def sent_along(self, fed: Federation) -> tuple[Deferred, ...]:
        if self.adaptive is None:
            return ()
        if "clip_norm" not in fed.memory:
            fed.memory["clip_norm"] = fed.defer(float, self.clip_norm, size=1)
        return (fed.memory["clip_norm"],)

    def reply(self, fed: Federation, k: Device, w: Deferred, params: Deferred, *told: Deferred) -> Any:
        sent = fed.defer(clipped, params, w, told[0] if told else self.clip_norm)
        return (sent, fed.defer(is_within, params, w, told[0], size=1)) if told else sent

    def of(self, fed: Federation, arrived: Arrived, weights: Sequence[float], rate: float | None) -> Deferred:
        assert rate is not None
        asked, n, name = rate * fed.n_devices, len(arrived), ("dp", fed.round)
        limit: float | Deferred = self.clip_norm
        norm = self.clip_norm
        found = {"epsilon": self.privacy(fed.round + 1, rate if fed.presence.always else None).epsilon}
        if self.adaptive is not None:
            (told,), within = self.sent_along(fed), arrived.part(1)
            limit = told
            fed.memory["clip_norm"] = fed.defer(self.adaptive.moved, limit, within, asked, fed.streams, name, size=1)
            known = n and not fed.timing_only
            found["within_share"] = fed.read(fed.defer(fmean, within, size=1)) if known else math.nan
            norm = math.nan if fed.timing_only else fed.read(told)
        fed.record("privacy", **found, clip_norm=norm, noise_std=self.sum_noise(asked) * norm / asked)
        return fed.accumulate(
            self.noisy, arrived.models, arrived.model, n, arrived.mean, asked, limit, fed.streams, name
        )

    def noisy(
        self, w: Tensor, n: int, mean: MeanOf, asked: float, limit: float, streams: Streams, name: Any
    ) -> Accumulation:
        """Return the sum of `n` clipped updates plus noise, divided by `asked`, the mean number of invited devices."""
        update = yield from mean(w, [1.0] * n)
        noise = torch.from_numpy(streams(*name).standard_normal(w.numel())).to(w)
        return update * (n / asked) + noise * (self.sum_noise(asked) * limit / asked)

    def privacy(self, rounds: int, rate: float | None) -> Privacy:
        q = 1.0 if rate is None else rate
        found = epsilon(self.noise_multiplier, delta=self.delta, rounds=rounds, rate=q, accountant=self.accountant)
        return Privacy(found, self.delta)

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(scenario)
        algorithm, uplink, count = scenario.algorithm, scenario.network.uplink, scenario.devices.count
        rate = algorithm.asking_rate(count)
        if rate is None:
            what = f"needs independently invited devices, got selection: {algorithm.selection.kind}"
            yield "", f"{what}; choose poisson or all"
        if rate == 1 and self.accountant == "pld":
            yield "accountant", "epsilon is exact if all devices are invited, got pld; leave it out"
        elif self.accountant == "pld" and self.delta < privacy_loss.LEAST_DELTA:
            what = f"rounding hides probabilities below {privacy_loss.LEAST_DELTA:g}, got delta {self.delta:g}"
            yield "accountant", f"{what}; leave it out"
        most = math.inf if rate is None or self.adaptive is None else 2 * self.adaptive.noise(rate * count)
        if self.noise_multiplier >= most:
            what = f"is all spent on the count of updates, got {self.noise_multiplier:g}"
            yield (
                "noise_multiplier",
                f"{what}; must be below 2 count_noise, {most:g}, so give a larger cohort or count_noise",
            )
        if type(uplink.compression) is not NoCompression:
            what = f"compression changes the norms that bound the privacy loss, got {uplink.compression.kind}"
            yield "", f"{what}; leave network.uplink.compression out"
        if uplink.access.only_sums:
            yield (
                "",
                f"signals over the air arrive with gains that change the norms, got {uplink.access.kind}; choose ofdma",
            )


def clipped(params: Tensor, w: Tensor, limit: float) -> Tensor:
    """Return `params` [P], with the update from `w` [P] scaled down as a whole if its norm exceeds `limit`."""
    norm = float((params - w).norm(dtype=torch.float64))
    return params if norm <= limit else w + (params - w) * (limit / norm)


def is_within(params: Tensor, w: Tensor, limit: float) -> float:
    """Return 1 if the norm of the update from `w` [P] to `params` [P] is at most `limit`, else 0 (b_k in the paper)."""
    return float((params - w).norm(dtype=torch.float64) <= limit)


def noised(params: Tensor, w: Tensor, limit: float, noise_multiplier: float, streams: Streams, name: Any) -> Tensor:
    """Return `params` [P] with the update from `w` [P] clipped to norm `limit`, plus Gaussian noise per parameter."""
    noise = torch.from_numpy(streams(*name).standard_normal(w.numel())).to(w)
    return clipped(params, w, limit) + noise * (noise_multiplier * limit)
