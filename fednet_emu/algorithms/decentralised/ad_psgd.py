"""Asynchronous decentralised parallel stochastic gradient descent (AD-PSGD).

Lian, Zhang, Zhang, Liu: "Asynchronous Decentralized Parallel Stochastic Gradient Descent", ICML 2018,
https://arxiv.org/abs/1710.06952, Algorithm 1: a device computes a gradient at its model, sets its own and a random
neighbour's model to their mean, and steps along the gradient, which belongs to the older model. Devices are active or
passive. Active devices start exchanges with passive neighbours only, which excludes a deadlock.

Differences from the paper: devices with even indices are active. A device takes all its local steps, adds the resulting
change to its model, and only then averages. A passive device continues to compute while others average with it, but it
starts its next steps only when no exchange with it is in progress. A lost message ends an exchange without an average.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import torch
from simpy.events import Process as Started
from torch import Tensor

from fednet_emu.algorithms.decentralised.rounds import Decentralised
from fednet_emu.federation import Deferred, Device, Digraph, Federation, Process


class AdPsgd(Decentralised):
    """Every device takes local steps at its own pace, and averages with a random neighbour after these steps.

    A round ends when the devices together have made as many local updates as there are devices with samples. An edge is
    used only if the opposite edge exists and if one of its two devices has an even index and the other an odd index.
    """

    kind = "ad-psgd"

    def events(self, n_samples: int | None) -> int:
        return 2  # a computation, and two transfers of every other device

    def run(self, fed: Federation) -> Process:
        peers, devices = Peers(fed, self), np.flatnonzero(fed.task.n_samples).tolist()
        working = [fed.start(peers.work(fed.device(k))) for k in devices]
        for t in fed.rounds():
            peers.graph = fed.digraph(t).among(fed.task.n_samples > 0).mutual()
            came = yield peers.inbox.collect(len(devices), sources=working)
            fed.record("averaging", updates=len(came), **peers.counted())
            fed.end_of_round(list(peers.models), invited=len(came), arrived=len(came))


class Peers:
    """The devices of a run, with their models and an inbox that receives a device's index after each of its updates."""

    def __init__(self, fed: Federation, algorithm: AdPsgd) -> None:
        self._fed, self._plan = fed, algorithm.plan
        self.models: list[Deferred] = [fed.initial_model()] * fed.n_devices
        self.inbox = fed.inbox()
        self.graph: Digraph | None = None
        self._busy: dict[int, Started] = {}
        self._averaged = [0] * fed.n_devices
        self._asked = self._staleness = self._before = 0

    def counted(self) -> dict[str, Any]:
        """Return the values of one row of the series `averaging`, and reset the counts.

        The values are the numbers of exchanges and of averages since the last call, and the maximum number of averages
        in which a device was involved during its local steps.
        """
        made, self._before = sum(self._averaged) // 2 - self._before, sum(self._averaged) // 2
        told = {"exchanges": self._asked, "averages": made, "staleness": self._staleness}
        self._asked = self._staleness = 0
        return told

    def work(self, k: Device) -> Process:
        """Process of a device: repeatedly take local steps and, if it is active, average with a random neighbour."""
        fed, models, me = self._fed, self.models, k.index
        for n in count():
            yield fed.cohort(1, "at work", me, n, among=np.array([me]))
            yield from self._free(me)
            x, before = models[me], self._averaged[me]
            trained = yield k.train(x, self._plan, n)
            models[me] = fed.defer(added, models[me], trained.params, x, fed.n_statistics)
            self._staleness = max(self._staleness, self._averaged[me] - before)
            assert self.graph is not None
            near = [j for j in self.graph.receivers(me) if j % 2] if me % 2 == 0 else []
            if near:
                j = near[int(fed.streams("partner", me, n).integers(len(near)))]
                yield from self._free(j)
                self._busy[j] = exchange = fed.start(self._exchange(k, fed.device(j)))
                yield exchange
            self.inbox.put(me, me)

    def _free(self, k: int) -> Process:
        while k in self._busy:
            yield self._busy[k]

    def _exchange(self, i: Device, j: Device) -> Process:
        fed, models = self._fed, self.models
        assert self.graph is not None
        cluster, mine = int(self.graph.cluster[i.index]), models[i.index]
        self._asked += 1
        [there] = yield fed.sidelink(i, [j], mine, cluster=cluster)
        if not there.lost:
            theirs = models[j.index]
            [back] = yield fed.sidelink(j, [i], theirs, cluster=cluster)
            if not back.lost:
                for k, own, other in ((i.index, mine, theirs), (j.index, theirs, mine)):
                    models[k] = fed.defer(halfway, models[k], own, other, fed.n_statistics)
                    self._averaged[k] += 1
        del self._busy[j.index]


def added(x: Tensor, trained: Tensor, start: Tensor, statistics: int = 0) -> Tensor:
    """Return model `x` [P] plus the change `trained` - `start` by local steps from `start`, an earlier value of `x`.

    The last `statistics` entries (running statistics) are taken from `trained`.
    """
    n = len(x) - statistics
    return x + torch.cat([trained[:n] - start[:n], trained[n:] - x[n:]])


def halfway(x: Tensor, own: Tensor, other: Tensor, statistics: int = 0) -> Tensor:
    """Return model `x` [P] after an exchange in which its older value `own` is averaged with `other`.

    `own` is the value of the model when it was sent, and `other` the received model. Local steps since then are kept.
    The last `statistics` entries (running statistics) become the mean of `x` and `other`.
    """
    n = len(x) - statistics
    return x + (other - torch.cat([own[:n], x[n:]])) / 2
