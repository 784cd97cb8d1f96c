"""Training in another process, which stores models and data, and receives serialised jobs (parcels)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

from numpy.typing import NDArray

from fednet_emu.learning.engines.parcels import Rows, Shard, tensor_of, unpacked
from fednet_emu.learning.graph.engine import Ended
from fednet_emu.learning.graph.jobs import ResolvedJob, TrainData

Losses = Mapping[int, tuple[float, float]]
"""Mean loss and mean squared loss of jobs, by their index."""


class TrainReport(NamedTuple):
    """Report on jobs that were trained in another process. The trained parameters are returned separately."""

    losses: Losses  # of the completed jobs
    error: Exception | None  # error that stopped the remaining jobs; None if all jobs are complete
    computing_s: float  # duration of the call in host seconds


@final
class Trainer:
    """Trains jobs that arrive as parcels, and stores models and data; `get` fetches a stored value by reference."""

    def __init__(self, device: str, get: Callable[[Any], Any]) -> None:
        self._device, self._get = device, get
        self._kept: dict[int, Any] = {}

    def unpack(
        self, text: bytes, used: Sequence[int], keeps: Mapping[int, Any], arrays: Sequence[NDArray[Any]]
    ) -> list[ResolvedJob]:
        """Unpack the jobs of a parcel from its text and its tensors.

        `used` has the ids of the models and data to which the parcel refers. `keeps` maps ids to references, for all
        values to be stored from now on; all other values are released.
        """
        self._kept = {key: self._kept[key] if key in self._kept else self._fetched(keeps[key]) for key in keeps}
        tensors = [tensor_of(array).to(self._device) for array in arrays]
        return unpacked(text, [self._kept[key] for key in used], tensors)

    def train(self, train: Callable[[], Ended]) -> TrainReport:
        start_s = time.perf_counter()
        losses: dict[int, tuple[float, float]] = {}
        error = None
        try:
            for place, loss, square in train():
                losses[place] = loss, square
        except Exception as problem:  # raised again in the process of the run
            error = problem.with_traceback(None)
        return TrainReport(losses, error, time.perf_counter() - start_s)

    def _fetched(self, ref: Any) -> Any:
        thing = self._get(ref)
        if isinstance(thing, Rows):
            return Shard.of(thing, self._device)
        return thing if isinstance(thing, TrainData) else thing.to(self._device)
