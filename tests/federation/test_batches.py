"""Batches of one, which batch norm cannot train on: whom the error names, and when they are allowed."""

from __future__ import annotations

import pytest

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.graph.jobs import SgdPlan
from fednet_emu.testing import small_federation, small_scenario


@pytest.mark.parametrize("timing_only", [False, True])
def test_batches_of_one_are_refused_where_the_model_has_batch_norm(timing_only):
    """Before any device trains, with or without training, all devices with such a batch are named."""
    settings = ("devices.count=5", "data=digits", "model=digit-model", "algorithm.batch_size=2")
    fed = small_federation(*settings, timing_only=timing_only)
    odd = [f"dev-{device}" for device, n in enumerate(fed.task.n_samples) if n % 2]
    algorithm = small_scenario(*settings, "algorithm.local_epochs=1", "algorithm.local_steps=null").algorithm
    assert len(odd) > 0

    with pytest.raises(ScenarioError, match=rf"got 2, with which batches of 1 remain for {', '.join(odd[:3])}"):
        fed.run(algorithm)
    assert len(fed.ledger.computes) == 0


def test_beyond_three_devices_are_counted():
    """Batches of one on four devices: three are named, and one more is said to be."""
    settings = ("devices.count=4", "data=digits", "model=digit-model", "algorithm.batch_size=2")
    fed = small_federation(*settings, timing_only=True)
    plan = SgdPlan(lr=0.1, batch_size=2, epochs=1)
    small = {f"dev-{device}": 3 for device in range(4)}

    with pytest.raises(ScenarioError, match="remain for dev-0, dev-1, dev-2 and 1 more; "):
        fed.learner._check_batches(plan, small, everybody=False)
    with pytest.raises(ScenarioError, match="remain for dev-0, dev-1, dev-2; "):
        fed.learner._check_batches(plan, dict([*small.items()][:3]), everybody=False)


def test_batches_of_one_that_are_never_reached_are_allowed():
    """With one step of two samples the odd one at the end of an epoch is not used."""
    fed = small_federation("data=digits", "model=digit-model", "devices.count=5", timing_only=True)

    fed.run(small_scenario("algorithm.batch_size=2", "algorithm.cohort=5", "devices.count=5").algorithm)

    assert len(fed.ledger.computes) == 15
