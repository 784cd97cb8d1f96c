"""Federated averaging.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, https://proceedings.mlr.press/v54/mcmahan17a.html

Differences from the paper: a round may have a deadline, and lost uplinks may be sent again. Updates that do not arrive
are left out of the mean. The server may make something else than the mean of the updates (`aggregation`: the median, a
trimmed mean, Krum), and may take another step than that (`server_optimizer`, `server_lr`: FedAvgM, FedAdagrad, FedAdam,
FedYogi). It may ask others than a random cohort (`selection`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from fednet_emu.algorithms.aggregation import Aggregation
from fednet_emu.algorithms.base import Synchronous
from fednet_emu.algorithms.server import ServerSettings
from fednet_emu.federation import Deferred, Device, Federation, LocalStep, Process, computes_only


class FedAvg(ServerSettings, Synchronous):
    """Each round a cohort trains locally, random unless chosen otherwise, and the server averages what arrives."""

    kind = "fedavg"
    sends_models: ClassVar[bool] = True
    uses: ClassVar[frozenset[str]] = Synchronous.uses | {"sums"}

    def run(self, fed: Federation) -> Process:
        """The server: invite a cohort, wait for its models, average them."""
        w, server = fed.initial_model(), self.server(fed)
        sends_params = type(self).client is FedAvg.client and type(self.aggregation).reply is Aggregation.reply
        client = LocalStep(self.plan) if sends_params else self.client
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, self.message(fed, w), client)
            w = server.step(arrived)
            fed.end_of_round(w)

    @computes_only
    def client(self, fed: Federation, k: Device, w: Deferred, *more: Any) -> Process:
        """A device: train the received model, send the result."""
        *told, t = more
        trained = yield k.train(w, self.plan, t)
        return self.aggregation.reply(fed, k, w, trained.params, *told)
