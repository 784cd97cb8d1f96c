"""FedUL (federation of unsupervised learning), and two extensions in which the server has a few labelled samples.

Lu, Wang, Li, Niu, Dou, Sugiyama: "Federated Learning from Only Unlabeled Data with Class-Conditional-Sharing Clients",
ICLR 2022, https://openreview.net/forum?id=WHA8009laxu. M1 (feedback optimisation) and M2 (independent enhancement):
A. Abodeza and others, "A Bi-Objective Optimization Approach for Enhancing FedUL",
https://github.com/abodeza/abodeza.github.io.

Differences from the papers: clients whose downlink or uplink is lost are left out of the mean; a cohort may be drawn.
The report of M1 and M2 does not say whether M2's supervised model starts each round from the global model or continues
from its own weights: `m2_mode` offers both. The clients' models are averaged, although Procedure C of the report omits
this step.

Theorem 1: there are K classes and M sets. For a client, Pi [M, K] contains the class shares of each set, and pib [M]
the shares of the sets in the client's samples. pi [K] contains the class shares of the test data, and eta [K] the class
probabilities of a sample. The probabilities that the sample belongs to each set (its surrogate label) are

    Q(eta) = A eta / (1' A eta)   with   A = diag(pib) Pi diag(pi)^-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fednet_emu.algorithms.base import Algorithm, Deadline
from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import (
    Adam,
    AnyAugmentation,
    AnyOptimizer,
    CohortSize,
    Computation,
    Deferred,
    Device,
    Federation,
    LearningTask,
    Process,
    SgdPlan,
    Terms,
    TrainData,
    Trained,
    computes_only,
)

LossMode = Literal["nll", "ce_on_probs"]


def empirical_priors(sets: IntArray, classes: IntArray, n_sets: int, n_classes: int) -> tuple[Array, Array]:
    """Return the class shares Pi [M, K] of a client's M sets, and the shares pib [M] of the sets in its samples.

    `sets` [n] and `classes` [n] contain the set and the class of each sample, from 0; a client uses the classes only to
    compute these shares. An empty set has shares of zero.
    """
    counts = np.zeros((n_sets, n_classes))
    np.add.at(counts, (sets, classes), 1.0)
    sizes = counts.sum(axis=1)
    return counts / np.maximum(sizes, 1.0)[:, None], sizes / sizes.sum()


def transition(set_priors: Array, set_shares: Array, test_shares: Array) -> Array:
    """Return the matrix A [M, K] of Theorem 1, not normalised; columns of classes without test samples are zero.

    `set_priors` [M, K] contains the class shares of each set, `set_shares` [M] the shares of the sets in the client's
    samples, and `test_shares` [K] the class shares of the test data.
    """
    inverse = np.divide(1.0, test_shares, out=np.zeros_like(test_shares), where=test_shares > 0)
    return np.asarray(set_shares[:, None] * set_priors * inverse)


@final
@dataclass(frozen=True, slots=True, eq=False)
class SurrogateLoss:
    """Loss of each sample of a client, from class scores z [B, K] and surrogate labels y [B], the indices of sets.

    If `mode` is "nll", the loss is -log Q_y(softmax z), as in the paper; Q is the vector of set probabilities. If
    `mode` is "ce_on_probs", Q(softmax z) is treated as scores and a second softmax is applied, as in the authors' code;
    the minimum of this loss is log(e + M - 1) - 1.
    """

    log_a: Tensor  # logarithms of the transition matrix [M, K]; minus infinity where the matrix is zero
    mode: LossMode = "nll"

    @classmethod
    def of(cls, a: Array, mode: LossMode, like: Tensor) -> SurrogateLoss:
        """Return the loss for a transition matrix `a` [M, K], with the dtype and torch device of `like`."""
        return cls(torch.from_numpy(a).to(like).log(), mode)

    def __call__(self, z: Tensor, y: Tensor) -> Tensor:
        if self.mode == "ce_on_probs":
            log_a = self.log_a.clamp_min(torch.finfo(z.dtype).min / 2)  # gradient 0, not NaN, for an empty set
            logits = torch.logsumexp(z[:, None] + log_a, dim=2)
            return cross_entropy(logits.softmax(1), y, reduction="none")
        total = torch.logsumexp(z + self.log_a.logsumexp(0), dim=1)
        return total - torch.logsumexp(z + self.log_a[y], dim=1)


def ce_on_probs(z: Tensor, y: Tensor) -> Tensor:
    """Return the authors' supervised loss [B]: cross-entropy of labels `y` [B] with softmax(`z`) [B, K] as scores."""
    return cross_entropy(z.softmax(1), y, reduction="none")


class FedUL(Algorithm):
    """Clients train a classifier on unlabelled sets of samples, by predicting to which set each sample belongs.

    The probability of each set is computed from the class probabilities by a matrix of known class shares. The
    partition must create sets (`surrogate-sets`). Only the model f is sent; class shares, data and surrogate labels
    stay on their device. If `server.validation_samples` is set, the model that is evaluated and returned is the best so
    far on these samples; otherwise it is the latest model.
    """

    kind = "fedul"
    uses = frozenset(
        {"uplink-compression", "downlink-compression", "sums", "server-samples", "server-speed", "validation-samples"}
    )
    lr: float = Field(ge=0)
    """Step size of the clients and of the server's own training (alpha_l)."""
    batch_size: int | None = Field(gt=0)
    """Samples per gradient step; null is all of the device's samples."""
    local_epochs: int = Field(1, gt=0)
    """Number of passes over a client's samples per round."""
    deadline_s: Deadline = None
    cohort: CohortSize | None = None
    """Clients invited per round: an int is the number of clients, a float is the share of all devices; null invites all
    present devices."""
    optimizer: AnyOptimizer = Adam()
    """Optimizer of local training; its state is reset in every round."""
    drop_last: bool = True
    """Whether to leave out an incomplete batch at the end of an epoch, as in the authors' public code."""
    l1: float = Field(0.0, ge=0)
    """Factor of an L1 penalty on all parameters in the clients' loss."""
    loss_mode: LossMode = "nll"
    """The clients' loss. nll: the negative log-likelihood of the paper; ce_on_probs: cross-entropy that applies a
    second softmax to probabilities, as in the authors' public code."""
    augment: AnyAugmentation | None = None
    """Random augmentation of the images of a batch, at the clients and at the server; null for none."""
    alpha_g: float = Field(1.0, ge=0)
    """Step size of the server (alpha_g): the new model is f + alpha_g mean(f_c - f) over the clients' models f_c."""
    supervision: Literal["none", "M1", "M2"] = "none"
    """Use of the server's labelled samples. none: they are not used; M1: the server fine-tunes the mean of the clients'
    models, which makes the round longer; M2: the server trains a model f' while the clients train, and mixes f' into
    the mean."""
    server_epochs: int = Field(1, ge=0)
    """Number of passes over the server's labelled samples per round; 0 is the same as `supervision: none`."""
    h: float = Field(0.5, ge=0, le=1)
    """Weight of the server's model f' in M2 (h): the new model is (1 - h) f + h f'."""
    m2_mode: Literal["fresh", "persistent"] = "fresh"
    """Start of the server's model f' of M2 in each round. fresh: the global model; persistent: the weights of f' from
    the previous round."""

    def run(self, fed: Federation) -> Process:
        method = self.supervision if self.server_epochs else "none"
        sets = self._sets(fed, method)
        unlabelled = TrainData(fed.task.data.x, sets)
        losses = {k: surrogate_loss(fed.task, sets, k.index, self.loss_mode) for k in fed.devices() if k.n_samples}
        f = own = fed.initial_model()
        best = Best(f)
        for t in fed.rounds():
            f = fed.published(f)
            cohort = yield fed.cohort(self.cohort or 1.0, t)
            if method == "M2":
                beside = self.supervise(fed, own if self.m2_mode == "persistent" else f, t)
            seen: dict[Device, Deferred] = {}
            clients = (unlabelled, losses, seen)
            arrived = yield from fed.exchange(
                cohort, f, self.client, t, *clients, deadline_s=self.deadline_s, sums=True
            )
            f = arrived.average("uniform", self.alpha_g)
            supervised = None
            if method == "M1":
                supervised = yield self.supervise(fed, f, t)
                f = supervised.params
            if method == "M2":
                supervised = yield beside
                own = supervised.params
                f = fed.defer(mix, f, own, self.h)
            best = better(fed, best, f)
            record(fed, best, [seen[k] for k in cohort if k in seen], supervised)
            fed.end_of_round(best.model)
        return best.model

    @computes_only
    def client(
        self,
        fed: Federation,
        k: Device,
        f: Deferred,
        t: int,
        unlabelled: TrainData,
        losses: dict[Device, SurrogateLoss],
        seen: dict[Device, Deferred],
    ) -> Process:
        """Process of device `k`: train on surrogate labels, and send the model; the mean loss is only recorded."""
        terms: Terms = {"data": unlabelled, "loss": losses[k], "l1": self.l1, "augment": self.augment}
        trained = yield k.train(f, self._plan(self.local_epochs), t, **terms)
        seen[k] = trained.loss
        return trained.params

    def supervise(self, fed: Federation, f: Deferred, t: int) -> Computation:
        """Start training on the server's labelled samples; the value of the returned event is a `Trained`."""
        loss = ce_on_probs if self.loss_mode == "ce_on_probs" else None
        plan = self._plan(self.server_epochs)
        return fed.server.train(f, plan, t, loss=loss, augment=self.augment)

    def _plan(self, epochs: int) -> SgdPlan:
        return SgdPlan(self.lr, self.batch_size, epochs=epochs, drop_last=self.drop_last, optimizer=self.optimizer)

    def _sets(self, fed: Federation, method: str) -> Tensor:
        """Return the index of the set of each data row [rows] among the sets of its device; -1 for rows of the server.

        A `ScenarioError` is raised if there are fewer sets than classes, or no server samples for `method`.
        """
        task = fed.task
        if task.sets is None:
            raise ScenarioError("partition: makes no unlabelled sets, which fedul learns from; use surrogate-sets")
        n_sets, n_classes = int(task.sets.max()) + 1, len(task.test_shares)
        if n_sets < n_classes:
            what = f"too few to tell {n_classes} classes apart, got {n_sets}"
            raise ScenarioError(f"partition.sets: {what}; use at least {n_classes}")
        if method != "none" and fed.server.n_samples == 0:
            raise ScenarioError(f"server.samples: {method} trains on the server, got 0; give it labelled samples")
        return task.sets


def surrogate_loss(task: LearningTask, sets: Tensor, device: int, mode: LossMode) -> SurrogateLoss:
    """Return the loss of `device`, with the transition matrix computed from the class shares of the device's sets."""
    rows, counts = task.slice_of(device), (int(sets.max()) + 1, len(task.test_shares))
    priors = empirical_priors(sets[rows].cpu().numpy(), task.data.y[rows].cpu().numpy(), *counts)
    return SurrogateLoss.of(transition(*priors, task.test_shares), mode, task.model.initial())


class Best(NamedTuple):
    """The best model so far, and the validation errors of this and of the latest model; None if not validated."""

    model: Deferred
    error: Deferred | None = None
    latest_error: Deferred | None = None


def better(fed: Federation, best: Best, f: Deferred) -> Best:
    """Return the model with the lower validation error, and both errors; without validation, return `f`."""
    if not fed.task.n_validation:
        return Best(f)
    error = fed.defer(fed.task.validation_error, f, size=1)
    if best.error is None:
        return Best(f, error, error)
    model = fed.defer(pick, best.model, f, best.error, error)
    return Best(model, fed.defer(min, best.error, error, size=1), error)


def record(fed: Federation, best: Best, losses: Sequence[Deferred], supervised: Trained | None) -> None:
    """Add a row to the series `fedul`: mean training losses and validation errors of the round."""
    if fed.timing_only:
        return
    surrogate = [fed.read(loss) for loss in losses]
    fed.record(
        "fedul",
        surrogate_loss=float(np.mean(surrogate)) if surrogate else np.nan,
        supervised_loss=np.nan if supervised is None else fed.read(supervised.loss),
        validation_error=np.nan if best.latest_error is None else fed.read(best.latest_error),
        best_validation_error=np.nan if best.error is None else fed.read(best.error),
    )


def mix(f: Tensor, supervised: Tensor, h: float) -> Tensor:
    """Return the model (1 - h) f + h `supervised` [P]; bit-identical to `f` if both models are equal, or if h = 0."""
    return f + h * (supervised - f)


def pick(best: Tensor, f: Tensor, best_error: float, error: float) -> Tensor:
    """Return the model with the smaller error; `best`, the earlier model, if the errors are equal."""
    return f if error < best_error else best
