"""Tables that the library `datasets` reads: what was written into them comes back, and so do their owners."""

from __future__ import annotations

import io
import json
import shutil
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from fednet_emu.cli.app import app
from fednet_emu.errors import DataError, ScenarioWarning
from fednet_emu.files.data_folder import noting
from fednet_emu.learning.data.datasets import HuggingFace
from fednet_emu.learning.data.datasets.hugging_face import library
from fednet_emu.learning.data.datasets.text import characters

if find_spec("datasets") is None:
    pytest.skip("needs datasets: pip install 'fednet-emu[hugging-face]'", allow_module_level=True)

datasets = library()
datasets.disable_progress_bars()
RNG = np.random.default_rng(0)
WRITERS = [f"writer-{letter}" for letter in "dacb"]
N_EACH = 10


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def encoded(pixels: np.ndarray) -> dict[str, Any]:
    """An image [height, width] or [height, width, 3] as the bytes of a PNG file, which loses nothing."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return {"bytes": stream.getvalue(), "path": None}


def pictures(n: int, shape: tuple[int, ...] = (8, 8)) -> np.ndarray:
    return np.random.default_rng([n, *shape]).integers(0, 256, (n, *shape), np.uint8)


def table_of(images: Any, labels: Any, writers: Any) -> Any:
    """A table like that of FEMNIST: images, classes with names, and a column that says whose each row is."""
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "character": datasets.ClassLabel(names=["x", "y", "z"]),
            "writer_id": datasets.Value("string"),
        }
    )
    columns = {"image": [encoded(its) for its in images], "character": list(labels), "writer_id": list(writers)}
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.fixture
def femnist(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray, list[str]]:
    """A folder with one Parquet file, and what is in it."""
    images = pictures(4 * N_EACH)
    labels = np.arange(4 * N_EACH) % 3
    writers = [writer for writer in WRITERS for _ in range(N_EACH)]
    folder = tmp_path / "femnist" / "data"
    folder.mkdir(parents=True)
    table_of(images, labels, writers).to_parquet(folder / "train-00000-of-00001.parquet")
    return tmp_path, images, labels, writers


BY_WRITER = {"path": "femnist", "input": "image", "target": "character", "group": "writer_id"}


def test_every_image_keeps_its_label_and_its_writer(femnist):
    """Writers are numbered as they first appear, and a fifth of each one's images is for testing."""
    folder, images, labels, writers = femnist

    samples = HuggingFace(**BY_WRITER, normalise=False).load(folder, rng())

    number = {writer: place for place, writer in enumerate(WRITERS)}
    written = {
        (image.tobytes(), label, number[writer]) for image, label, writer in zip(images, labels, writers, strict=True)
    }
    found = set()
    for x, y, group in (
        (samples.train_x, samples.train_y, samples.train_group),
        (samples.test_x, samples.test_y, samples.test_group),
    ):
        grey = (x.numpy()[:, 0] * 255).round().astype(np.uint8)
        found |= {(image.tobytes(), int(label), int(its)) for image, label, its in zip(grey, y, group, strict=True)}
    assert found == written
    assert samples.classes == 3
    assert np.bincount(samples.test_group).tolist() == [N_EACH // 5] * 4


def test_the_same_seed_holds_out_the_same_images(femnist):
    """The random stream of the scenario decides, and nothing else."""
    first, second = (HuggingFace(**BY_WRITER).load(femnist[0], rng()) for _ in range(2))
    other = HuggingFace(**BY_WRITER).load(femnist[0], np.random.default_rng(6))

    assert first.test_x.equal(second.test_x)
    assert not first.test_x.equal(other.test_x)


def test_colours_are_channels_and_are_standardised(tmp_path):
    """Each of red, green and blue has mean 0 and deviation 1 over the training images."""
    train, test = pictures(12, (6, 5, 3)), pictures(6, (6, 5, 3))
    splits = {"train": table_of(train, [0, 1, 2] * 4, ["a"] * 12), "test": table_of(test, [0, 1, 2] * 2, ["b"] * 6)}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    data = HuggingFace(path="saved", input="image", target="character", group="writer_id")

    samples = data.load(tmp_path, RNG)

    mean, deviation = train.mean((0, 1, 2)), train.std((0, 1, 2))
    for x, images in ((samples.train_x, train), (samples.test_x, test)):
        np.testing.assert_allclose(x.numpy().transpose(0, 2, 3, 1), (images - mean) / deviation, atol=1e-4)
    assert (samples.train_group.tolist(), samples.test_group.tolist()) == ([0] * 12, [1] * 6)


def test_images_of_several_sizes_are_resized_or_refused(tmp_path):
    """A sentence says what they are; `size` makes them equal."""
    images = [pictures(1, (8, 8))[0], pictures(1, (6, 9))[0], *pictures(4, (8, 8))]
    table_of(images, [0, 1, 2] * 2, ["a"] * 6).save_to_disk(tmp_path / "mixed")
    settings = {"path": "mixed", "input": "image", "target": "character", "test_share": 0.5}

    with pytest.raises(DataError, match=r"image has images of several sizes, got 8x8 and 6x9 in row 1; give `size`"):
        HuggingFace(**settings).load(tmp_path, RNG)
    assert HuggingFace(**settings, size=4).load(tmp_path, RNG).input_shape == (1, 4, 4)


def test_an_image_that_is_elsewhere_is_not_fetched(tmp_path, monkeypatch):
    """A table may name an address in place of the bytes; no connection is made."""
    features = datasets.Features({"image": datasets.Image(), "y": datasets.Value("int64")})
    rows = {"image": [{"bytes": None, "path": "http://127.0.0.1:9/a.png"}] * 4, "y": [0, 1, 0, 1]}
    table = datasets.Dataset.from_dict(rows, features=features).data.table
    pq.write_table(table, tmp_path / "remote.parquet")
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection"))

    with pytest.raises(DataError, match="the image of row 0 cannot be read as an image"):
        HuggingFace(path="remote.parquet", input="image", target="y").load(tmp_path, RNG)


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def rows_of(n: int) -> list[dict[str, Any]]:
    """Rows with two columns of numbers, a list, classes as texts, a real target and an owner."""
    return [
        {
            "a": row,
            "b": row / 2,
            "v": [row, -row],
            "kind": "cat" if row % 2 else "ant",
            "price": row * 1.5,
            "who": row // 4,
        }
        for row in range(n)
    ]


def test_columns_of_numbers_are_features(tmp_path):
    """One after the other, in the order named; texts are classes in the order of the alphabet."""
    write_lines(tmp_path / "t" / "train.jsonl", rows_of(8))
    write_lines(tmp_path / "t" / "test.jsonl", rows_of(4))
    data = HuggingFace(path="t", input=("b", "a", "v"), target="kind", group="who", normalise=False)

    samples = data.load(tmp_path, RNG)

    assert samples.train_x.tolist() == [[row / 2, row, row, -row] for row in range(8)]
    assert samples.test_x.tolist() == [[row / 2, row, row, -row] for row in range(4)]
    assert samples.train_y.tolist() == [0, 1] * 4
    assert samples.train_group.tolist() == [0] * 4 + [1] * 4
    assert samples.classes == 2


def test_numbers_are_standardised_column_by_column(tmp_path):
    """As for images, over the training rows; a constant column becomes 0."""
    write_lines(tmp_path / "train.jsonl", [{**row, "c": 7} for row in rows_of(8)])

    samples = HuggingFace(path="train.jsonl", input=("a", "c"), target="price").load(tmp_path, rng())

    np.testing.assert_allclose(samples.train_x[:, 0].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(samples.train_x[:, 0].std(correction=0), 1, atol=1e-6)
    assert samples.train_x[:, 1].abs().max() == 0


def test_columns_are_standardised_in_double_precision(tmp_path):
    """Seconds of an epoch and northings in a CSV file keep all their values; as they are they would be merged."""
    lines = ["t,n,y", *(f"{1_700_000_000 + row},{5.5e6 + 0.05 * row:.2f},{row % 2}" for row in range(80))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    data = HuggingFace(path="a.csv", input=("t", "n"), target="y")
    samples = data.load(tmp_path, rng())

    assert [len(column.unique()) for column in samples.train_x.T] == [64, 64]
    with pytest.warns(ScenarioWarning, match=r"float32 keeps \d+ of 64 different values of input [tn] "):
        data.model_copy(update={"normalise": False}).load(tmp_path, rng())


def test_a_number_that_is_missing_or_too_large_is_named_by_row_and_column(tmp_path):
    """The row of the file, whatever is held out for testing."""
    for name, cell in (("missing", ""), ("word", "NA"), ("large", "1e300")):
        rows = (f"{row},{cell if row == 37 else row / 2},{row * 1.5}" for row in range(50))
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,y", *rows]))
    for name in ("missing", "word"):
        with pytest.raises(DataError, match=rf"{name}.csv \(train\): row 37 has no b, got nan; drop or complete"):
            HuggingFace(path=f"{name}.csv", input=("a", "b"), target="y").load(tmp_path, rng())
        with pytest.raises(DataError, match="row 37 has no b, got nan"):
            HuggingFace(path=f"{name}.csv", input="a", target="b").load(tmp_path, rng())
    with pytest.raises(DataError, match=r"row 37 has no finite float32 as b, got 1e\+300"):
        HuggingFace(path="large.csv", input=("a", "b"), target="y", normalise=False).load(tmp_path, rng())


@pytest.mark.parametrize("folder", [False, True])
def test_words_for_what_is_missing_are_labels_and_owners_in_a_column_of_texts(tmp_path, folder):
    """NA and None beside another word; an empty field stays missing."""
    path = tmp_path / "t" / "train.csv" if folder else tmp_path / "t.csv"
    path.parent.mkdir(exist_ok=True)
    words = ["NA", "None", "x"]
    path.write_text("\n".join(["a,y,who", *(f"{row},{words[row % 3]},{words[row % 2]}" for row in range(30))]))
    data = HuggingFace(path="t" if folder else "t.csv", input="a", target="y", group="who")
    samples = data.load(tmp_path, rng())

    assert samples.classes == 3
    assert set(samples.train_group.tolist()) == {0, 1}
    path.write_text("a,y,who\n1,,NA\n2,x,NA\n")
    with pytest.raises(DataError, match="row 0 has no y, got None"):
        data.load(tmp_path, rng())


def test_floating_point_labels_are_classes_where_their_number_is_given(tmp_path):
    """Without it they are numbers, which a warning says."""
    (tmp_path / "f.csv").write_text("\n".join(["a,y", *(f"{row},{row % 3}.0" for row in range(30))]))
    data = HuggingFace(path="f.csv", input="a", target="y")
    with pytest.warns(ScenarioWarning, match="for 3 classes give `classes: 3`"):
        assert data.load(tmp_path, rng()).task == "regression"
    samples = data.model_copy(update={"classes": 3}).load(tmp_path, rng())
    assert sorted(samples.test_y.tolist()) == [0, 0, 1, 1, 2, 2]


def test_real_targets_make_a_regression(tmp_path):
    """Each row of a CSV file keeps its target."""
    lines = ["a,price", *(f"{row},{row * 1.5}" for row in range(10))]
    (tmp_path / "prices.csv").write_text("\n".join(lines) + "\n")

    samples = HuggingFace(path="prices.csv", input="a", target="price", normalise=False).load(tmp_path, rng())

    assert samples.classes is None
    assert (samples.train_x[:, 0] * 1.5).equal(samples.train_y)
    assert (len(samples.train_y), len(samples.test_y)) == (8, 2)


def test_every_class_is_held_out_where_there_are_no_groups(tmp_path):
    """A fifth of each of two classes of unequal size."""
    write_lines(tmp_path / "t.json", [{"x": row, "y": int(row >= 20)} for row in range(30)])

    samples = HuggingFace(path="t.json", input="x", target="y").load(tmp_path, rng())

    assert np.bincount(samples.test_y).tolist() == [4, 2]


def test_texts_are_cut_into_windows(tmp_path):
    """The next character is the class; the last windows of each owner are for testing."""
    texts = ["to be or not to be", "that is the question"]
    write_lines(tmp_path / "plays.jsonl", [{"said": text, "role": f"r{9 - row}"} for row, text in enumerate(texts)])
    data = HuggingFace(path="plays.jsonl", input="said", group="role", text={"length": 4, "stride": 1})

    samples = data.load(tmp_path, RNG)

    expected = [
        [(characters(text[at : at + 4]).tolist(), int(characters(text[at + 4])[0])) for at in range(len(text) - 4)]
        for text in texts
    ]
    for group, windows in enumerate(expected):
        n_test = round(0.2 * len(windows))
        for x, y, owner, wanted in (
            (samples.train_x, samples.train_y, samples.train_group, windows[: len(windows) - n_test]),
            (samples.test_x, samples.test_y, samples.test_group, windows[len(windows) - n_test :]),
        ):
            mine = owner == group
            assert list(zip(x[mine].tolist(), y[mine].tolist(), strict=True)) == wanted
    assert samples.classes == samples.vocabulary == 80


def test_words_are_those_of_the_training_split(tmp_path):
    """The most frequent word is token 1; a word that only the test split has is unknown."""
    write_lines(tmp_path / "t" / "train.jsonl", [{"s": "the sea the ship the sea"}])
    write_lines(tmp_path / "t" / "test.jsonl", [{"s": "the whale the sea"}])
    data = HuggingFace(path="t", input="s", text={"level": "words", "length": 2, "stride": 1, "vocabulary": 2})

    samples = data.load(tmp_path, RNG)

    assert samples.train_x.tolist() == [[1, 2], [2, 1], [1, 0], [0, 1]]
    assert samples.train_y.tolist() == [1, 0, 1, 2]
    assert samples.test_x.tolist() == [[1, 0], [0, 1]]
    assert samples.test_y.tolist() == [1, 2]
    assert samples.train_group is None


def test_what_was_fetched_before_is_used_without_a_network(tmp_path, monkeypatch):
    """The library's copy of a data set of the hub lies in the data folder; no connection is made."""
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection"))
    write_lines(tmp_path / "local" / "train.jsonl", rows_of(8))
    datasets.load_dataset(str(tmp_path / "local"), cache_dir=str(tmp_path / "cache"))
    made = next((tmp_path / "cache" / "local").glob("*/0.0.0/*/dataset_info.json")).parent
    shutil.copytree(made, tmp_path / "hugging_face" / "someone___local" / "default" / "0.0.0" / made.name)

    with noting() as read:
        samples = HuggingFace(path="someone/local", input="a", target="price", normalise=False).load(tmp_path, rng())

    assert [Path(name).name for name in read] == ["local-train.arrow"]
    assert sorted([*samples.train_x[:, 0].tolist(), *samples.test_x[:, 0].tolist()]) == list(range(8))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"path": "nowhere"}, "nowhere: not found, and no name on the hub of Hugging Face; write the path"),
        ({"train": "validation"}, "femnist: has no split 'validation', got train; name one of them"),
        ({"target": "label"}, r"femnist \(train\): has no column 'label', got image, character, writer_id"),
        ({"input": "writer_id"}, r"femnist \(train\): writer_id must hold numbers, got Value\('string'\)"),
        ({"input": "writer_id", "target": None, "text": {}}, "no writer_id has more than 80 tokens, got none of 40"),
        ({"input": "image", "target": None, "text": {}}, r"femnist \(train\): image must hold texts, got Image"),
        ({"input": "ragged", "path": "ragged.json"}, "ragged must hold lists of one length, got several"),
        ({"input": "writer_id", "size": 8}, r"size is for one column of images, got \['writer_id'\]; leave it out"),
        ({"target": "image"}, "image must hold numbers, got Image"),
        ({"test_share": 0.01}, "femnist: test_share leaves no samples for testing, got 0.01"),
        ({"classes": 2}, "femnist: train_y must hold labels 0..1, got 2"),
        ({"config": "letters"}, "femnist: cannot be read by the library datasets .*BuilderConfig 'letters' not found"),
    ],
)
def test_what_does_not_fit_is_one_sentence(changes, problem, femnist):
    """It names the file, the column or the setting, and what would be right."""
    write_lines(femnist[0] / "ragged.json", [{"ragged": [1, 2]}, {"ragged": [1]}])
    with pytest.raises(DataError, match=problem) as caught:
        HuggingFace(**{**BY_WRITER, **changes}).load(femnist[0], RNG)
    assert "\n" not in str(caught.value)


def test_damaged_files_are_one_sentence(femnist, caplog):
    """Half a Parquet file, and a file of unknown kind; the library's own words are in the sentence, not around it."""
    folder, *_ = femnist
    whole = next(folder.rglob("*.parquet"))
    whole.write_bytes(whole.read_bytes()[:1000])
    (folder / "x.pkl").write_bytes(b"x")

    with pytest.raises(DataError, match=r"femnist: cannot be read by the library datasets \(.+\); give Parquet"):
        HuggingFace(**BY_WRITER).load(folder, RNG)
    with pytest.raises(DataError, match=r"x.pkl: no table that is known by its ending, got '.pkl'; use one"):
        HuggingFace(**{**BY_WRITER, "path": "x.pkl"}).load(folder, RNG)
    assert caplog.text == ""


def test_the_libraries_are_left_as_they_were(femnist):
    """Code beside ours that uses the hub is not cut off from it."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE, datasets.logging.get_verbosity()
    HuggingFace(**BY_WRITER).load(femnist[0], RNG)

    assert (constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE, datasets.logging.get_verbosity()) == before


def test_a_scenario_runs_by_writer_from_the_command_line(femnist):
    """Two rounds in which each of four devices has the images of one writer."""
    folder, *_ = femnist
    data = "{kind: hugging-face, path: femnist, input: image, target: character, group: writer_id}"
    settings = [f"data={data}", "partition=group", "devices.count=4", "algorithm.cohort=3", "stop={rounds: 2}"]
    arguments = [part for setting in settings for part in ("--set", setting)]

    result = CliRunner().invoke(
        app, ["run", "quickstart", "--data-dir", str(folder), "--out", str(folder / "run"), "--no-plots", *arguments]
    )

    assert result.exit_code == 0, result.output
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert (summary["rounds"], summary["verified"]) == (2, True)


def test_texts_train_an_lstm_from_the_command_line(tmp_path):
    """Two rounds in which each device has the words of one role."""
    rows = [{"said": "to be or not to be that is the question " * 4, "role": role} for role in ("h", "o", "p")]
    write_lines(tmp_path / "plays.jsonl", rows)
    data = "{kind: hugging-face, path: plays.jsonl, input: said, group: role, text: {length: 10}}"
    settings = [f"data={data}", "partition=group", "devices.count=3", "algorithm.cohort=2", "stop={rounds: 2}"]
    settings.append("model={kind: char-lstm, units: 8, embedding: 4}")
    arguments = [part for setting in settings for part in ("--set", setting)]

    result = CliRunner().invoke(
        app,
        ["run", "quickstart", "--data-dir", str(tmp_path), "--out", str(tmp_path / "run"), "--no-plots", *arguments],
    )

    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["verified"] is True
