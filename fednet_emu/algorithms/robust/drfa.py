"""Distributionally robust federated averaging, and a variant with a regulariser.

Deng, Kamani, Mahdavi: "Distributionally Robust Federated Averaging", NeurIPS 2020, https://arxiv.org/abs/2102.12660

Differences from the paper: a device that is drawn twice trains once, and its model counts twice in the mean. In the
second exchange, a device sends the loss on one batch. A lost message is sent again for up to `patience_s`; a reply that
still does not arrive is left out of the means. Both random draws are among the devices that are present when the round
begins; a device that leaves during the round is left out. The averaged model, for which the paper proves the rate in
the convex case, is the mean of the models after each round, not after each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.base import ROUND_S, Algorithm, RoundPatience
from fednet_emu.algorithms.robust.afl import running_mean
from fednet_emu.algorithms.robust.weights import Prior, project
from fednet_emu.arrays import Array
from fednet_emu.federation import (
    Arrived,
    CohortSize,
    Deferred,
    Device,
    Federation,
    Process,
    Reply,
    SgdPlan,
    average,
    cohort_size,
    computes_only,
)


class Drfa(Algorithm):
    """Each round, devices drawn by weight train; then devices drawn uniformly send losses, which change the weights.

    The algorithm is DRFA, or DRFA-Prox if `regulariser` is above 0. A timing-only run, which trains nothing, has no
    weights and draws devices uniformly in both exchanges.
    """

    uses = frozenset({"uplink-compression", "downlink-compression"})
    deadline_s: float | None = Field(None, gt=0)
    """Maximum time that the server waits in each of the two exchanges of a round (simulated s); late devices are
    cancelled and left out. Null waits for all devices."""
    cohort: CohortSize
    """Devices drawn for each of the two exchanges of a round (m): an int is the number of devices, a float is the share
    of all devices."""
    local_steps: int = Field(gt=0)
    """Gradient steps of a device per round (tau)."""
    lr: float = Field(ge=0)
    """Step size of the devices (eta)."""
    lr_lambda: float = Field(ge=0)
    """Step size of the device weights per local step (gamma); the step size per round is `local_steps` times this
    value."""
    batch_size: int | None = Field(gt=0)
    """Samples per gradient step and per reported loss; null takes all of the device's samples."""
    regulariser: float = Field(0.0, ge=0)
    """Factor r of the regulariser -(r / 2) |lam - q|^2, which keeps the weights lam close to the prior q (DRFA-Prox); 0
    is plain DRFA."""
    prior: Prior = Prior()
    averaged: bool = False
    """Whether the evaluated model is the mean of the models of all rounds so far. If false, the latest model is
    evaluated, which depends on the latest random draw of devices."""
    patience_s: RoundPatience = ROUND_S

    events_depend_on_learning: ClassVar[bool] = True

    def run(self, fed: Federation) -> Process:
        devices = [k for k in fed.devices() if k.n_samples]
        place, n, tau = {k: j for j, k in enumerate(devices)}, len(devices), self.local_steps
        prior = self.prior.weights(np.array([k.index for k in devices]))
        w = mean = fed.initial_model()
        weights = fed.defer(np.array, prior, size=n)
        for t in fed.rounds():
            w = fed.published(w)
            there = np.array([place[k] for k in (yield fed.cohort(n, t))])
            rng, m = fed.streams("drfa", t), min(cohort_size(self.cohort, fed.n_devices), len(there))
            share = fed.read(weights, nominal=np.full(n, 1.0 / n))[there]
            drawn = rng.choice(there, m, p=share / share.sum() if share.any() else None)
            places, times = np.unique(drawn, return_counts=True)
            times_of, early = dict(zip(places.tolist(), times.tolist(), strict=True)), int(rng.integers(1, tau + 1))
            cohort = [devices[j] for j in times_of]
            arrived: Arrived = yield from fed.exchange(
                cohort, (w, early), self.client, t, deadline_s=self.deadline_s, patience_s=self.patience_s
            )
            if arrived:
                counts = [times_of[place[k]] for k in arrived.devices]
                snapshot = fed.accumulate(average, arrived.part(1), w, counts)
                w = arrived.average(counts)
                asked = [devices[j] for j in np.sort(rng.choice(there, m, replace=False))]
                told: Arrived = yield from fed.exchange(
                    asked, snapshot, self.tell, t, deadline_s=self.deadline_s, patience_s=self.patience_s, counts=False
                )
                losses = {place[k]: loss for k, loss in told}
                step, r = self.lr_lambda * tau, self.regulariser
                up, pull = len(there) / m * step, step * r
                weights = fed.defer(moved, weights, list(losses), list(losses.values()), up, pull, prior)
                mean = fed.defer(running_mean, mean, w, t) if self.averaged else w
            fed.end_of_round(mean)

    @computes_only
    def client(self, fed: Federation, k: Device, w: Deferred, early: int, t: int) -> Process:
        """Process of a device in the first exchange: send the final model, and a snapshot after `early` steps."""
        trained = yield k.train(w, self._plan(early), t, 0)
        snapshot = trained.params
        if early < self.local_steps:
            trained = yield k.train(snapshot, self._plan(self.local_steps - early), t, 1)
        return Reply((trained.params, snapshot), since=(w, w))

    @computes_only
    def tell(self, fed: Federation, k: Device, snapshot: Deferred, t: int) -> Process:
        """Process of a device in the second exchange: send the loss of the mean `snapshot` on one batch."""
        return (yield k.loss(snapshot, t, "loss", batch_size=self.batch_size))

    def _plan(self, steps: int) -> SgdPlan:
        return SgdPlan(lr=self.lr, batch_size=self.batch_size, steps=steps)


def moved(
    weights: Array, places: Sequence[int], losses: Sequence[float], lr: float, pull: float, prior: Array
) -> Array:
    """Return the weights [N] after an ascent step of size `lr` along `losses`, and a step towards `prior` [N].

    The losses belong to the devices with indices `places`. Let lam be the old weights, q the prior, and v [N] the
    losses (0 for all other devices). The result u maximises <lr v, u> - (pull / 2) |u - q|^2 - 1/2 |u - lam|^2 over the
    simplex, i.e. u is the projection of (lam + lr v + pull q) / (1 + pull) onto the simplex.
    """
    raised = weights + pull * prior
    raised[list(places)] += lr * np.asarray(losses)
    return project(raised / (1.0 + pull))
