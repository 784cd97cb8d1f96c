"""Claims about rows of CSV and Parquet files and folders of pictures as samples, without the library `datasets`."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.datasets.image_folder import ImageFolder
from fednet_emu.learning.data.datasets.tables import Csv, Parquet

ROWS = (
    "site,rooms,area,price,kind\nB,1,20.5,100.0,flat\nA,2,30.0,150.5,house\nB,3,40.0,200.0,flat\nA,4,50.5,250.0,flat\n"
)


def table(path: Path, text: str = ROWS, **fields: Any) -> Samples:
    """The samples of a file with this content, which is also the file for testing."""
    if path.suffix == ".parquet":
        pd.read_csv(io.StringIO(text)).to_parquet(path)
    else:
        path.write_text(text)
    kind = Parquet if path.suffix == ".parquet" else Csv
    return kind(**{"path": str(path), "test": str(path)} | fields).load(None, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_columns_become_inputs_targets_and_owners(tmp_path: Path, name: str) -> None:
    """Prices are a regression, kinds are classes by the alphabet, sites owners by their first row."""
    houses = table(tmp_path / name, input=("rooms", "area"), target="price", group="site", normalise=False)
    kinds = table(tmp_path / name, input=("area",), target="kind")

    assert (houses.task, kinds.task, kinds.classes) == ("regression", "classification", 2)
    assert houses.train_x.tolist() == [[1, 20.5], [2, 30], [3, 40], [4, 50.5]]
    assert houses.train_y.tolist() == [100, 150.5, 200, 250]
    assert houses.train_group is not None
    assert houses.train_group.tolist() == [0, 1, 0, 1]
    assert kinds.train_y.tolist() == [0, 1, 0, 0]
    assert kinds.train_x.mean() == pytest.approx(0, abs=1e-6)
    assert kinds.train_x.std(correction=0) == pytest.approx(1)


@pytest.mark.parametrize(
    "text",
    [
        "x,y\n1.5,0\n2.5,1\n",
        "\ufeffx,y\r\n1.5,0\r\n2.5,1\r\n\r\n",
        "x; y\n1.5; 0\n2.5; 1\n",
        "y\tx\n0\t1.5\n1\t2.5",
        '"x","y"\n"1.5","0"\n"2.5","1"\n',
    ],
)
def test_spellings_of_a_csv(tmp_path: Path, text: str) -> None:
    """Byte order marks, line ends, separators, blanks, quotes and gzip give one table."""
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    samples = Csv(path=str(path), test=str(path), target="y", normalise=False).load(None, np.random.default_rng(0))

    assert samples.train_x.tolist() == [[1.5], [2.5]]
    assert samples.train_y.tolist() == [0, 1]


def test_labels_called_na_are_labels_and_owners_keep_their_zeros(tmp_path: Path) -> None:
    """`NA`, `None` and `null` are names of classes, 01 and 1 are two owners."""
    text = "x,y,who\n1,NA,01\n2,None,1\n3,null,01\n4,nan,1\n"
    samples = table(tmp_path / "a.csv", text, target="y", group="who")

    assert samples.classes == 4
    assert samples.train_y.tolist() == [0, 1, 3, 2]
    assert samples.train_group is not None
    assert samples.train_group.tolist() == [0, 1, 0, 1]


def test_what_is_learnt_can_be_said(tmp_path: Path) -> None:
    """Whole numbers are classes unless `task` makes them a regression; 0.0 and 1.0 the other way round."""
    whole, points = "x,y\n1,0\n2,1\n", "x,y\n1,0.0\n2,1.0\n"
    assert table(tmp_path / "a.csv", whole, target="y").task == "classification"
    assert table(tmp_path / "a.csv", whole, target="y", task="regression").task == "regression"
    assert table(tmp_path / "a.csv", points, target="y").task == "regression"
    assert table(tmp_path / "a.csv", points, target="y", task="classification").task == "classification"


def test_large_numbers_keep_their_differences(tmp_path: Path) -> None:
    """Epoch seconds 1 s apart stay evenly apart: they are standardised before they become float32."""
    text = "t,y\n" + "".join(f"{1_700_000_000 + k},{k % 2}\n" for k in range(80))
    samples = table(tmp_path / "a.csv", text, target="y")

    assert len(samples.train_x.unique()) == 80
    assert torch.diff(samples.train_x[:, 0]).std() < 1e-6


def test_rows_are_held_out_of_each_group(tmp_path: Path) -> None:
    """Without a file for testing, half of each owner's rows, drawn by the seed."""
    text = "x,y,who\n" + "".join(f"{k},{k % 2},{'ab'[k // 4 % 2]}\n" for k in range(16))
    path = tmp_path / "a.csv"
    path.write_text(text)
    split = [
        Csv(path=str(path), target="y", group="who", test_share=0.5, normalise=False).load(
            None, np.random.default_rng(s)
        )
        for s in (1, 1, 2)
    ]
    for samples in split:
        assert samples.test_group is not None
        assert sorted(samples.test_group.tolist()) == [0] * 4 + [1] * 4
        assert sorted([*samples.train_x[:, 0].tolist(), *samples.test_x[:, 0].tolist()]) == list(range(16))
    assert torch.equal(split[0].test_x, split[1].test_x)
    assert not torch.equal(split[0].test_x, split[2].test_x)


@pytest.mark.parametrize(
    ("text", "fields", "problem"),
    [
        ("x,y\n1,0\n,1\n", {}, "line 3 has no number for x, got"),
        ("x,y\n1,0\nred,1\n", {}, "line 3 has no number for x, got 'red'"),
        ("x,y\n1,0\ninf,1\n", {}, "line 3 has no number for x, got"),
        ("x,y\n1,0\n1_0,1\n", {}, "line 3 has no number for x, got '1_0'"),
        ("x;y\n1,5;0\n2;1\n", {}, "line 2 has no number for x, got '1,5'"),
        ("x,y\n1,0\n\n2,1\n", {}, "line 3 has no number for x"),
        ("x,y\n1,0\n2,\n", {}, "line 3 has no y"),
        ("x,y\n1,0\n2\n", {}, "line 3 has no y"),
        ("x,y\n1,0,7\n2,1,7\n", {}, "line 2 has 3 fields for 2 columns"),
        ("x,y\n1,0\n2,1,7\n", {}, "cannot be read as CSV .*line 3, saw 3"),
        ("x,x,y\n1,2,0\n", {"input": ("x",)}, "has the column 'x' 2 times"),
        ("x,z\n1,2\n", {}, "has the column 'y' 0 times, got x, z"),
        ("x,y\n", {}, "has no rows"),
        ("", {}, "cannot be read as CSV"),
        ("y\n1\n0\n", {}, "has no columns of inputs"),
        ("x,y\n1,a\n2,b\n", {"task": "regression"}, "y must hold numbers, got texts"),
        ("x,y\n1,0.5\n2,1\n", {"task": "classification"}, "y must hold whole numbers for classes"),
        ("x,y\n1,0.5\n2,1\n", {"classes": 2}, "`classes` is not for the regression on y, got 2"),
        ("x,y\n1,0\n2,1\n", {"test": None, "test_share": 0.01}, "test_share leaves no rows for testing"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(tmp_path: Path, text: str, fields: dict[str, Any], problem: str) -> None:
    """With the file, the line, the column and the value."""
    with pytest.raises(DataError, match=rf"a\.csv: {problem}"):
        table(tmp_path / "a.csv", text, **{"target": "y"} | fields)


def test_a_class_that_training_lacks_is_refused(tmp_path: Path) -> None:
    """Of a file for testing; so is a file that is no Parquet, and a column of lists."""
    (tmp_path / "test.csv").write_text("x,y\n1,c\n")
    with pytest.raises(DataError, match=r"test\.csv: has a y that no training row has, got 'c'"):
        table(tmp_path / "a.csv", "x,y\n1,a\n2,b\n", target="y", test=str(tmp_path / "test.csv"))
    (tmp_path / "a.parquet").write_text("no table")
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read as Parquet"):
        Parquet(path=str(tmp_path / "a.parquet"), target="y").load(None, np.random.default_rng(0))
    pd.DataFrame({"x": [[1.0], [2.0]], "y": [0, 1]}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: row 0 has no number for x, got array"):
        Parquet(path=str(tmp_path / "b.parquet"), target="y").load(None, np.random.default_rng(0))


def pictures(folder: Path, *, size: int = 3) -> Path:
    """Two classes of two pictures each, of one brightness each, and a file that is none."""
    image = pytest.importorskip("PIL.Image")
    for name, values in (("cat", (0, 51)), ("dog", (102, 255))):
        (folder / name).mkdir(parents=True)
        for value in values:
            image.new("RGB", (size, 3), (value, value, 0)).save(folder / name / f"{value:03}.png")
    (folder / "cat" / "notes.txt").write_text("no picture")
    return folder


def pictured(folder: Path, **fields: Any) -> Samples:
    """The samples of a folder, unchanged."""
    return ImageFolder(**{"path": str(folder), "normalise": False} | fields).load(None, np.random.default_rng(0))


def test_folders_are_classes(tmp_path: Path) -> None:
    """With folders train and test, by their names: values from 0 to 1, [3, height, width], or grey."""
    pictures(tmp_path / "train")
    pictures(tmp_path / "test")
    samples = pictured(tmp_path)

    assert samples.train_y.tolist() == samples.test_y.tolist() == [0, 0, 1, 1]
    assert samples.train_x[:, 0, 0, 0].tolist() == pytest.approx([0, 0.2, 0.4, 1])
    assert samples.train_x[:, 2].abs().max() == 0
    assert samples.input_shape == (3, 3, 3)
    assert pictured(tmp_path, size=5, grey=True).input_shape == (1, 5, 5)
    assert pictured(tmp_path, normalise=True).train_x[:, 0].mean() == pytest.approx(0, abs=1e-6)


def test_a_share_of_each_class_is_held_out(tmp_path: Path) -> None:
    """Without folders train and test: one of the two pictures of each class."""
    samples = pictured(pictures(tmp_path), test_share=0.5)
    assert samples.train_y.tolist() == samples.test_y.tolist() == [0, 1]
    assert sorted([*samples.train_x[:, 0, 0, 0].tolist(), *samples.test_x[:, 0, 0, 0].tolist()]) == pytest.approx(
        [0, 0.2, 0.4, 1]
    )


def test_folders_that_cannot_be_used_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without classes or pictures, with other sizes, damaged, with a class that training lacks; without Pillow."""
    with pytest.raises(DataError, match="must have folders of two or more classes, got none"):
        pictured(tmp_path)
    pictures(tmp_path / "train")
    pictures(tmp_path / "test", size=4)
    with pytest.raises(DataError, match=r"pictures of other sizes for testing, got \(3, 3, 3\) and \(3, 3, 4\)"):
        pictured(tmp_path)
    (tmp_path / "test" / "eel").mkdir()
    with pytest.raises(DataError, match="eel: is a class that has no pictures for training"):
        pictured(tmp_path)
    (tmp_path / "train" / "dog" / "a.png").write_text("no picture")
    with pytest.raises(DataError, match=r"a\.png: cannot be read as a picture"):
        pictured(tmp_path / "train")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ScenarioError, match="Pillow is not installed, got kind 'imagefolder'; pip install pillow"):
        pictured(tmp_path / "train")
