"""The benchmark of client trainings per second: it runs everywhere, and meets its targets on a GPU."""

from __future__ import annotations

import pytest
import torch
from w5 import WAYS, table


def test_all_ways_train_the_same_model() -> None:
    """Whatever way a round is trained, on the processor, the model is the serial engine's to 1e-5."""
    print()
    measured = table("cpu", [4], list(WAYS), tiny=True, n_rounds=2, tf32=False)

    assert [one.way for one in measured] == list(WAYS)
    assert all(one.error < 1e-5 for one in measured)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")
@pytest.mark.parametrize(("cohort", "target"), [(50, 300), (500, 1000)])
def test_trainings_per_second_on_a_gpu(cohort: int, target: int) -> None:
    """1000 clients x 50 images of 32x32x3: `by-rule` makes 300 trainings per second 50 at a time, 1000 at 500."""
    print()
    (measured,) = table("cuda", [cohort], ["by-rule"], tiny=False, n_rounds=5, tf32=False)

    assert measured.trainings_per_s > target
