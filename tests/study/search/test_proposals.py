"""Proposals: the same from the same knowledge, always new, and better than chance."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.errors import FednetError
from fednet_emu.scenario.yaml_text import parse
from fednet_emu.study.search.proposals import importance, proposals, require_optuna
from fednet_emu.study.search.space import space_of
from tests.quick import examples

SPACE = space_of(
    parse(
        """
kind: [a, b, c]
lr: {low: 0.001, high: 10, log: true}
n: {low: 1, high: 30}
w: {low: 0, high: 1.0, when: {kind: b}}
""",
        "study",
    )
)


def cost(point):
    """The least cost is 0, at kind b, lr 0.1, n 7, w 0.5."""
    off = {"a": 2.0, "b": 0.0, "c": 4.0}[point["kind"]]
    return off + abs(math.log10(point["lr"]) + 1) + abs(point["n"] - 7) / 10 + abs(point.get("w", 0.5) - 0.5)


def searched(seed, trials, batch=4, startup=10):
    """What a search in batches gets to know."""
    known = []
    while len(known) < trials:
        points = proposals(SPACE, known, batch, seed, startup)
        known += [(point, (cost(point),)) for point in points]
    return known


def test_the_same_knowledge_gives_the_same_proposals():
    """Nothing is remembered from call to call; another seed, or more knowledge, gives others."""
    known = searched(3, 20)

    assert searched(3, 20) == known
    assert proposals(SPACE, known, 4, 3) == proposals(SPACE, known, 4, 3)
    assert proposals(SPACE, known, 4, 3) != proposals(SPACE, known, 4, 4)
    assert proposals(SPACE, known[:16], 4, 3) == [point for point, _ in known[16:]]


def test_proposals_beat_chance():
    """After 40 trials the best cost is lower than that of 40 random ones on average over eight seeds, by a lot."""
    best = [min(value for _, (value,) in searched(seed, 40)) for seed in range(8)]
    chance = [min(value for _, (value,) in searched(seed, 40, startup=40)) for seed in range(8)]

    assert np.mean(best) < 0.75 * np.mean(chance)


@examples(20)
@given(seed=st.integers(0, 2**31), batch=st.integers(1, 7))
def test_no_point_is_proposed_twice_until_the_space_is_used_up(seed, batch):
    """All six points of a small space come, each once, then none."""
    small = space_of(parse("a: [1, 2, 3]\nb: {low: 1, high: 2}", "study"))
    known = []
    while points := proposals(small, known, batch, seed):
        known += [(point, (float(point["b"]),)) for point in points]

    assert sorted((point["a"], point["b"]) for point, _ in known) == [(a, b) for a in "123" for b in (1, 2)]


def test_importance_finds_what_matters():
    """A cost that hangs on one parameter is explained by it; a constant one by nothing."""
    known = [(point, (float(point["n"]),)) for point, _ in searched(0, 40)]
    shares = importance(SPACE, known)

    assert next(iter(shares)) == "n"
    assert shares["n"] > 0.9
    assert importance(SPACE, [(point, (1.0,)) for point, _ in known]) == {}
    assert importance(SPACE, known[:3]) == {}


def test_importance_under_a_condition_is_that_where_it_holds():
    """A parameter that is varied in one branch only is judged there."""
    known = [(point, (point.get("w", 0.5),)) for point, _ in searched(1, 60)]
    shares = importance(SPACE, known)

    assert shares["w"] > 0.8


def test_a_missing_optuna_is_a_sentence(monkeypatch):
    """It says what to install."""

    def absent(_name):
        raise ImportError

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(FednetError, match=r"pip install 'fednet-emu\[search\]'"):
        require_optuna()
