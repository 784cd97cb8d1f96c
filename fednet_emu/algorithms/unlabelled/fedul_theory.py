"""Theorem 1 of FedUL: class probabilities to probabilities of surrogate labels (set numbers), and losses from it.

Lu, Wang, Li, Niu, Dou, Sugiyama: "Federated Learning from Only Unlabeled Data with Class-Conditional-Sharing Clients",
ICLR 2022, https://openreview.net/forum?id=WHA8009laxu. With K classes and M sets, Pi [M, K] holds the class shares of a
client's sets, pib [M] the sets' shares of its samples, pi [K] the class shares of the test data, and eta [K] the class
probabilities of a sample. Its probabilities of belonging to each set are

    Q(eta) = A eta / (1' A eta)   with   A = diag(pib) Pi diag(pi)^-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fednet_emu.arrays import Array, IntArray

LossMode = Literal["nll", "ce_on_probs"]


def empirical_priors(sets: IntArray, classes: IntArray, n_sets: int, n_classes: int) -> tuple[Array, Array]:
    """Class shares Pi [M, K] of a client's M sets, and the sets' shares pib [M] of its samples; a client knows both.

    From the set and the class of each sample [n], both from 0; the classes only count into these shares. An empty set
    has shares of zero.
    """
    counts = np.zeros((n_sets, n_classes))
    np.add.at(counts, (sets, classes), 1.0)
    sizes = counts.sum(axis=1)
    return counts / np.maximum(sizes, 1.0)[:, None], sizes / sizes.sum()


def transition(set_priors: Array, set_shares: Array, test_shares: Array) -> Array:
    """The matrix A [M, K] of Theorem 1, not normalised; columns of classes that are not in the test data are zero."""
    inverse = np.divide(1.0, test_shares, out=np.zeros_like(test_shares), where=test_shares > 0)
    a: Array = set_shares[:, None] * set_priors * inverse
    return a


@final
@dataclass(frozen=True, slots=True, eq=False)
class SurrogateLoss:
    """The loss of a client per sample, from class scores z [B, K] and surrogate labels y [B] (numbers of sets).

    With `mode` "nll" it is -log Q_y(softmax z), as in the paper. "ce_on_probs" takes the probabilities Q(softmax z) for
    scores and applies a softmax to them again, as the authors' public code does; it cannot go below log(e + M - 1) - 1.
    """

    log_a: Tensor  # logarithms of the transition matrix [M, K]; minus infinity where it is zero
    mode: LossMode = "nll"

    @classmethod
    def of(cls, a: Array, mode: LossMode, like: Tensor) -> SurrogateLoss:
        """The loss for a transition a [M, K], with the dtype and torch device of `like`."""
        return cls(torch.from_numpy(a).to(like).log(), mode)

    def __call__(self, z: Tensor, y: Tensor) -> Tensor:
        """The losses [B]."""
        if self.mode == "ce_on_probs":
            log_a = self.log_a.clamp_min(torch.finfo(z.dtype).min / 2)  # so that an empty set has gradient 0, not NaN
            logits = torch.logsumexp(z[:, None] + log_a, dim=2)
            return cross_entropy(logits.softmax(1), y, reduction="none")
        total = torch.logsumexp(z + self.log_a.logsumexp(0), dim=1)
        return total - torch.logsumexp(z + self.log_a[y], dim=1)


def ce_on_probs(z: Tensor, y: Tensor) -> Tensor:
    """The supervised loss [B] of the authors' public code: cross-entropy of the softmax of the scores z [B, K].

    It cannot go below log(e + K - 1) - 1: 1.46115 for ten classes.
    """
    return cross_entropy(z.softmax(1), y, reduction="none")
