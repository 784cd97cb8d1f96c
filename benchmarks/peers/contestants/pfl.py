"""pfl-research: federated averaging on its simulated backend, in one process or in two."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from peers.models import build_model, parameters_of
from peers.stopwatch import Stopwatch, Task, report
from peers.workloads import load_data

VARIANTS = {"one": 1, "two": 2}
RANK, ADDRESSES = "PFL_WORKER_RANK", "PFL_WORKER_ADDRESSES"


class WithLoss(nn.Module):
    """A model with the loss that pfl-research asks it for, which counts the steps."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.steps = model, 0

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean loss of a batch."""
        self.steps += 1
        return cross_entropy(self.model(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, float]:
        """Nothing: evaluation is off."""
        return {}


class Timing(TrainingProcessCallback):
    """A stopwatch as a callback."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        """The start of the first round."""
        self.watch.round_done()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """The end of a round."""
        self.watch.round_done()
        return False, Metrics()


def main() -> None:
    """Run one workload, or start the two processes that do."""
    task = Task.from_command_line(tuple(VARIANTS))
    processes = VARIANTS[task.variant]
    if processes > 1 and RANK not in os.environ:
        sys.exit(start(processes))
    workload = task.workload
    data = load_data(workload, task.folder)
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    np.random.seed(0)

    def user(index: int) -> Dataset:
        order = torch.randperm(workload.samples)[: workload.steps * workload.batch]
        return Dataset([x[index, order], y[index, order]], user_id=str(index))

    module = WithLoss(build_model(workload.model))
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    users = FederatedDataset(user, get_user_sampler("minimize_reuse", list(range(workload.clients))))
    backend = SimulatedBackend(training_data=users, val_data=None)
    # Several processes have one thread each, from the environment.
    watch = Stopwatch(workload, torch.set_num_threads if processes == 1 else None)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=workload.all_rounds,
            evaluation_frequency=10**9,
            train_cohort_size=workload.cohort,
            val_cohort_size=None,
        ),
        backend,
        model,
        NNTrainHyperParams(
            local_num_epochs=None,
            local_num_steps=workload.steps,
            local_batch_size=workload.batch,
            local_learning_rate=workload.lr,
        ),
        callbacks=[Timing(watch)],
        send_metrics_to_platform=False,
    )
    steps = torch.tensor(module.steps)
    if processes > 1:
        torch.distributed.all_reduce(steps)
        torch.distributed.destroy_process_group()
    if os.environ.get(RANK, "0") == "0":
        report(task, watch, int(steps), parameters_of(module), "pfl")


def start(processes: int) -> int:
    """Start this program once per process; the worst of their exit codes."""
    with contextlib.closing(socket.socket()) as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    common = os.environ | {ADDRESSES: ",".join([f"localhost:{port}"] * processes), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "peers.contestants.pfl", *sys.argv[1:]]
    workers = [subprocess.Popen(command, env=common | {RANK: str(rank)}) for rank in range(processes)]
    return max(abs(worker.wait()) for worker in workers)


if __name__ == "__main__":
    main()
