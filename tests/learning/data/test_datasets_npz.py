"""Claims about the user's own arrays."""

import numpy as np
import pytest

from fednet_emu.errors import DataError, ScenarioWarning
from fednet_emu.learning.data.datasets import Npz

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
    """What the dataset makes of these arrays."""
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


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 a broken zip"])
def test_a_file_that_is_no_npz_is_explained(tmp_path, content):
    """An empty, foreign or broken file is a DataError that says how to write a good one."""
    path = tmp_path / "own.npz"
    path.write_bytes(content)

    with pytest.raises(DataError, match=r"own.npz: cannot be read as an .npz file .*; write it with np.savez"):
        Npz(path=str(path)).load(None, RNG)


def test_a_bare_array_is_no_npz(tmp_path):
    """A file of np.save is no archive, and the error says how to write one."""
    with (tmp_path / "own.npz").open("wb") as file:
        np.save(file, np.ones(3))

    with pytest.raises(DataError, match=r"\(File is not a zip file\); write it with np.savez"):
        Npz(path="own.npz").load(tmp_path, RNG)


def test_damage_inside_the_file_is_found(tmp_path):
    """Flipped bytes within an array fail its checksum and become a DataError."""
    np.savez(tmp_path / "own.npz", **arrays(train_x=np.ones((6, 1000))))
    content = bytearray((tmp_path / "own.npz").read_bytes())
    content[5000:5008] = b"\xff" * 8
    (tmp_path / "own.npz").write_bytes(content)

    with pytest.raises(DataError, match=r"cannot be read as an .npz file"):
        Npz(path="own.npz").load(tmp_path, RNG)


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


@pytest.mark.parametrize(("part", "rows"), [("train", 5), ("train", 7), ("test", 2)])
def test_each_token_has_one_that_follows(tmp_path, part, rows):
    """As many windows of targets as of inputs, in both parts."""
    x = np.zeros((6, 2), int)
    tokens = {"train_x": x, "train_y": x, "test_x": x[:3], "test_y": x[:3], f"{part}_y": np.zeros((rows, 2), int)}
    np.savez(tmp_path / "own.npz", **tokens)

    with pytest.raises(DataError, match=rf"{part}_y must hold a token .* of {part}_x \[., 2\], got \[{rows}, 2\]"):
        Npz(path="own.npz", vocabulary=5).load(tmp_path, RNG)


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
