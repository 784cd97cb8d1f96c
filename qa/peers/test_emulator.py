"""Our own entry: the scenario files say what the workloads say, and the asynchronous algorithm does what W4 is."""

from __future__ import annotations

from pathlib import Path

import peers
import pytest
import torch
from peers.asynchronous import Asynchronous, mix
from peers.workloads import WORKLOADS

from fednet_emu.algorithms.fedavg import FedAvg
from fednet_emu.emulation.load import load_scenario
from fednet_emu.learning.graph.jobs import SgdPlan
from fednet_emu.testing import small_federation

SCENARIOS = Path(peers.__file__).parent / "scenarios"


@pytest.mark.parametrize("name", WORKLOADS)
def test_scenarios_have_the_numbers_of_the_workloads(name: str) -> None:
    """Clients, cohort, batches, steps, step size and rounds of a scenario file are those of its workload."""
    scenario, workload = load_scenario(SCENARIOS / f"{name}.yaml"), WORKLOADS[name]
    fedavg = scenario.algorithm
    assert isinstance(fedavg, FedAvg)
    plan = SgdPlan(fedavg.lr, fedavg.batch_size, fedavg.local_steps, fedavg.local_epochs)

    assert scenario.devices.count == workload.clients
    assert (fedavg.cohort, fedavg.lr) == (workload.cohort, workload.lr)
    assert plan.batch_width(workload.samples) == workload.batch
    assert plan.n_steps(workload.samples) == workload.steps
    assert scenario.stop.rounds == workload.all_rounds
    assert (scenario.network.uplink.access.kind, scenario.network.downlink.mode) == ("tdma", "broadcast")


def test_the_server_acts_on_every_arrival() -> None:
    """Two workers of one step: broadcast 320 us, compute 720 us, uploads of 320 us in turn; the first starts again.

    At 1360 us the first is in, hears the new model by 1680 us, is done at 2400 us, and in at 2720 us, 1040 us after the
    second, which came at 1680 us.
    """
    fed = small_federation("devices.count=2", "data.n_samples=40", "stop.rounds=3")

    fed.run(Asynchronous(lr=0.1, mixing=0.5))

    rounds = fed.ledger.frame("rounds")
    assert rounds["ended_s"].tolist() == pytest.approx([1360e-6, 1680e-6, 2720e-6], abs=1e-9)
    assert rounds["arrived"].tolist() == [1, 1, 1]


def test_engines_agree_on_asynchronous_training() -> None:
    """Fifty steps of the server end at the same model to 1e-5, one job at a time or in wavefronts."""
    models = {}
    for engine in ("serial", "batched"):
        fed = small_federation(
            f"training.engine={engine}", "devices.count=8", "devices.straggler={kind: log-normal, sigma: 0.5}",
            "data.n_samples=160", "stop.rounds=50", "evaluation.every_rounds=1000",
        )  # fmt: skip
        model = fed.run(Asynchronous(lr=0.01, mixing=0.2))
        models[engine] = fed.graph.read(model)
        wavefront = fed.graph.statistics.mean_wavefront

    torch.testing.assert_close(models["batched"], models["serial"], rtol=1e-5, atol=1e-6)
    assert wavefront > 2


def test_mixing_is_the_weighted_mean() -> None:
    """A tenth of the arriving model and nine tenths of the old one."""
    assert mix(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 10.0]), 0.1).tolist() == pytest.approx([0.9, 1.0])
