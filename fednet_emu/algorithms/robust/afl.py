"""Agnostic federated learning.

Mohri, Sivek, Suresh: "Agnostic Federated Learning", ICML 2019, https://proceedings.mlr.press/v97/mohri19a.html

Differences from the paper: a device sends w - lr * gradient, which has the same size and information as the gradient. A
lost message is sent again for up to `patience_s`. A device whose reply still does not arrive is left out of the step,
and its weight does not change. The same applies to a device that is absent at the beginning of a round or leaves during
the round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.base import ROUND_S, Algorithm, Deadline, RoundPatience
from fednet_emu.algorithms.robust.weights import project
from fednet_emu.arrays import Array
from fednet_emu.federation import Accumulation, Arrived, Deferred, Device, Federation, Process, SgdPlan, computes_only


class Afl(Algorithm):
    """All devices send their gradient and loss at the same model; the weights of devices with large losses increase."""

    uses = frozenset({"uplink-compression", "downlink-compression"})
    lr: float = Field(ge=0)
    """Step size of the model (gamma_w)."""
    lr_lambda: float = Field(ge=0)
    """Step size of the device weights (gamma_lambda)."""
    batch_size: int | None = Field(gt=0)
    """Samples per gradient; null takes all of the device's samples."""
    averaged: bool = True
    """Whether the evaluated model is the mean of the models of all rounds so far, as in the paper. If false, the latest
    model is evaluated."""
    deadline_s: Deadline = None
    patience_s: RoundPatience = ROUND_S

    def run(self, fed: Federation) -> Process:
        place = {k: j for j, k in enumerate(k for k in fed.devices() if k.n_samples)}
        n = len(place)
        w = mean = fed.initial_model()
        weights = fed.defer(np.full, n, 1.0 / n, size=n)
        for t in fed.rounds():
            w = fed.published(w)
            present = yield fed.cohort(n, t)
            arrived: Arrived = yield from fed.exchange(
                present, w, self.client, t, deadline_s=self.deadline_s, patience_s=self.patience_s
            )
            if arrived:
                places = [place[k] for k in arrived.devices]
                w = fed.accumulate(weighted_step, arrived.models, w, weights, places)
                weights = fed.defer(climbed, weights, places, arrived.part(1), self.lr_lambda)
                mean = fed.defer(running_mean, mean, w, t) if self.averaged else w
            fed.end_of_round(mean)

    @computes_only
    def client(self, fed: Federation, k: Device, w: Deferred, t: int) -> Process:
        trained = yield k.train(w, SgdPlan(lr=self.lr, batch_size=self.batch_size, steps=1), t)
        return trained.params, trained.loss


def weighted_step(w: Tensor, weights: Array, places: Sequence[int]) -> Accumulation:
    """Return `w` + sum_j weights_j (w_j - `w`) [P] over the models w_j of the workers with indices `places`."""
    update = torch.zeros_like(w)
    for place in places:
        update.add_((yield) - w, alpha=float(weights[place]))
    return w + update


def climbed(weights: Array, places: Sequence[int], losses: Sequence[float], lr: float) -> Array:
    """Return the weights [N] after an ascent step along `losses` of devices `places`, projected onto the simplex."""
    raised = weights.copy()
    raised[list(places)] += lr * np.asarray(losses)
    return project(raised)


def running_mean(mean: Tensor, w: Tensor, t: int) -> Tensor:
    """Return the mean of `t` + 1 models [P], from the mean of the first `t` models and the latest model `w`."""
    return mean + (w - mean) / (t + 1)
