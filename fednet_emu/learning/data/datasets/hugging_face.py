"""Read tables by Hugging Face's library `datasets`, from Parquet, JSON, CSV or Arrow files, or from its hub."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, field_validator

from fednet_emu.arrays import IntArray, Mask
from fednet_emu.component.component import Component
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.files.data_folder import data_folder, locate, note
from fednet_emu.learning.data.columns import Table, images, labels, numbers, owners, standardise
from fednet_emu.learning.data.datasets.base import Dataset, Samples, held_out
from fednet_emu.learning.data.datasets.npz import checked_samples, named_parts, whole_labels
from fednet_emu.learning.data.datasets.text import Level, Predict, in_tokens, windows

CACHE = "hugging_face"
"""Folder inside the data folder, in which the library `datasets` stores downloads."""

_READERS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv", ".arrow": "arrow"}
_SAVED = ("dataset_dict.json", "state.json")
"""Files by which a folder written by the function `save_to_disk` is recognised."""
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

_WORDS = "|#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null"
_MISSING = _WORDS.split("|")
"""Strings that pandas reads as missing values in a CSV file. The first one is the empty string, for an empty field."""

_ALONE = threading.RLock()
"""Lock for the global settings of the libraries, because all threads of the process share these settings."""

Splits = dict[str, Any]
"""Tables (`datasets.Dataset`) by split name."""


def library() -> Any:
    """Import the library `datasets`, with its usage reports disabled."""
    for variable, value in (("HF_HUB_DISABLE_TELEMETRY", "1"), ("HF_UPDATE_DOWNLOAD_COUNTS", "0")):
        os.environ.setdefault(variable, value)  # has no effect after the import
    try:
        return import_module("datasets")
    except ImportError as error:
        problem = f"datasets is not installed or incomplete ({' '.join(str(error).split())}), got kind 'hugging-face'"
        raise ScenarioError(f"data: {problem}; pip install 'fednet-emu[hugging-face]'") from error


@contextmanager
def local_splits(path: Path, config: str | None, only: str, texts: Sequence[str] = ()) -> Iterator[Splits]:
    """Context manager that opens the tables in a file or folder. The tables are valid only inside the block.

    Nothing is downloaded. A folder must be written by `save_to_disk`, or contain data files. The splits of data files
    are given by file names or a README.md, as on the hub. `config` names one of several configurations. A table without
    splits becomes the split named `only`. Parquet, JSON and CSV files are converted in a temporary folder. `texts`
    lists columns of strings in CSV files. Unless such a column contains only numbers, entries such as `NA` and `None`
    are words, not missing values.
    """
    datasets, saved = library(), any((path / name).is_file() for name in _SAVED)
    reader = _reader(path) if path.is_file() else None
    if config is not None and (saved or reader):
        what = "only data files in a folder have configurations"
        raise DataError(str(path), f"{what}, got config '{config}'", "leave `config` out")
    with TemporaryDirectory(prefix="fednet-data-", ignore_cleanup_errors=True) as cache, _set_up(None):
        try:
            if reader:
                missing = _missing_words([path], texts) if reader == "csv" else {}
                found = datasets.load_dataset(reader, data_files={only: str(path)}, cache_dir=cache, **missing)
            elif saved:
                found = datasets.load_from_disk(str(path))
            else:
                files = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in _READERS]
                of_csv = bool(files) and all(_reader(file) == "csv" for file in files)
                missing = _missing_words(files, texts) if of_csv else {}
                found = datasets.load_dataset(str(path), config, cache_dir=cache, **missing)
        except Exception as error:
            remedy = "give Parquet, JSON, CSV or Arrow files, or a folder that `save_to_disk` wrote"
            raise DataError(str(path), f"cannot be read by the library datasets ({_text(error)})", remedy) from error
        yield {only: found} if isinstance(found, datasets.Dataset) else dict(found)


@contextmanager
def hub_splits(
    name: str, config: str | None, revision: str | None, folder: Path | None, *, download: bool
) -> Iterator[Splits]:
    """Context manager that opens the tables of a data set `owner/name` of the hub.

    Downloads are stored in the data folder. If `download` is False, no connection is made, and the data set must
    already be there. If `config` is None, the data set must have a single configuration. If `revision` is None, the
    newest revision is used.
    """
    datasets = library()
    if not _HUB_NAME.fullmatch(name):
        remedy = "write the path of a file or folder, or the owner/name of a data set on the hub"
        raise DataError(name, "not found, and no name on the hub of Hugging Face", remedy)
    if folder is None:
        raise DataError(name, "no data folder is given", "pass --data-dir, or let FEDNET_DATA name it")
    cache = folder / CACHE
    with _set_up(cache if download else None, download=download):
        try:
            found = datasets.load_dataset(name, config, revision=revision, cache_dir=str(cache))
        except Exception as error:
            if download:
                problem, remedy = "cannot be fetched from the hub of Hugging Face", "check the name and the network"
            else:
                problem = f"neither a file or folder nor in {cache}, where data sets of the hub are kept"
                remedy = "correct the path, or fetch it with `--set data.download=true`"
            raise DataError(name, f"{problem} ({_text(error)})", remedy) from error
        for file in [Path(part["filename"]) for table in found.values() for part in table.cache_files]:
            note(file.relative_to(folder).as_posix(), file)
        yield dict(found)


def _missing_words(files: Sequence[Path], texts: Sequence[str]) -> dict[str, Any]:
    """Return arguments for pandas by which only empty fields are missing values in columns of strings of CSV files."""
    import pandas as pd

    words: dict[str, list[str]] = {}
    for file in files:
        table = pd.read_csv(file, dtype=str, keep_default_na=False, usecols=lambda name: name in texts)
        for name in pd.read_csv(file, nrows=0).columns:
            words.setdefault(name, _MISSING)
        for column_name, column in table.items():
            known = column[~column.isin(_MISSING)]
            if known.empty or pd.to_numeric(known, errors="coerce").isna().any():
                words[str(column_name)] = [""]
    return {"keep_default_na": False, "na_values": words}


def _reader(path: Path) -> str:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(_READERS)
        raise DataError(str(path), f"no table that is known by its ending, got '{path.suffix}'", f"use one of {known}")
    return reader


@contextmanager
def _set_up(hub_cache: Path | None, *, download: bool = False) -> Iterator[None]:
    """Context manager, one at a time, that blocks connections and hides progress bars, unless `download` is set."""
    with _ALONE:
        datasets, constants = import_module("datasets"), import_module("huggingface_hub.constants")
        settings: list[tuple[Any, str, Any]] = [
            (constants, "HF_HUB_OFFLINE", not download),
            (datasets.config, "HF_HUB_OFFLINE", not download),
        ]
        if hub_cache is not None:
            settings.append((constants, "HF_HUB_CACHE", str(hub_cache / "hub")))
        before = [(module, name, getattr(module, name)) for module, name, _ in settings]
        bars, level = not datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
        if not download:
            datasets.disable_progress_bars()
            datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # the error names the cause
        try:
            for module, name, value in settings:
                setattr(module, name, value)
            yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)
            datasets.logging.set_verbosity(level)
            if bars:
                datasets.enable_progress_bars()


def _text(error: Exception) -> str:
    """Return the message of an error of the libraries, or of the error that caused it, if there is one."""
    said = " ".join(str(error.__cause__ or error).split())
    return f"{type(error).__name__}: {said[:300]}"


_TEST = "test"
"""Name of the split that is used for testing by default."""


class TextWindows(Component):
    """Division of strings into windows of consecutive tokens.

    A window is the input of a sample. The target is the next token after the window or after each of its tokens.
    """

    level: Level = "characters"
    """Kind of token: one of LEAF's 80 characters, or a word or punctuation mark in lower case."""
    length: int = Field(80, gt=0, le=10_000)
    """Number of tokens in a window. A string that is not longer yields no window."""
    stride: int | None = Field(None, gt=0)
    """Distance between the starts of two successive windows, in tokens. Null uses `length`, so that windows neither
    overlap nor leave gaps."""
    predict: Predict = "last"
    """Token that the model predicts. last: the token after the window, which is treated as a class; every: the next
    token after each token of the window."""
    vocabulary: int = Field(10_000, gt=0, le=1_000_000)
    """Number of words in the vocabulary if `level` is `words`: the most frequent words of the training split. All other
    words share one additional token."""


class HuggingFace(Dataset):
    """Samples from the rows of a table, which the library `datasets` reads from local files or the Hugging Face hub.

    The inputs are a column of images, one or more columns of numbers, or, if `text` is set, a column of strings. The
    target is a column of classes or, for a regression, of real numbers. Classes are integers, or strings, which are
    numbered in alphabetical order. Owners of rows are numbered in the order of the rows. Needs the extra
    `hugging-face`.
    """

    path: str
    """A Parquet, JSON, CSV or Arrow file, a folder of such files, a folder written by `save_to_disk`, or the name
    `owner/name` of a data set on the hub. A relative path is looked up in the data folder first, then in the current
    folder."""
    config: str | None = None
    """Name of the data set's configuration. Required if the data set has several configurations."""
    revision: str | None = None
    """Commit, branch or tag of the data set on the hub. Null uses the newest revision. With a commit, results are
    reproducible."""
    train: str = "train"
    """Name of the training split. If the data set has no splits, all its rows form the training split."""
    test: str | None = None
    """Name of the test split. Null uses the split `test` if it exists. Otherwise, a share of the training split is held
    out for testing."""
    test_share: float = Field(0.2, gt=0, lt=1)
    """Share of the samples that is held out for testing, from each group or, if there are no groups, from each class.
    The samples are chosen at random; if `text` is set, they are the last windows."""
    input: str | tuple[str, ...] = Field(min_length=1)
    """Name of the input column, or names of several columns of numbers, which are concatenated."""
    target: str | None = None
    """Column of target classes or of real-valued targets. Must be null if `text` is set, because the targets are then
    tokens."""
    group: str | None = None
    """Column with the owner of each row, for the partition `group`."""
    classes: int | None = Field(None, ge=2)
    """Number of classes. Null uses the number in the table's description or, if there is none, counts the classes."""
    size: int | None = Field(None, gt=0, le=4096)
    """Height and width to which images are resized, in pixels. If null, images keep their size, and must all have the
    same size."""
    normalise: bool = True
    """Whether each image channel and each column of numbers is scaled to mean 0 and standard deviation 1 over the
    training samples. Numbers are scaled in double precision, before they are converted to float32. If false, numbers
    are unchanged, and pixel values are divided by 255."""
    text: TextWindows | None = None
    """Division of the input strings into windows of tokens, whose next token is the target. Null if the input is not a
    column of strings."""
    download: bool = False
    """Whether a data set of the hub is downloaded into the data folder if it is missing there."""

    @field_validator("input")
    @classmethod
    def _each_column_once(cls, columns: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not isinstance(columns, str) and len(set(columns)) < len(columns):
            raise ValueError(f"a column is named twice, got {list(columns)}; name each once")
        return columns

    def _check(self) -> None:
        if self.text is None and self.target is None:
            raise ValueError("target: must name the column of classes or numbers, got none; only `text` needs none")
        if self.text is not None and (self.target is not None or self.classes is not None or len(self._columns) > 1):
            got = f"input {list(self._columns)}, target {self.target} and classes {self.classes}"
            raise ValueError(f"text: the target is the token that follows in the one column of texts, got {got}")

    @property
    def _columns(self) -> tuple[str, ...]:
        return (self.input,) if isinstance(self.input, str) else self.input

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        with self._opened(data_dir) as splits:
            tables = self._tables(splits)
            if self.text is not None:
                return self._windows(self.text, tables)
            return self._rows(tables, rng)

    def _opened(self, data_dir: Path | None) -> AbstractContextManager[Splits]:
        try:
            path = locate(self.path, data_dir)
        except DataError:
            folder = data_folder(data_dir)
            return hub_splits(self.path, self.config, self.revision, folder, download=self.download)
        texts = (self.target, self.group, self.input if self.text is not None else None)
        return local_splits(path, self.config, self.train, [str(name) for name in texts if name is not None])

    def _tables(self, splits: Splits) -> list[Table]:
        """Return the training table, followed by the test table if the data set has one."""
        wanted = [self.train]
        if self.test is not None or (_TEST in splits and self.train != _TEST):
            wanted.append(self.test or _TEST)
        for name in wanted:
            if name not in splits:
                raise DataError(self.path, f"has no split '{name}', got {', '.join(splits)}", "name one of them")
            if not len(splits[name]):
                raise DataError(self.path, f"the split '{name}' has no rows, got an empty table", "name another one")
        return [Table(splits[name], f"{self.path} ({name})") for name in wanted]

    def _rows(self, tables: list[Table], rng: np.random.Generator) -> Samples:
        inputs, names = self._inputs(tables)
        targets, stated = labels(tables, str(self.target))
        if self.classes is not None:
            targets = [whole_labels(array) for array in targets]
        groups = None if self.group is None else owners(tables, self.group)
        arrays = named_parts(inputs, targets, groups, lambda kinds: self._held_out(kinds, rng.permutation(len(kinds))))
        classes = self.classes if self.classes is not None else stated
        samples = checked_samples(
            arrays, classes, self.path, normalise=self.normalise and names is not None, names=names or ()
        )
        if self.normalise and names is None:
            standardise(samples.train_x, samples.test_x)
        return samples

    def _inputs(self, tables: list[Table]) -> tuple[list[NDArray[Any]], list[str] | None]:
        """Return the inputs [n, ...] of each table, and the names of its columns of numbers; None for images."""
        if len(self._columns) == 1 and tables[0].is_image(self._columns[0]):
            found, mode = [], None
            for table in tables:
                decoded, mode = images(table, self._columns[0], self.size, mode)
                found.append(decoded.astype(np.float32) / np.float32(255))
            return found, None
        if self.size is not None:
            raise DataError(
                tables[0].where, f"size is for one column of images, got {list(self._columns)}", "leave it out"
            )
        read = [numbers(table, self._columns, single=not self.normalise) for table in tables]
        return [array for array, _ in read], read[0][1]

    def _windows(self, text: TextWindows, tables: list[Table]) -> Samples:
        column = self._columns[0]
        for table in tables:
            if not table.is_text(column):
                raise DataError(
                    table.where, f"{column} must hold texts, got {table.feature(column)}", "leave `text` out"
                )
        texts = [table.values(column) for table in tables]
        found, tokens = in_tokens(text.level, text.vocabulary, texts)
        groups = owners(tables, self.group) if self.group else [np.zeros(len(its), np.int64) for its in found]
        stride = text.stride or text.length
        cut = [windows(its, own, text.length, stride, text.predict) for its, own in zip(found, groups, strict=True)]
        for table, part in zip(tables, cut, strict=True):
            if not len(part.y):
                problem = f"no {column} has more than {text.length} tokens, got none of {len(table.rows)}"
                raise DataError(table.where, problem, "give a smaller length")
        if len(cut) == 1:
            test = self._held_out(cut[0].group, np.arange(len(cut[0].y)))
            parts = [[array[~test], array[test]] for array in cut[0]]
        else:
            parts = [list(pair) for pair in zip(*cut, strict=True)]
        (train_x, test_x), (train_y, test_y) = ([torch.from_numpy(its.copy()) for its in pair] for pair in parts[:2])
        classes = tokens if text.predict == "last" else None
        samples = Samples(train_x, train_y, test_x, test_y, classes, vocabulary=tokens)
        return replace(samples, train_group=parts[2][0], test_group=parts[2][1]) if self.group else samples

    def _held_out(self, kinds: IntArray, order: IntArray) -> Mask:
        return held_out(self.path, kinds, order, self.test_share, "give another share, or a split for testing")
