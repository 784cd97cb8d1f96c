"""Quantities and costs: how they read, and that each has one name, one title and one column."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.analysis.quantities import (
    BITS,
    ENERGIES,
    LONG_TIMES,
    Unit,
    axis_unit,
    format_alike,
    format_bits,
    format_carbon,
    format_energy,
    format_seconds,
    number_text,
)
from fednet_emu.analysis.scales import CARBON, COSTS, PER_RUN, RECORDED, TO_TARGET, limits_text
from fednet_emu.analysis.summary import summary_rows
from fednet_emu.draw.page.document import TITLES, browser_file
from fednet_emu.records.rows import EvaluationRow
from fednet_emu.study import file
from tests.quick import examples

CLOCK_S = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
PREFIXES = {"n": 1e-9, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def read_back(text: str, base: str) -> float:
    """The quantity that a text such as `12.3 Mbit` stands for."""
    number, symbol = text.split()
    return float(number) * PREFIXES[symbol.removesuffix(base)]


def seconds_of(text: str) -> float:
    """The duration that a text such as `3 min 20 s` stands for."""
    words = text.split()
    return sum(float(number) * CLOCK_S[symbol] for number, symbol in zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize(
    ("size_bit", "text"),
    [
        (0, "0 bit"),
        (1, "1 bit"),
        (512, "512 bit"),
        (12_345_678, "12.3 Mbit"),
        (999_900, "1 Mbit"),
        (999_400, "999 kbit"),
        (3.2e10, "32 Gbit"),
        (4.5e18, "4500 Pbit"),
        (-2e6, "-2 Mbit"),
        (math.nan, "unknown"),
    ],
)
def test_bits_have_three_digits_and_a_decimal_prefix(size_bit, text):
    """Bits are counted in powers of 1000, and 999.9 kbit is rounded to 1 Mbit, not to 1e+03 kbit."""
    assert format_bits(size_bit) == text


@pytest.mark.parametrize(
    ("energy_j", "text"),
    [(4.56, "4.56 J"), (0.0123, "12.3 mJ"), (7.2e-7, "720 nJ"), (5400, "5.4 kJ"), (0.0, "0 J"), (math.inf, "unknown")],
)
def test_energy_has_three_digits_and_a_decimal_prefix(energy_j, text):
    """Energies from a symbol on the air to a whole study keep three significant digits."""
    assert format_energy(energy_j) == text


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0, "0 s"),
        (2.5e-7, "250 ns"),
        (0.0015, "1.5 ms"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (59.97, "1 min"),
        (200, "3 min 20 s"),
        (119.7, "2 min"),
        (3599.7, "1 h"),
        (7500, "2 h 5 min"),
        (86_399, "1 d"),
        (273_600, "3 d 4 h"),
        (-90, "-1 min 30 s"),
        (-78, "-1 min 18 s"),
        (59.96, "1 min"),
        (3599.9, "1 h"),
        (8.06e6, "93 d 7 h"),
        (math.nan, "unknown"),
    ],
)
def test_durations_read_as_people_say_them(duration_s, text):
    """Durations have two units at most, and rounding carries over: never `60 s`, `60 min` or `24 h`."""
    assert format_seconds(duration_s) == text


@pytest.mark.parametrize(
    ("amounts", "units", "texts"),
    [
        ((38.9, -88.2, 166.0), LONG_TIMES, ["38.9 s", "-88.2 s", "166 s"]),
        ((332.0, 7500.0), LONG_TIMES, ["5.53 min", "125 min"]),
        ((0.844, 2.83), LONG_TIMES, ["0.844 s", "2.83 s"]),
        ((999.7e3, 1.0), BITS, ["1 Mbit", "1e-06 Mbit"]),
        ((17.7, 1830.0, math.nan), ENERGIES, ["0.0177 kJ", "1.83 kJ", "unknown"]),
    ],
)
def test_a_row_has_one_unit(amounts, units, texts):
    """That of its largest amount, so that no `-1 min 28 s` stands beside `38.9 s`."""
    assert format_alike(amounts, units) == texts


@pytest.mark.parametrize(
    ("carbon_g", "text"),
    [(0.0, "0 g"), (0.0123, "12.3 mg"), (12.345, "12.3 g"), (154_312.0, "154 kg"), (999_900.0, "1 t"), (2e9, "2000 t")],
)
def test_carbon_has_units_up_to_the_tonne(carbon_g, text):
    """Costs, rows of costs and the summary have the same text."""
    assert COSTS["carbon"].show(carbon_g) == text
    assert COSTS["carbon"].row([carbon_g]) == [text]
    assert dict(summary_rows({"carbon_g": carbon_g}))["carbon"] == f"{text} of CO2"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's script")
def test_the_page_writes_durations_as_the_command_line():
    """units.js gives the texts of Python for durations of every size and sign, rows in one unit, and carbon."""
    durations = [0.0, 1.5e-3, 59.94, 59.96, 60.4, 78.0, 119.7, 3599.4, 3599.9, 7500.0, 86_399.0, 273_600.0, 8.06e6]
    given = [sign * value for value in durations for sign in (1, -1) if value or sign > 0]
    masses = [0.0, 1.2e-5, 0.0123, 154_312.0, 999_900.0, 2e9]
    rows = [[38.9, -88.2, 166.0], [332.0, 7500.0], [0.844, 2.83], [-78.0, 59.96]]
    script = browser_file("units.js") + (
        f"console.log(JSON.stringify([{json.dumps(given)}.map(units.seconds), "
        f"{json.dumps(rows)}.map((row) => row.map((value) => units.alike(value, row, 'time'))), "
        f"{json.dumps(masses)}.map(units.carbon)]))"
    )
    told = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True).stdout

    alike = [format_alike(row, LONG_TIMES) for row in rows]
    assert json.loads(told) == [list(map(format_seconds, given)), alike, list(map(format_carbon, masses))]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e5, "100000"), (1.000004e5, "100000.4"), (0.1, "0.1"), (1e12, "1e+12"), (1 / 3, "0.3333333333333333")],
)
def test_numbers_have_the_digits_that_tell_them_apart(value, text):
    """Six digits where they are the number, else as many as it takes."""
    assert number_text(value) == text
    assert float(text) == value


@examples(60)
@given(st.floats(1.0, 1e17), st.floats(1e-9, 1e11))
def test_rounding_stays_within_half_a_unit_of_the_third_digit(size_bit, energy_j):
    """What a reader takes from the text is the quantity within 0.5 %."""
    assert read_back(format_bits(size_bit), "bit") == pytest.approx(size_bit, rel=0.005)
    assert read_back(format_energy(energy_j), "J") == pytest.approx(energy_j, rel=0.005)


@examples(60)
@given(st.floats(1e-9, 1e8), st.floats(1e-9, 1e8))
def test_a_longer_duration_never_reads_as_a_shorter_one(one_s, other_s):
    """Rounding keeps the order of durations, and stays within half of the smaller unit shown."""
    short_s, long_s = sorted((one_s, other_s))
    assert seconds_of(format_seconds(short_s)) <= seconds_of(format_seconds(long_s)) * (1 + 1e-12)
    assert seconds_of(format_seconds(long_s)) == pytest.approx(long_s, rel=0.021)


@pytest.mark.parametrize(
    ("largest", "units", "symbol"),
    [
        (3e7, BITS, "Mbit"),
        (900, BITS, "bit"),
        (0.02, ENERGIES, "mJ"),
        (0.5, LONG_TIMES, "ms"),
        (299, LONG_TIMES, "s"),
        (301, LONG_TIMES, "min"),
        (5 * 3600, LONG_TIMES, "h"),
        (4 * 86400, LONG_TIMES, "h"),
        (0.0, LONG_TIMES, "s"),
    ],
)
def test_an_axis_has_a_unit_with_readable_numbers(largest, units: tuple[Unit, ...], symbol):
    """An axis of 299 s is in seconds, one of 301 s in minutes: numbers on axes stay short."""
    assert axis_unit(largest, units).symbol == symbol


def test_study_files_have_these_names():
    """What `search` of a study file may minimise and limit."""
    assert get_args(file.Cost) == tuple(cost for cost in COSTS if cost not in (*PER_RUN, CARBON))


def test_columns_are_those_of_the_records():
    """The costs of evaluations, and what reaching the target cost, by which pages name their tables."""
    recorded = {name.replace("_ns", "_s") for name in EvaluationRow._fields} | {"total_bit"}

    assert {cost.column for cost in RECORDED.values()} <= recorded
    assert [TITLES[column][0] for column in TO_TARGET] == [f"{cost.title} to target" for cost in RECORDED.values()]


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({}, ""),
        ({"energy": 4.0, "bits": 2e7}, " within 4 J of energy and 20 Mbit"),
        ({"device-energy": 0.4, "rounds": 5, "time": 60.0}, " within 400 mJ per device and 5 rounds and 1 min"),
    ],
)
def test_limits_are_told_with_their_units(limits, text):
    """In the order in which they are given."""
    assert limits_text(limits) == text
