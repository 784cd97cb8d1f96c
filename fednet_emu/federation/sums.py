"""Sums of uploads: each sent by itself and added up by the server, or all at once and added up by the air.

Over the air, device k sends s_k = p_k (x_k - w) / nu, where p_k is its weight and w the model that all started from.
The scale nu is the largest root mean square of p_k (x_k - w) among those that send, so that no signal has more than
unit power. The server, which knows who sends and the weights, reads

    mean movement = nu / P (sum of a_k s_k + n / sqrt(eta)),     P = sum of p_k over those that send,

with factors a_k = 1 for devices that know their channels, and noise n of power sigma^2 in every entry. The scale, who
sends, and the start of a burst are agreed on a control channel that costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
import torch
from simpy.events import Event
from torch import Tensor

from fednet_emu.errors import ScenarioError
from fednet_emu.federation.device import Device
from fednet_emu.federation.links import Links
from fednet_emu.federation.movements import Since
from fednet_emu.federation.retry import Limits, Retry
from fednet_emu.federation.rounds import Rounds
from fednet_emu.kernel.all_of import AllOf, gather
from fednet_emu.kernel.clock import NS_PER_S, Clock, Process, to_ns
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.accumulation import Accumulation, of_means
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.network.air.sums import Superposition
from fednet_emu.network.air.transfer import Delivery, Transfer
from fednet_emu.radio.receiver.over_the_air import relative_error
from fednet_emu.records.ledger import Ledger

MeanOf = Callable[[Tensor, Sequence[float]], Accumulation]
"""From w [P] and weights, the weighted mean [P] of the differences to w of the models that come one by one."""


class Upload(NamedTuple):
    """What a device has ready to send, as a process returns it to `Federation.uplink_sum`.

    Attributes:
        device: the device.
        payload: a model or a part of one; over the air, a deferred value.
        since: the model that it started from, as for `Federation.uplink`.
        attempts: how often it is sent at most, where it is sent by itself.
    """

    device: Device
    payload: Any
    since: Since = None
    attempts: int = 1


class Summed(NamedTuple):
    """The uploads of a round.

    Attributes:
        replies: a delivery for each client, in their order. Over the air, a payload is of use to `mean` only.
        mean: the mean of what has arrived, in that order, for `Federation.accumulate`.
    """

    replies: list[Delivery]
    mean: MeanOf


@of_means
def mean_update(w: Tensor, weights: Sequence[float]) -> Accumulation:
    """The weighted mean of the differences to w [P] of the models that come one by one."""
    update, total = torch.zeros_like(w), sum(weights)
    for weight in weights:
        update.add_((yield) - w, alpha=weight / total)
    return update


@dataclass(frozen=True)
class NoisyMean:
    """What the server makes of a burst.

    Attributes:
        factors: factor a_k with which each signal has arrived.
        snr: eta / sigma^2, linear.
        streams: the randomness of the run.
        burst: number of the burst.
    """

    factors: Sequence[float]
    snr: float
    streams: Streams
    burst: int

    def __call__(self, w: Tensor, weights: Sequence[float]) -> Accumulation:
        """As `mean_update`, with misaligned signals and noise; w itself, bit for bit, if nobody has moved."""
        update, total, scale = torch.zeros_like(w), sum(weights), w.new_zeros(())
        for weight, factor in zip(weights, self.factors, strict=True):
            movement = (yield) - w
            scale = torch.maximum(scale, weight * movement.square().mean().sqrt())
            update.add_(movement, alpha=weight * factor / total)
            del movement
        noise = self.streams("over-the-air", "noise", self.burst).standard_normal(w.numel(), np.float32)
        return update + scale / (total * math.sqrt(self.snr)) * torch.from_numpy(noise).to(w)


@final
class Sums:
    """Asks devices for uploads of which the server needs the sum only, as `Federation.uplink_sum` says.

    Args:
        clock: simulated time.
        links: what sends an upload.
        superposition: the bursts of over-the-air sums; None where devices send by themselves.
        streams: randomness.
        ledger: records.
        rounds: the count of the rounds.
    """

    def __init__(
        self,
        clock: Clock,
        links: Links,
        superposition: Superposition | None,
        streams: Streams,
        ledger: Ledger,
        rounds: Rounds,
    ) -> None:
        self._clock, self._links, self._superposition = clock, links, superposition
        self._streams, self._ledger, self._rounds, self._bursts = streams, ledger, rounds, 0

    def of(self, w: Deferred, clients: Iterable[Process], deadline_s: float | None) -> Event:
        """Event with the `Summed` uploads of clients that started from w."""
        if self._superposition is None:
            alone = (self._alone(client) for client in clients)
            return gather(self._clock, alone, deadline_s, self._late, partial(Summed, mean=mean_update))
        return self._clock.process(self._together(self._superposition, w, clients, deadline_s))

    def _late(self) -> Delivery:
        return Delivery.given_up(self._clock.now_s)

    def _alone(self, client: Process) -> Process:
        """A device that sends by itself as soon as it is ready."""
        ready = yield from client
        if not isinstance(ready, Upload):
            return ready
        device, payload, since, attempts = ready
        if attempts == 1:
            return (yield self._links.uplink(device.index, payload, None, 1.0, since))
        send = partial(self._links.uplink, device.index, payload, None, 1.0, since)
        return (yield Retry(self._clock, [send], Limits(attempts, 0.0, beyond_reach=self._links.moving), alone=True))

    def _together(
        self, air: Superposition, w: Deferred, clients: Iterable[Process], deadline_s: float | None
    ) -> Process:
        """The server: wait until all are ready, or the last moment at which a burst can start; then let all send.

        Raises:
            ScenarioError: a burst takes longer than the round.
        """
        burst_s = air.burst_s(w.size)
        patience_s = None if deadline_s is None else (to_ns(deadline_s) - to_ns(burst_s)) / NS_PER_S
        if patience_s is not None and patience_s <= 0:
            raise ScenarioError(
                f"algorithm.deadline_s: is over before a burst of {w.size} entries, which takes {burst_s:g} s, got "
                f"{deadline_s:g}; give more time, or more symbols per slot"
            )
        replies = yield gather(self._clock, clients, patience_s, self._late)
        ready = {place: reply for place, reply in enumerate(replies) if isinstance(reply, Upload)}
        if not ready:
            return Summed(replies, mean_update)
        self._bursts += 1
        devices = np.array([upload.device.index for upload in ready.values()])
        plan = air.sending(devices, self._clock.now, self._bursts)
        transfers: dict[int, Transfer] = {}
        for (place, upload), silent, part in zip(ready.items(), plan.silent, plan.power_part.tolist(), strict=True):
            transfer = self._links.superposed(upload.device.index, upload.payload, part)
            if silent:
                replies[place] = Delivery.given_up(self._clock.now_s)._replace(sender=upload.device.index, lost=silent)
                transfer.cancel(replies[place])
            else:
                transfers[place] = transfer
        slots = self._clock.sleep(burst_s)  # they are reserved, even if nobody sends
        ended = yield AllOf(self._clock, [*transfers.values(), slots])
        for place, reply in zip(transfers, ended, strict=False):
            replies[place] = reply
        factors = [factor for place, factor in zip(ready, plan.factor.tolist(), strict=True) if not replies[place].lost]
        self._record(len(ready), len(factors), burst_s, plan.snr)
        return Summed(replies, NoisyMean(factors, plan.snr, self._streams, self._bursts))

    def _record(self, ready: int, summed: int, burst_s: float, snr: float) -> None:
        """Add a row to the series `over_the_air`; a burst of nobody has no SNR and no error."""
        quality = (snr, relative_error(snr, summed)) if summed else (math.nan, math.nan)
        burst = {"ready": ready, "summed": summed, "burst_s": burst_s, "snr": quality[0], "relative_error": quality[1]}
        self._ledger.record("over_the_air", round=self._rounds.ended + 1, **burst)
