"""FedAsync of Xie, Koyejo and Gupta (https://arxiv.org/abs/1903.03934) with a constant weight, as W4 runs it.

Differences from the paper: one full-batch step per worker, no proximal term, all workers always at work.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fednet_emu.component.component import Component
from fednet_emu.federation.device import Device
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.clock import Process
from fednet_emu.kernel.inbox import Inbox
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.jobs import SgdPlan


class Asynchronous(Component):
    """The server mixes in every model on arrival, and its sender starts again."""

    lr: float
    mixing: float

    def run(self, fed: Federation) -> Process:
        """The server."""
        inbox, w = fed.inbox(), fed.initial_model()
        idle = list(fed.devices())
        for t in fed.rounds():
            for k in idle:
                fed.start(self.worker(fed, k, w, t, inbox))
            arrived = yield inbox.collect(at_least=1)
            idle = []
            for k, w_k in arrived:
                w = fed.defer(mix, w, w_k, self.mixing)
                idle.append(k)
            fed.end_of_round(w, invited=1, arrived=len(arrived))

    def worker(self, fed: Federation, k: Device, w: Deferred, t: int, inbox: Inbox) -> Process:
        """A worker: receive, train, send; what is lost is sent again."""
        got = yield fed.downlink(k, w)
        while got.lost:
            got = yield fed.downlink(k, w)
        trained = yield k.train(got.payload, SgdPlan(lr=self.lr, steps=1), t)
        sent = yield fed.uplink(k, trained.params)
        while sent.lost:
            sent = yield fed.uplink(k, trained.params)
        inbox.put(k.index, (k, sent.payload))


def mix(w: Tensor, w_k: Tensor, mixing: float) -> Tensor:
    """The mean of w [P] and w_k [P], weighted 1 - mixing and mixing."""
    return torch.lerp(w, w_k, mixing)
