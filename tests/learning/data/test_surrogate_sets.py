"""Claims about unlabelled sets with known class shares."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.algorithms.unlabelled.fedul import empirical_priors, transition
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions import SurrogateSets
from fednet_emu.learning.data.partitions.surrogate_sets import deal, device_priors, own_classes, set_priors
from tests.quick import examples

CASES = [(skew, overlap) for skew in ("iid", "non-iid") for overlap in ("public", "disjoint")]


def balanced(n_train: int = 36_000, classes: int = 10) -> Samples:
    """Equally frequent classes in random order, as many as FedUL's clients share."""
    y = torch.from_numpy(np.random.default_rng(0).permutation(np.arange(n_train) % classes))
    return Samples(torch.zeros(n_train, 1), y, torch.zeros(100, 1), torch.arange(100) % classes, classes)


def counts(skew: str, overlap: str, device: int = 0, **more: int) -> np.ndarray:
    """Samples of each set and class, [sets, classes], of one of five devices."""
    samples = balanced()
    train, _ = SurrogateSets(skew=skew, overlap=overlap, **more).split(samples, 5, np.random.default_rng(1))
    rows = slice(train.offsets[device], train.offsets[device + 1])
    table = np.zeros((10, 10), int)
    np.add.at(table, (train.sets[rows], samples.train_y.numpy()[train.order[rows]]), 1)
    return table


@pytest.mark.parametrize(("skew", "overlap"), CASES)
def test_no_sample_goes_to_two_devices(skew, overlap):
    """A sample may be in several sets of one device if sets overlap, and in one set at most if they are disjoint."""
    train, _ = SurrogateSets(skew=skew, overlap=overlap).split(balanced(), 5, np.random.default_rng(1))
    owners = np.repeat(np.arange(5), train.sizes())
    pairs = np.unique(np.stack([train.order, owners]), axis=1)

    assert len(np.unique(pairs[0])) == pairs.shape[1]
    assert (len(train.order) == pairs.shape[1]) == (overlap == "disjoint")
    assert len(train.sets) == len(train.order) == train.offsets[-1]


@pytest.mark.parametrize(("skew", "overlap"), CASES)
def test_no_sample_is_twice_in_one_set(skew, overlap):
    """Sets are drawn without replacement, also where they overlap."""
    train, _ = SurrogateSets(skew=skew, overlap=overlap).split(balanced(), 5, np.random.default_rng(1))

    assert len(np.unique(np.stack([train.order, train.sets]), axis=1).T) == len(train.order)


def test_iid_spreads_every_class_over_the_sets():
    """A device of 7,200 has sets of about 720, half of each its own class; disjoint sets use nearly every sample."""
    table = counts("iid", "disjoint")

    assert 7_200 * 0.97 < table.sum() <= 7_200
    assert (abs(table.sum(axis=1) - 720) < 60).all()
    assert np.diag(table).mean() / 720 == pytest.approx(0.51, abs=0.05)


def test_iid_devices_share_one_matrix():
    """The class shares of set m are the same at all devices, within the rounding and what a device has."""
    first, last = counts("iid", "public", 0), counts("iid", "public", 4)

    assert np.abs(first / first.sum(1, keepdims=True) - last / last.sum(1, keepdims=True)).max() < 0.02


def test_a_non_iid_device_has_two_classes_of_its_own():
    """Classes 2d and 2d + 1 are 95 % of what device d is dealt; its sets take no more of the others than there are."""
    table = counts("non-iid", "disjoint", device=2)
    rare = np.delete(table, [4, 5], axis=1).sum(axis=0)

    assert (rare <= 7_200 * 0.55 / 84).all()
    assert table[:, [4, 5]].sum() > 3 * rare.sum()
    assert device_priors(5, 10, np.random.default_rng(0))[2, [4, 5]] == pytest.approx([0.476, 0.476], abs=0.03)


def test_overlapping_sets_reuse_what_is_rare():
    """With 43 samples of a class, public sets want more than that together, and each takes up to all of them."""
    public, disjoint = (counts("non-iid", overlap, device=2) for overlap in ("public", "disjoint"))

    assert public[0, 0] > 30
    assert public[:, 0].sum() > 2 * disjoint[:, 0].sum()


def test_set_priors_are_those_of_the_generator():
    """Rows sum to one, and the dominant class has 1 of 10 parts of its set at the least, and 10 of 10.9 at the most."""
    theta = set_priors(2000, 10, np.random.default_rng(0))
    dominant = theta[np.arange(2000), np.arange(2000) % 10]

    assert theta.sum(axis=1) == pytest.approx(1.0)
    assert 1 / 10 <= dominant.min() < dominant.max() <= 10 / 10.9
    assert dominant.mean() == pytest.approx(0.51, abs=0.02)


def test_devices_may_be_dealt_less():
    """`samples_per_device` bounds what the sets are drawn from."""
    assert counts("iid", "disjoint", samples_per_device=1000).sum() == pytest.approx(1000, rel=0.1)


# ---- classes that are short ------------------------------------------------------------------------------------------

MNIST = np.array([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]) * 36 // 60
"""Training samples of each digit, after two fifths were held out: most classes have less than a tenth of all."""


def of_sizes(sizes) -> Samples:
    """Samples with so many of each class."""
    y = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
    return Samples(torch.zeros(len(y), 1), y, torch.zeros(100, 1), torch.arange(100) % len(sizes), len(sizes))


def distinct(train, samples, n_devices) -> np.ndarray:
    """Different samples of each class that each device holds, [devices, classes]."""
    labels = samples.train_y.numpy()
    held = [labels[np.unique(train.of(device))] for device in range(n_devices)]
    return np.array([np.bincount(row, minlength=samples.classes) for row in held])


def test_small_shares_are_dealt_where_classes_are_short():
    """MNIST's classes at five devices: each has 0.6 % of 7,200 of each foreign class, the owners get the rest."""
    samples = of_sizes(MNIST)
    train, _ = SurrogateSets(skew="non-iid").split(samples, 5, np.random.default_rng(1))
    held, own = distinct(train, samples, 5), own_classes(5, 10)
    size = MNIST.sum() // 5
    wanted = np.floor(size * device_priors(5, 10, _after_shuffle(len(samples.train_y))))

    assert (wanted.sum(axis=0) > MNIST).any()
    assert held[~own].tolist() == wanted[~own].tolist()
    assert held[~own] / size == pytest.approx(0.006, abs=0.001)
    assert (held.sum(axis=0) <= MNIST).all()


def _after_shuffle(count: int) -> np.random.Generator:
    """The stream of a split after its first draw, the order of the samples."""
    rng = np.random.default_rng(1)
    rng.permutation(count)
    return rng


def test_every_device_can_tell_every_class_apart():
    """With MNIST's classes and ten sets the transition of each of five devices has full rank, far from singular."""
    samples = of_sizes(MNIST)
    train, _ = SurrogateSets(skew="non-iid").split(samples, 5, np.random.default_rng(1))
    labels = samples.train_y.numpy()

    for device in range(5):
        rows = slice(train.offsets[device], train.offsets[device + 1])
        priors, shares = empirical_priors(train.sets[rows], labels[train.order[rows]], 10, 10)
        q = transition(priors, shares, np.full(10, 0.1))
        assert np.linalg.matrix_rank(q) == 10
        assert np.linalg.cond(q) < 1e3


@examples(200)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=2, max_size=12),
    n_devices=st.integers(1, 14),
    size=st.integers(1, 2000),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_deal_keeps_its_promise_or_is_refused(sizes, n_devices, size, seed):
    """Foreign classes are dealt in full and own ones as far as there are samples, in proportion to within one sample.

    It is refused exactly where a class has too few for the small shares of all, owners' included.
    """
    available, own = np.array(sizes), own_classes(n_devices, len(sizes))
    wanted = np.floor(size * device_priors(n_devices, len(sizes), np.random.default_rng(seed))).astype(int)
    small = np.where(own, -(-wanted // 80), wanted).sum(axis=0)
    try:
        dealt = deal(wanted, own, available)
    except ScenarioError:
        assert (small > available).any()
        return

    assert (small <= available).all()
    assert (dealt[~own] == wanted[~own]).all()
    assert (dealt.sum(axis=0) == np.minimum(available, wanted.sum(axis=0))).all()
    for label in range(len(sizes)):
        parts, ideal = dealt[own[:, label], label], wanted[own[:, label], label]
        left = min(available[label] - wanted[~own[:, label], label].sum(), ideal.sum())
        assert np.abs(parts - left * ideal / max(ideal.sum(), 1)).max(initial=0.0) < 1.0


def test_classes_that_suffice_are_dealt_as_wanted():
    """Nothing changes where every class has enough: each device gets exactly its shares."""
    wanted = np.array([[40, 40, 1, 1], [1, 1, 40, 40]])

    assert deal(wanted, own_classes(2, 4), np.array([41, 50, 60, 41])).tolist() == wanted.tolist()
    assert deal(wanted, own_classes(2, 4), np.array([31, 50, 60, 41])).tolist() == [[30, 40, 1, 1], [1, 1, 40, 40]]
