"""The clock of a round goes on while the models of the round before are trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fednet_emu.federation.federation import Federation
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.testing import small_federation, small_scenario
from tests.learning.graph.memory import Memory

FEDAVG = "{kind: fedavg, cohort: 12, lr: 0.1, local_steps: 2, batch_size: 8}"
LATE = ("devices.count=12", "data.n_samples=240", "stop.rounds=4", "evaluation.every_rounds=1000")
Log = list[tuple[str, int, frozenset[str]]]


def federation(*settings: str) -> tuple[Federation, Any, Log]:
    """A federation that evaluates at its end only, its algorithm, and what its engine is asked, with the round."""
    settings = (*LATE, f"algorithm={FEDAVG}", *settings)
    fed, log = small_federation(*settings), list[Any]()
    engine: Any = fed.graph.engine
    begin_all, run = engine.begin_all, engine.run

    def noted(what: str, jobs: Any) -> Any:
        log.append((what, fed.round, frozenset(resolved.job.label for resolved in jobs)))
        return jobs

    engine.begin_all = lambda jobs: begin_all(noted("begin", jobs))
    engine.run = lambda jobs: run(noted("run", jobs))
    return fed, small_scenario(*settings).algorithm, log


def of_round(t: int) -> frozenset[str]:
    """The labels of the jobs of a round, from 1."""
    return frozenset(f"dev-{k}, round {t}" for k in range(12))


def test_a_wavefront_begins_before_the_next_round_and_ends_after_it() -> None:
    """With nothing to read, the models of round t are asked for when round t + 1 has ended on the clock."""
    fed, algorithm, log = federation()
    fed.graph.read(fed.run(algorithm))

    assert log == [
        ("begin", 1, of_round(1)),
        ("run", 2, of_round(1)),
        ("begin", 2, of_round(2)),
        ("run", 3, of_round(2)),
        ("begin", 3, of_round(3)),
        ("run", 4, of_round(3)),
        ("begin", 4, of_round(4)),
        ("run", 4, of_round(4)),
    ]


def test_only_models_that_somebody_refers_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads that are lost train nothing, and the numbers are those of a run that computes when it is read."""
    lossy = "network.uplink.message_loss={kind: random, probability: 0.3}"
    fed, algorithm, log = federation(lossy)
    ahead = fed.graph.read(fed.run(algorithm))
    begun = sum(len(jobs) for what, _, jobs in log if what == "begin")
    assert begun == fed.graph.statistics.jobs < 4 * 12

    monkeypatch.setattr(Graph, "begin_wavefront", lambda self: None)
    fed, algorithm, again = federation(lossy)
    assert torch.equal(ahead, fed.graph.read(fed.run(algorithm)))
    assert [jobs for what, _, jobs in again if what == "run"] == [jobs for what, _, jobs in log if what == "run"]


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_a_resumed_run_begins_the_same_wavefronts(rounds: int) -> None:
    """What had begun at the checkpoint is trained first, then the wavefronts are those of the whole run."""

    def interrupt(fed: Federation) -> None:
        if fed.round == rounds:
            raise KeyboardInterrupt

    whole, algorithm, expected = federation()
    w = whole.graph.read(whole.run(algorithm))
    cut, _, _ = federation()
    memory = Memory()
    cut.graph.use(memory.program())
    cut.observers.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        cut.run(algorithm)
    assert cut.graph.at_rest()
    memory.keep(cut.graph)

    resumed, _, found = federation()
    resumed.graph.use(memory.again().program())
    assert torch.equal(resumed.graph.read(resumed.run(algorithm)), w)
    assert [entry for entry in found if entry[0] == "run"] == [
        entry for entry in expected if entry[0] == "run" and entry[1] >= rounds
    ]
    assert [jobs for what, _, jobs in found if what == "begin"] == [of_round(t) for t in range(max(rounds - 1, 1), 5)]
    assert resumed.graph.statistics.wavefronts == whole.graph.statistics.wavefronts
    assert resumed.graph.statistics.trained == whole.graph.statistics.jobs - cut.graph.statistics.trained


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_resumed_run_makes_the_same_means_where_it_trains(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """The engine is offered the models of every wavefront for their mean, also of the one that had begun."""
    offered: list[list[str]] = []
    monkeypatch.setattr(
        SerialEngine, "means", lambda self, jobs, w, weights: offered.append([its.job.label for its in jobs]) or []
    )
    cut, algorithm, _ = federation("training.engine=serial")
    memories = [Memory()]
    cut.graph.use(memories[0].program())

    def keep(fed: Federation) -> None:
        if fed.round == rounds:
            memories[0].keep(fed.graph)
            memories.append(memories[0].again())

    cut.observers.append(keep)
    cut.run(algorithm)
    whole = offered.copy()
    offered.clear()
    assert len(whole) == 4
    resumed, algorithm, _ = federation("training.engine=serial")
    resumed.graph.use(memories[1].program())
    resumed.run(algorithm)
    assert offered == whole[max(rounds - 2, 0) :]


def test_what_trains_is_there_until_the_last_evaluation() -> None:
    """The models of the last round are trained by the engine that has begun them, which is closed then."""
    fed, algorithm, log = federation()
    engine: Any = fed.graph.engine
    engine.close = lambda: log.append(("close", fed.round, frozenset()))
    fed.run(algorithm)
    assert [what for what, _, _ in log[-4:]] == ["run", "begin", "run", "close"]


def test_cheap_functions_run_before_jobs_begin() -> None:
    """A job that starts from half of the first model is ready once that has been made."""
    fed, algorithm, log = federation()
    half = fed.graph.call(torch.mul, fed.learner.initial(), 0.5)
    trained = fed.learner.train(fed.device(0), half, algorithm.plan, (0,), 0)
    fed.graph.begin_wavefront()

    assert log == [("begin", 0, frozenset({"dev-0, round 1"}))]
    assert not trained.result.params.done
