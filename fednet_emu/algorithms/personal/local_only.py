"""Local training only: every device trains alone. The baseline that collaboration has to beat.

Differences from the paper: there is no single paper; this is a baseline of many. Nothing is sent.
"""

from __future__ import annotations

from typing import ClassVar

from fednet_emu.algorithms.local_sgd import LocalSgd
from fednet_emu.federation import Deferred, Delivery, Device, Federation, Process


class LocalOnly(LocalSgd):
    """In each round a random cohort trains, each device its own model on its own samples."""

    kind = "local"
    single_uploads: ClassVar[str] = "receives nothing"

    def run(self, fed: Federation) -> Process:
        """Rounds without a server, for comparison at equal local work; a device that is late keeps its old model."""
        models = [fed.initial_model()] * fed.n_devices
        for t in fed.rounds():
            cohort = yield fed.cohort(self.cohort, t)
            ended = yield fed.gather((self.client(fed, k, models[k.index], t) for k in cohort), self.deadline_s)
            trained = [(k, own) for k, own in zip(cohort, ended, strict=True) if not isinstance(own, Delivery)]
            for k, own in trained:
                models[k.index] = own
            fed.end_of_round(list(models), invited=len(cohort), arrived=len(trained))

    def client(self, fed: Federation, k: Device, own: Deferred, t: int) -> Process:
        """A device: continue training its own model."""
        trained = yield k.compute(fed.train(k, own, self.plan, t))
        return trained.params
