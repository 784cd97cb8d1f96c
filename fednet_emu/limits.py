"""Limits of scenario files: sizes, numbers and nesting. See `docs/reference/limits.md`.

The limits are far above the needs of real scenarios, but low enough that a larger file is refused within seconds and
without much memory. The memory of a run is limited by the host's memory; see `fednet_emu.emulation.outlook`.
"""

from __future__ import annotations

import math
from typing import Any

MAX_FILE_BYTE = 4 * 2**20
"""Maximum size in bytes of a scenario, channel or study file."""
MAX_VALUES = 100_000
"""Maximum number of values (mappings, lists and scalars) in a scenario, with aliases and includes expanded."""
MAX_NESTING = 50
"""Maximum depth of nested mappings and lists, and maximum number of keys in a key path."""
MAX_FILES = 500
"""Maximum number of included files of a scenario."""
MAX_CHAIN = 50
"""Maximum length of a chain of files, each of which includes the next."""
MAX_RECORDING_BYTE = 2**30
"""Maximum unpacked size in bytes of a file or archive of recorded data."""
MAX_RUNS = 10_000
"""Maximum number of runs of a study."""
MAX_INTEGER = 2**63 - 1
"""Maximum magnitude of an integer setting."""
SMALLEST, LARGEST = 1e-40, 1e40
"""Minimum and maximum magnitude of a nonzero setting, chosen so that products of several settings stay finite."""

MAX_DECIBEL = 300.0
"""Maximum magnitude of a setting in dB. It stands for a factor of 1e30, so that the factor of a sum of several settings
stays finite."""


def problem_of(value: Any) -> str | None:
    """Return the error text if a number or string exceeds the limits of a setting, else None.

    Non-finite numbers are not checked here, because some settings allow them.
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
    """Return the error text for an integer above the maximum magnitude; `got` describes the integer."""
    return f"must be a whole number within ±{MAX_INTEGER}, got {got}; write a smaller number"


def is_unicode(text: str) -> bool:
    """Return True if a text has no lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in text) if not text.isascii() else True
