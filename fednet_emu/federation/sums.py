"""Sums of uploads, formed by the server from single uploads or over the air from simultaneous uploads.

Over the air, device k sends s_k = p_k (x_k - w) / nu, where p_k is the weight of device k and w the model that all
devices started from. The scale nu is the maximum over senders of the root mean square of p_k (x_k - w), so that no
signal exceeds unit power. The server knows the senders and the weights, and computes

    mean update = nu / P (sum of a_k s_k + n / sqrt(eta)),     P = sum of p_k over the senders,

where eta is the received power of a unit signal, a_k is 1 for devices that know their channels, and n is noise of power
sigma^2 in every entry. The scale, the senders and the start of a burst are agreed over a control channel that costs no
time, bits or energy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from fednet_emu.errors import ScenarioError
from fednet_emu.federation.device import Device
from fednet_emu.federation.links import Links
from fednet_emu.kernel.all_of import AllOf, gather
from fednet_emu.kernel.clock import NS_PER_S, Clock, Process, to_ns
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.accumulation import Accumulation, of_means
from fednet_emu.network.air.transfer import Delivery, Transfer
from fednet_emu.network.over_the_air import Superposition, relative_error

MeanOf = Callable[[Tensor, Sequence[float]], Accumulation]
"""Function of w [P] and weights that receives models one by one, and returns the weighted mean [P] of (model - w)."""


@of_means
def mean_update(w: Tensor, weights: Sequence[float]) -> Accumulation:
    """Return the weighted mean [P] of the differences (model - `w` [P]); models are received one by one."""
    update, total = torch.zeros_like(w), sum(weights)
    for weight in weights:
        update.add_((yield) - w, alpha=weight / total)
    return update


def moved_by_sum(w: Tensor, weights: Sequence[float], factor: float = 1.0, statistics: int = 0) -> Accumulation:
    """Return `w` [n] plus `factor` times the weighted sum of vectors [n] that are received one by one.

    If there are no vectors, the result is `w`. For the last `statistics` entries (running statistics), the weighted
    mean is added instead of the scaled weighted sum.
    """
    total, n = torch.zeros_like(w), len(w) - statistics
    for weight, share in zip(weights, shares_of(weights), strict=True):
        part = yield
        total[:n].add_(part[:n], alpha=weight)
        total[n:].add_(part[n:], alpha=share)
        del part
    total[:n].mul_(factor)
    return w + total


def moved(w: Tensor, update: Tensor, factor: float, statistics: int = 0) -> Tensor:
    """Return `w` [n] plus `factor` times `update` [n]; for the last `statistics` entries, the factor is 1."""
    if statistics and factor != 1.0:
        n = len(w) - statistics
        return w + torch.cat([factor * update[:n], update[n:]])
    return w + factor * update


def without_statistics(w: Tensor, statistics: int) -> Tensor:
    """Return `w` [n] with zeros for the last `statistics` entries, which are running statistics."""
    return torch.cat([w[: len(w) - statistics], w.new_zeros(statistics)])


def shares_of(weights: Sequence[float]) -> list[float]:
    """Return non-negative weights divided by their sum; equal shares if all weights are 0."""
    total = sum(weights)
    return [weight / total if total > 0 else 1 / len(weights) for weight in weights]


@dataclass(frozen=True)
class NoisyMean:
    """Function that computes the noisy mean that the server receives in a burst of simultaneous uploads."""

    factors: Sequence[float]  # amplitude a_k of the signal of each sender k; 1 if the sender knows its channel
    snr: float  # signal-to-noise ratio eta / sigma^2, linear
    streams: Streams
    burst: int

    def __call__(self, w: Tensor, weights: Sequence[float]) -> Accumulation:
        """Return the weighted mean [P] of (model - `w`), with amplitude errors and noise; 0 if all models equal `w`."""
        update, total, scale = torch.zeros_like(w), sum(weights), w.new_zeros(())
        for weight, factor in zip(weights, self.factors, strict=True):
            own = (yield) - w
            scale = torch.maximum(scale, weight * own.square().mean().sqrt())
            update.add_(own, alpha=weight * factor / total)
            del own
        noise = self.streams("over-the-air", "noise", self.burst).standard_normal(w.numel(), np.float32)
        return update + scale / (total * math.sqrt(self.snr)) * torch.from_numpy(noise).to(w)


@final
class Sums:
    """Over-the-air sums: sends the uploads of all ready devices in one burst."""

    def __init__(
        self, clock: Clock, links: Links, air: Superposition, streams: Streams, record: Callable[..., None]
    ) -> None:
        self._clock, self._links, self._air = clock, links, air
        self._streams, self._record, self._bursts = streams, record, 0

    def of(self, size: int, pairs: Iterable[tuple[Device, Process]], deadline_s: float | None) -> Process:
        """Process that returns the deliveries of the uploads, and the function that computes their mean.

        Each upload has `size` entries. `pairs` has each device with the process that returns the device and its upload,
        or a lost `Delivery`. The burst starts when all devices are ready, or at the latest time at which it can still
        end by the deadline, `deadline_s` from now. A `ScenarioError` is raised if a burst takes `deadline_s` or longer.
        """
        burst_s = self._air.burst_s(size)
        patience_s = None if deadline_s is None else (to_ns(deadline_s) - to_ns(burst_s)) / NS_PER_S
        if patience_s is not None and patience_s <= 0:
            raise ScenarioError(
                f"algorithm.deadline_s: is over before a burst of {size} entries, which takes {burst_s:g} s, got "
                f"{deadline_s:g}; give more time, or more symbols per slot"
            )
        clients = (client for _, client in pairs)
        replies = yield gather(self._clock, clients, patience_s, lambda: Delivery.given_up(self._clock.now_s))
        ready = {place: reply for place, reply in enumerate(replies) if not isinstance(reply, Delivery)}
        if not ready:
            return replies, mean_update
        self._bursts += 1
        devices = np.array([device.index for device, _ in ready.values()])
        plan = self._air.sending(devices, self._clock.now, self._bursts)
        transfers: dict[int, Transfer] = {}
        for (place, (k, value)), silent, part in zip(ready.items(), plan.silent, plan.power_part.tolist(), strict=True):
            transfer = self._links.superposed(k.index, value, part)
            if silent:
                replies[place] = Delivery.given_up(self._clock.now_s)._replace(sender=k.index, lost=silent)
                transfer.cancel(replies[place])
            else:
                transfers[place] = transfer
        slots = self._clock.sleep(burst_s)  # the slots are reserved even without a sender
        ended = yield AllOf(self._clock, [*transfers.values(), slots])
        for place, reply in zip(transfers, ended, strict=False):
            replies[place] = reply
        factors = [factor for place, factor in zip(ready, plan.factor.tolist(), strict=True) if not replies[place].lost]
        error = relative_error(plan.snr, len(factors)) if factors else math.nan  # an empty burst has no SNR
        burst = {"snr": plan.snr if factors else math.nan, "relative_error": error}
        self._record("over_the_air", ready=len(ready), summed=len(factors), burst_s=burst_s, **burst)
        return replies, NoisyMean(factors, plan.snr, self._streams, self._bursts)
