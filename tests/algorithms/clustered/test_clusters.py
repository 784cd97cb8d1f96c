"""Clusterings: how their agreement is measured."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from fednet_emu.algorithms.clustered.clusters import adjusted_rand_index
from tests.quick import examples


@examples(50)
@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 5))
def test_agreement_is_that_of_scikit_learn(seed: int, n: int, k: int) -> None:
    """On random clusterings the index is the one of a second implementation."""
    a, b = np.random.default_rng(seed).integers(0, k, (2, n))

    assert adjusted_rand_index(a, b) == pytest.approx(adjusted_rand_score(a, b), abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "index"),
    [
        ([0, 0, 1, 1], [5, 5, 2, 2], 1.0),
        ([0, 1, 2, 3], [0, 0, 0, 0], 0.0),
        ([0, 0, 0], [7, 7, 7], 1.0),
        ([0, 0, 1, 1], [0, 1, 0, 1], -0.5),
    ],
)
def test_agreement_by_hand(a: list[int], b: list[int], index: float) -> None:
    """Names of clusters do not matter; all alone against all in one is 0; crossed pairs are worse than chance."""
    assert adjusted_rand_index(a, b) == pytest.approx(index)
