"""What trains at the other end: an actor with models and data that stay, and an engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import torch
from numpy.typing import NDArray
from torch import Tensor

from fednet_emu.learning.engines.ray.parcels import Rows, Shard, tensor_of, unpacked
from fednet_emu.learning.engines.rule import RuleEngine


class Told(NamedTuple):
    """What comes back of a call at once; the parameters are a value of their own, which stays until it is asked for.

    Attributes:
        losses: mean loss and mean square of each job that has ended, by its place.
        error: why others have not; None if all have.
        computing_s: host seconds that the call took.
    """

    losses: dict[int, tuple[float, float]]
    error: Exception | None
    computing_s: float


@final
class Trainer:
    """Trains jobs in a process of its own.

    Args:
        threads: number of CPU threads.
        device: torch device of the jobs.
        tf32: whether a GPU may use TF32.
        get: fetches what is kept, by its reference.
    """

    def __init__(self, threads: int, device: str, tf32: bool, get: Callable[[Any], Any]) -> None:
        torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        self._engine, self._device, self._get = RuleEngine(threads), device, get
        self._kept: dict[int, Any] = {}

    def ready(self) -> None:
        """Nothing; it returns when the process is there."""

    def train(
        self, text: bytes, used: Sequence[int], keeps: dict[int, Any], *arrays: NDArray[Any]
    ) -> tuple[Told, list[NDArray[Any] | None]]:
        """Train the jobs of a parcel.

        Args:
            text: the parcel's text.
            used: numbers of the models and shards that the parcel uses.
            keeps: references, by number, of all that is to be kept from now on; the rest is released.
            arrays: the parcel's tensors.

        Returns:
            What is told, and the parameters of each job that has ended.
        """
        start_s = time.perf_counter()
        self._kept = {key: self._kept[key] if key in self._kept else self._fetched(keeps[key]) for key in keeps}
        tensors = [tensor_of(array).to(self._device) for array in arrays]
        jobs = unpacked(text, [self._kept[key] for key in used], tensors)
        params: list[NDArray[Any] | None] = [None] * len(jobs)
        losses: dict[int, tuple[float, float]] = {}
        place_of = {resolved: place for place, resolved in enumerate(jobs)}
        error = None
        try:
            for resolved, result in self._engine.run(jobs):
                place = place_of[resolved]
                params[place], losses[place] = result.params.cpu().numpy(), (result.loss, result.square)
        except Exception as problem:  # raised again where the run is
            error = problem.with_traceback(None)
        return Told(losses, error, time.perf_counter() - start_s), params

    def mean(
        self, w: NDArray[Any], weights: Sequence[float], places: Sequence[tuple[int, int]], *calls: list[NDArray[Any]]
    ) -> NDArray[Any]:
        """The weighted mean of models near w: those at these places, (call, job), of what calls have returned."""
        base, total = tensor_of(w), math.fsum(weights)
        update = torch.zeros_like(base)
        for weight, (call, job) in zip(weights, places, strict=True):
            update.add_(tensor_of(calls[call][job]) - base, alpha=weight / total)
        mean: Tensor = base + update
        return mean.numpy()

    def _fetched(self, ref: Any) -> Any:
        thing = self._get(ref)
        return Shard.of(thing, self._device) if isinstance(thing, Rows) else thing.to(self._device)
