"""FedLab: its standalone pipeline with the serial trainer for SGD."""

from __future__ import annotations

import sys
from types import ModuleType

import torch
from torch import nn

for name in ("torchvision", "torchvision.transforms", "torchvision.datasets"):  # imported by FedLab, not used here
    sys.modules[name] = ModuleType(name)
sys.modules["torchvision"].transforms = sys.modules["torchvision.transforms"]
sys.modules["torchvision"].datasets = sys.modules["torchvision.datasets"]

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # noqa: E402
from fedlab.contrib.algorithm.basic_server import SyncServerHandler  # noqa: E402
from fedlab.contrib.dataset.basic_dataset import FedDataset  # noqa: E402
from fedlab.core.standalone import StandalonePipeline  # noqa: E402

from peers.batching import Batches  # noqa: E402
from peers.models import build_model, parameters_of  # noqa: E402
from peers.stopwatch import Stopwatch, Task, report  # noqa: E402
from peers.workloads import Workload, load_data  # noqa: E402


class Samples(FedDataset):
    """Every client's samples, as batches."""

    def __init__(self, workload: Workload, x: torch.Tensor, y: torch.Tensor) -> None:
        super().__init__()
        self.workload, self.x, self.y = workload, x, y

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> Batches:
        """The batches of one client."""
        return Batches(self.x[id], self.y[id], self.workload)


class CountingLoss(nn.CrossEntropyLoss):
    """Cross-entropy that counts how often it is asked for."""

    steps = 0

    def forward(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The mean loss."""
        self.steps += 1
        return super().forward(scores, y)


class Pipeline(StandalonePipeline):
    """The pipeline with a stopwatch where it would evaluate."""

    def __init__(self, handler: SyncServerHandler, trainer: SGDSerialClientTrainer, watch: Stopwatch) -> None:
        super().__init__(handler, trainer)
        self.watch = watch

    def evaluate(self) -> None:
        """Nothing but the time."""
        self.watch.round_done()


def main() -> None:
    """Run one workload."""
    task = Task.from_command_line()
    workload = task.workload
    data = load_data(workload, task.folder)
    model = build_model(workload.model)
    handler = SyncServerHandler(model, workload.all_rounds, workload.cohort / workload.clients)
    trainer = SGDSerialClientTrainer(model, workload.clients)
    trainer.setup_dataset(Samples(workload, torch.from_numpy(data.x), torch.from_numpy(data.y)))
    trainer.setup_optim(epochs=1, batch_size=workload.batch, lr=workload.lr)
    trainer.criterion = CountingLoss()
    watch = Stopwatch(workload, torch.set_num_threads)
    watch.round_done()
    Pipeline(handler, trainer, watch).main()
    report(task, watch, trainer.criterion.steps, parameters_of(handler.model), "fedlab")


if __name__ == "__main__":
    main()
