"""Distribution of samples over devices: number of samples, labels and targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fednet_emu.arrays import Array, IntArray
from fednet_emu.records.ledger import DATA_SPLIT

if TYPE_CHECKING:
    import pandas as pd

    from fednet_emu.analysis.run import RunRecords

PARTS = ("train", "test")
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Probabilities of the quantiles that summarise the regression targets of a device."""


@dataclass(frozen=True, eq=False)
class Part:
    """Summary of the training samples, or of the test samples, of all devices."""

    sizes: IntArray
    """Number of samples of each device, int64 [devices]."""
    counts: IntArray | None = None
    """Number of samples of each label on each device, int64 [labels, devices]. None if samples have no labels."""
    targets: Array | None = None
    """Quantiles (5, 25, 50, 75 and 95 %) of the regression targets of each device, float64 [5, devices]; NaN for
    devices without samples. None if samples have labels, or if a target consists of several numbers."""

    @classmethod
    def of(cls, y: NDArray[Any], order: IntArray, offsets: IntArray, classes: int | None) -> Part:
        """Create the summary from labels or targets `y` [n, ...]; see `Partitioned` for `order` and `offsets`."""
        sizes, own = np.diff(offsets), y[order]
        if y.ndim > 1:
            return cls(sizes)
        if classes is not None:
            place = own.astype(np.int64) * len(sizes) + np.repeat(np.arange(len(sizes)), sizes)
            return cls(sizes, np.bincount(place, minlength=classes * len(sizes)).reshape(classes, len(sizes)))
        ascending = own[np.lexsort((own, np.repeat(np.arange(len(sizes)), sizes)))].astype(np.float64)
        targets = np.full((len(QUANTILES), len(sizes)), np.nan)
        place = np.array(QUANTILES)[:, None] * (sizes - 1)[sizes > 0]
        below, first = np.floor(place).astype(np.int64), offsets[:-1][sizes > 0]
        low, high = ascending[first + below], ascending[first + np.ceil(place).astype(np.int64)]
        targets[:, sizes > 0] = low + (high - low) * (place - below)
        return cls(sizes, targets=targets)

    @classmethod
    def read(cls, rows: pd.DataFrame, devices: int) -> Part:
        """Create the summary from rows of the table `data_split`, which may include rows for labels without samples."""
        device, samples = rows["device"].to_numpy(np.int64), rows["samples"].to_numpy(np.int64)
        sizes = np.bincount(device, samples, minlength=devices).astype(np.int64)
        if "label" in rows:
            counts = np.zeros((int(rows["label"].max()) + 1 if len(rows) else 0, devices), np.int64)
            counts[rows["label"], device] = samples
            return cls(sizes, counts)
        columns = [_column(share) for share in QUANTILES]
        return cls(sizes, targets=rows[columns].to_numpy(np.float64).T if columns[0] in rows else None)

    @property
    def shares(self) -> Array:
        """Share of each label in the samples of each device [labels, devices]; zeros for devices without samples."""
        assert self.counts is not None
        shares: Array = self.counts / np.maximum(self.sizes, 1)
        return shares

    def order(self) -> IntArray:
        """Return device indices [devices] in an order in which devices with similar samples are adjacent.

        If samples have labels, devices are sorted by their most frequent label, and then by the share of this label,
        largest first. If there are targets, devices are sorted by their median target. In both cases, devices without
        samples are last. Otherwise devices are sorted by their number of samples, largest first.
        """
        if self.counts is not None:
            most = np.where(self.sizes > 0, self.counts.argmax(axis=0), len(self.counts))
            return np.lexsort((-self.shares.max(axis=0), most))
        key = -self.sizes if self.targets is None else self.targets[2]
        return np.argsort(key, kind="stable")

    def frame(self, part: str) -> pd.DataFrame:
        """Return the numbers of samples as rows of the table `data_split`; `part` is `train` or `test`.

        If samples have labels, there is one row for each device and each label of its samples. Otherwise, there is one
        row for each device, with quantiles of the targets if samples have targets.
        """
        import pandas as pd

        if self.counts is not None:
            device, label = np.nonzero(self.counts.T)
            samples = self.counts[label, device]
            return pd.DataFrame({"part": part, "device": device, "label": label, "samples": samples})
        columns: dict[str, Any] = {"part": part, "device": np.arange(len(self.sizes)), "samples": self.sizes}
        if self.targets is not None:
            columns |= {_column(share): row for share, row in zip(QUANTILES, self.targets, strict=True)}
        return pd.DataFrame(columns)


@dataclass(frozen=True, eq=False)
class DataSplit:
    """The training samples and the test samples of all devices."""

    train: Part
    test: Part

    @classmethod
    def of(cls, run: RunRecords) -> DataSplit:
        """Return the data split that a run recorded in the table `data_split`.

        Raises:
            DataError: the run has no such table, because its algorithm defines its own data or the run is of an older
                version.
        """
        rows = run.table(DATA_SPLIT)
        train, test = (
            Part.read(rows[rows["part"] == part].dropna(axis="columns", how="all"), run.devices) for part in PARTS
        )
        return cls(train, test)

    def frame(self) -> pd.DataFrame:
        """Return the table `data_split` of all samples. A label without samples has one row with 0 samples."""
        import pandas as pd

        tables = [part.frame(name) for name, part in zip(PARTS, (self.train, self.test), strict=True)]
        for name, part in zip(PARTS, (self.train, self.test), strict=True):
            if part.counts is not None:
                unused = np.flatnonzero(~part.counts.any(axis=1))
                tables.append(pd.DataFrame({"part": name, "device": 0, "label": unused, "samples": 0}))
        return pd.concat(tables, ignore_index=True)


def _column(share: float) -> str:
    return f"q{100 * share:02.0f}"
