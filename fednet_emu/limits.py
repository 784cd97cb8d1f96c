"""Limits of scenarios: names, sizes, numbers and nesting. See `docs/reference/limits.md`.

They are far above the needs of scenarios, and low enough that any file is refused within seconds and in little memory.
The memory of a run is limited by the host's memory; see `fednet_emu.emulation.outlook`.
"""

from __future__ import annotations

import math
from typing import Any

MAX_FILE_BYTE = 4 * 2**20
"""Largest file of a scenario, channel or study."""
MAX_VALUES = 100_000
"""Largest number of values (mappings, lists and scalars) in a scenario, with aliases and includes written out."""
MAX_NESTING = 50
"""Largest depth of mappings and lists inside each other; also the largest number of keys in a key path."""
MAX_FILES = 500
"""Largest number of includes that a scenario follows."""
MAX_CHAIN = 50
"""Largest number of files that include each other one by one."""
MAX_RECORDING_BYTE = 2**30
"""Largest size of a file or archive of recorded data, unpacked."""
MAX_RUNS = 10_000
"""Largest number of runs of a study."""
MAX_INTEGER = 2**63 - 1
"""Largest integer."""
SMALLEST, LARGEST = 1e-40, 1e40
"""Smallest magnitude of a number that is not zero, and largest one: products of several such numbers stay finite."""

MAX_DECIBEL = 300.0
"""Largest magnitude of a setting in decibels: a factor of 1e30, so that sums of several stay finite."""


def problem_of(value: Any) -> str | None:
    """Return the problem of a number or text as the value of a setting; None if it is within the limits.

    Non-finite values are left to the setting, which may allow them.
    """
    if isinstance(value, str):
        return (
            None if is_unicode(value) else "must be text in Unicode, got a lone surrogate; write the character itself"
        )
    if isinstance(value, bool):
        return None
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return too_large(str(value) if value.bit_length() < 128 else f"one of {value.bit_length()} bits")
    if isinstance(value, float) and math.isfinite(value) and value and not SMALLEST <= abs(value) <= LARGEST:
        return (
            f"must be 0 or of a magnitude in [{SMALLEST:g}, {LARGEST:g}], got {value!r}; write a number in this range"
        )
    return None


def too_large(got: str) -> str:
    """Return the problem of an integer beyond the largest, which `got` describes."""
    return f"must be a whole number within ±{MAX_INTEGER}, got {got}; write a smaller number"


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in text) if not text.isascii() else True
