"""Data in own files: npz, LEAF and tables."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.errors import DataError, ScenarioWarning
from fednet_emu.learning.data.datasets import Adult, Npz, UciHar
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.datasets.leaf import Leaf
from fednet_emu.learning.data.datasets.text import LETTERS
from fednet_emu.learning.data.datasets.wearables import SIGNALS
from fednet_emu.learning.data.partitions.rules import Group

RNG = np.random.default_rng(0)


def arrays(**changes):
    """Six training and three test samples of three classes, with changes; None leaves an array out."""
    good = {
        "train_x": np.arange(24.0).reshape(6, 2, 2),
        "train_y": np.array([0, 1, 2, 0, 1, 2]),
        "test_x": np.zeros((3, 2, 2)),
        "test_y": np.array([2, 0, 1]),
    }
    return {name: array for name, array in {**good, **changes}.items() if array is not None}


def load(folder, *, classes=None, **changes):
    np.savez(folder / "own.npz", **arrays(**changes))
    return Npz(path="own.npz", classes=classes).load(folder, RNG)


def test_classes_are_counted_and_values_kept(tmp_path):
    """Integer labels make a classification with as many classes as there are labels; inputs are used as they are."""
    samples = load(tmp_path)

    assert samples.classes == 3
    assert samples.train_x.flatten().tolist() == list(range(24))
    assert samples.test_y.tolist() == [2, 0, 1]
    assert samples.train_group is None


def test_floating_point_targets_make_a_regression(tmp_path):
    """Targets with a fraction type are kept as numbers."""
    samples = load(tmp_path, train_y=np.linspace(0, 1, 6), test_y=np.ones(3))

    assert samples.classes is None
    assert samples.train_y.tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])


def test_stated_classes_admit_labels_that_do_not_occur(tmp_path):
    """With `classes` a label may be absent from the training set."""
    samples = load(tmp_path, classes=10, train_y=np.array([0, 1, 7, 0, 1, 7]), test_y=np.array([9, 0, 1]))

    assert samples.classes == 10


EPOCH_S = 1.7e9 + np.arange(80.0)
NORTHING_M = 5.5e6 + 0.05 * np.arange(80)
PLACES = np.stack([EPOCH_S, NORTHING_M, np.full(80, 0.1)], 1)


def test_inputs_are_standardised_before_they_become_single_precision(tmp_path):
    """Seconds of an epoch and northings keep their 80 values, evenly spaced; a constant input becomes 0."""
    many = {"train_x": PLACES, "train_y": np.arange(80) % 2, "test_x": PLACES[:3], "test_y": np.array([0, 1, 0])}
    np.savez(tmp_path / "own.npz", **many)
    samples = Npz(path="own.npz", normalise=True).load(tmp_path, RNG)

    even = (np.arange(80) - 39.5) / np.arange(80).std()
    np.testing.assert_allclose(samples.train_x[:, 0], even, rtol=1e-6)
    np.testing.assert_allclose(samples.train_x[:, 1], even, rtol=1e-6)
    assert samples.train_x[:, 2].abs().max() == 0
    assert samples.test_x.equal(samples.train_x[:3])


def test_values_that_single_precision_merges_are_counted(tmp_path):
    """Two of 80 seconds are left, and 9 of 80 northings: float32 has steps of 128 and of 0.5 there."""
    many = {"train_x": PLACES, "train_y": np.arange(80) % 2, "test_x": PLACES[:3], "test_y": np.array([0, 1, 0])}
    with pytest.warns(ScenarioWarning) as told:
        load(tmp_path, **many)

    assert [str(warning.message).partition(" of /")[0] for warning in told] == [
        "data: float32 keeps 2 of 80 different values of input 0",
        "data: float32 keeps 9 of 80 different values of input 1",
    ]


def test_targets_that_could_be_classes_are_told_of(tmp_path):
    """Floating point 0, 1, 2, and one label for each row: what they are taken for, and what to write for classes."""
    numbers = {"train_y": np.array([0.0, 1, 2, 0, 1, 2]), "test_y": np.array([2.0, 0, 1])}
    one_hot = {"train_y": np.eye(3)[[0, 1, 2, 0, 1, 2]], "test_y": np.eye(3)}
    with pytest.warns(ScenarioWarning, match=r"0.0, 1.0, 2.0 of .* regression; for 3 classes give `classes: 3`"):
        assert load(tmp_path, **numbers).task == "regression"
    assert load(tmp_path, **numbers, classes=3).train_y.tolist() == [0, 1, 2, 0, 1, 2]
    with pytest.warns(ScenarioWarning, match="one of 3 labels, which are learnt as independent labels"):
        assert load(tmp_path, **one_hot).task == "multi-label"


def test_groups_come_along(tmp_path):
    """The natural owners of the samples are read where the file has them."""
    samples = load(tmp_path, train_group=np.array([5, 5, 5, 9, 9, 9], np.uint8))

    assert samples.train_group.tolist() == [5, 5, 5, 9, 9, 9]
    assert samples.test_group is None


@pytest.mark.parametrize("kind", ["U", "S"])
def test_groups_may_be_names(tmp_path, kind):
    """They are numbered in the order of the training samples, then of the test samples; numbers beside are refused."""
    names = np.array(["zoe", "al", "zoe", "zoe", "al", "bo"]).astype(kind)
    tested = np.array(["al", "new", "zoe"]).astype(kind)
    samples = load(tmp_path, train_group=names, test_group=tested)

    assert samples.train_group.tolist() == [0, 1, 0, 0, 1, 2]
    assert samples.test_group.tolist() == [1, 3, 0]
    with pytest.raises(DataError, match="train_group must hold integers, or names in both"):
        load(tmp_path, train_group=names, test_group=np.arange(3))


def test_a_relative_path_is_sought_where_the_program_started_too(tmp_path, monkeypatch):
    """Without a data folder the current folder is searched."""
    monkeypatch.delenv("FEDNET_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    np.savez("here.npz", **arrays())

    assert len(Npz(path="here.npz").load(None, RNG).train_y) == 6


def test_integers_are_tokens_where_a_vocabulary_is_given(tmp_path):
    """Without one they are numbers, as the pixels of an image."""
    tokens = {"train_x": np.arange(12).reshape(6, 2) % 5, "test_x": np.zeros((3, 2), np.int8)}
    assert load(tmp_path, **tokens).train_x.is_floating_point()

    samples = Npz(path="own.npz", vocabulary=5).load(tmp_path, RNG)
    extent = Npz(path="own.npz", vocabulary=5).extent(tmp_path)

    assert samples.vocabulary == 5
    assert samples.train_x.tolist() == tokens["train_x"].tolist()
    assert {str(samples.train_x.dtype), str(samples.test_x.dtype)} == {"torch.int64"}
    assert extent.byte == 9 * (2 * 8 + 8)
    with pytest.raises(DataError, match=r"train_x must hold tokens 0..3, got 4; renumber the tokens"):
        Npz(path="own.npz", vocabulary=4).load(tmp_path, RNG)
    np.savez(tmp_path / "own.npz", **arrays())
    with pytest.raises(DataError, match=r"must hold windows \[samples, length\] of tokens, got float64 \[6, 2, 2\]"):
        Npz(path="own.npz", vocabulary=4).load(tmp_path, RNG)


def test_integers_for_each_token_are_the_tokens_that_follow(tmp_path):
    """With a vocabulary, integers of the windows' shape; they are no labels then, nor of a regression."""
    x = np.arange(12).reshape(6, 2) % 5
    tokens = {"train_x": x, "train_y": (x + 1) % 5, "test_x": x[:3], "test_y": np.zeros((3, 2), np.int8)}
    np.savez(tmp_path / "own.npz", **tokens)
    samples = Npz(path="own.npz", vocabulary=5).load(tmp_path, RNG)

    assert (samples.task, samples.outputs, samples.classes, samples.multi_label) == ("next-token", 5, None, False)
    assert samples.train_y.tolist() == tokens["train_y"].tolist()
    assert {str(samples.train_y.dtype), str(samples.test_y.dtype)} == {"torch.int64"}
    np.savez(tmp_path / "own.npz", **{**tokens, "train_y": x + 1})
    with pytest.raises(DataError, match=r"train_y must hold tokens 0..4, got 5; renumber the tokens"):
        Npz(path="own.npz", vocabulary=5).load(tmp_path, RNG)
    np.savez(tmp_path / "own.npz", **{name: array % 2 for name, array in tokens.items()})
    binary = Npz(path="own.npz", vocabulary=2).load(tmp_path, RNG)
    assert (binary.task, binary.outputs, binary.multi_label) == ("next-token", 2, False)
    labels = {"train_y": x % 2, "test_y": x[:3] % 2.0}
    np.savez(tmp_path / "own.npz", **{**tokens, **labels})
    assert Npz(path="own.npz", vocabulary=5).load(tmp_path, RNG).task == "multi-label"


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.float64])
def test_zeros_and_ones_of_several_columns_are_labels(tmp_path, dtype):
    """Any number of them may apply to a sample."""
    labels = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]], dtype)
    samples = load(tmp_path, train_y=np.tile(labels, (2, 1)), test_y=labels)

    assert (samples.task, samples.outputs, samples.classes) == ("multi-label", 3, None)
    assert samples.test_y.tolist() == labels.tolist()


def test_other_numbers_of_several_columns_are_targets_of_a_regression(tmp_path):
    """One output for each column."""
    samples = load(tmp_path, train_y=np.full((6, 2), 0.5), test_y=np.eye(3, 2))

    assert (samples.task, samples.outputs, samples.classes) == ("regression", 2, None)


Users = dict[str, list[tuple[Any, Any]]]


def content(users: Users, /, **changes: Any) -> dict[str, Any]:
    """What LEAF's scripts write of samples (x, y) by user."""
    return {
        "users": [*users],
        "num_samples": [len(own) for own in users.values()],
        "user_data": {user: {"x": [x for x, _ in own], "y": [y for _, y in own]} for user, own in users.items()},
    } | changes


def folder(path: Path, **parts: list[Users]) -> Path:
    for part, files in parts.items():
        (path / part).mkdir(parents=True)
        for number, users in enumerate(files):
            (path / part / f"all_data_{number}_niid_0_keep_0_{part}_9.json").write_text(json.dumps(content(users)))
    return path


def loaded(path: Path, **fields: Any) -> Samples:
    return Leaf(path=str(path), **fields).load(None, np.random.default_rng(0))


def image(value: float) -> list[float]:
    """The 784 numbers of an image whose first pixel has a value."""
    return [value] + [1.0] * 783


def test_femnist(tmp_path: Path) -> None:
    """Writers over two files: images [1, 28, 28], classes of 62, users in the order of the files, also in testing."""
    train = [{"f0_14": [(image(0.25), 3), (image(0.5), 61)], "f1_02": [(image(0.75), 3)]}, {"f2_07": [(image(0.0), 9)]}]
    test = [{"f2_07": [(image(0.125), 1)], "f0_14": [(image(1.0), 3)], "new": [(image(1.0), 3)]}]
    samples = loaded(folder(tmp_path, train=train, test=test), classes=62)

    assert (samples.task, samples.classes, samples.input_shape) == ("classification", 62, (1, 28, 28))
    assert samples.train_x[:, 0, 0, 0].tolist() == [0.25, 0.5, 0.75, 0.0]
    assert samples.train_y.tolist() == [3, 61, 3, 9]
    assert samples.train_group is not None
    assert samples.test_group is not None
    assert samples.train_group.tolist() == [0, 0, 1, 2]
    assert samples.test_group.tolist() == [2, 0, 3]
    assert loaded(tmp_path, shape=(784,), classes=62).input_shape == (784,)


def test_shakespeare(tmp_path: Path) -> None:
    """Eighty characters and the next one: LEAF's tokens, with the character as class of 80."""
    line = "To be, or not to be, that is the question:"
    samples = loaded(folder(tmp_path, train=[{"HAMLET": [(line, "\n")]}], test=[{"HAMLET": [(line[::-1], "~")]}]))

    assert (samples.vocabulary, samples.classes) == (80, 80)
    assert "".join(LETTERS[its] for its in samples.train_x[0].tolist()) == line
    assert (samples.train_y.item(), samples.test_y.item()) == (LETTERS.index("\n"), 79)


def test_sent140(tmp_path: Path) -> None:
    """Of [id, date, query, user, text] the first words of the text, by frequency; unknown ones and the rest are 0."""

    def tweet(text: str) -> list[str]:
        return ["1467810369", "Mon Apr 06", "NO_QUERY", "someone", text]

    train = {"a": [(tweet("good good good day"), 1), (tweet("bad day"), 0)]}
    samples = loaded(folder(tmp_path, train=[train], test=[{"a": [(tweet("a Good day"), 1)]}]), length=3, vocabulary=2)

    assert (samples.vocabulary, samples.classes, samples.task) == (3, 2, "classification")
    assert samples.train_x.tolist() == [[1, 1, 1], [2, 0, 0]]
    assert samples.test_x.tolist() == [[0, 1, 0]]


def test_a_file_without_folders_is_split_by_user(tmp_path: Path) -> None:
    """The last half of each user's samples is for testing; gzip and a byte order mark are no matter."""
    users = {"a": [([k, 0.5], k % 2) for k in range(4)], "b": [([9, 0.5], 0.5), ([8, 0.5], 1.5)]}
    path = tmp_path / "all_data.json.gz"
    path.write_bytes(gzip.compress(("\ufeff" + json.dumps(content(users))).encode()))
    samples = loaded(path, test_share=0.5)

    assert samples.task == "regression"
    assert samples.train_x[:, 0].tolist() == [0, 1, 9]
    assert samples.test_x[:, 0].tolist() == [2, 3, 8]
    assert samples.test_group is not None
    assert samples.test_group.tolist() == [0, 0, 1]


def test_users_are_devices(tmp_path: Path) -> None:
    """With three devices and three writers each device has the samples of one of them, and a run trains on them."""
    rng = np.random.default_rng(3)
    users = {
        name: [(rng.normal(size=4).tolist(), int(k % 2)) for k in range(10 * (place + 1))]
        for place, name in enumerate("xyz")
    }
    (tmp_path / "all.json").write_text(json.dumps(content(users)))
    train, test = Group().split(loaded(tmp_path), 3, np.random.default_rng(0))

    assert [len(train.of(device)) for device in range(3)] == [9, 18, 27]
    assert [len(test.of(device)) for device in range(3)] == [1, 2, 3]
    settings = {"devices.count": 3, "data": {"kind": "leaf", "path": str(tmp_path)}, "partition": "group"}
    run = fe.run("quickstart", settings=settings | {"model": "softmax", "algorithm.cohort": 3, "stop": {"rounds": 1}})
    assert run.summary["rounds"] == 1


DATA = os.environ.get("FEDNET_DATA")


def whole(name: str) -> Path:
    """The data folder, if it has this data set."""
    if not DATA or not (Path(DATA) / name).is_dir():
        pytest.skip(f"needs {name} in the folder that FEDNET_DATA names")
    return Path(DATA)


@pytest.fixture
def har(tmp_path: Path) -> Path:
    """Two subjects in the published text form: subject 1 for training with 3 windows, subject 2 for testing with 2."""
    for part, subjects, activities in (("train", [1, 1, 1], [1, 1, 6]), ("test", [2, 2], [1, 4])):
        folder = tmp_path / "uci_har" / part / "Inertial Signals"
        folder.mkdir(parents=True)
        for channel, signal in enumerate(SIGNALS):
            rows = [[100 * number + channel + step / 128 for step in range(128)] for number in range(len(subjects))]
            text = "\n".join(" ".join(f" {value: .7e}" for value in row) for row in rows)
            (folder / f"{signal}_{part}.txt").write_text(text + "\n")
        (folder.parent / f"y_{part}.txt").write_text("\n".join(map(str, activities)) + "\n")
        (folder.parent / f"subject_{part}.txt").write_text("\n".join(map(str, subjects)) + "\n")
    return tmp_path


def test_windows_are_read_from_the_published_files(har: Path) -> None:
    """Nine channels in their order, activities and subjects from 0, standardised over the training windows."""
    samples = UciHar(test="subjects").load(har, RNG)

    assert samples.train_x.shape == (3, 9, 128)
    assert samples.test_x.shape == (2, 9, 128)
    assert samples.train_y.tolist() == [0, 0, 5]
    assert samples.test_y.tolist() == [0, 3]
    assert (samples.train_group.tolist(), samples.test_group.tolist()) == ([0, 0, 0], [1, 1])
    raw = np.array([[100 * n + step / 128 for step in range(128)] for n in range(3)])
    ours = samples.train_x[:, 4].numpy()
    assert ours == pytest.approx((raw - raw.mean()) / raw.std(), abs=1e-5)


def test_the_last_windows_of_each_subject_are_for_testing(har: Path) -> None:
    """Half of each activity of each subject, rounded to even: of one window none, of two one, the second."""
    samples = UciHar(test_share=0.5).load(har, RNG)

    assert samples.test_y.tolist() == [0]
    assert samples.test_group.tolist() == [0]
    assert sorted(samples.train_group.tolist()) == [0, 0, 1, 1]


def test_packed_windows_are_the_same(har: Path) -> None:
    """Integers in units of 0.0002 instead of texts."""
    values = RNG.integers(-9000, 9000, (5, 9, 128)).astype(np.int16)
    buffer = io.BytesIO()
    np.savez(buffer, x=values, y=np.array([0, 0, 5, 0, 3], np.uint8), subject=np.array([1, 1, 1, 2, 2], np.uint8))
    with lzma.open(har / "uci_har" / "uci_har_i16.npz.xz", "wb") as file:
        file.write(buffer.getvalue())
    samples = UciHar(test="subjects").load(har, RNG)
    train = values[:3] * 2e-4
    mean, deviation = train.mean((0, 2), keepdims=True), train.std((0, 2), keepdims=True)

    assert samples.train_x.numpy() == pytest.approx((train - mean) / deviation, abs=1e-4)
    assert samples.test_group.tolist() == [1, 1]


def test_files_that_do_not_fit_are_named(har: Path) -> None:
    """A missing one, one with words, and one with too few rows."""
    path = har / "uci_har" / "train" / "Inertial Signals" / "body_gyro_y_train.txt"
    path.write_text("1 2 3\n")
    with pytest.raises(DataError, match=r"body_gyro_y_train.txt.*3 rows of 128 numbers, got shape \(1, 3\)"):
        UciHar().load(har, RNG)
    path.write_text("one two\n")
    with pytest.raises(DataError, match=r"body_gyro_y_train\.txt.*cannot be read as rows of numbers"):
        UciHar().load(har, RNG)
    path.unlink()
    with pytest.raises(DataError, match=r"body_gyro_y_train\.txt"):
        UciHar().load(har, RNG)


def test_all_of_uci_har() -> None:
    """10,299 windows of thirty subjects; the nine official ones have 2,947 of them."""
    samples = UciHar(test="subjects").load(whole("uci_har"), RNG)

    assert (len(samples.train_y), len(samples.test_y)) == (7352, 2947)
    assert np.bincount(np.concatenate([samples.train_y, samples.test_y])).tolist() == [
        1722, 1544, 1406, 1777, 1906, 1944]  # fmt: skip
    assert (len(set(samples.train_group)), len(set(samples.test_group))) == (21, 9)


PEOPLE = """39, State-gov, 77516, Bachelors, 13, Single, Clerk, Not-in-family, White, Male, 2174, 0, 40, Cuba, <=50K
50, ?, 83311, Doctorate, 16, Divorced, ?, Husband, White, Male, 0, 0, 13, Peru, >50K

"""
OTHERS = """|1x3 Cross validator
25, Private, 226802, Doctorate, 7, Divorced, Sales, Husband, White, Male, 0, 0, 40, Cuba, >50K.
"""


def people(folder: Path, train: str = PEOPLE, test: str = OTHERS) -> Samples:
    """What is read of these two files, the second one compressed."""
    (folder / "adult").mkdir(exist_ok=True)
    (folder / "adult" / "adult.data").write_text(train)
    (folder / "adult" / "adult.test.gz").write_bytes(gzip.compress(test.encode()))
    return Adult().load(folder, RNG)


def test_people_become_numbers_and_categories(tmp_path: Path) -> None:
    """Six numbers, and a feature for each category that occurs for training; a missing one, or a new one, has none."""
    samples = people(tmp_path)
    age, rest = samples.train_x[:, 0], samples.train_x[:, 6:]

    assert age.tolist() == [-1.0, 1.0]
    assert samples.test_x[0, 0].item() == pytest.approx((25 - 44.5) / 5.5)
    # State-gov | Bachelors Doctorate | Divorced Single | Clerk | Husband Not-in | White | Male | Cuba Peru
    assert rest.tolist() == [[1, 1, 0, 0, 1, 1, 0, 1, 1, 1, 1, 0], [0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1]]
    assert samples.test_x[0, 6:].tolist() == [0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0]
    assert (samples.train_y.tolist(), samples.test_y.tolist()) == ([0, 1], [1])
    assert (samples.train_group.tolist(), samples.test_group.tolist()) == ([1, 0], [0])


def test_all_of_adult() -> None:
    """The published numbers of people, incomes and doctorates, and 105 features without a constant one."""
    samples = Adult().load(whole("adult"), RNG)

    assert (len(samples.train_y), len(samples.test_y)) == (32_561, 16_281)
    assert (int(samples.train_y.sum()), int(samples.test_y.sum())) == (7841, 3846)
    assert ((samples.train_group == 0).sum(), (samples.test_group == 0).sum()) == (413, 181)
    assert samples.input_shape == (105,)
    assert samples.train_x.std(0).min() > 0
