"""Partitions: laws, NIID-Bench's guard and surrogate sets."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from fednet_emu.algorithms.unlabelled.fedul import empirical_priors, transition
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions import (
    PARTITIONS,
    AnyPartition,
    Dirichlet,
    Group,
    Iid,
    LabelsPerDevice,
    OneClass,
    Partition,
    QuantitySkew,
    Shards,
    SurrogateSets,
    WangCases,
)
from fednet_emu.learning.data.partitions.base import NOBODY, Partitioned
from fednet_emu.learning.data.partitions.surrogate_sets import deal, device_priors, own_classes, set_priors
from tests.quick import examples

ALL = [
    Dirichlet(alpha=0.5),
    Group(),
    Iid(),
    LabelsPerDevice(),
    OneClass(),
    QuantitySkew(),
    Shards(),
    SurrogateSets(skew="iid"),
    WangCases(),
]
COVERING = [Dirichlet(alpha=0.5, min_samples=0), Iid(), QuantitySkew(min_samples=0), Shards(shards_per_device=1)]


class Holder(BaseModel):
    """A scenario with one slot."""

    partition: AnyPartition


def samples_of(train_y, test_y=(0,), classes=None, train_group=None, test_group=None) -> Samples:
    """Samples with these labels; a partition looks at nothing else."""
    train, test = (torch.as_tensor(np.asarray(y, dtype=np.int64)) for y in (train_y, test_y))
    return Samples(
        train_x=torch.zeros(len(train), 1),
        train_y=train,
        test_x=torch.zeros(len(test), 1),
        test_y=test,
        classes=classes or int(max(train.max(), test.max())) + 1,
        train_group=None if train_group is None else np.asarray(train_group),
        test_group=None if test_group is None else np.asarray(test_group),
    )


def balanced(n_train: int, n_test: int, classes: int) -> Samples:
    train_y = np.arange(n_train) % classes
    group = np.arange(n_train) % 50
    return samples_of(train_y, np.arange(n_test) % classes, classes, group, group[:n_test])


def same(a: Partitioned, b: Partitioned) -> bool:
    return np.array_equal(a.order, b.order) and np.array_equal(a.offsets, b.offsets)


def class_counts(split: Partitioned, labels: torch.Tensor, classes: int) -> np.ndarray:
    n_devices = len(split.sizes())
    return np.array([np.bincount(labels.numpy()[split.of(d)], minlength=classes) for d in range(n_devices)])


def split(partition: Partition, samples: Samples, n_devices: int, seed: int = 0) -> tuple[Partitioned, Partitioned]:
    return partition.split(samples, n_devices, np.random.default_rng(seed))


def test_every_kind_is_in_the_list_of_these_tests():
    """The table has no untested entry, and each class carries its name as default."""
    assert {partition.kind: type(partition) for partition in ALL} == PARTITIONS
    for partition in ALL:
        assert Holder.model_validate(Holder(partition=partition).model_dump()).partition == partition


@pytest.mark.parametrize("partition", ALL, ids=lambda partition: partition.kind)
def test_same_seed_same_split_and_another_seed_another(partition):
    """A split is a function of the random stream; `group` with fewer devices than groups draws too."""
    samples = balanced(1000, 200, classes=5)
    first, again, other = (split(partition, samples, 20, seed) for seed in (1, 1, 2))

    assert same(first[0], again[0])
    assert same(first[1], again[1])
    assert same(first[0], other[0]) == isinstance(partition, WangCases), "these cases are formulas"
    assert first[0].order.dtype == first[0].offsets.dtype == np.int64


@examples(25)
@given(
    partition=st.sampled_from(COVERING),
    n_devices=st.integers(1, 12),
    train_y=st.lists(st.integers(0, 4), min_size=12, max_size=60),
    test_y=st.lists(st.integers(0, 4), min_size=0, max_size=20),
    seed=st.integers(0, 1000),
)
def test_samples_are_covered_without_overlap(partition, n_devices, train_y, test_y, seed):
    """Each sample goes to exactly one device, in both sets, whatever the labels."""
    samples = samples_of(train_y, test_y, classes=5) if test_y else samples_of(train_y, [0], classes=5)
    train, test = split(partition, samples, n_devices, seed)

    for dealt, labels in ((train, samples.train_y), (test, samples.test_y)):
        assert sorted(dealt.order.tolist()) == list(range(len(labels)))
        assert len(dealt.offsets) == n_devices + 1
        assert dealt.sizes().sum() == len(labels)


@examples(25)
@given(n=st.integers(1, 100), n_devices=st.integers(1, 100), seed=st.integers(0, 1000))
def test_iid_sizes_are_those_of_array_split(n, n_devices, seed):
    """Shares are equal within one, or the error tells how many devices there may be."""
    samples = samples_of(np.zeros(n), classes=2)
    if n_devices > n:
        with pytest.raises(ScenarioError, match=f"use at most {n} devices"):
            split(Iid(), samples, n_devices, seed)
        return

    train, _ = split(Iid(), samples, n_devices, seed)

    assert train.sizes().tolist() == [len(part) for part in np.array_split(np.arange(n), n_devices)]


def test_iid_is_a_random_draw():
    """The device of sample 0 is uniform: over 600 seeds the counts of 6 devices pass a chi-square test at 1e-4."""
    samples = samples_of(np.zeros(12), classes=2)
    owners = [int(np.searchsorted(s.offsets, np.flatnonzero(s.order == 0)[0], "right")) - 1
              for s in (split(Iid(), samples, 6, seed)[0] for seed in range(600))]  # fmt: skip

    counts = np.bincount(owners, minlength=6)

    assert ((counts - 100) ** 2 / 100).sum() < 25.7  # chi-square with 5 degrees of freedom, 1 - 1e-4


@pytest.mark.parametrize("alpha", [0.1, 0.5, 10.0])
def test_dirichlet_shares_scatter_by_the_closed_form(alpha):
    """The variance of a share is (1/n)(1 - 1/n) / (n alpha + 1), over 1000 classes and 10 devices."""
    samples = balanced(1_000_000, 1000, classes=1000)
    train, _ = split(Dirichlet(alpha=alpha, min_samples=0), samples, 10)
    shares = class_counts(train, samples.train_y, 1000) / 1000

    assert shares.mean(axis=1) == pytest.approx(0.1, abs=0.03)
    assert ((shares - 0.1) ** 2).mean() == pytest.approx(0.1 * 0.9 / (10 * alpha + 1), rel=0.1)


def test_dirichlet_test_set_has_the_proportions_of_the_training_set():
    """Both sets cut each class by the same shares, to the nearest sample."""
    samples = balanced(5000, 1000, classes=10)
    train, test = split(Dirichlet(alpha=0.3), samples, 8)
    train_share = class_counts(train, samples.train_y, 10) / 500
    test_share = class_counts(test, samples.test_y, 10) / 100

    np.testing.assert_allclose(train_share, test_share, atol=1 / 500 + 1 / 100)
    assert train_share.std() > 0.1


def test_dirichlet_redraws_until_the_minimum_is_kept():
    """A single draw starves some device for most seeds, the demand is kept for all of them."""
    samples = balanced(2000, 100, classes=10)
    free, bound = (
        [split(Dirichlet(alpha=0.1, min_samples=m), samples, 20, seed)[0].sizes().min() for seed in range(20)]
        for m in (0, 20)
    )

    assert np.mean(np.array(free) < 20) > 0.5
    assert min(bound) >= 20


def test_dirichlet_with_niid_benchs_guard_is_their_loop():
    """Class by class, a device with N / n samples so far gets none; sizes then scatter two thirds as much.

    The standard deviation of the sizes of ten silos with 6,000 samples and alpha 0.5: about 221 without, 147 with.
    """
    samples, spread = balanced(6_000, 10, classes=10), {True: [], False: []}
    for seed in range(100):
        for guard, spreads in spread.items():
            train, _ = split(Dirichlet(alpha=0.5, min_samples=0, self_balancing=guard), samples, 10, seed)
            spreads.append(train.sizes().std())
    theirs, rng = np.zeros(10), np.random.default_rng(7)
    for _ in range(10):
        p = rng.dirichlet(np.full(10, 0.5)) * (theirs < 600)
        theirs += np.diff(np.rint(np.cumsum(p / p.sum()) * 600), prepend=0)
    train, _ = split(Dirichlet(alpha=0.5, min_samples=0, self_balancing=True), samples, 10, 7)

    assert np.mean(spread[False]) == pytest.approx(221, rel=0.05)
    assert np.mean(spread[True]) == pytest.approx(147, rel=0.05)
    assert train.sizes().tolist() == theirs.tolist()


def test_the_four_cases_of_wang_are_their_formulas():
    """Ten labels on five devices: sample mod 5, label mod 5, everything, and labels 0-4 by sample, 5-9 by label."""
    labels = np.random.default_rng(0).integers(0, 10, 200)
    samples, i = samples_of(labels, labels[:30]), np.arange(200)
    owners = {1: i % 5, 2: labels % 5, 4: np.where(labels < 5, i % 3, 3 + labels % 2)}

    for case, owner in owners.items():
        train, test = WangCases(case=case).split(samples, 5, np.random.default_rng(1))
        assert [train.of(k).tolist() for k in range(5)] == [np.flatnonzero(owner == k).tolist() for k in range(5)]
        assert [test.of(k).tolist() for k in range(5)] == [np.flatnonzero(owner[:30] == k).tolist() for k in range(5)]
    everything, _ = WangCases(case=3).split(samples, 5, np.random.default_rng(1))
    assert all(everything.of(k).tolist() == i.tolist() for k in range(5))


def test_the_cases_of_wang_go_by_the_group_where_there_is_one():
    """Even and odd digits with their digits as groups are divided by digits."""
    digits = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9] * 3)
    samples = samples_of(1 - digits % 2, 1 - digits % 2, train_group=digits, test_group=digits)
    train, _ = WangCases(case=2).split(samples, 5, np.random.default_rng(0))

    assert [set(digits[train.of(k)].tolist()) for k in range(5)] == [{k, k + 5} for k in range(5)]
    with pytest.raises(ScenarioError, match="at most one device for each of 10 labels, got 11"):
        WangCases(case=2).split(samples, 11, np.random.default_rng(0))


def test_shards_reproduce_the_split_of_mcmahan():
    """60,000 balanced samples on 100 devices: 600 each, from at most two classes, the same ones in the test set."""
    samples = balanced(60_000, 10_000, classes=10)
    train, test = split(Shards(), samples, 100)
    train_counts = class_counts(train, samples.train_y, 10)
    test_counts = class_counts(test, samples.test_y, 10)

    assert set(train.sizes()) == {600}
    assert ((train_counts > 0).sum(axis=1) <= 2).all()
    assert set(np.unique(train_counts)) == {0, 300, 600}
    np.testing.assert_array_equal(test_counts * 6, train_counts)


@examples(20)
@given(classes=st.integers(2, 5), n_devices=st.integers(1, 12), seed=st.integers(0, 100))
def test_one_class_devices_hold_one_class_evenly(classes, n_devices, seed):
    """Device d holds class d mod K only, and the devices of a class differ by at most one sample."""
    samples = balanced(97, 23, classes)
    train, test = split(OneClass(), samples, n_devices, seed)

    for dealt, labels in ((train, samples.train_y.numpy()), (test, samples.test_y.numpy())):
        for device in range(n_devices):
            assert set(labels[dealt.of(device)]) <= {device % classes}
        for label in range(min(classes, n_devices)):
            sizes = dealt.sizes()[label::classes]
            assert sizes.sum() == np.count_nonzero(labels == label)
            assert sizes.max() - sizes.min() <= 1


def test_group_gives_each_device_its_group():
    """One device per group, in ascending order; test samples of unknown groups belong to nobody."""
    samples = samples_of([0, 1, 0, 1, 0], [1, 0, 1], train_group=[30, 10, 30, 20, 10], test_group=[10, 99, 30])
    train, test = split(Group(), samples, 3)

    assert [train.of(device).tolist() for device in range(3)] == [[1, 4], [3], [0, 2]]
    assert [test.of(device).tolist() for device in range(3)] == [[0], [], [2]]


def test_groups_are_dealt_out_whole():
    """With fewer devices than groups each device gets equally many whole groups, in the test set the same ones."""
    samples = balanced(1000, 300, classes=5)
    train, test = split(Group(), samples, 15)
    held = [set(samples.train_group[train.of(device)]) for device in range(15)]

    assert sorted(len(groups) for groups in held) == [3] * 10 + [4] * 5
    assert set.union(*held) == set(range(50))
    assert sum(len(groups) for groups in held) == 50
    for device in range(15):
        assert set(samples.test_group[test.of(device)]) == held[device]


def test_data_without_test_groups_leave_the_devices_without_test_samples():
    """Nobody can say whose a test sample is when the data do not."""
    _, test = split(Group(), samples_of([0, 1], [0, 1], train_group=[1, 2]), 2)

    assert test.sizes().tolist() == [0, 0]


@pytest.mark.parametrize(
    "partition", [Dirichlet(alpha=1.0), OneClass(), Shards(), SurrogateSets(skew="iid")], ids=lambda p: p.kind
)
def test_laws_about_classes_refuse_a_regression(partition):
    """Targets that are no labels cannot be dealt by class."""
    x, y = torch.zeros(10, 2), torch.linspace(0, 1, 10)

    with pytest.raises(
        ScenarioError, match=f"{partition.kind} deals by class, got data for regression .*; use iid or group"
    ):
        split(partition, Samples(x, y, x, y, classes=None), 2)


def test_equal_shares_may_be_small():
    """With `per_device`, every device owns exactly so many training samples, and no two the same one."""
    train, test = Iid(per_device=7).split(balanced(1000, 50, 10), 20, np.random.default_rng(0))

    assert train.sizes().tolist() == [7] * 20
    assert len(np.unique(train.order)) == 140
    assert sorted(test.order) == list(range(50))
    with pytest.raises(ScenarioError, match=r"per_device: more than there is, got 51 .* must be at most 50"):
        Iid(per_device=51).split(balanced(1000, 50, 10), 20, np.random.default_rng(0))


@pytest.mark.parametrize(
    "partition", [Dirichlet(alpha=0.5, min_samples=0), Group(), Iid(), OneClass(), Shards()], ids=lambda p: p.kind
)
def test_a_hundred_thousand_devices_take_seconds_at_most(partition):
    """600,000 samples are dealt out to 100,000 devices in seconds, for which a minute of processor time is allowed.

    A look at all samples for every device takes over an hour on any host.
    """
    y = np.arange(600_000) % 10
    group = np.arange(600_000) % 100_000
    samples = samples_of(y, y[:100_000], 10, group, group[:100_000])
    start_s = time.process_time()
    train, _ = split(partition, samples, 100_000)

    assert train.sizes().sum() == 600_000
    assert time.process_time() - start_s < 60


@given(st.lists(st.integers(NOBODY, 5), max_size=30))
def test_a_split_lists_the_samples_of_each_owner_in_ascending_order(owners: list[int]) -> None:
    """Device after device; samples of no device are left out."""
    split = Partitioned.from_owners(np.array(owners, np.int64), 6)
    own = [[sample for sample, owner in enumerate(owners) if owner == device] for device in range(6)]
    assert [split.of(device).tolist() for device in range(6)] == own


def equal_labels(per_class: int, classes: int = 10) -> Samples:
    """As many samples of every class, a fifth of them for testing too."""
    train, test = (torch.arange(count * classes) % classes for count in (per_class, per_class // 5))
    return Samples(torch.zeros(len(train), 1), train, torch.zeros(len(test), 1), test, classes)


def counts(split: Partitioned, labels: torch.Tensor, classes: int = 10) -> np.ndarray:
    """Samples of each class at each device, [n_devices, classes]."""
    devices = range(len(split.sizes()))
    return np.array([np.bincount(labels.numpy()[split.of(device)], minlength=classes) for device in devices])


@given(st.integers(1, 10), st.integers(1, 40), st.integers(0, 5))
@examples(60)
def test_every_device_has_that_many_labels(k: int, n_devices: int, seed: int) -> None:
    """One of them its own, the same in both sets; what has an owner is shared as equally as can be."""
    samples = equal_labels(200)
    train, test = split(LabelsPerDevice(labels=k), samples, n_devices, seed)
    has = counts(train, samples.train_y)

    assert ((has > 0).sum(axis=1) == k).all()
    assert all(has[device, device % 10] for device in range(n_devices))
    assert not (counts(test, samples.test_y)[has == 0]).any()
    for label in range(10):
        shares = has[has[:, label] > 0, label]
        assert shares.sum() in (0, 200)
        assert shares.size == 0 or shares.max() - shares.min() <= 1


def test_further_labels_are_drawn_evenly() -> None:
    """Of 3,000 devices with three labels each label is a ninth of the others' further ones, within five deviations."""
    samples = equal_labels(6000)
    has = counts(split(LabelsPerDevice(labels=3), samples, 3000)[0], samples.train_y) > 0
    further = has[np.arange(3000) % 10 != 0][:, 0].mean()

    assert further == pytest.approx(2 / 9, abs=5 * np.sqrt(2 / 9 * 7 / 9 / 2700))


@given(st.floats(0.3, 50.0), st.integers(1, 20), st.integers(0, 5))
@examples(60)
def test_all_samples_are_dealt_by_the_drawn_shares(beta: float, n_devices: int, seed: int) -> None:
    """Every sample has one owner, nobody has none, and test samples are shared in the same proportions."""
    samples = equal_labels(500)
    train, test = split(QuantitySkew(beta=beta), samples, n_devices, seed)

    assert sorted(train.order) == list(range(5000))
    assert sorted(test.order) == list(range(1000))
    assert train.sizes().min() >= 1
    assert np.abs(train.sizes() / 5000 - test.sizes() / 1000).max() <= 0.5 / 1000 * 2 + 0.5 / 5000 * 2


def test_sizes_are_those_of_a_dirichlet_distribution() -> None:
    """Mean 1/n and variance (1/n)(1 - 1/n)/(n beta + 1) of the shares of ten devices, over 2,000 draws."""
    samples, n, beta = equal_labels(50), 10, 2.0
    shares = np.array([split(QuantitySkew(beta=beta), samples, n, seed)[0].sizes() for seed in range(2000)]) / 500

    assert shares.mean(axis=0) == pytest.approx(np.full(n, 0.1), abs=5 * shares.std() / np.sqrt(2000))
    assert shares.var() == pytest.approx(0.1 * 0.9 / (n * beta + 1), rel=0.05)


def test_labels_are_mixed_alike_everywhere() -> None:
    """A device with a thousand samples has about a tenth of each label."""
    samples = equal_labels(1000)
    has = counts(split(QuantitySkew(beta=5.0), samples, 5)[0], samples.train_y)
    large = has[has.sum(axis=1) > 1000]

    assert len(large)
    assert np.abs(large / large.sum(axis=1, keepdims=True) - 0.1).max() < 5 * np.sqrt(0.09 / 1000)


CASES = [(skew, overlap) for skew in ("iid", "non-iid") for overlap in ("public", "disjoint")]


def balanced_sets(n_train: int = 36_000, classes: int = 10) -> Samples:
    """Equally frequent classes in random order, as many as FedUL's clients share."""
    y = torch.from_numpy(np.random.default_rng(0).permutation(np.arange(n_train) % classes))
    return Samples(torch.zeros(n_train, 1), y, torch.zeros(100, 1), torch.arange(100) % classes, classes)


def set_counts(skew: str, overlap: str, device: int = 0, **more: int) -> np.ndarray:
    """Samples of each set and class, [sets, classes], of one of five devices."""
    samples = balanced_sets()
    train, _ = SurrogateSets(skew=skew, overlap=overlap, **more).split(samples, 5, np.random.default_rng(1))
    rows = slice(train.offsets[device], train.offsets[device + 1])
    table = np.zeros((10, 10), int)
    np.add.at(table, (train.sets[rows], samples.train_y.numpy()[train.order[rows]]), 1)
    return table


@pytest.mark.parametrize(("skew", "overlap"), CASES)
def test_no_sample_goes_to_two_devices(skew, overlap):
    """It may be in several sets of one device if sets overlap, in one at most if they are disjoint; in none twice."""
    train, _ = SurrogateSets(skew=skew, overlap=overlap).split(balanced_sets(), 5, np.random.default_rng(1))
    owners = np.repeat(np.arange(5), train.sizes())
    pairs = np.unique(np.stack([train.order, owners]), axis=1)

    assert len(np.unique(pairs[0])) == pairs.shape[1]
    assert (len(train.order) == pairs.shape[1]) == (overlap == "disjoint")
    assert len(train.sets) == len(train.order) == train.offsets[-1]
    assert len(np.unique(np.stack([train.order, train.sets]), axis=1).T) == len(train.order)


def test_iid_spreads_every_class_over_the_sets():
    """A device of 7,200 has sets of about 720, half of each its own class; disjoint sets use nearly every sample."""
    table = set_counts("iid", "disjoint")

    assert 7_200 * 0.97 < table.sum() <= 7_200
    assert (abs(table.sum(axis=1) - 720) < 60).all()
    assert np.diag(table).mean() / 720 == pytest.approx(0.51, abs=0.05)


def test_iid_devices_share_one_matrix():
    """The class shares of set m are the same at all devices, within the rounding and what a device has."""
    first, last = set_counts("iid", "public", 0), set_counts("iid", "public", 4)

    assert np.abs(first / first.sum(1, keepdims=True) - last / last.sum(1, keepdims=True)).max() < 0.02


def test_a_non_iid_device_has_two_classes_of_its_own():
    """Classes 2d and 2d + 1 are 95 % of what device d is dealt; its sets take no more of the others than there are."""
    table = set_counts("non-iid", "disjoint", device=2)
    rare = np.delete(table, [4, 5], axis=1).sum(axis=0)

    assert (rare <= 7_200 * 0.55 / 84).all()
    assert table[:, [4, 5]].sum() > 3 * rare.sum()
    assert device_priors(5, 10, np.random.default_rng(0))[2, [4, 5]] == pytest.approx([0.476, 0.476], abs=0.03)


def test_overlapping_sets_reuse_what_is_rare():
    """With 43 samples of a class, public sets want more than that together, and each takes up to all of them."""
    public, disjoint = (set_counts("non-iid", overlap, device=2) for overlap in ("public", "disjoint"))

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
    assert set_counts("iid", "disjoint", samples_per_device=1000).sum() == pytest.approx(1000, rel=0.1)


# ---- classes that are short ------------------------------------------------------------------------------------------

MNIST = np.array([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]) * 36 // 60
"""Training samples of each digit, after two fifths were held out: most classes have less than a tenth of all."""


def of_sizes(sizes) -> Samples:
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
