"""Ditto: a global model by federated averaging, and beside it each device's own, held near the global one.

Li, Hu, Beirami, Smith: "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021,
https://proceedings.mlr.press/v139/li21h.html

Differences from the paper: none in the updates. The global and the own model make equally many steps of equal size.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fednet_emu.algorithms.fedavg import average
from fednet_emu.algorithms.local_sgd import LocalSgd
from fednet_emu.federation import Deferred, Device, Federation, Process


class Ditto(LocalSgd):
    """Own models v_i minimise f_i(v_i) + pull / 2 ||v_i - w||^2 around the global model w."""

    kind: Literal["ditto"] = "ditto"
    pull: float = Field(ge=0)
    """lambda of the paper: how strongly an own model is drawn to the global one; zero is training alone."""

    def run(self, fed: Federation) -> Process:
        """The server: average the global model, as ever; the own models never leave their devices."""
        w = fed.initial_model()
        own = [w] * fed.n_devices
        for t in fed.rounds():
            cohort = yield fed.cohort(self.cohort, t)
            replies = yield fed.gather((self.client(fed, k, w, own, t) for k in cohort), self.deadline_s)
            arrived = [(k, reply.payload) for k, reply in zip(cohort, replies, strict=True) if not reply.lost]
            if arrived:
                w = fed.defer(average, w, [w_k for _, w_k in arrived], [k.n_samples for k, _ in arrived], 1.0)
            fed.end_of_round(list(own), invited=len(cohort), arrived=len(arrived))

    def client(self, fed: Federation, k: Device, w: Deferred, own: list[Deferred], t: int) -> Process:
        """A device: train the global model, then its own around it; send the global one."""
        got = yield fed.downlink(k, w)
        if got.lost:
            return got
        trained = yield k.compute(fed.train(k, got.payload, self.plan, t))
        mine = fed.train(k, own[k.index], self.plan, t, "own", prox=self.pull, anchor=got.payload)
        own[k.index] = (yield k.compute(mine)).params
        return (yield fed.uplink(k, trained.params))
