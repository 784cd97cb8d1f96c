"""Functions that format bits, seconds and joules with units, and the base class of results that are shown as text."""

from __future__ import annotations

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

UNKNOWN = "unknown"
"""Text for a quantity that was not measured (NaN)."""


@dataclass(frozen=True)
class Unit:
    """A unit for display.

    A quantity in SI units (or bits) is divided by `size` to convert it to the unit, whose symbol is `symbol`.
    """

    size: float
    symbol: str


_PREFIXES = {"n": 1e-9, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def prefixed(symbol: str, first: str = "n", last: str = "T") -> tuple[Unit, ...]:
    """Return the multiples of a unit with the SI prefixes from `first` to `last`, in ascending order."""
    least, most = _PREFIXES[first], _PREFIXES[last]
    return tuple(Unit(size, f"{prefix}{symbol}") for prefix, size in _PREFIXES.items() if least <= size <= most)


BITS, ENERGIES, SHORT_TIMES = prefixed("bit", "", "P"), prefixed("J", "n", "G"), prefixed("s", "n", "")
MASSES = (*prefixed("g", "µ", "k"), Unit(1e6, "t"))
LONG_TIMES = (Unit(1.0, "s"), Unit(60.0, "min"), Unit(3600.0, "h"), Unit(86400.0, "d"))


def fitting_unit(largest: float, units: tuple[Unit, ...], *, at_least: float = 1.0) -> Unit:
    """Return the largest of several units in which a quantity has at least the value `at_least`.

    Args:
        largest: the quantity in SI units or bits. For an axis, it is the maximum. If it is zero or NaN, the unit of
            size 1 is returned.
        units: the candidate units, in ascending order.
        at_least: minimum value of `largest` in the returned unit. For axes it is about 5, so that an axis in minutes
            spans 5 minutes.
    """
    size = abs(largest)
    if not math.isfinite(size) or size == 0:
        return next(unit for unit in units if unit.size == 1.0)
    fitting = [unit for unit in units if size >= at_least * unit.size]
    return fitting[-1] if fitting else units[0]


def axis_unit(largest: float, units: tuple[Unit, ...]) -> Unit:
    """Return the unit of an axis that ends at `largest`.

    Minutes, hours or days are used only if the axis spans at least 5 of them.
    """
    if units is LONG_TIMES:
        return fitting_unit(largest, SHORT_TIMES) if largest < 1.0 else fitting_unit(largest, LONG_TIMES, at_least=5.0)
    return fitting_unit(largest, units)


def number_text(value: float) -> str:
    """Return a number as text with six significant digits, or with more digits if six digits are not exact."""
    texts = (f"{value:.{digits}g}" for digits in range(6, 17))
    return next((text for text in texts if float(text) == value), f"{value:.17g}")


def joined(names: Sequence[str]) -> str:
    """Join names to a list in words, as in `a, b and c`. Semicolons replace commas if a name contains a comma."""
    comma = "; " if any("," in name for name in names) else ", "
    return f"{comma.join(names[:-1])}{';' if comma == '; ' else ''} and {names[-1]}" if len(names) > 1 else names[0]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or plural: `1 cell`, `2 cells`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_bits(size_bit: float) -> str:
    """Return a number of bits as text with three significant digits and an SI prefix, as in `12.3 Mbit`."""
    return _three_digits(size_bit, BITS)


def format_energy(energy_j: float) -> str:
    """Return an energy in joules as text with three significant digits and an SI prefix, as in `4.56 J`."""
    return _three_digits(energy_j, ENERGIES)


def format_carbon(carbon_g: float) -> str:
    """Return a mass of CO2 in grams as text with three significant digits, as in `1.23 kg`."""
    return _three_digits(carbon_g, MASSES)


def format_seconds(duration_s: float) -> str:
    """Return a duration in seconds as readable text: `1.5 ms`, `12.3 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if not math.isfinite(duration_s):
        return UNKNOWN
    size_s = abs(duration_s)
    sign = "-" if duration_s < 0 else ""
    if float(f"{size_s:.3g}") < 60.0:
        return _three_digits(duration_s, SHORT_TIMES)
    small, large = next(pair for pair in _CLOCK if round(size_s / pair[0].size) * pair[0].size < pair[2])[:2]
    whole, rest = divmod(round(size_s / small.size), round(large.size / small.size))
    return f"{sign}{whole} {large.symbol}" + (f" {rest} {small.symbol}" if rest else "")


def format_alike(amounts: Sequence[float], units: tuple[Unit, ...]) -> list[str]:
    """Return quantities as text in a common unit, which suits the largest quantity: `38.9 s`, `-88.2 s`, `166 s`."""
    known = [abs(each) for each in amounts if math.isfinite(each)]
    unit = axis_unit(float(f"{max(known, default=0.0):.3g}"), units)
    return [_in_unit(each, unit) if math.isfinite(each) else UNKNOWN for each in amounts]


_SECOND, _MINUTE, _HOUR, _DAY = LONG_TIMES
_CLOCK = ((_SECOND, _MINUTE, 3600.0), (_MINUTE, _HOUR, 86400.0), (_HOUR, _DAY, math.inf))


def _three_digits(quantity: float, units: tuple[Unit, ...]) -> str:
    if not math.isfinite(quantity):
        return UNKNOWN
    rounded = float(f"{quantity:.3g}")  # before choosing a unit, so that 999.9 kbit becomes 1 Mbit and not 1e+03 kbit
    return _in_unit(rounded, fitting_unit(rounded, units))


def _in_unit(quantity: float, unit: Unit) -> str:
    number = quantity / unit.size
    return f"{number:.0f} {unit.symbol}" if abs(number) >= 999.5 else f"{number:.3g} {unit.symbol}"


class TextResult(ABC):
    """Base class of results that Python, the command line and notebooks show as lines of text."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Return the result as lines of text."""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
