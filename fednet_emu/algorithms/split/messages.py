"""The computations and messages of a device and the server for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Literal, final

from simpy.events import Event

from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.federation import Deferred, Device, Federation, Process, SgdPlan, Work
from fednet_emu.learning.models.cuts import Cut

Queue = Literal["fifo", "parallel"]
"""How the server computes the batches of several devices: one after the other, or at once."""

SLOWEST_BPS = 1e-3
"""Rate that is assumed of a link that carries nothing, to compare cuts."""


@final
class CutLink:
    """Carries batches between both parts of a cut model, and runs their computations."""

    def __init__(self, fed: Federation, plan: SgdPlan, queue: Queue, retries: int) -> None:
        self._fed, self.plan, self._queue, self._attempts = fed, plan, queue, 1 + retries
        self._labels = prod(fed.task.data.y.shape[1:])

    def sizes(self, k: Device) -> list[int]:
        """Number of samples in each batch of a device in a round."""
        return self.plan.batch_sizes(k.n_samples)

    def steps(self, k: Device, cut: Cut, order: list[tuple[int, int]], first: int = -1, last: int = -1) -> Process:
        """All steps of device k; the value is the delivery of the last message, lost if the device leaves the round.

        `order` receives device and step of each batch when the server has computed it. For the records, `first` is the
        number of the value that the first computation uses, and `last` of the value that the last one makes.
        """
        sizes, sent = self.sizes(k), None
        for step, size in enumerate(sizes):
            sent = yield from self.forward(k, cut, size, first if step == 0 else -1)
            if sent.lost:
                return sent
            yield self.serve(cut, size)
            order.append((k.index, step))
            sent = yield from self.backward(k, cut, size, last if step == len(sizes) - 1 else -1)
            if sent.lost:
                return sent
        return sent

    def forward(self, k: Device, cut: Cut, size: int, first: int = -1) -> Process:
        """A device computes the activations of a batch and sends them with its labels; the value is the delivery."""
        yield k.compute(Work(cut.forward_flop * size, None, first))
        return (yield from self.up(k, None, size * (cut.width + self._labels)))

    def serve(self, cut: Cut, size: int) -> Event:
        """Event that comes when the server has made a step on `n_samples` samples."""
        flop, server = cut.server_flop * size, self._fed.server
        if self._queue == "parallel":
            return self._fed.sleep(flop / server.flop_per_s)
        return server.compute(Work(flop, None))

    def backward(self, k: Device, cut: Cut, size: int, last: int = -1) -> Process:
        """The server sends the gradient of a batch and the device makes its step; the value is the delivery."""
        send = partial(self._fed.downlink, k, None, FLOAT_BIT * size * cut.width)
        got = yield from self._fed.retry(send, attempts=self._attempts, pause_s=0.0)
        if not got.lost:
            yield k.compute(Work(cut.backward_flop * size, None, -1, last))
        return got

    def up(self, k: Device, payload: Deferred | None, scalars: int) -> Process:
        """A device sends `n_scalars` scalars; the value is the delivery."""
        send = partial(self._fed.uplink, k, payload, FLOAT_BIT * scalars)
        return self._fed.retry(send, attempts=self._attempts, pause_s=0.0)

    def least_time(self, k: Device, cuts: Sequence[Cut]) -> Cut:
        """The cut with which a round would take a device the least time alone, at the expected rates.

        It is the first of the least of n_samples (F_C / f_k + F_S / f_S + 32 (q + l) / R_up + 32 q / R_down)
        + 32 P_C (1 / R_up + 1 / R_down), without headers, for q numbers at the cut and l in a label.
        """
        n_samples, server_flop_per_s = sum(self.sizes(k)), self._fed.server.flop_per_s
        up_bps = max(k.expected_rate_bps, SLOWEST_BPS)
        down_bps = max(k.expected_downlink_rate_bps, SLOWEST_BPS)

        def round_s(cut: Cut) -> float:
            computing_s = (cut.forward_flop + cut.backward_flop) / k.flop_per_s + cut.server_flop / server_flop_per_s
            up, down = (n_samples * width + cut.device.n_shared for width in (cut.width + self._labels, cut.width))
            return n_samples * computing_s + FLOAT_BIT * (up / up_bps + down / down_bps)

        return min(cuts, key=round_s)
