"""How many trained models of a round are in memory at once, and what a checkpoint saves of a round."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

from fednet_emu.federation.federation import Federation
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.engine import TrainResult
from fednet_emu.testing import small_federation, small_scenario
from tests.learning.graph.memory import Memory
from tests.quick import crossed

SGD = "lr: 0.1, local_steps: 2, batch_size: 8"
ROUNDS = {
    "afl": "{kind: afl, lr: 0.2, lr_lambda: 0.1, batch_size: null}",
    "fedavg with momentum": f"{{kind: fedavg, cohort: 12, {SGD}, server_optimizer: momentum}}",
    "fedprox": f"{{kind: fedprox, cohort: 12, {SGD}, mu: 0.1, adaptive: true}}",
    "cfl": f"{{kind: cfl, cohort: 11, {SGD}, stationary: 1.0, split: 0.1}}",
    "cyclic-fedavg": "{kind: cyclic-fedavg, lr: 0.1, local_steps: 2, batch_size: 8, "
    "structure: {kind: scenario-2, groups: 1}}",
    "fedavg": f"{{kind: fedavg, cohort: 12, {SGD}}}",
    "fednova": f"{{kind: fednova, cohort: 12, {SGD}}}",
    "ifca": f"{{kind: ifca, cohort: 12, {SGD}, clusters: 2}}",
    "q-ffl": f"{{kind: q-ffl, cohort: 12, {SGD}, q: 1.0}}",
}
"""Rounds in which twelve devices train, or eleven, and keep nothing."""

TWELVE = ("devices.count=12", "data.n_samples=240", "stop.rounds=4")


class Watch:
    """Counts how many results of an engine are alive at once."""

    def __init__(self, fed: Federation) -> None:
        self.most = 0
        self._seen: list[weakref.ref[Tensor]] = []
        engine: Any = fed.graph.engine
        run = engine.run
        engine.run = lambda jobs: ((job, self._noted(result)) for job, result in run(jobs))

    def _noted(self, result: TrainResult) -> TrainResult:
        self._seen = [weakref.ref(result.params), *(seen for seen in self._seen if seen() is not None)]
        self.most = max(self.most, len(self._seen))
        return result


@pytest.mark.parametrize(("every_rounds", "name"), crossed([1, 1000], ROUNDS))
def test_a_round_never_holds_all_its_models(name: str, every_rounds: int) -> None:
    """Of twelve trained models at most two are in memory, whether a round is evaluated or the whole run at its end."""
    settings = (*TWELVE, f"algorithm={ROUNDS[name]}", f"evaluation.every_rounds={every_rounds}")
    fed = small_federation(*settings)
    watch = Watch(fed)
    fed.run(small_scenario(*settings).algorithm)

    assert fed.graph.statistics.jobs >= 4 * 11
    assert watch.most <= 2


@pytest.mark.parametrize("name", ROUNDS)
def test_a_resumed_run_trains_nothing_again(name: str) -> None:
    """A checkpoint has no model that was added to a sum, and the run that goes on from it does not miss them."""
    settings = (*TWELVE, f"algorithm={ROUNDS[name]}", "network.uplink.message_loss={kind: random, probability: 0.2}")
    algorithm = small_scenario(*settings).algorithm
    whole, cut, resumed = (small_federation(*settings) for _ in range(3))

    def interrupt(fed: Federation) -> None:
        if fed.round == 2:
            raise KeyboardInterrupt

    memory = Memory()
    cut.graph.use(memory.program())
    cut.observers.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        cut.run(algorithm)
    known = memory.keep(cut.graph).values()
    resumed.graph.use(memory.again().program())
    expected, found = whole.run(algorithm), resumed.run(algorithm)

    assert len({value.data_ptr() for value in known if isinstance(value, Tensor) and len(value) == 10}) <= 5
    assert cut.graph.statistics.jobs < whole.graph.statistics.jobs
    assert (resumed.graph.statistics.wavefronts, resumed.graph.statistics.jobs) == (
        whole.graph.statistics.wavefronts,
        whole.graph.statistics.jobs,
    )
    assert resumed.graph.statistics.trained + cut.graph.statistics.trained == whole.graph.statistics.trained
    pairs = zip(*([w] if isinstance(w, Deferred) else w for w in (expected, found)), strict=True)
    assert all(torch.equal(whole.read(a), resumed.read(b)) for a, b in pairs)
