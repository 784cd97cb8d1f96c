"""The Ray actor that trains jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from numpy.typing import NDArray
from torch import Tensor

from fednet_emu.learning.engines.parcels import tensor_of
from fednet_emu.learning.engines.rule import RuleEngine
from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.engines.trainer import Trainer, TrainReport
from fednet_emu.learning.graph.engine import Ended


@final
class Actor:
    """A Ray actor, which trains jobs in a separate process; `get` fetches a stored value by its reference."""

    def __init__(self, threads: int, device: str, tf32: bool, get: Callable[[Any], Any]) -> None:
        torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        self._engine, self._trainer = SpreadEngine([RuleEngine() for _ in range(threads)]), Trainer(device, get)

    def ready(self) -> None:
        """Return as soon as the process has started."""

    def train(
        self, text: bytes, used: Sequence[int], keeps: dict[int, Any], *arrays: NDArray[Any]
    ) -> tuple[TrainReport, list[NDArray[Any] | None]]:
        """Train serialised jobs (see `Trainer.unpack`), and return a report and the trained parameters of each job."""
        jobs = self._trainer.unpack(text, used, keeps, arrays)
        params: list[NDArray[Any] | None] = [None] * len(jobs)

        def train() -> Ended:
            place_of = {resolved: place for place, resolved in enumerate(jobs)}
            for resolved, result in self._engine.run(jobs):
                place = place_of[resolved]
                params[place] = result.params.cpu().numpy()
                yield place, result.loss, result.square

        return self._trainer.train(train), params

    def mean(
        self, w: NDArray[Any], weights: Sequence[float], places: Sequence[tuple[int, int]], *calls: list[NDArray[Any]]
    ) -> NDArray[Any]:
        """Return a weighted mean of trained models, computed from their differences to the model `w`.

        `places` lists the models, each by the indices (call, job) of the job that trained it.
        """
        base, total = tensor_of(w), math.fsum(weights)
        update = torch.zeros_like(base)
        for weight, (call, job) in zip(weights, places, strict=True):
            update.add_(tensor_of(calls[call][job]) - base, alpha=weight / total)
        mean: Tensor = base + update
        return mean.numpy()
