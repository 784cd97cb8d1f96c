"""FLGo: its own FedAvg on a task made from a configuration module, one client at a time or in two threads."""

from __future__ import annotations

import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import flgo
import torch
from flgo.algorithm import fedavg

from peers.models import parameters_of
from peers.stopwatch import Stopwatch, report

CONFIG = Path(__file__).with_name("flgo_config.py").resolve()


def main() -> None:
    """Run one workload."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [str(Path(given).resolve()) if Path(given).is_dir() else given for given in sys.argv]
        os.chdir(folder)
        sys.path.insert(0, folder)
        sys.argv = arguments
        flgo.gen_direct_task_from_file("task", str(CONFIG))
        config = import_module("task.config")
        sys.argv = sys.argv[:1]  # FLGo reads options from the command line too
        run(config.TASK, config.STEPS, in_threads=config.TASK.variant == "threads")


def run(task, steps, *, in_threads: bool) -> None:
    """Run the task in the current folder."""
    workload = task.workload
    watch = Stopwatch(workload, None if in_threads else torch.set_num_threads)

    class Server(fedavg.Server):
        """The server with a stopwatch."""

        def iterate(self) -> bool:
            """One round."""
            updated = super().iterate()
            watch.round_done()
            return updated

    option = {
        "num_rounds": workload.all_rounds,
        "proportion": workload.cohort / workload.clients,
        "num_steps": workload.steps,
        "batch_size": workload.batch,
        "learning_rate": workload.lr,
        "sample": "uniform",
        "aggregate": "uniform",
        "lr_scheduler": "-1",
        "train_holdout": 0.0,
        "eval_interval": -1,
        "gpu": [],
        "no_log_console": True,
        "no_tqdm": True,
        **({"num_parallels": 2, "parallel_type": "t"} if in_threads else {}),
    }
    algorithm = SimpleNamespace(Server=Server, Client=fedavg.Client, __name__="fedavg")
    runner = flgo.init("task", algorithm, option=option)
    watch.round_done()
    runner.run()
    report(task, watch, next(steps), parameters_of(runner.model), "flgo")


if __name__ == "__main__":
    main()
