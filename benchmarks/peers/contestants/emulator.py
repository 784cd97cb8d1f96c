"""fednet_emu: the whole emulated run, with network, clock and ledger, from a scenario file."""

from __future__ import annotations

from pathlib import Path

from fednet_emu.emulation.build import build
from fednet_emu.emulation.load import load_scenario
from fednet_emu.federation.federation import Federation
from peers.asynchronous import Asynchronous
from peers.contestants.reference import MIXING
from peers.stopwatch import Stopwatch, Task, report
from peers.workloads import WARM_UP

SCENARIOS = Path(__file__).parents[1] / "scenarios"
WORKERS = {"one": 1, "two": 2}


def main() -> None:
    """Run one workload."""
    task = Task.from_command_line(list(WORKERS))
    workload = task.workload
    settings = [f"stop.rounds={workload.all_rounds}", f"training.workers={WORKERS[task.variant]}"]
    scenario = load_scenario(SCENARIOS / f"{workload.name}.yaml", settings)
    fed = build(scenario, data_dir=task.folder)
    watch, before = Stopwatch(workload), {"learning_s": 0.0}

    def end_of_round(fed: Federation) -> None:
        if fed.round == WARM_UP and workload.name != "W4":
            fed.graph.read(fed.latest)  # what is deferred must not slip out of the warm-up, nor into it
            before.update(learning_s=learning_s(fed))
        if fed.round < workload.all_rounds and len(watch.marks_s) <= fed.round:
            watch.round_done()

    fed.observers.append(end_of_round)
    watch.round_done()
    if workload.name == "W4":  # jobs of the first workers are on the clock with all others: there is no warm-up
        watch.marks_s *= WARM_UP + 1
    model = fed.run(Asynchronous(lr=workload.lr, mixing=MIXING) if workload.name == "W4" else scenario.algorithm)
    watch.round_done()  # the last round ends when all has been learnt, and the final model evaluated
    final = fed.task.model.pieces(fed.graph.read(model))
    statistics = fed.graph.statistics
    report(
        task,
        watch,
        statistics.jobs * workload.steps,
        [piece.numpy() for piece in final],
        "fednet-emu",
        learning_s=(learning_s(fed) - before["learning_s"]) / workload.rounds,
        mean_wavefront=statistics.mean_wavefront,
        simulated_s=fed.clock.now_s,
        transfers=len(fed.ledger.transfers),
    )


def learning_s(fed: Federation) -> float:
    """Host seconds of the learning plane so far: training, and the deferred functions, which are the averages here."""
    parts = fed.graph.host.parts()
    return sum(parts[name].host_s for name in ("training", "deferred functions") if name in parts)


if __name__ == "__main__":
    main()
