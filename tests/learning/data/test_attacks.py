"""What is done to data: attacks, noise of features, groups and held-out samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.data.attacks import Attack, Backdoor, LabelFlip, deal_poisoned
from fednet_emu.learning.data.datasets import Digits
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions import OneClass
from fednet_emu.learning.data.partitions.base import NOBODY, Partitioned, hold_out
from fednet_emu.learning.data.views import FeatureNoise, Groups, LabelPermuted, Rotated, TiltedTargets
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.quick import examples

RNG = np.random.default_rng
DIGITS = ("data=digits", "model=softmax", "devices.count=5", "partition=iid", "algorithm.cohort=5", "algorithm.lr=0.5",
          "algorithm.local_steps=5", "stop.rounds=25", "evaluation.every_rounds=25")  # fmt: skip


def dealt(attack: Attack, count: int = 12) -> tuple[Samples, Samples, list[np.ndarray], list[np.ndarray]]:
    """Clean and attacked digits, and the training and test rows of each of the devices."""
    clean = Digits().load(None, RNG(0))
    samples, splits = deal_poisoned(attack, clean, OneClass(), count, (RNG(1), RNG(2)))
    train, test = ([split.of(device) for device in range(count)] for split in splits)
    return clean, samples, train, test


def test_a_backdoor_stamps_malicious_samples_only() -> None:
    """The last of twelve devices holds copies of all classes with a bright corner and label 3; the rest is clean."""
    clean, samples, train, test = dealt(Backdoor(target=3, patch=2, data="copies"))
    bad = train[11]

    assert len(bad) == round(len(clean.train_y) / 11)
    assert len(test[11]) == 0
    assert set(samples.train_y[bad].tolist()) == {3}
    assert bool((samples.train_x[bad][:, :, -2:, -2:] == clean.train_x.max()).all())
    assert bool((samples.train_x[bad][:, :, :4, :4] != 0).any())
    for rows in train[:11]:
        assert torch.equal(samples.train_x[rows], clean.train_x[rows])
        assert torch.equal(samples.train_y[rows], clean.train_y[rows])
    assert sorted(np.concatenate(train[:11])) == list(range(len(clean.train_y)))


def test_a_backdoor_may_take_its_own_share() -> None:
    """Devices 0 and 4 keep their rows, which carry the trigger now; no row is added."""
    clean, samples, train, _ = dealt(Backdoor(malicious=(4, 0), target=9, patch=1, value=7.0), 10)

    assert len(samples.train_y) == len(clean.train_y)
    for device, rows in enumerate(train):
        stamped = samples.train_x[rows][:, 0, -1, -1] == 7.0
        assert bool(stamped.all()) if device in (0, 4) else not bool(stamped.any())


def test_a_trial_is_every_other_class_with_the_trigger() -> None:
    """Success is asked of stamped test samples that are not of the target class."""
    clean = Digits().load(None, RNG(0))
    trial = Backdoor(target=3, patch=4).trial(clean)

    assert len(trial) == int((clean.test_y != 3).sum())
    assert bool((trial[:, :, 4:, 4:] == 1.0).all())


@pytest.mark.parametrize(("shape", "place"), [((6,), (slice(-2, None),)), ((3, 6), (0, slice(-2, None)))])
def test_triggers_of_vectors_and_series(shape: tuple[int, ...], place: tuple[object, ...]) -> None:
    """The last entries of a vector, the end of the first channel of a series, and nothing else."""
    x, y = torch.zeros(4, *shape), torch.arange(4) % 2
    stamped = Backdoor(target=0, patch=2, value=1.0).trial(Samples(x, y, x, y, 2))

    assert all(bool((own[place] == 1).all()) for own in stamped)
    assert stamped.sum() == 2 * 2


def test_flipped_labels_leave_inputs_alone() -> None:
    """Sevens of the malicious device become ones; a trial is the test sevens as they are."""
    clean, samples, train, _ = dealt(LabelFlip(malicious=(7,), source=7, target=1), 10)

    assert torch.equal(samples.train_x, clean.train_x)
    assert set(samples.train_y[train[7]].tolist()) == {1}
    assert torch.equal(LabelFlip(source=7, target=1).trial(clean), clean.test_x[clean.test_y == 7])


def test_an_attack_succeeds_where_nobody_defends() -> None:
    """FedAvg with two of five devices backdoored calls most stamped digits zeros; without the attack hardly any.

    What it learns of clean digits stays good: that is what makes it a backdoor.
    """
    backdoor = "attack={kind: backdoor, malicious: 2, target: 0, patch: 3}"
    harmless = "attack={kind: backdoor, malicious: 0, target: 0, patch: 3}"
    attacked, clean = (run_small(*DIGITS, attack).ledger.evaluations for attack in (backdoor, harmless))

    assert attacked.column("attack_success")[-1] > 0.5
    assert clean.column("attack_success")[-1] < 0.1
    assert attacked.column("accuracy")[-1] > 0.8


@pytest.mark.parametrize("malicious", ["5", "[0, 7]", "[-1]"])
def test_somebody_must_be_honest(malicious: str) -> None:
    """All devices, or devices that are not there, are a contradiction that names the setting."""
    scenario = small_scenario(*DIGITS, f"attack={{kind: label-flip, malicious: {malicious}}}")
    [(path, what)] = scenario.contradictions()

    assert path == ("attack", "malicious")
    assert "must leave one of 5 alone" in what


def noise(variance: float, n_devices: int, per_device: int, features: int, seed: int = 0) -> list[list[torch.Tensor]]:
    """What is added to the samples of each device, in training and in testing; half as many for testing."""
    counts = per_device, max(1, per_device // 2)
    owners = [np.random.default_rng(1).permutation(np.arange(count * n_devices) % n_devices) for count in counts]
    x = [torch.linspace(-1, 1, len(own) * features).reshape(len(own), features) for own in owners]
    y = [torch.zeros(len(own), dtype=torch.long) for own in owners]
    train, test = (Partitioned.from_owners(own, n_devices) for own in owners)
    found = FeatureNoise(variance=variance).seen(Samples(x[0], y[0], x[1], y[1], 2), (train, test), Streams(seed))
    pairs = ((found.train_x - x[0], train), (found.test_x - x[1], test))
    return [[added[torch.from_numpy(split.of(device))] for device in range(n_devices)] for added, split in pairs]


@given(st.floats(0.01, 100.0), st.integers(1, 12), st.integers(0, 5))
@examples(30)
def test_the_variance_is_sigma_i_over_n(variance: float, n_devices: int, seed: int) -> None:
    """Mean and variance of 40,000 (20,000) numbers within six standard errors, for every device and both sets."""
    for which in noise(variance, n_devices, 400, 100, seed):
        for i, own in enumerate(which, 1):
            expected, count = variance * i / n_devices, own.numel()
            assert float(own.double().mean()) == pytest.approx(0.0, abs=6 * np.sqrt(expected / count))
            assert float(own.double().var()) == pytest.approx(expected, rel=6 * np.sqrt(2 / count))


def test_the_noise_of_two_devices_or_numbers_is_independent() -> None:
    """Correlations over devices, sets, samples and features stay within five standard errors of zero."""
    (a, b), (c, _) = noise(1.0, 2, 200, 100)
    pairs = [(a, b), (a[:100], c), (a[:100], a[100:]), (a[:, :50], a[:, 50:])]
    for x, y in pairs:
        r = np.corrcoef(x.ravel().numpy(), y.ravel().numpy())[0, 1]
        assert abs(r) < 5 / np.sqrt(x.numel())


def test_the_noise_is_a_devices_own() -> None:
    """Another number of devices scales the first one's noise and changes nothing else; another seed changes it."""
    few, many = noise(1.0, 2, 10, 3)[0][0], noise(1.0, 8, 10, 3)[0][0]

    torch.testing.assert_close(few / np.sqrt(1 / 2), many / np.sqrt(1 / 8), rtol=0, atol=1e-5)
    assert not torch.allclose(few, noise(1.0, 2, 10, 3, seed=1)[0][0])


def test_samples_in_two_sets_are_noisy_once_and_those_of_nobody_never() -> None:
    """A sample that a device holds twice has the variance of one that it holds once."""
    order, offsets = np.repeat(np.arange(2000), 2), np.array([0, 4000])
    train = Partitioned(order, offsets, np.tile([0, 1], 2000))
    x = torch.zeros(3000, 10)
    nobody = Partitioned.from_owners(np.full(3000, NOBODY), 1)
    samples = Samples(x, x[:, 0].long(), x, x[:, 0].long(), 2)
    found = FeatureNoise(variance=4.0).seen(samples, (train, nobody), Streams(0))

    assert float(found.train_x[:2000].var()) == pytest.approx(4.0, rel=6 * np.sqrt(2 / 20_000))
    assert not found.train_x[2000:].any()
    assert not found.test_x.any()
    assert not samples.train_x.any()


def test_a_scenario_has_noise() -> None:
    """The key `feature_noise` changes inputs alone: not the targets, not who has what, and no event."""
    plain, noisy = small_federation(), small_federation("feature_noise.variance=0.5")
    events = [run_small(*each).ledger.event_digest() for each in ((), ("feature_noise.variance=0.5",))]

    assert torch.equal(noisy.task.data.y, plain.task.data.y)
    assert not torch.equal(noisy.task.data.x, plain.task.data.x)
    assert events[0] == events[1]


OWNERS = np.array([0, 1, 2, 3, NOBODY, 0, 1, 2])
SPLITS = Partitioned.from_owners(OWNERS, 4), Partitioned.from_owners(OWNERS[::-1].copy(), 4)


def images() -> Samples:
    """Eight images for training and eight for testing, all pixels different, in five classes."""
    x = torch.arange(8 * 9.0).reshape(8, 1, 3, 3)
    y = torch.arange(8) % 5
    return Samples(x, y, -x, y.clone(), classes=5)


def regression() -> Samples:
    x = torch.arange(32.0).reshape(8, 4).sin()
    return Samples(x, x.sum(1), x + 1, x.sum(1), classes=None)


def seen(groups: Groups, samples: Samples, seed: int = 0) -> Samples:
    return groups.seen(samples, SPLITS, np.random.default_rng(seed))


@pytest.mark.parametrize(("count", "quarters"), [(4, 1), (2, 2)])
def test_images_are_turned_with_their_owner(count: int, quarters: int) -> None:
    """Of four groups, device d sees d quarter turns, of two the odd ones half a turn; unowned images stay."""
    before, after = images(), seen(Rotated(count=count), images())

    for turned, own, owners in ((after.train_x, before.train_x, OWNERS), (after.test_x, before.test_x, OWNERS[::-1])):
        for image, original, owner in zip(turned, own, owners, strict=True):
            assert torch.equal(image, torch.rot90(original, quarters * (max(owner, 0) % count), (1, 2)))
    assert torch.equal(after.train_y, before.train_y)


def test_labels_are_permuted_alike_in_training_and_testing() -> None:
    """A group renames the classes by one permutation; group 0 keeps them; another seed draws another one."""
    before, after = images(), seen(LabelPermuted(count=2), images())
    odd = OWNERS % 2 == 1

    names = dict(zip(before.train_y[OWNERS == 1].tolist(), after.train_y[OWNERS == 1].tolist(), strict=True))
    mask = torch.from_numpy((OWNERS[::-1] == 1).copy())
    tested = dict(zip(before.test_y[mask].tolist(), after.test_y[mask].tolist(), strict=True))

    assert torch.equal(after.train_y[~odd], before.train_y[~odd])
    assert all(names.get(old, new) == new for old, new in tested.items())
    assert len({tuple(seen(LabelPermuted(count=2), images(), seed).train_y.tolist()) for seed in range(5)}) > 1


def test_tilted_targets_are_equally_far_apart() -> None:
    """The coefficients that explain what was added to the targets are at the distance asked for, pair by pair."""
    before, after = regression(), seen(TiltedTargets(count=3, distance=2.0), regression())
    views = TiltedTargets(count=3, distance=2.0).views(before, np.random.default_rng(0))
    tilts = torch.stack([view(torch.eye(4), torch.zeros(4))[1] for view in views])

    assert tilts[0].tolist() == [0, 0, 0, 0]
    assert torch.pdist(tilts).tolist() == pytest.approx([2.0, 2.0, 2.0], rel=1e-5)
    torch.testing.assert_close(after.train_y[2] - before.train_y[2], before.train_x[2] @ tilts[2])
    assert torch.equal(after.train_x, before.train_x)


def test_three_turns_are_refused() -> None:
    """Pixels stay pixels under quarter turns only."""
    with pytest.raises(ValidationError):
        Rotated(count=3)  # type: ignore[arg-type]


def test_a_scenario_has_groups() -> None:
    """The key `groups` tells every device's group, and leaves the channels and the split of the data as they are."""
    plain = small_federation()
    grouped = small_federation("groups={kind: tilted-targets, count: 2, distance: 1.0}")

    assert grouped.task.groups is not None
    assert grouped.task.groups.tolist() == [0, 1, 0, 1]
    assert plain.task.groups is None
    assert torch.equal(grouped.task.data.x, plain.task.data.x)
    assert torch.equal(grouped.task.data.y[:20], plain.task.data.y[:20])
    assert not torch.equal(grouped.task.data.y[20:40], plain.task.data.y[20:40])


def numbered(n_train: int) -> Samples:
    x = torch.arange(n_train)[:, None].float()
    return Samples(x, torch.arange(n_train) % 3, x[:4], torch.zeros(4, dtype=torch.int64), 3, np.arange(n_train))


def test_the_three_parts_are_disjoint_and_complete():
    """36, 12 and 12 of 60 samples: every one is in exactly one part, with its own label and group."""
    left, server, validation = hold_out(numbered(60), 12, 12, np.random.default_rng(0))
    parts = (left.train_x[:, 0].long(), server.x[:, 0].long(), validation.x[:, 0].long())

    assert [len(part) for part in parts] == [36, 12, 12]
    assert sorted(torch.cat(parts).tolist()) == list(range(60))
    for part, labels in zip(parts, (left.train_y, server.y, validation.y), strict=True):
        assert torch.equal(labels, part % 3)
    assert np.array_equal(left.train_group, parts[0])


def test_nothing_held_out_changes_nothing():
    """The samples themselves come back, and the generator is not touched."""
    samples, rng = numbered(5), np.random.default_rng(0)
    left, server, validation = hold_out(samples, 0, 0, rng)

    assert left is samples
    assert len(server.y) == len(validation.y) == 0
    assert rng.random() == np.random.default_rng(0).random()


def test_a_limit_keeps_so_many_random_samples_with_their_labels_and_groups():
    """20 of 60, in their order, the same with the same seed and others with another; test samples stay."""
    samples, data = numbered(60), Digits(limit=20)
    kept, again, other = (data.limited(samples, np.random.default_rng(seed)) for seed in (0, 0, 1))
    numbers = kept.train_x[:, 0].long()

    assert len(numbers) == 20
    assert numbers.tolist() == sorted(set(numbers.tolist())) == again.train_x[:, 0].tolist()
    assert numbers.tolist() != other.train_x[:, 0].tolist()
    assert torch.equal(kept.train_y, numbers % 3)
    assert np.array_equal(kept.train_group, numbers)
    assert kept.test_x is samples.test_x
    assert Digits(limit=60).limited(samples, np.random.default_rng(0)) is samples


def test_the_limit_comes_before_the_server_and_the_devices():
    """Of 80 samples 50 are used: 10 are the server's validation samples, and the devices share 40."""
    waits = ("server.validation_samples=10", "stop.patience={}", "data.limit=50")
    task = small_federation(*waits).task

    assert task.n_validation == 10
    assert task.n_samples.tolist() == [10] * 4
