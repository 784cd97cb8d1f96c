"""Claims about what a step makes of a gradient."""

import numpy as np
import pytest
import torch
from pydantic import BaseModel

from fednet_emu.learning.graph.optimizers import OPTIMIZERS, STACKED, Adam, AdamW, AnyOptimizer, Momentum, Sgd, clip


class Holder(BaseModel):
    """A scenario with one slot."""

    optimizer: AnyOptimizer


def steps(optimizer, gradients, start, lr=0.1):
    w = torch.tensor(start, dtype=torch.float64)
    move = optimizer.start(w, lr)
    for gradient in gradients:
        move(torch.tensor(gradient, dtype=torch.float64))
    return w.numpy()


def test_every_kind_is_found_by_its_name():
    """The table's names are those of the classes."""
    assert all(type(Holder(optimizer=kind).optimizer) is kind_class for kind, kind_class in OPTIMIZERS.items())


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_adam_is_algorithm_1_of_its_paper(decay):
    """Moments, bias corrections and the step as Kingma and Ba print them, in NumPy."""
    rng = np.random.default_rng(0)
    gradients, w = rng.normal(size=(7, 5)), np.linspace(-1, 1, 5)
    expected, m, v = w.copy(), np.zeros(5), np.zeros(5)
    for t, g in enumerate(gradients, start=1):
        total = g + decay * expected
        m, v = 0.8 * m + 0.2 * total, 0.99 * v + 0.01 * total**2
        expected -= 0.1 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6)

    assert steps(Adam(beta1=0.8, beta2=0.99, eps=1e-6, weight_decay=decay), gradients, w) == pytest.approx(
        expected, rel=1e-9
    )


def test_adamw_shrinks_the_weights_beside_the_moments():
    """Algorithm 2 of Loshchilov and Hutter with a step size of 1 for all steps, in NumPy; without decay it is Adam."""
    rng = np.random.default_rng(3)
    gradients, w = rng.normal(size=(7, 5)), np.linspace(-1, 1, 5)
    expected, m, v = w.copy(), np.zeros(5), np.zeros(5)
    for t, g in enumerate(gradients, start=1):
        m, v = 0.8 * m + 0.2 * g, 0.99 * v + 0.01 * g**2
        expected = expected * (1 - 0.1 * 0.3) - 0.1 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6)

    own = {"beta1": 0.8, "beta2": 0.99, "eps": 1e-6}
    assert steps(AdamW(**own, weight_decay=0.3), gradients, w) == pytest.approx(expected, rel=1e-9)
    assert steps(AdamW(**own, weight_decay=0), gradients, w).tolist() == steps(Adam(**own), gradients, w).tolist()
    assert AdamW().weight_decay == 0.01


@pytest.mark.parametrize(
    "optimizer", [Sgd(), Sgd(weight_decay=0.2), Momentum(beta=0.7, weight_decay=0.2), Momentum(beta=0.7, nesterov=True)]
)
def test_many_jobs_at_once_are_each_alone(optimizer):
    """Three jobs of three, two and one steps: rows that have ended stay, the others go on with their own state."""
    assert type(optimizer) in STACKED
    gradients, start = torch.randn(3, 3, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    together = start.clone()
    move = optimizer.start(together, 0.1)
    for place, active in enumerate((3, 2, 1)):
        move(gradients[place, :active])

    for job, n_steps in enumerate((3, 2, 1)):
        alone = start[job].clone()
        move = optimizer.start(alone, 0.1)
        for place in range(n_steps):
            move(gradients[place, job])
        assert torch.equal(together[job], alone)


@pytest.mark.parametrize(
    "optimizer", [Sgd(weight_decay=0.2), Momentum(weight_decay=0.2, nesterov=True), Adam(weight_decay=0.2)]
)
def test_gradients_are_left_alone(optimizer):
    """A step neither modifies the gradient that it is given nor keeps it."""
    gradient, w = torch.ones(4), torch.ones(4)
    move = optimizer.start(w, 0.1)
    move(gradient)
    after = w.clone()
    gradient.fill_(7.0)

    assert torch.equal(w, after)
    move(torch.zeros(4))
    again = optimizer.start(other := torch.ones(4), 0.1)
    again(torch.ones(4))
    again(torch.zeros(4))
    assert torch.equal(w, other)


def test_what_is_frozen_does_not_count_for_the_length():
    """A gradient of length 3 where it trains, beside a huge one where it does not, is left as it is."""
    gradient = torch.tensor([3.0, 1e6])
    clip(gradient, 4.0, torch.tensor([1.0, 0.0]))

    assert gradient.tolist() == [3.0, 1e6]
