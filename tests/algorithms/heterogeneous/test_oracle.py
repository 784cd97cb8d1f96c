"""Each method against a loop of its own, written from its paper: partial cohorts, unequal numbers of local steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.algorithms.heterogeneous.oracle import (
    SKEWED,
    Loop,
    Vector,
    algorithm,
    feddyn,
    fednova,
    played,
    q_ffl,
    scaffold,
    scaffold_of_niid_bench,
)
from tests.algorithms.small import ENGINES

CASES: dict[str, tuple[str, Callable[[Loop], Vector]]] = {
    "scaffold": (algorithm("scaffold"), scaffold),
    "scaffold, option I": (algorithm("scaffold", option="I"), lambda loop: scaffold(loop, "I")),
    "scaffold, server step": (algorithm("scaffold", server_lr=0.5), lambda loop: scaffold(loop, server_lr=0.5)),
    "scaffold, momentum": (
        algorithm("scaffold", local_optimizer="{kind: momentum, beta: 0.9}"),
        lambda loop: scaffold_of_niid_bench(loop, beta=0.9),
    ),
    "scaffold, momentum, option I": (
        algorithm("scaffold", option="I", local_optimizer="{kind: momentum, beta: 0.5, weight_decay: 0.01}"),
        lambda loop: scaffold_of_niid_bench(loop, "I", beta=0.5, decay=0.01),
    ),
    "scaffold, everything": (
        algorithm(
            "scaffold",
            local_optimizer="{kind: momentum, beta: 0.7, nesterov: true, weight_decay: 0.05}",
            lr_schedule="{kind: step, every_rounds: 1, gamma: 0.8}",
        ),
        lambda loop: scaffold_of_niid_bench(loop, beta=0.7, nesterov=True, decay=0.05, gamma=0.8),
    ),
    "scaffold, weighted": (
        algorithm("scaffold", weighting="samples", local_optimizer="{kind: momentum, beta: 0.9}"),
        lambda loop: scaffold_of_niid_bench(loop, beta=0.9, by_samples=True),
    ),
    "scaffold, decay": (
        algorithm("scaffold", local_optimizer="{kind: sgd, weight_decay: 0.1}"),
        lambda loop: scaffold_of_niid_bench(loop, decay=0.1),
    ),
    "fednova": (algorithm("fednova"), fednova),
    "fednova, proximal": (algorithm("fednova", prox=0.7), lambda loop: fednova(loop, 0.7)),
    "feddyn": (algorithm("feddyn", alpha=0.3), lambda loop: feddyn(loop, 0.3)),
    "feddyn, server": (
        algorithm("feddyn", alpha=0.3, evaluated="server"),
        lambda loop: feddyn(loop, 0.3, "server"),
    ),
    "q-ffl": (algorithm("q-ffl", q=2.0), lambda loop: q_ffl(loop, 2.0)),
    "q-ffl, uniform": (algorithm("q-ffl", q=0.5, sampling="uniform"), lambda loop: q_ffl(loop, 0.5)),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("setting", "oracle"), CASES.values(), ids=CASES)
def test_six_rounds_are_those_of_the_paper(setting: str, oracle: Callable[[Loop], Vector], engine: str) -> None:
    """Parameters after six rounds of three out of six devices agree to 1e-5, in both engines."""
    fed, found = played(*SKEWED, setting, f"training.engine={engine}")
    loop = Loop(fed)
    steps = {2 * -(-n // 10) for n in loop.n}

    assert [len(cohort) for cohort in loop.cohorts] == [3] * 6
    assert len({k for cohort in loop.cohorts for k in cohort}) > 3
    assert len(steps) > 2
    assert np.abs(found - loop.w).max() > 0.1
    np.testing.assert_allclose(found, oracle(loop), rtol=0, atol=1e-5)
