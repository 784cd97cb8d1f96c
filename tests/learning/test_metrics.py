"""Metrics, and libraries that are imported late."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch import nn
from torch.nn.functional import cross_entropy

from fednet_emu.analysis.scales import OWN_METRICS
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets import hugging_face as hub
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.metrics import (
    METRICS,
    R2,
    AveragePrecision,
    BalancedAccuracy,
    ExactMatch,
    MacroF1,
    Mae,
    Measured,
    MicroF1,
    Perplexity,
    Rmse,
    RocAuc,
    TopK,
)
from fednet_emu.learning.models import TorchvisionModel, TransformersModel
from fednet_emu.learning.models.evaluate import score_samples
from fednet_emu.learning.models.flat import FlatModel

N, CLASSES = 200, 7
GENERATOR = torch.Generator().manual_seed(4)
LOGITS = torch.randn(N, CLASSES, generator=GENERATOR)
CLASS = torch.randint(CLASSES - 1, (N,), generator=GENERATOR)  # the last class is predicted, but never occurs
PREDICTED = LOGITS.argmax(1)
TARGETS = torch.randn(N, 3, generator=GENERATOR)
GUESSES = TARGETS + 0.3 * torch.randn(N, 3, generator=GENERATOR)
LABELS = (torch.randn(N, 4, generator=GENERATOR) > 0.6).float()
LABEL_SCORES = torch.randn(N, 4, generator=GENERATOR) + LABELS


def measured(metric, outputs, y):
    losses = cross_entropy(outputs, y, reduction="none") if y.dtype == torch.int64 else torch.zeros(len(y))
    return Measured(metric, metric.kept(outputs, y, losses).numpy(), y.numpy()).pooled()


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize(
    ("metric", "outputs", "y", "expected"),
    [
        (TopK(k=3), LOGITS, CLASS, lambda: sk.top_k_accuracy_score(CLASS, LOGITS, k=3, labels=range(CLASSES))),
        (MacroF1(), LOGITS, CLASS, lambda: sk.f1_score(CLASS, PREDICTED, average="macro")),
        (BalancedAccuracy(), LOGITS, CLASS, lambda: sk.balanced_accuracy_score(CLASS, PREDICTED)),
        (
            Perplexity(),
            LOGITS,
            CLASS,
            lambda: math.exp(sk.log_loss(CLASS, LOGITS.double().softmax(1).numpy(), labels=range(CLASSES))),
        ),
        (Mae(), GUESSES, TARGETS, lambda: sk.mean_absolute_error(TARGETS, GUESSES)),
        (Mae(), GUESSES[:, :1], TARGETS[:, 0], lambda: sk.mean_absolute_error(TARGETS[:, 0], GUESSES[:, 0])),
        (Rmse(), GUESSES, TARGETS, lambda: math.sqrt(sk.mean_squared_error(TARGETS, GUESSES))),
        (R2(), GUESSES, TARGETS, lambda: sk.r2_score(TARGETS.numpy(), GUESSES.numpy())),
        (R2(), GUESSES[:, :1], TARGETS[:, 0], lambda: sk.r2_score(TARGETS[:, 0].numpy(), GUESSES[:, 0].numpy())),
        (MicroF1(), LABEL_SCORES, LABELS, lambda: sk.f1_score(LABELS, LABEL_SCORES > 0, average="micro")),
        (ExactMatch(), LABEL_SCORES, LABELS, lambda: sk.accuracy_score(LABELS, LABEL_SCORES > 0)),
        (AveragePrecision(), LABEL_SCORES, LABELS, lambda: sk.average_precision_score(LABELS, LABEL_SCORES)),
        (MacroF1(), LABEL_SCORES, LABELS, lambda: sk.f1_score(LABELS, LABEL_SCORES > 0, average="macro")),
        (RocAuc(), LABEL_SCORES, LABELS, lambda: sk.roc_auc_score(LABELS, LABEL_SCORES, average="macro")),
        (RocAuc(), LOGITS[:, :2], CLASS % 2, lambda: sk.roc_auc_score(CLASS % 2, LOGITS[:, 1] - LOGITS[:, 0])),
        (
            RocAuc(),
            LOGITS[:, :6],
            CLASS,
            lambda: sk.roc_auc_score(CLASS, LOGITS[:, :6].double().softmax(1), multi_class="ovr", average="macro"),
        ),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_metrics_are_those_of_scikit_learn(metric, outputs, y, expected):
    """On random outputs and targets, of which one class never occurs."""
    assert measured(metric, outputs, y) == pytest.approx(expected(), rel=1e-6)


@pytest.mark.parametrize(
    ("metric", "outputs", "y", "expected"),
    [
        (TopK(k=2), [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]], [1, 2], 0.5),
        (MacroF1(), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [0, 0], (2 / 3 + 0) / 2),
        (BalancedAccuracy(), [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]], [0, 0, 1, 1], 0.75),
        (Perplexity(), [[5.0] * 8], [3], 8.0),
        (Perplexity(), [[0.0, 1e9]], [0], math.inf),
        (Mae(), [1.0, 2.0], [2.0, 0.0], 1.5),
        (Rmse(), [1.0, 2.0], [2.0, 0.0], math.sqrt(2.5)),
        (R2(), [1.0, 1.0], [2.0, 0.0], 0.0),
        (R2(), [1.0, 1.0], [2.0, 2.0], math.nan),
        (MicroF1(), [[1.0, -1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]], 2 / 4),
        (MicroF1(), [[-1.0, -1.0]], [[0.0, 0.0]], math.nan),
        (ExactMatch(), [[1.0, -1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], 0.5),
        (AveragePrecision(), [[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]], [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], 0.5),
        (AveragePrecision(), [[3.0, 1.0]], [[0.0, 0.0]], math.nan),
        (MacroF1(), [[1.0, -1.0, -1.0], [1.0, -1.0, 1.0]], [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], (2 / 3 + 0) / 2),
        (MacroF1(), [[-1.0, -1.0]], [[0.0, 0.0]], math.nan),
        (MacroF1(), [[-1.0, -1.0], [-1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]], 0.0),  # one label, predicted in vain
        (MacroF1(), [[2.0, -1.0], [-1.0, -1.0]], [[1.0, 0.0], [1.0, 0.0]], 2 / 3),  # one label, missed once
        (RocAuc(), [[0.0, 1.0], [0.0, 3.0], [0.0, 2.0], [0.0, 2.0]], [0, 1, 1, 0], 3.5 / 4),
        (RocAuc(), [[9.0, 0.0, 0.0], [0.0, 0.0, 9.0], [0.0, 0.0, 8.0]], [0, 2, 2], 1.0),
        (RocAuc(), [[0.0, 99.0], [0.0, 100.0]], [1, 1], math.nan),
        (RocAuc(), [[math.nan, 1.0], [0.0, 1.0]], [0, 1], math.nan),
    ],
)  # fmt: skip
def test_metrics_of_a_few_samples_are_those_by_hand(metric, outputs, y, expected):
    """Undefined scores are nan."""
    assert measured(metric, torch.tensor(outputs), torch.tensor(y)) == pytest.approx(expected, nan_ok=True)


def test_every_kind_is_tested_and_has_a_title():
    """Every column appears in reports by name."""
    assert {kind: METRICS[kind]().kind for kind in METRICS} == {kind: kind for kind in METRICS}
    columns = {METRICS[kind]().column for kind in METRICS} | {TopK(k=k).column for k in range(2, 11)}
    assert columns == set(OWN_METRICS)


@pytest.mark.parametrize("kind", METRICS)
def test_a_metric_refuses_what_it_does_not_suit(kind):
    """In one sentence with the task."""
    x = torch.zeros(4, 2)
    tasks = {
        "classification": Samples(x, x[:, 0].long(), x, x[:, 0].long(), classes=20),
        "regression": Samples(x, x[:, 0], x, x[:, 0], classes=None),
        "multi-label": Samples(x, x, x, x, classes=None, multi_label=True),
    }
    for task, samples in tasks.items():
        what = METRICS[kind]().unfit(samples)
        assert what is None if task in METRICS[kind].suits else f"got data for {task}; leave it out" in what


def test_the_classes_among_which_one_may_be_are_fewer_than_all():
    """Otherwise the score says nothing."""
    x = torch.zeros(4, 2)
    samples = Samples(x, x[:, 0].long(), x, x[:, 0].long(), classes=5)
    assert TopK(k=4).unfit(samples) is None
    assert TopK(k=5).unfit(samples) == "every sample is right among all 5 classes, got k = 5; give fewer"


@pytest.mark.parametrize("chunk", [3, 100])
def test_scores_do_not_depend_on_chunks_and_those_of_devices_are_those_of_their_samples(chunk):
    """Every device's score is that of its samples alone; without samples there is none."""
    model = FlatModel(nn.Linear(5, 3), "cross-entropy", (5,))
    x, y = torch.randn(10, 5, generator=GENERATOR), torch.randint(3, (10,), generator=GENERATOR)
    kinds = [MacroF1(), Perplexity(), TopK(k=2)]
    scores = score_samples(model, model.initial(), x, y, chunk=chunk, metrics=kinds)
    order, offsets = torch.tensor([9, 1, 4, 0, 2, 3]), np.array([0, 2, 2, 6])
    own = scores.by_device(order, offsets).metrics

    for rows, device in ((order[:2], 0), (order[2:], 2), (slice(None), None)):
        alone = score_samples(model, model.initial(), x[rows], y[rows], metrics=kinds).pooled().metrics
        found = scores.pooled().metrics if device is None else {name: its[device] for name, its in own.items()}
        assert found == pytest.approx(alone)
    assert list(own) == ["macro_f1", "perplexity", "top_2"]
    assert all(math.isnan(its[1]) for its in own.values())


ASKED = {
    "datasets": hub.library,
    "torchvision": lambda: TorchvisionModel(name="resnet18").build((3, 32, 32), 10),
    "transformers": lambda: TransformersModel(config={"model_type": "gpt2"}).build((8,), 10),
}


@pytest.mark.parametrize("name", ["torchvision", "datasets", "transformers"])
def test_a_missing_library_is_one_sentence(name, monkeypatch):
    """It names the extra that has it."""
    monkeypatch.setitem(sys.modules, name, None)
    extra = "hugging-face" if name == "datasets" else name

    with pytest.raises(
        ScenarioError, match=rf"{name} is not installed or incomplete .*pip install 'fednet-emu\[{extra}\]'"
    ):
        ASKED[name]()
