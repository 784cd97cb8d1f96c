"""The small federation is what its documentation says."""

from __future__ import annotations

import pytest

from fednet_emu.testing import run_small


def test_the_numbers_in_the_documentation_hold() -> None:
    """Four devices with 20 samples, 10 parameters, 36 FLOP per sample, 320 us per model and 720 us per step."""
    fed = run_small("stop.rounds=1")
    frames = fed.ledger.frames()
    spans = {name: (frames[name]["ended_s"] - frames[name]["started_s"]) for name in ("transfers", "computes")}

    assert (fed.n_devices, fed.task.n_samples.tolist()) == (4, [20] * 4)
    assert (fed.task.model.size, fed.task.model.flop_per_sample) == (10, 36)
    assert spans["transfers"].tolist() == pytest.approx([320e-6] * 5)
    assert spans["computes"].tolist() == pytest.approx([720e-6] * 4)
    assert set(frames["transfers"]["lost"]) == {""}


def test_timing_only_leaves_out_training() -> None:
    """Without training there is no engine and no evaluation, and the clock runs on all the same."""
    fed = run_small(timing_only=True)

    assert fed.graph.engine is None
    assert fed.clock.now_s == pytest.approx(3 * 2.32e-3)
