import itertools

import numpy as np
import pytest
import torch
from torch import nn

from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.evaluate import Metrics, gradient_norm, score_samples
from fednet_emu.learning.models.flat import FlatModel

CLASSIFIER = FlatModel(seeded_module(lambda: nn.Linear(5, 3), 1), "cross-entropy", (5,))
RNG = np.random.default_rng(4)
X = torch.from_numpy(RNG.normal(size=(50, 5)).astype(np.float32))
Y = torch.from_numpy(RNG.integers(0, 3, 50))


def evaluate(*args, chunk=4096) -> Metrics:
    """The metrics over all samples."""
    return score_samples(*args, chunk=chunk).pooled()


def test_uniform_scores_lose_log_of_the_classes():
    """With all parameters zero the loss is ln 3 and every sample is put in class 0."""
    metrics = evaluate(CLASSIFIER, torch.zeros(CLASSIFIER.size), X, Y)

    assert metrics.loss == pytest.approx(np.log(3), rel=1e-6)
    assert metrics.accuracy == float((Y == 0).double().mean())
    assert metrics.samples == 50


def test_chunks_do_not_matter():
    """Seven samples at a time give the same as all at once."""
    vector = CLASSIFIER.initial()
    whole, chunked = evaluate(CLASSIFIER, vector, X, Y), evaluate(CLASSIFIER, vector, X, Y, chunk=7)

    assert chunked.loss == pytest.approx(whole.loss, rel=1e-6)
    assert chunked.accuracy == whole.accuracy


class Widening(nn.Module):
    """A linear layer before a megabyte of activations per sample; notes how many samples it is given."""

    def __init__(self, note):
        super().__init__()
        self.linear, self.note = nn.Linear(5, 3), note

    def forward(self, x):
        """The scores."""
        self.note(len(x))
        return self.linear(x)[:, :, None].expand(-1, -1, 87_300).exp().sum(2)


def test_activations_bound_the_samples_at_a_time():
    """A model that keeps 1 MiB per sample on a processor is shown at most 64 of them at a time."""
    seen = []
    model = FlatModel(Widening(seen.append), "cross-entropy", (5,))
    evaluate(model, model.initial(), X.repeat(3, 1), Y.repeat(3))

    assert seen[-3:] == [64, 64, 22]


def test_regression_has_no_accuracy():
    """Squared error: the model 2x + 1 on targets 2x misses each by one."""
    model = FlatModel(nn.Linear(1, 1), "squared-error", (1,))
    x = torch.arange(4.0)[:, None]
    metrics = evaluate(model, torch.tensor([2.0, 1.0]), x, 2 * x[:, 0])

    assert metrics.loss == pytest.approx(1.0)
    assert metrics.accuracy is None
    scores = score_samples(model, torch.tensor([2.0, 1.0]), x, 2 * x[:, 0])
    assert scores.by_device(torch.arange(4), np.array([0, 4])).accuracy is None


def test_devices_are_measured_as_if_alone():
    """One pass over all samples gives each device the metrics of its own slice, and nan to one without samples."""
    vector, offsets = CLASSIFIER.initial(), np.array([0, 7, 7, 8, 47])
    order = torch.from_numpy(RNG.permutation(50)[:47])
    found = score_samples(CLASSIFIER, vector, X, Y, chunk=16).by_device(order, offsets)
    own = [order[a:b] for a, b in itertools.pairwise(offsets)]
    alone = [evaluate(CLASSIFIER, vector, X[rows], Y[rows]) for rows in own]

    assert found.loss == pytest.approx([one.loss for one in alone], rel=1e-5, nan_ok=True)
    assert found.accuracy == pytest.approx([one.accuracy for one in alone], nan_ok=True)
    assert found.samples.tolist() == [7, 0, 1, 39]
    assert np.isnan(found.loss).tolist() == [False, True, False, False]


def test_evaluation_draws_nothing():
    """A model with dropout is evaluated without dropping and without touching torch's generator."""
    model = FlatModel(nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5)), "cross-entropy", (5,))
    before = torch.get_rng_state()

    first, second = (evaluate(model, model.initial(), X, Y) for _ in range(2))

    assert first == second
    assert torch.equal(torch.get_rng_state(), before)


def test_gradient_norm_of_a_line():
    """At w = 0 and b = 0, the gradient of the mean of (w x + b - y)^2 over (1, 2) and (3, 4) is (-14, -6)."""
    model = FlatModel(nn.Linear(1, 1), "squared-error", (1,))
    vector = torch.zeros(2)

    found = gradient_norm(model, vector, torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, 4.0]))

    assert found == pytest.approx(np.hypot(14, 6))
    assert not vector.requires_grad


def test_gradient_norm_holds_running_statistics_constant():
    """A line behind batch norm: with mean 1, variance 4 and weight 2, the output for x is x - 1, up to epsilon."""
    norm, line = nn.BatchNorm1d(1, affine=False, eps=1e-12), nn.Linear(1, 1, bias=False)
    model = FlatModel(nn.Sequential(norm, line), "squared-error", (1,))
    vector = torch.tensor([2.0, 1.0, 4.0])  # weight, mean, variance

    found = gradient_norm(model, vector, torch.tensor([[3.0], [5.0]]), torch.tensor([0.0, 0.0]))

    residual, normalised = [2.0, 4.0], [1.0, 2.0]
    assert found == pytest.approx(sum(2 * r * x for r, x in zip(residual, normalised, strict=True)) / 2)
