"""Claims about the JSON files of LEAF: whose each sample is, in the layouts of FEMNIST, Shakespeare and Sent140."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fednet_emu as fe
from fednet_emu.errors import DataError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.datasets.leaf import Leaf
from fednet_emu.learning.data.datasets.text import LETTERS
from fednet_emu.learning.data.partitions.rules import Group

Users = dict[str, list[tuple[Any, Any]]]


def content(users: Users, /, **changes: Any) -> dict[str, Any]:
    """What LEAF's scripts write of samples (x, y) by user."""
    return {
        "users": [*users],
        "num_samples": [len(own) for own in users.values()],
        "user_data": {user: {"x": [x for x, _ in own], "y": [y for _, y in own]} for user, own in users.items()},
    } | changes


def folder(path: Path, **parts: list[Users]) -> Path:
    """Folders of numbered files, as `train=[...]` and `test=[...]`."""
    for part, files in parts.items():
        (path / part).mkdir(parents=True)
        for number, users in enumerate(files):
            (path / part / f"all_data_{number}_niid_0_keep_0_{part}_9.json").write_text(json.dumps(content(users)))
    return path


def loaded(path: Path, **fields: Any) -> Samples:
    """The samples of a path."""
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


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "is not JSON"),
        ("[1]", "must have a list of users and their user_data, got list"),
        (json.dumps({"users": ["a"]}), "must have a list of users and their user_data, got users"),
        (json.dumps(content({"a": [([1.0], 0)]}, num_samples=[2])), "user 'a' must have 2 samples, got 1 x and 1 y"),
        (json.dumps(content({"a": [([1.0], 0)]}, num_samples=[])), "has 1 users, got num_samples of another length"),
        (json.dumps(content({"a": [([1.0], 0)]}, users=["b"])), "user 'b' has no lists x and y"),
        (json.dumps(content({"a": []})), "has no samples"),
        (json.dumps(content({"a": [("000001.jpg", 0)]})), "is neither numbers nor a text, got '000001.jpg'"),
        (json.dumps(content({"a": [([[1], [2]], 0)]})), r"is neither numbers nor a text, got \[\[1\], \[2\]\]"),
        (json.dumps(content({"a": [([1.0], 0), ("word", 0)]})), "got float, ndarray, str"),
        (json.dumps(content({"a": [([1.0], "b"), ([2.0], "b")]})), "got ndarray, str"),
        (json.dumps(content({"a": [([1.0], [0]), ([2.0], [0])]})), "got ndarray, object"),
        (json.dumps(content({"a": [([1.0], 0), ([1.0, 2.0], 0)] * 9})), "has samples of several lengths"),
        (json.dumps(content({"a": [("abc", "d"), ("ab", "c")] * 9})), r"texts of one length .*, got lengths \[2, 3\]"),
        (json.dumps(content({"a": [([1.0], 0)]})), "test_share leaves no samples for testing"),
    ],
)
def test_what_is_no_leaf_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    """With the file, the user and what would be right."""
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(DataError, match=f"bad.json: .*{problem}.*; "):
        loaded(tmp_path / "bad.json")


def test_a_shape_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """And a folder without files."""
    users = {"a": [([1.0, 2.0], k % 2) for k in range(10)]}
    (tmp_path / "all.json").write_text(json.dumps(content(users)))
    with pytest.raises(DataError, match=r"has samples of 2 numbers, got the shape \[3\]; correct `shape`"):
        loaded(tmp_path, shape=(3,))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: has no \.json files"):
        loaded(tmp_path / "empty")
    assert torch.equal(loaded(tmp_path, shape=(2, 1)).train_x[0], torch.tensor([[1.0], [2.0]]))
