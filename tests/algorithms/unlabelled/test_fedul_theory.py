"""Theorem 1 of FedUL in numbers, and the losses built on it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from fednet_emu.algorithms.unlabelled.fedul import (
    SurrogateLoss,
    ce_on_probs,
    empirical_priors,
    transition,
)
from tests.quick import examples


def world(seed, n_sets=5, n_classes=3, n_points=40):
    """Class-conditional densities on points, and a client's and the test set's priors: Pi, pib, pi, p(x | k)."""
    rng = np.random.default_rng(seed)
    priors, density = rng.dirichlet(np.ones(n_classes), n_sets), rng.dirichlet(np.ones(n_points), n_classes)
    return priors, rng.dirichlet(np.ones(n_sets)), rng.dirichlet(np.ones(n_classes)), density


def posteriors(priors, shares, pi, density):
    """By Bayes' rule: of the classes under the test prior, [points, K], and of the sets at the client, [points, M]."""
    joint_classes, joint_sets = pi[:, None] * density, shares[:, None] * (priors @ density)
    return (joint_classes / joint_classes.sum(0)).T, (joint_sets / joint_sets.sum(0)).T


def surrogate_posterior(a, eta):
    """The set probabilities Q(eta) [n, M] for class probabilities eta [n, K] and the transition matrix a [M, K]."""
    unnormalised = eta @ a.T
    return unnormalised / unnormalised.sum(axis=-1, keepdims=True)


@examples(50)
@given(seed=st.integers(0, 10_000))
def test_theorem_1(seed):
    """Q of the true class posterior is the true posterior of the sets, to 1e-12, for any priors."""
    priors, shares, pi, density = world(seed)
    eta, true = posteriors(priors, shares, pi, density)

    assert np.abs(surrogate_posterior(transition(priors, shares, pi), eta) - true).max() < 1e-12


def test_the_inverse_of_the_test_prior_matters():
    """Without diag(pi)^-1 the set posterior is wrong when the classes of the test set are not equally frequent."""
    priors, shares, pi, density = world(1)
    eta, true = posteriors(priors, shares, pi, density)

    assert np.abs(surrogate_posterior(shares[:, None] * priors, eta) - true).max() > 0.05


@pytest.mark.parametrize("mode", ["nll", "ce_on_probs"])
def test_an_empty_set_has_a_gradient(mode):
    """A device without samples of one of its sets trains on the others: gradients are numbers, in either loss."""
    priors, shares = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]), np.array([0.6, 0.4, 0.0])
    loss = SurrogateLoss.of(transition(priors, shares, np.full(3, 1 / 3)), mode, torch.zeros(1))
    z = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss(z, torch.tensor([0, 1, 1, 0])).sum().backward()

    assert torch.isfinite(z.grad).all()
    assert z.grad.abs().max() > 0


@examples(50)
@given(seed=st.integers(0, 10_000))
def test_q_is_a_distribution(seed):
    """Rows of Q are not negative and sum to one."""
    priors, shares, pi, _ = world(seed)
    q = surrogate_posterior(transition(priors, shares, pi), np.random.default_rng(seed).dirichlet(np.full(3, 0.1), 20))

    assert (q >= 0).all()
    assert np.abs(q.sum(1) - 1).max() < 1e-12


def test_empirical_priors_count():
    """Five samples in two sets: shares of classes within each set, and of the sets; both sum to one."""
    priors, shares = empirical_priors(np.array([0, 0, 1, 1, 1]), np.array([2, 0, 1, 1, 0]), 3, 3)

    assert priors.tolist() == [[0.5, 0, 0.5], [1 / 3, 2 / 3, 0], [0, 0, 0]]
    assert shares.tolist() == [0.4, 0.6, 0]


def scores(seed=0, n=30, classes=3):
    """Scores of a network, in double precision."""
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, classes)) * 3)


def test_nll_is_the_logarithm_of_q():
    """The loss is -log Q_y(softmax z), the formula of the paper evaluated with NumPy."""
    priors, shares, pi, _ = world(2)
    a, z = transition(priors, shares, pi), scores()
    y = torch.arange(30) % 5
    q = surrogate_posterior(a, z.softmax(1).numpy())

    losses = SurrogateLoss.of(a, "nll", z)(z, y)

    assert losses.numpy() == pytest.approx(-np.log(q[np.arange(30), y.numpy()]), rel=1e-12)


def test_ce_on_probs_applies_the_softmax_twice():
    """The mode of the public code is the cross-entropy of Q taken for scores."""
    priors, shares, pi, _ = world(2)
    a, z = transition(priors, shares, pi), scores()
    y = torch.arange(30) % 5
    q = torch.from_numpy(surrogate_posterior(a, z.softmax(1).numpy()))

    assert torch.allclose(SurrogateLoss.of(a, "ce_on_probs", z)(z, y), cross_entropy(q, y, reduction="none"))


def test_the_identity_is_the_cross_entropy():
    """With sets that are the classes, Pi = I and pib = pi, the loss and its gradient are those of labels."""
    pi = np.array([0.2, 0.3, 0.5])
    loss = SurrogateLoss.of(transition(np.eye(3), pi, pi), "nll", scores())
    y, gradients = torch.arange(30) % 3, []
    for function in (loss, lambda z, y: cross_entropy(z, y, reduction="none")):
        z = scores().requires_grad_()
        function(z, y).sum().backward()
        gradients.append(z.grad)

    assert torch.allclose(loss(scores(), y), cross_entropy(scores(), y, reduction="none"), rtol=1e-12)
    assert torch.allclose(*gradients, rtol=1e-12, atol=1e-15)


def test_absent_classes_and_certain_scores_stay_finite():
    """A class that no set has, sets of a single class, and scores of +-1000 leave loss and gradient finite."""
    priors = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    loss = SurrogateLoss.of(transition(priors, np.full(3, 1 / 3), np.full(3, 1 / 3)), "nll", torch.zeros(1))
    z = torch.tensor([[1000.0, -1000.0, 0.0], [-1000.0, 1000.0, 1000.0]], requires_grad=True)
    losses = loss(z, torch.tensor([1, 2]))
    losses.sum().backward()

    assert torch.isfinite(losses).all()
    assert torch.isfinite(z.grad).all()


def test_the_floor_of_the_public_codes_supervised_loss():
    """A network that is certain and right still has the loss log(e + 9) - 1 = 1.46115 for ten classes."""
    z = 1e4 * torch.eye(10, dtype=torch.float64)
    floor = math.log(math.e + 9) - 1

    assert floor == pytest.approx(1.46115, abs=5e-6)
    assert ce_on_probs(z, torch.arange(10)).tolist() == pytest.approx([floor] * 10)
    assert (
        ce_on_probs(torch.randn(1000, 10, dtype=torch.float64) * 50, torch.arange(1000) % 10) >= floor - 1e-12
    ).all()
