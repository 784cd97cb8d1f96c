"""Jobs on their way: without the data and the models, which stay where they are, and each vector once."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast, final

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fednet_emu.arrays import IntArray
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.jobs import ResolvedJob, TrainData
from fednet_emu.learning.models.flat import FlatModel

Kept = FlatModel | TrainData
"""What is sent once."""


class Parcel(NamedTuple):
    """Packed jobs.

    Attributes:
        text: the jobs, with numbers in the place of what is kept and of tensors.
        kept: models and data of the jobs.
        tensors: starting parameters, linear terms, anchors and masks, each once.
    """

    text: bytes
    kept: list[Kept]
    tensors: list[Tensor]


class Rows(NamedTuple):
    """The rows from `first` on of data that have `total` rows."""

    x: NDArray[Any]
    y: NDArray[Any]
    first: int
    total: int


@final
@dataclass(frozen=True, slots=True)
class Shard:
    """Rows that have arrived, as the data of jobs."""

    data: TrainData
    first: int
    total: int

    @classmethod
    def of(cls, rows: Rows, device: str) -> Shard:
        """The rows as tensors on a torch device; on a CPU they share memory with the arrays."""
        data = TrainData(tensor_of(rows.x).to(device), tensor_of(rows.y).to(device))
        return cls(data, rows.first, rows.total)


_KINDS = {Deferred: "none", Tensor: "tensor", nn.Parameter: "tensor", FlatModel: "kept", TrainData: "kept"}


def packed(jobs: Sequence[ResolvedJob], pickler: Callable[[io.BytesIO], Any]) -> Parcel:
    """Pack jobs by a pickler of Python objects, which may be one that knows functions without a name."""
    found: dict[int, tuple[str, int]] = {}
    parcel = Parcel(b"", [], [])
    kind_of = _KINDS.get

    def number(item: Any) -> tuple[str, int] | None:  # called for every object in the jobs
        kind = kind_of(type(item))
        if kind is None:
            return None
        if kind == "none":  # its value is in the resolved job
            return ("none", 0)
        if id(item) not in found:
            items: list[Any] = parcel.tensors if kind == "tensor" else parcel.kept
            found[id(item)] = (kind, len(items))
            items.append(item)
        return found[id(item)]

    file = io.BytesIO()
    sender = pickler(file)
    sender.persistent_id = number
    sender.dump(list(jobs))
    return parcel._replace(text=file.getvalue())


def unpacked(text: bytes, kept: Sequence[Any], tensors: Sequence[Tensor]) -> list[ResolvedJob]:
    """The jobs of a parcel, with these models, shards and tensors in the place of the numbers."""
    receiver = _Receiver(text, {"none": [None], "tensor": tensors, "kept": kept})
    jobs: list[ResolvedJob] = receiver.load()
    return [_on_shard(one) if isinstance(one.job.data, Shard) else one for one in jobs]


def span(resolved: ResolvedJob) -> tuple[int, int]:
    """The first of a job's rows, and the one after the last."""
    rows = resolved.job.rows()
    return int(rows.min()), int(rows.max()) + 1


def tensor_of(array: NDArray[Any]) -> Tensor:
    """A tensor in the memory of an array that nobody may write to; nobody does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


@final
class _Receiver(pickle.Unpickler):
    def __init__(self, text: bytes, things: dict[str, Sequence[Any]]) -> None:
        super().__init__(io.BytesIO(text))
        self._things = things

    def persistent_load(self, pid: tuple[str, int]) -> Any:
        """What a number stands for."""
        return self._things[pid[0]][pid[1]]


def _on_shard(resolved: ResolvedJob) -> ResolvedJob:
    """The job with the rows of its shard, which it came with, in the place of those of all data."""
    job, shard = resolved.job, cast("Shard", resolved.job.data)
    if isinstance(job.indices, slice):
        start, stop, step = job.indices.indices(shard.total)
        indices: IntArray | slice = slice(start - shard.first, stop - shard.first, step)
    else:
        indices = job.indices - shard.first
    return replace(resolved, job=replace(job, data=shard.data, indices=indices))
