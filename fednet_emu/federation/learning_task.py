"""The learning task of a run: one model, and the samples of one dataset on each device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch

from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import ScenarioError
from fednet_emu.files.data_folder import Read
from fednet_emu.learning.data.attacks import Attack
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import Held, Partitioned
from fednet_emu.learning.graph.jobs import TrainData
from fednet_emu.learning.metrics import Metric
from fednet_emu.learning.models.evaluate import DeviceMetrics, Metrics, SampleScores, score_samples
from fednet_emu.learning.models.flat import FlatModel


class Scores(NamedTuple):
    """Metrics of one model on the test set, and optionally on each device's share of the test set."""

    pooled: Metrics  # metrics on the whole test set
    by_device: DeviceMetrics | None  # metrics on each device's share of the test set; None if not measured
    worst_train_loss: float = math.nan  # maximum over devices of the loss on training samples; nan if not measured
    attack_success: float = math.nan  # share of attacked test samples classified as intended; nan without an attack
    validation: Metrics | None = None  # metrics on the validation samples; None if not measured

    @property
    def accuracies(self) -> Array:
        """Accuracies of the devices that have test samples; empty if accuracies by device are not measured."""
        if self.by_device is None or self.by_device.accuracy is None:
            return np.empty(0)
        return self.by_device.accuracy[self.by_device.samples > 0]


class LearningTask:
    """A model and the samples of all devices; the samples of each device are consecutive rows.

    Attributes:
        model: the model to train.
        data: training samples of all devices, then of the server; without inputs in a timing-only run.
        offsets: int64 [n_devices + 2], first row of each device and of the server, and the total number of rows.
        n_samples: int64 [n_devices], number of training samples of each device.
        sets: int64 [n_rows], index of the set of samples to which each row belongs, among the sets of its device (-1
            for rows of the server); None if the samples of devices are not divided into sets.
        outputs: number of outputs of the model.
        test_shares: float64 [classes], frequency of each class in the test set; empty if there are no classes.
        files: the files of the dataset that have been read.
        groups: int64 [n_devices], true group of each device, whose data differ; None if there are no groups.
        split: function that returns the table of the number of samples per device and label, for the records.
    """

    def __init__(
        self,
        model: FlatModel,
        samples: Samples,
        splits: tuple[Partitioned, Partitioned],
        device: torch.device,
        timing_only: bool,
        held: tuple[Held, Held] | None = None,
        attack: Attack | None = None,
        groups: IntArray | None = None,
        split: Callable[[], Any] | None = None,
        files: Read | None = None,
    ) -> None:
        train, test = splits
        self.files = files or {}
        server, self._validation = held or (Held.nothing(samples),) * 2
        self.model, self.groups, self.outputs, self.split = model, groups, samples.outputs, split
        self.offsets = np.append(train.offsets, len(train.order) + len(server.y))
        self.n_samples: IntArray = train.sizes()
        self._test_offsets = test.offsets
        order = torch.from_numpy(train.order)
        y = _joined(_rows(samples.train_y, order), server.y).to(device)
        self.sets = None
        if train.sets is not None:
            sets = torch.from_numpy(train.sets)
            self.sets = torch.nn.functional.pad(sets, (0, len(y) - len(sets)), value=-1).to(device)
        self.test_shares = np.empty(0)
        if samples.classes is not None:
            self.test_shares = np.bincount(samples.test_y.numpy(), minlength=samples.classes) / len(samples.test_y)
        if timing_only:
            self.data = TrainData(torch.empty(len(y), 0), y)
        else:
            self.data = TrainData(_joined(_rows(samples.train_x, order), server.x).to(device), y)
            self._test_x, self._test_y = samples.test_x.to(device), samples.test_y.to(device)
            self._test_order = torch.from_numpy(test.order).to(device)
            self._trial = None if attack is None else (attack.trial(samples).to(device), attack.target)
            self._validation = Held(self._validation.x.to(device), self._validation.y.to(device))

    @cached_property
    def _bounds(self) -> list[int]:
        return self.offsets.tolist()

    def slice_of(self, device: int) -> slice:
        """Return the slice of the rows of `data` that belong to a device, or to the server (-1)."""
        bounds = self._bounds
        place = device % (len(bounds) - 1)
        return slice(bounds[place], bounds[place + 1])

    def n_samples_of(self, device: int) -> int:
        """Return the number of training samples of a device, or of the server (-1)."""
        bounds = self._bounds
        place = device % (len(bounds) - 1)
        return bounds[place + 1] - bounds[place]

    def tensors(self) -> list[Any]:
        """Return all samples, in the order of the devices, and the order of the test samples."""
        held = self.data.x, self.data.y, self._validation.x, self._validation.y
        return [*held, self.sets, self._test_x, self._test_y, self._test_order, self._trial]

    @property
    def n_validation(self) -> int:
        return len(self._validation.y)

    def validation_error(self, vector: torch.Tensor) -> float:
        """Return the error rate of a classifier (parameters `vector` [P]) on validation samples; nan for regression."""
        accuracy = score_samples(self.model, vector, self._validation.x, self._validation.y).pooled().accuracy
        return float("nan") if accuracy is None else 1.0 - accuracy

    def validation(self, vectors: Sequence[torch.Tensor]) -> Metrics:
        """Return the metrics on the validation samples, averaged over models with the parameters `vectors`."""
        x, y = self._validation.x, self._validation.y
        own = {vector: score_samples(self.model, vector, x, y).pooled() for vector in dict.fromkeys(vectors)}
        found = [own[vector] for vector in vectors]
        accuracies = [metrics.accuracy for metrics in found if metrics.accuracy is not None]
        return Metrics(fmean(metrics.loss for metrics in found), fmean(accuracies) if accuracies else None, len(y))

    def train_loss(self, vector: torch.Tensor, device: int) -> float:
        """Return the mean loss of a model on all training samples of a device, without dropout."""
        own = self.slice_of(device)
        return score_samples(self.model, vector, self.data.x[own], self.data.y[own]).pooled().loss

    def score(
        self, vector: torch.Tensor, *, per_device: bool, train_loss: bool = False, metrics: Sequence[Metric] = ()
    ) -> Scores:
        """Return metrics of a model on the test set, and if requested on each device's test and training samples."""
        samples = score_samples(self.model, vector, self._test_x, self._test_y, metrics=metrics)
        scores = self._scores(samples, self._test_order, per_device=per_device)
        worst = self._worst_train_loss([vector] * len(self.n_samples)) if train_loss else math.nan
        return scores._replace(worst_train_loss=worst, attack_success=self._attack_success(vector))

    def _worst_train_loss(self, vectors: Sequence[torch.Tensor]) -> float:
        return max(self.train_loss(vectors[k], k) for k in np.flatnonzero(self.n_samples).tolist())

    def _attack_success(self, vector: torch.Tensor) -> float:
        if self._trial is None:
            return math.nan
        x, target = self._trial
        hits = score_samples(self.model, vector, x, torch.full((len(x),), target, device=x.device)).pooled().accuracy
        return math.nan if hits is None else hits

    def score_own(
        self,
        vectors: Sequence[torch.Tensor],
        *,
        per_device: bool,
        train_loss: bool = False,
        metrics: Sequence[Metric] = (),
    ) -> Scores:
        """Return metrics of each device's model on the device's share of the test set, pooled over all samples.

        The success of an attack is not measured, because it is defined only for a common model. A `ScenarioError` is
        raised if no device has a test sample.
        """
        rows = [self._test_order[start:end] for start, end in pairwise(self._test_offsets)]
        scored = [
            score_samples(self.model, vector, self._test_x[own], self._test_y[own], metrics=metrics)
            for vector, own in zip(vectors, rows, strict=True)
            if len(own)
        ]
        if not scored:
            what = f"no device has one of the {len(self._test_y)} test samples, on which its own model would be scored"
            raise ScenarioError(f"partition: {what}; give the data a `test_group`, or another partition")
        together = SampleScores.joined(scored)
        scores = self._scores(together, torch.arange(len(together.losses)), per_device=per_device)
        return scores._replace(worst_train_loss=self._worst_train_loss(vectors) if train_loss else math.nan)

    def score_together(self, vectors: Sequence[torch.Tensor], **what: Any) -> Scores:
        """Return metrics on the test set of the mean of the devices' models, and measures of their differences.

        Two metrics over the devices with training samples are added: `consensus_distance`, sqrt(mean |x_i - mean|^2)
        of the parameters x_i, and `local_model_accuracy`, the mean accuracy of the devices' models on the whole test
        set. The metrics by device contain each device's distance and accuracy, and the scores of its model on its share
        of the test set.
        """
        counted, stacked = self.n_samples > 0, torch.stack(list(vectors)).double()
        mean = stacked[torch.from_numpy(counted)].mean(0)
        far = (stacked - mean)[:, : self.model.n_trainable].norm(dim=1).cpu().numpy()
        shared = dict.fromkeys(vectors)  # devices may share a model, which is scored once
        accuracies = {vector: self.score(vector, per_device=False).pooled.accuracy for vector in shared}
        right = np.array([math.nan if (found := accuracies[vector]) is None else found for vector in vectors])
        own = self.score_own(vectors, **what)
        scores = self.score(mean.to(vectors[0].dtype), **what)
        distance = math.sqrt((far[counted] ** 2).mean())
        scores.pooled.metrics.update(consensus_distance=distance, local_model_accuracy=float(right[counted].mean()))
        if own.by_device is not None:
            own.by_device.metrics.update(consensus_distance=far, local_model_accuracy=right)
        return scores._replace(by_device=own.by_device, worst_train_loss=own.worst_train_loss)

    def _scores(self, samples: SampleScores, order: torch.Tensor, *, per_device: bool) -> Scores:
        return Scores(samples.pooled(), samples.by_device(order, self._test_offsets) if per_device else None)


def _rows(samples: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Return the samples in the given order; large datasets often have this order already and are not copied."""
    if len(order) == len(samples) and torch.equal(order, torch.arange(len(order))):
        return samples
    return samples[order]


def _joined(devices: torch.Tensor, server: torch.Tensor) -> torch.Tensor:
    return torch.cat([devices, server]) if len(server) else devices
