"""Distillation: training towards scores of public samples, which are the samples of the server."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

from fednet_emu.algorithms.base import LocalTraining
from fednet_emu.component.component import Excludes
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Computation, Deferred, Device, Federation, SgdPlan


class PublicSamples(LocalTraining):
    """Base class with the settings of distillation on public samples, `server.samples`, whose labels are not used."""

    excludes = (
        Excludes(
            "server.samples",
            {0},
            "distils on public samples",
            "give server.samples, whose labels are not used",
            got="none",
            key="kind",
        ),
    )
    distil_epochs: int = Field(1, gt=0)
    """Number of passes over the public samples each time a model is trained towards their scores."""
    distil_lr: float | None = Field(None, ge=0)
    """Step size of the distillation; null is `lr`. Batches have the size `batch_size`, and steps are plain SGD."""

    @property
    def distil_plan(self) -> SgdPlan:
        lr = self.lr if self.distil_lr is None else self.distil_lr
        return SgdPlan(lr, self.batch_size, epochs=self.distil_epochs)

    def public(self, fed: Federation) -> Tensor:
        """Return the public samples [M, ...]; raise an error for a model without classes, or too small batches."""
        check_classifier(fed, self.kind)
        n, least = fed.server.n_samples, fed.task.model.min_batch
        if least > 1 and self.distil_plan.min_batch(n) < least:
            what = f"the model has batch norm, so a batch must have {least} samples or more"
            found = f"got {n}, of which batches of {self.batch_size or n} leave 1"
            raise ScenarioError(f"server.samples: {what}, {found}; give another number")
        return fed.task.data.x[fed.task.slice_of(fed.server.index)]

    def n_scores(self, fed: Federation) -> int:
        return fed.server.n_samples * fed.task.outputs

    def distil(self, fed: Federation, k: Device, w: Deferred, scores: Deferred, *key: Any) -> Computation:
        """Start training `w` on `k` towards `scores` [M, classes] of the public samples; return the `Computation`."""
        return k.train(w, self.distil_plan, *key, "distil", of=fed.server, loss=divergence, targets=scores)


def check_classifier(fed: Federation, kind: str) -> None:
    """Raise an error unless the scenario's model has one score for each class."""
    if not fed.task.model.is_classifier:
        what = f"{kind} needs one score per class, got one of loss {fed.task.model.loss_name}"
        raise ScenarioError(f"model: {what}; choose data with classes, and cross-entropy")


def divergence(outputs: Tensor, scores: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence [B] of softmax(`scores`) from softmax(`outputs`), both [B, classes]."""
    wanted, found = log_softmax(scores, 1), log_softmax(outputs, 1)
    return kl_div(found, wanted, log_target=True, reduction="none").sum(1)
