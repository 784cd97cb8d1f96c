"""Who has what: how many samples each device has, of which labels, or with which targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fednet_emu.arrays import Array, IntArray

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles of a device's targets that are shown."""


@dataclass(frozen=True, eq=False)
class Part:
    """What devices have of the training or of the test samples.

    Attributes:
        sizes: int64 [devices], number of samples.
        counts: int64 [labels, devices], number of samples of each label; None without labels.
        targets: float64 [5, devices], the `QUANTILES` of a device's targets, NaN for one without samples; None unless
            each sample has a number for its target.
    """

    sizes: IntArray
    counts: IntArray | None = None
    targets: Array | None = None

    @classmethod
    def of(cls, y: NDArray[Any], order: IntArray, offsets: IntArray, classes: int | None) -> Part:
        """What devices have, given the labels or targets y [n, ...] and the split, as `Partitioned` has it."""
        sizes, own = np.diff(offsets), y[order]
        if y.ndim > 1:
            return cls(sizes)
        if classes is not None:
            place = own.astype(np.int64) * len(sizes) + np.repeat(np.arange(len(sizes)), sizes)
            return cls(sizes, np.bincount(place, minlength=classes * len(sizes)).reshape(classes, len(sizes)))
        parts = np.split(own, offsets[1:-1])
        known = [np.quantile(part, QUANTILES) if len(part) else np.full(len(QUANTILES), np.nan) for part in parts]
        return cls(sizes, targets=np.stack(known, axis=1))

    @property
    def shares(self) -> Array:
        """Share of each label among the samples of each device [labels, devices], zeros where it has none."""
        assert self.counts is not None
        shares: Array = self.counts / np.maximum(self.sizes, 1)
        return shares

    def order(self) -> IntArray:
        """Devices side by side with those that are like them [devices].

        By their most frequent label and its share, by their median target, or else by their sizes, largest first;
        devices without samples come last.
        """
        if self.counts is not None:
            most = np.where(self.sizes > 0, self.counts.argmax(axis=0), len(self.counts))
            return np.lexsort((-self.shares.max(axis=0), most))
        key = -self.sizes if self.targets is None else self.targets[2]
        return np.argsort(key, kind="stable")

    def frame(self, part: str) -> pd.DataFrame:
        """One row for each device, and for each label that it has; `part` is the first column."""
        if self.counts is not None:
            device, label = np.nonzero(self.counts.T)
            samples = self.counts[label, device]
            return pd.DataFrame({"part": part, "device": device, "label": label, "samples": samples})
        told: dict[str, Any] = {"part": part, "device": np.arange(len(self.sizes)), "samples": self.sizes}
        if self.targets is not None:
            told |= {f"q{100 * share:02.0f}": row for share, row in zip(QUANTILES, self.targets, strict=True)}
        return pd.DataFrame(told)


@dataclass(frozen=True, eq=False)
class Holdings:
    """What devices have of the training samples and of the test samples."""

    train: Part
    test: Part
