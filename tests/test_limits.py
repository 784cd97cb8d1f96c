"""The limits of scenarios: what is within them, and what the page about them says."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fednet_emu import limits
from fednet_emu.emulation.outlook import BYTE_PER_DEVICE, VECTORS
from fednet_emu.errors import MAX_PROBLEMS
from fednet_emu.files import data_folder as paths

PAGE = (Path(__file__).parents[1] / "docs/reference/limits.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("value", [0, 2**63 - 1, 1 - 2**63, 0.0, 1e40, -1e-40, math.nan, math.inf, "", "größer", True])
def test_values_within_the_limits(value: object) -> None:
    """The limits themselves are inside; what is not finite is left to the setting."""
    assert limits.problem_of(value) is None


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**4000, 1.1e40, -9e-41, 5e-324, "\ud800"], ids=type)
def test_values_beyond_the_limits(value: object) -> None:
    """Each is told in one short sentence with the remedy."""
    told = limits.problem_of(value)

    assert told is not None
    assert "; write " in told
    assert len(told) < 150


def test_pipes_and_impossible_names_are_no_files(tmp_path: Path) -> None:
    """Only files and folders are there; asking is no error."""
    (tmp_path / "file").touch()

    assert paths.exists(tmp_path)
    assert paths.is_file(tmp_path / "file")
    assert not any(map(paths.is_file, (tmp_path, tmp_path / ("n" * 300), Path("a\0b"), Path("/dev/zero"))))
    assert not any(map(paths.exists, (tmp_path / "x", tmp_path / ("n" * 300), Path("a\0b"), Path("/dev/zero"))))


@pytest.mark.parametrize(
    "row",
    [
        f"| a file of settings | {limits.MAX_FILE_BYTE // 2**20} MiB of UTF-8 text |",
        f"| values of a scenario | {limits.MAX_VALUES:,} |",
        f"| nesting | {limits.MAX_NESTING} levels |",
        f"| includes | {limits.MAX_FILES} |",
        f"| chain of includes | {limits.MAX_CHAIN} |",
        f"| whole numbers | ±(2^{(limits.MAX_INTEGER + 1).bit_length() - 1} − 1) |",
        f"| other numbers | 0, or {limits.SMALLEST:g} to {limits.LARGEST:g} in magnitude |".replace("+", ""),
        f"| levels in decibels | ±{limits.MAX_DECIBEL:g} |",
        f"| runs of a study | {limits.MAX_RUNS:,} |",
        f"| problems explained | {MAX_PROBLEMS} |",
        f"| memory | that of the host | {BYTE_PER_DEVICE} bytes for each device, the samples, three copies",
    ],
)
def test_the_page_states_the_limits(row: str) -> None:
    """What users read is what holds."""
    assert row in PAGE
    assert VECTORS == 3
