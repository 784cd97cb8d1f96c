"""A recorded run: its summary, scenario and tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from fednet_emu.errors import DataError, one_line
from fednet_emu.records.folder import AGAIN, MANIFEST, SCENARIO, SUMMARY, require_sound
from fednet_emu.records.rows import KINDS

UNFINISHED = "finish the run that writes it, or run it again with --force"


@dataclass(frozen=True)
class RunRecords:
    """The records of a run, in its folder or in memory. A table is read when it is requested, and it is not cached."""

    name: str
    """The name of the run in figures, by default the name of the scenario."""
    summary: dict[str, Any]
    """Totals and final scores, as in summary.json."""
    settings: dict[str, Any]
    """The content of scenario.yaml."""
    folder: Path | None
    """The run folder; None for a run in memory."""
    in_memory: Callable[[], Mapping[str, pd.DataFrame]] = dict
    """Function that returns the tables of a run in memory, by their names."""

    @classmethod
    def opened(cls, folder: Path, name: str | None = None) -> Self:
        """Open the run that is recorded in a folder. If `name` is given, it replaces the name of the run.

        Raises:
            DataError: the folder, its summary or its scenario is missing or unreadable.
        """
        if not folder.is_dir():
            raise DataError(str(folder), "no such run folder", "give the folder that `fednet run` wrote")
        if (folder / MANIFEST).exists():
            _read(folder / MANIFEST, json.loads)
        summary = _read(folder / SUMMARY, json.loads)
        settings = _read(folder / SCENARIO, YAML(typ="safe", pure=True).load)
        return cls(name or str(summary.get("name") or folder.resolve().name), summary, settings, folder)

    @property
    def total_bit(self) -> int:
        """Number of bits transmitted on all links."""
        return sum(int(self.summary[f"{kind}_bit"]) for kind in KINDS)

    @property
    def devices(self) -> int:
        """Number of devices; 0 if unknown."""
        return int(self.settings.get("devices", {}).get("count", 0))

    def names(self) -> list[str]:
        """Return the names of the recorded tables."""
        if self.folder is None:
            return sorted(self.in_memory())
        return sorted(path.stem for path in self.folder.glob("*.parquet"))

    def has(self, name: str) -> bool:
        """Return True if a table of this name is recorded."""
        return name in self.in_memory() if self.folder is None else (self.folder / f"{name}.parquet").is_file()

    def table(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return a table of the run as a data frame, with all columns or with the given `columns`.

        Times are in seconds, sizes in bits, and energies in joules.

        Raises:
            DataError: the table is missing, unreadable, or lacks one of the columns.
        """
        if self.folder is None:
            return self._from_memory(name, columns)
        path = self._path(name)
        with _reading(path):
            return pd.read_parquet(path, columns=list(columns) if columns is not None else None)

    def batches(self, name: str, columns: Sequence[str], rows: int) -> Iterator[pd.DataFrame]:
        """Yield the given columns of a table in batches of at most `rows` rows, which limits the required memory.

        Raises:
            DataError: the table is missing, unreadable, or lacks one of the columns.
        """
        if self.folder is None:
            whole = self._from_memory(name, columns)
            yield from (whole.iloc[first : first + rows] for first in range(0, len(whole), rows))
            return
        import pyarrow.parquet as pq

        path = self._path(name)
        # otherwise the compressed columns of up to 2^20 rows are in memory at once
        with _reading(path), pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as file:
            missing = ", ".join(sorted(set(columns) - set(file.schema_arrow.names)))
            if missing:
                raise ValueError(f"no column {missing}")
            for batch in file.iter_batches(rows, columns=list(columns)):
                yield batch.select(list(columns)).to_pandas()

    def _path(self, name: str) -> Path:
        folder = self.folder or Path()
        path = folder / f"{name}.parquet"
        if not path.is_file():
            raise DataError(str(path), "no such table in this run folder", UNFINISHED)
        require_sound(folder, [path.name])
        return path

    def _from_memory(self, name: str, columns: Sequence[str] | None) -> pd.DataFrame:
        tables = self.in_memory()
        if name not in tables:
            raise DataError(f"{self.name}: {name}", "no such table in this run", f"it has {', '.join(sorted(tables))}")
        return tables[name].copy() if columns is None else tables[name][list(columns)].copy()


def distinct_labels(runs: Sequence[RunRecords]) -> list[str]:
    """Return a label for each run.

    A label is the name of the run. If several runs have the same name, the seed is added to their labels, or the name
    of the run folder if the seeds are also equal.
    """
    labels = [run.name for run in runs]
    seeds = (f"seed {run.summary.get('seed')}" for run in runs)
    for detail in (seeds, (run.folder.name if run.folder else "" for run in runs)):
        repeated = {label for label in labels if labels.count(label) > 1}
        completed = [
            f"{run.name}, {text}" if label in repeated else label
            for run, label, text in zip(runs, labels, detail, strict=True)
        ]
        if len(set(completed)) > len(set(labels)):
            labels = completed
    return labels


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # pyarrow's errors derive from these two
        raise DataError(str(path), f"not a readable table, got {one_line(error, 120)!r}", AGAIN) from error


def _read(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    if not path.is_file():
        raise DataError(str(path), "no such file in this run folder", UNFINISHED)
    require_sound(path.parent, [path.name])
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, YAMLError, RecursionError) as error:
        raise DataError(str(path), f"unreadable, got {one_line(error, 120)!r}", AGAIN) from error
    if not isinstance(content, dict):
        raise DataError(str(path), f"expected a mapping of names to values, got {type(content).__name__}", AGAIN)
    return content
