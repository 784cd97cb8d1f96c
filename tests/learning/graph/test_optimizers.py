"""Claims about what a step makes of a gradient."""

import numpy as np
import pytest
import torch
from pydantic import BaseModel

from fednet_emu.learning.graph.optimizers import OPTIMIZERS, Adam, AnyOptimizer, Sgd


class Holder(BaseModel):
    """A scenario with one slot."""

    optimizer: AnyOptimizer


def steps(optimizer, gradients, start, lr=0.1):
    """The weights after one step per gradient."""
    w = torch.tensor(start, dtype=torch.float64)
    move = optimizer.start(w, lr)
    for gradient in gradients:
        move(torch.tensor(gradient, dtype=torch.float64))
    return w.numpy()


def test_every_kind_is_found_by_its_name():
    """The table's names are those of the classes."""
    assert all(type(Holder(optimizer=kind).optimizer) is kind_class for kind, kind_class in OPTIMIZERS.items())


def test_sgd_moves_against_the_gradient():
    """W - lr g, twice."""
    assert steps(Sgd(), [[1.0, -2.0], [3.0, 0.0]], [0.0, 0.0]).tolist() == pytest.approx([-0.4, 0.2])


def test_adams_first_step_is_the_sign_of_the_gradient():
    """After bias correction the first step has length lr in every coordinate, whatever the gradient's scale."""
    assert steps(Adam(), [[1e-3, -40.0]], [1.0, 1.0]) == pytest.approx([0.9, 1.1], abs=1e-5)


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_adam_is_algorithm_1_of_its_paper(l2):
    """Moments, bias corrections and the step as Kingma and Ba print them, in NumPy."""
    rng = np.random.default_rng(0)
    gradients, w = rng.normal(size=(7, 5)), np.linspace(-1, 1, 5)
    expected, m, v = w.copy(), np.zeros(5), np.zeros(5)
    for t, g in enumerate(gradients, start=1):
        total = g + l2 * expected
        m, v = 0.8 * m + 0.2 * total, 0.99 * v + 0.01 * total**2
        expected -= 0.1 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6)

    assert steps(Adam(beta1=0.8, beta2=0.99, eps=1e-6, l2=l2), gradients, w) == pytest.approx(expected, rel=1e-9)


def test_a_gradient_of_zero_at_lr_zero_moves_nothing():
    """With lr = 0 Adam leaves the weights bit for bit."""
    assert steps(Adam(), [[3.0, -1.0]] * 3, [0.1, 0.7], lr=0.0).tolist() == [0.1, 0.7]
