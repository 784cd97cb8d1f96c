"""Fairness in closed forms, and where it stands in the summary."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fednet_emu.emulation.play import play
from fednet_emu.records.summaries import asking, jain
from fednet_emu.testing import small_scenario


def test_jains_index() -> None:
    """1 for equal numbers, k / n when k of n are equal and the others zero, whatever the scale."""
    assert jain([3, 3, 3]) == 1
    assert jain([5, 5, 0, 0, 0]) == pytest.approx(2 / 5)
    assert jain([1, 2, 3]) == pytest.approx(36 / (3 * 14)) == jain([10, 20, 30])
    assert math.isnan(jain([0, 0]))


def test_those_never_asked_count() -> None:
    """Two of four devices asked alike: half of them, and an index of a half; nothing is said of nothing."""
    assert asking({1: 4, 3: 4}, 4) == {"asked_jain": 0.5, "asked_share": 0.5}
    assert asking({}, 4) == {"asked_jain": None, "asked_share": None}


def test_the_summary_has_both(tmp_path: Path) -> None:
    """Everybody in every round is 1 and 1; an algorithm that asks no cohort says nothing."""
    every = play(small_scenario(), "small", tmp_path / "a", timing_only=True).summary
    alone = small_scenario("algorithm={kind: individual, device: 0, lr: 0.1, local_steps: 2, batch_size: null}")
    nobody = play(alone, "small", tmp_path / "b", timing_only=True).summary

    assert (every["asked_jain"], every["asked_share"]) == (1.0, 1.0)
    assert (nobody["asked_jain"], nobody["asked_share"]) == (None, None)
