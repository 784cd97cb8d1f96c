"""Data of the platform FLASH on smartphones: AI-Benchmark scores, measured training times, and Wi-Fi speeds of users.

From Yang et al., "Characterizing impacts of heterogeneity in federated learning upon large-scale smartphone data",
WWW 2021. The argument `folder` of the functions is the folder with FLASH's files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from fednet_emu.arrays import Array, exp, log
from fednet_emu.errors import DataError
from fednet_emu.files.recordings import read_bytes

BIT_PER_KILOBYTE = 8 * 1024
"""Number of bits in a kilobyte in FLASH, where "kb/s" means 1024 bytes per second."""

FEMNIST_BATCH_S = MappingProxyType(
    {
        "Google Nexus S": (1.642, 0.0995),
        "Xiaomi Redmi Note 7 Pro": (0.588, 0.0239),
        "Google Pixel 4": (0.179, 0.0023),
    }
)
"""Measured training times of FLASH's FEMNIST CNN on three phones: mean and standard deviation in s per batch. FLASH
maps every other phone to one of these three by its AI-Benchmark score. FLASH does not state the batch size of the
measurements; its default is 10."""

_UNKNOWN = "unknown"
_REMEDY = "name the folder with the files of FLASH's device_util"


@dataclass(frozen=True, eq=False)
class LinkSpeeds:
    """Mean and standard deviation [users] of the normally distributed link speeds of each user, in bit/s.

    In FLASH, a random draw with a negative speed is repeated.
    """

    users: tuple[str, ...]
    down_mean_bps: Array
    down_sigma_bps: Array
    up_mean_bps: Array
    up_sigma_bps: Array


def link_speeds(folder: Path) -> LinkSpeeds:
    """Return the link speeds in `speed_distri.json`, converted from FLASH's kb/s (1024 bytes per second) to bit/s.

    Raises:
        DataError: The file is missing or has another format.
    """
    path = folder / "speed_distri.json"
    laws = _object(path)
    columns = []
    for field in ("down_u", "down_sigma", "up_u", "up_sigma"):
        try:
            columns.append(np.array([law[field] for law in laws.values()], np.float64) * BIT_PER_KILOBYTE)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(str(path), f"a user lacks the number {field}", _REMEDY) from error
    return LinkSpeeds(tuple(laws), *columns)


def benchmark_scores(folder: Path) -> dict[str, float]:
    """Return the AI-Benchmark score of each phone in `benchmark2score.json`, fastest first.

    Raises:
        DataError: The file is missing or has another format.
    """
    path = folder / "benchmark2score.json"
    scores = _object(path)
    if not all(isinstance(score, int | float) and score > 0 for score in scores.values()):
        raise DataError(str(path), "a score is no number above 0", _REMEDY)
    return {phone: float(score) for phone, score in scores.items()}


def user_scores(folder: Path) -> dict[str, float]:
    """Return the AI-Benchmark score of each phone model of a user, by the name of the model.

    The file `real2benchmark.json` maps phone models of users to benchmarked phones. Other models are omitted.

    Raises:
        DataError: A file is missing or has another format.
    """
    scores = benchmark_scores(folder)
    names = _object(folder / "real2benchmark.json")
    return {model: scores[phone] for model, phone in names.items() if phone != _UNKNOWN and phone in scores}


def batch_times_s(
    scores: Array, reference_scores: dict[str, float], rule: Literal["nearest", "interpolated"] = "nearest"
) -> Array:
    """Return the training times [n] in s per batch of FLASH's FEMNIST CNN on phones with the given scores [n].

    Scores are not proportional to speeds: the fastest measured phone has 87 times the score of the slowest one, but
    only 9 times its speed.

    Args:
        scores: AI-Benchmark scores.
        reference_scores: The score of each phone, as returned by `benchmark_scores`, including the three measured
            phones.
        rule: "nearest" takes the time of the measured phone with the nearest score, as FLASH does. "interpolated"
            interpolates linearly between the three phones on logarithmic scales of score and time. A score outside the
            range of the three phones has the time of the slowest or fastest phone.

    Raises:
        DataError: A measured phone has no score.
    """
    missing = [phone for phone in FEMNIST_BATCH_S if phone not in reference_scores]
    if missing:
        raise DataError("benchmark2score.json", f"has no score of {', '.join(missing)}", _REMEDY)
    known = np.array([reference_scores[phone] for phone in FEMNIST_BATCH_S])
    time_s = np.array([mean_s for mean_s, _ in FEMNIST_BATCH_S.values()])
    if rule == "nearest":
        nearest: Array = time_s[np.abs(np.asarray(scores)[:, None] - known).argmin(axis=1)]
        return nearest
    between: Array = exp(np.interp(log(scores), log(known), log(time_s)))
    return between


def _object(path: Path) -> dict[str, Any]:
    zipped = path.with_name(f"{path.name}.gz")
    content = read_bytes(zipped if not path.exists() and zipped.exists() else path)
    try:
        value = json.loads(content)
    except ValueError as error:
        raise DataError(str(path), f"is not JSON ({error})", _REMEDY) from error
    if not isinstance(value, dict) or not value:
        raise DataError(str(path), "holds no object with entries", _REMEDY)
    return value
