"""Distributionally robust federated averaging, and its variant with a regulariser.

Deng, Kamani, Mahdavi: "Distributionally Robust Federated Averaging", NeurIPS 2020, https://arxiv.org/abs/2102.12660

Differences from the paper: a device that is drawn twice trains once and counts twice. A device in the second exchange
sends the loss of one batch. A lost message is sent again for up to `patience_s`; an answer that still does not arrive
is left out of the means. Both draws are among the devices present when the round begins; a device that leaves during
the round is left out. The averaged model, for which the paper proves its convex rate, is the mean of the models after
each round, not after each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.base import RoundBased
from fednet_emu.algorithms.fedavg import average
from fednet_emu.algorithms.retry import ROUND_S, Patience
from fednet_emu.algorithms.robust.afl import running_mean
from fednet_emu.algorithms.robust.prior import Prior
from fednet_emu.algorithms.robust.simplex import project
from fednet_emu.arrays import Array
from fednet_emu.federation import Deferred, Device, Federation, Process, SgdPlan, Shared, Work


class Drfa(RoundBased):
    """Two exchanges per round: devices drawn by weight train; devices drawn uniformly send losses that set the weights.

    DRFA, or DRFA-Prox with `regulariser` above 0. A timing-only run has no weights and draws uniformly in both
    exchanges.
    """

    single_uploads: ClassVar[str] = "receives two models of a device, and asks for losses"
    moves: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})
    deadline_s: float | None = Field(None, gt=0)
    """Longest time that the server waits in each of the two exchanges of a round (simulated s); late devices are
    cancelled and left out. Null waits for all devices."""
    cohort: int = Field(gt=0)
    """Number of devices drawn for each of the two exchanges of a round (m)."""
    local_steps: int = Field(gt=0)
    """Gradient steps of a device per round (tau)."""
    lr: float = Field(ge=0)
    """Step size of the devices (eta)."""
    lr_weights: float = Field(ge=0)
    """Step size of the device weights per local step (gamma); the step of a round is `local_steps` times as large."""
    batch_size: int | None = Field(gt=0)
    """Samples per gradient step and per reported loss; null takes all of the device's samples."""
    regulariser: float = Field(0.0, ge=0)
    """Factor r of the regulariser -(r / 2) |lam - q|^2, which keeps the weights lam close to the prior q (DRFA-Prox); 0
    is plain DRFA."""
    prior: Prior = Prior()
    averaged: bool = False
    """Whether the evaluated model is the mean over all rounds so far, instead of the latest one, which follows the
    latest draws of devices."""
    patience_s: Patience = ROUND_S
    """How long a lost message is sent again before the round continues without its device (simulated s)."""

    @property
    def events_depend_on_learning(self) -> bool:
        """True: devices are drawn by weights that depend on the losses."""
        return True

    def demands(self) -> Sequence[tuple[str, str, int]]:
        """Settings that need a minimum number of devices, as (key, what is wrong with fewer, that minimum)."""
        return [("cohort", "invites more devices than there are", self.cohort)]

    def run(self, fed: Federation) -> Process:
        """The server: draw devices, average their models and snapshots, draw again, update the weights."""
        devices = [k for k in fed.devices() if k.n_samples]
        place, n = {k.index: j for j, k in enumerate(devices)}, len(devices)
        prior = self.prior.weights(np.array([k.index for k in devices]))
        w = mean = fed.initial_model()
        weights = fed.defer(np.array, prior, size=n)
        for t in fed.rounds():
            w = fed.published(w)
            there = np.array([place[k.index] for k in (yield fed.cohort(n, t))])
            rng, m = fed.streams("drfa", t), min(self.cohort, len(there))
            share = fed.read(weights, nominal=np.full(n, 1.0 / n))[there]
            drawn = rng.choice(there, m, p=share / share.sum() if share.any() else None)
            places, times = np.unique(drawn, return_counts=True)
            snapshot_step = int(rng.integers(1, self.local_steps + 1))
            task = fed.shared((w, snapshot_step))
            replies = yield fed.gather((self.train(fed, devices[j], task, t) for j in places), self.deadline_s)
            arrived = [(reply.payload, int(c)) for reply, c in zip(replies, times, strict=True) if not reply.lost]
            if arrived:
                counts = [c for _, c in arrived]
                snapshot = fed.accumulate(average, [early for (_, early), _ in arrived], w, counts)
                w = fed.accumulate(average, [late for (late, _), _ in arrived], w, counts)
                asked = [int(j) for j in np.sort(rng.choice(there, m, replace=False))]
                told = yield fed.gather((self.tell(fed, devices[j], snapshot, t) for j in asked), self.deadline_s)
                losses = {j: reply.payload for j, reply in zip(asked, told, strict=True) if not reply.lost}
                step, r = self.lr_weights * self.local_steps, self.regulariser
                up, pull = len(there) / m * step, step * r
                weights = fed.defer(moved, weights, list(losses), list(losses.values()), up, pull, prior)
                mean = fed.defer(running_mean, mean, w, t) if self.averaged else w
            fed.end_of_round(mean, invited=len(places), arrived=len(arrived))

    def train(self, fed: Federation, k: Device, task: Shared, t: int) -> Process:
        """A device in the first exchange: send the model after all steps, and a snapshot after some of them."""
        got = yield fed.retry(lambda: fed.downlink(k, task), patience_s=self.patience_s, to_the_gone=False)
        if got.lost:
            return got
        w, early = got.payload
        trained = yield k.compute(fed.train(k, w, self._plan(early), t, 0))
        snapshot = trained.params
        if early < self.local_steps:
            trained = yield k.compute(fed.train(k, snapshot, self._plan(self.local_steps - early), t, 1))
        send = partial(fed.uplink, k, (trained.params, snapshot), since=(w, w))
        return (yield fed.retry(send, patience_s=self.patience_s, to_the_gone=False))

    def tell(self, fed: Federation, k: Device, snapshot: Deferred, t: int) -> Process:
        """A device in the second exchange: send the loss of the mean snapshot on one batch."""
        got = yield fed.retry(lambda: fed.downlink(k, snapshot), patience_s=self.patience_s, to_the_gone=False)
        if got.lost:
            return got
        plan = SgdPlan(lr=0.0, batch_size=self.batch_size, steps=1)
        loss = fed.train(k, got.payload, plan, t, "loss").result.loss
        flop = fed.task.model.forward_flop_per_sample * plan.n_samples_processed(k.n_samples)
        yield k.compute(Work(flop, loss, snapshot.number, loss.number))
        return (yield fed.retry(lambda: fed.uplink(k, loss), patience_s=self.patience_s, to_the_gone=False))

    def _plan(self, steps: int) -> SgdPlan:
        return SgdPlan(lr=self.lr, batch_size=self.batch_size, steps=steps)


def moved(
    weights: Array, places: Sequence[int], losses: Sequence[float], lr: float, pull: float, prior: Array
) -> Array:
    """The weights [N] after an ascent step along the losses of `places` and a proximal step to the prior [N].

    This maximises <lr v, u> - (pull / 2) |u - q|^2 - 1/2 |u - lam|^2 over u in the simplex, with the weights lam, the
    prior q, and v holding the losses (0 elsewhere): the projection of (lam + lr v + pull q) / (1 + pull).
    """
    raised = weights + pull * prior
    raised[list(places)] += lr * np.asarray(losses)
    return project(raised / (1.0 + pull))
