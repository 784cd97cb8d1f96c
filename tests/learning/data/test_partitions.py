"""Claims about how samples are dealt out to devices."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

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
)
from fednet_emu.learning.data.partitions.base import NOBODY, Partitioned
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
    """Equally frequent classes, and fifty groups."""
    train_y = np.arange(n_train) % classes
    group = np.arange(n_train) % 50
    return samples_of(train_y, np.arange(n_test) % classes, classes, group, group[:n_test])


def same(a: Partitioned, b: Partitioned) -> bool:
    """Whether two splits are equal."""
    return np.array_equal(a.order, b.order) and np.array_equal(a.offsets, b.offsets)


def class_counts(split: Partitioned, labels: torch.Tensor, classes: int) -> np.ndarray:
    """[n_devices, classes]."""
    n_devices = len(split.sizes())
    return np.array([np.bincount(labels.numpy()[split.of(d)], minlength=classes) for d in range(n_devices)])


def split(partition: Partition, samples: Samples, n_devices: int, seed: int = 0) -> tuple[Partitioned, Partitioned]:
    """Training and test split under a seed."""
    return partition.split(samples, n_devices, np.random.default_rng(seed))


def test_a_split_lists_the_samples_of_each_device():
    """Owners become rows: ascending within a device, empty for who owns nothing, without what nobody owns."""
    dealt = Partitioned.from_owners(np.array([2, 0, -1, 2, 0, -1]), n_devices=4)

    assert [dealt.of(device).tolist() for device in range(4)] == [[1, 4], [], [0, 3], []]
    assert dealt.sizes().tolist() == [2, 0, 2, 0]
    assert np.shares_memory(dealt.of(0), dealt.order)


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
    assert not same(first[0], other[0])
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

    The standard deviation of the sizes of ten silos with 60,000 samples and alpha 0.5: about 2,210 without, 1,470 with.
    """
    samples, spread = balanced(60_000, 10, classes=10), {True: [], False: []}
    for seed in range(100):
        for guard, spreads in spread.items():
            train, _ = split(Dirichlet(alpha=0.5, min_samples=0, guard=guard), samples, 10, seed)
            spreads.append(train.sizes().std())
    theirs, rng = np.zeros(10), np.random.default_rng(7)
    for _ in range(10):
        p = rng.dirichlet(np.full(10, 0.5)) * (theirs < 6000)
        theirs += np.diff(np.rint(np.cumsum(p / p.sum()) * 6000), prepend=0)
    train, _ = split(Dirichlet(alpha=0.5, min_samples=0, guard=True), samples, 10, 7)

    assert np.mean(spread[False]) == pytest.approx(2210, rel=0.05)
    assert np.mean(spread[True]) == pytest.approx(1473, rel=0.05)
    assert train.sizes().tolist() == theirs.tolist()


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


def test_too_many_shards_are_refused():
    """Fewer samples than devices times shards leaves devices empty, which the error counts."""
    problem = r"shards must leave .*, got 5 of 12 devices .*; use at most 7 shards in all, not 12"

    with pytest.raises(ScenarioError, match=problem):
        split(Shards(shards_per_device=1), samples_of([0] * 7, classes=2), 12)


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
