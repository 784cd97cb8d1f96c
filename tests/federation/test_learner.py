"""What the federation does for an algorithm that learns: initial models, and batches."""

from __future__ import annotations

import pytest

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.graph.jobs import SgdPlan
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.testing import small_federation


def test_without_training_no_weight_is_ever_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that only measures times needs the size of the model, 10 parameters, and not its weights."""
    fed, trained = small_federation(timing_only=True), small_federation()
    monkeypatch.setattr(FlatModel, "initial", lambda _model: pytest.fail("weights were made"))

    assert fed.learner.initial().size == 10
    with pytest.raises(pytest.fail.Exception, match="weights were made"):
        trained.learner.initial()


def test_whoever_trains_first_is_named_first() -> None:
    """The error names the one that was about to train, the server say, and then all devices with such a batch."""
    fed = small_federation("devices.count=4", "data=digits", "model=digit-model", timing_only=True)
    odd = [f"dev-{device}" for device, n in enumerate(fed.task.n_samples.tolist()) if n % 2]
    plan = SgdPlan(lr=0.1, batch_size=2, epochs=1)

    with pytest.raises(ScenarioError, match=f"remain for {', '.join(['server', *odd][:3])}"):
        fed.learner._check_batches(plan, {"server": 3}, everybody=True)
