"""Federated averaging.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, https://proceedings.mlr.press/v54/mcmahan17a.html

Differences from the paper: a round may have a deadline, and lost uplinks may be sent again. Updates that do not arrive
are left out of the mean. The server may make something else than the mean of the updates (`aggregation`: the median, a
trimmed mean, Krum), and may take another step than that (`server_optimizer`, `server_lr`: FedAvgM, FedAdagrad, FedAdam,
FedYogi). It may ask others than a random cohort (`selection`).
"""

from __future__ import annotations

from typing import ClassVar

from fednet_emu.algorithms.averaging import Averaging, average
from fednet_emu.federation import Deferred, Device, Federation, Process, Summed, Upload

__all__ = ["FedAvg", "average"]


class FedAvg(Averaging):
    """Each round a cohort trains locally, random unless chosen otherwise, and the server averages what arrives."""

    kind = "fedavg"
    moves: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})

    def run(self, fed: Federation) -> Process:
        """The server: invite a cohort, wait for its models, average them."""
        w, memory = fed.initial_model(), None
        asking = self.asking(fed, down=w.size, up=w.size)
        for t in fed.rounds():
            w = fed.published(w)
            cohort = yield from asking.cohort(t, w)
            clients = (self.client(fed, k, w, t) for k in cohort)
            summed: Summed = yield fed.uplink_sum(w, clients, self.deadline_s)
            arrived = asking.arrived(cohort, summed.replies)
            if arrived:
                w, memory = self.moved(fed, w, memory, arrived, summed.mean)
            fed.end_of_round(w, invited=len(cohort), arrived=len(arrived))

    def client(self, fed: Federation, k: Device, w: Deferred, t: int) -> Process:
        """A device: receive the model, train, have the result ready to send."""
        got = yield fed.downlink(k, w)
        if got.lost:
            return got
        trained = yield k.compute(fed.train(k, got.payload, self.plan, t))
        return Upload(k, trained.params, since=got.payload, attempts=1 + self.retries)
