"""The medium and a second emulator that is plain, slow and exact keep the same books."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given

from tests.quick import examples

from .emulator import Emulator
from .play import Play, draw_of, gain_of
from .script import Handover, Row, Script, World
from .worlds import SLICES, WEAK, plays

MANY: dict[str, Any] = {"derandomize": True, "database": None, "suppress_health_check": [*HealthCheck]}


def expected(world: World, script: Script) -> tuple[list[Row], list[Handover]]:
    """The second emulator's books."""
    emulator = Emulator(world, script, lambda link, block: gain_of(world, link, block), draw_of)
    return emulator.play(), emulator.handovers


def assert_same_books(world: World, script: Script) -> None:
    """To the nanosecond, the bit and the billionth part of a joule; one more where shares that end together round."""
    play, (rows, handovers) = Play(world, script), expected(world, script)
    ours, books = in_order(play.rows()), in_order(rows)
    assert sorted(play.handovers()) == sorted(handovers)
    near_ns = 1 if world.scheduler == "equal-finish" or world.slices else 0
    assert [(row.line, *row[5:]) for row in ours] == [(row.line, *row[5:]) for row in books]
    for column in ("started_ns", "ended_ns"):
        times_ns = ([getattr(row, column) for row in rows] for rows in (ours, books))
        assert next(times_ns) == pytest.approx(next(times_ns), rel=0, abs=near_ns)
    assert [float(row.transmitted_bit) for row in ours] == pytest.approx(
        [float(row.transmitted_bit) for row in books], rel=1e-6, abs=1
    )
    spent_j = ([float(row.energy_j) for row in rows] for rows in (ours, books))
    assert next(spent_j) == pytest.approx(next(spent_j), rel=1e-9, abs=4e-9 * near_ns)


def in_order(rows: list[Row]) -> list[Row]:
    """By line of the script, whatever was written first in an instant."""
    return sorted(rows, key=lambda row: (row[:3], row.fates))


@given(plays())
@examples(100, **MANY)
def test_both_keep_the_same_books(play: tuple[World, Script]) -> None:
    """Of a hundred mixtures of whatever a medium can meet."""
    assert_same_books(*play)


@given(plays(WEAK))
@examples(60, **MANY)
def test_both_narrow_alike(play: tuple[World, Script]) -> None:
    """Of sixty mixtures in which weak senders are granted part of their band."""
    assert_same_books(*play)


@given(plays(SLICES))
@examples(100, **MANY)
def test_both_divide_slices_alike(play: tuple[World, Script]) -> None:
    """In a hundred mixtures a band has slices, whose parts the second emulator finds by bisection in fractions."""
    assert_same_books(*play)


@pytest.mark.slow
@given(plays())
@examples(5000, **MANY)
def test_both_keep_the_same_books_of_many_mixtures(play: tuple[World, Script]) -> None:
    """Of five thousand."""
    assert_same_books(*play)
