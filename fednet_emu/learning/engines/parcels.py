"""Serialisation of training jobs (packing), so that they can be sent to other processes.

Models and data are sent separately, and each tensor is sent once.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, final

import torch
from numpy.typing import NDArray
from torch import Tensor

from fednet_emu.arrays import IntArray
from fednet_emu.learning.graph.cohort import UNKNOWN, Columns
from fednet_emu.learning.graph.jobs import ResolvedJob, TrainData, TrainJob
from fednet_emu.learning.models.flat import FlatModel

Kept = FlatModel | TrainData
"""Objects that are sent to a process once. The process stores them."""


class Parcel(NamedTuple):
    """Serialised jobs, together with the objects and tensors to which they refer."""

    text: bytes  # the pickled jobs, with indices in place of models, data and tensors
    kept: list[Kept]  # models and data of the jobs
    tensors: list[Tensor]  # initial parameters, linear terms, anchors, masks, targets and bases, each once


class Rows(NamedTuple):
    """Consecutive rows of the training data, from row `first` on. The whole training data have `total` rows."""

    x: NDArray[Any]
    y: NDArray[Any]
    first: int
    total: int


@final
@dataclass(frozen=True, slots=True)
class Shard:
    """Rows of the training data as tensors, in the process that has received them."""

    data: TrainData
    first: int
    total: int

    @classmethod
    def of(cls, rows: Rows, device: str) -> Shard:
        """Return the rows as tensors on a torch device. On a CPU, the tensors share memory with the arrays."""
        data = TrainData(tensor_of(rows.x).to(device), tensor_of(rows.y).to(device))
        return cls(data, rows.first, rows.total)

    def own(self, indices: IntArray | slice) -> IntArray | slice:
        """Convert row indices in the whole data to row indices in this block."""
        if isinstance(indices, slice):
            start, stop, step = indices.indices(self.total)
            return slice(start - self.first, stop - self.first, step)
        return indices - self.first


def pickled_without(value: Any, objects: Sequence[Any], pickler: Any = pickle.Pickler) -> bytes:
    """Pickle a value by the class `pickler`. Each of the `objects` in it is replaced by its index in `objects`."""
    places, file = {id(thing): place for place, thing in enumerate(objects)}, io.BytesIO()

    class Pickler(pickler):  # type: ignore[misc]
        def persistent_id(self, thing: Any) -> int | None:
            return places.get(id(thing))

    Pickler(file).dump(value)
    return file.getvalue()


def unpickled_with(text: bytes, objects: Sequence[Any]) -> Any:
    """Unpickle a value that `pickled_without` has pickled. Indices are replaced by the given `objects`."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, place: int) -> Any:
            return objects[place]

    return Unpickler(io.BytesIO(text)).load()


def packed(jobs: Sequence[ResolvedJob] | Columns, pickler: Any) -> Parcel:
    """Serialise jobs with the pickler class `pickler`, which may support more objects than `pickle`, such as lambdas.

    Values that several jobs share are written only once, so that packing a hundred jobs takes a millisecond.
    """
    if isinstance(jobs, Columns):
        content: Any = jobs
        kept: list[Kept] = [jobs.model, jobs.data]
        values = [jobs.params, *jobs.terms.values(), *chain.from_iterable(jobs.own.values())]
    else:
        alike = dict[tuple[int, ...], tuple[Any, ...]]()  # `_values` of jobs, by the identities of the values
        content = []
        for own in jobs:
            its, job = _values(own), own.job
            common = alike.setdefault(tuple(map(id, its)), its)
            content.append((common, job.indices, job.rng_key, job.label))
        kept = list(dict.fromkeys(chain.from_iterable(its[:2] for its in alike.values())))
        values = [value for its in alike.values() for value in its]
    tensors = list(dict.fromkeys(value for value in values if isinstance(value, Tensor)))
    return Parcel(pickled_without(content, [*kept, *tensors], pickler), kept, tensors)


def _values(own: ResolvedJob) -> tuple[Any, ...]:
    """Return the values that jobs may have in common, where a Deferred is replaced by its value."""
    job = own.job
    its = (job.model, job.data, job.plan, job.streams, job.l1, job.loss, job.augment, job.mask, job.squares)
    return (*its, own.params, own.scale, own.linear, own.drift, own.prox, own.anchor, own.targets, own.base)


def unpacked(text: bytes, kept: Sequence[Any], tensors: Sequence[Tensor]) -> list[ResolvedJob]:
    """Unpack the jobs of a parcel. Indices are replaced by the given models, shards of data and tensors."""
    content = unpickled_with(text, [*kept, *tensors])
    return content.jobs() if isinstance(content, Columns) else [_job(*row) for row in content]


def _job(common: tuple[Any, ...], indices: IntArray | slice, rng_key: tuple[Any, ...], label: str) -> ResolvedJob:
    model, data, plan, streams, l1, loss, augment, mask, squares, *rest = common
    if isinstance(data, Shard):
        indices, data = data.own(indices), data.data
    terms = {"l1": l1, "loss": loss, "augment": augment, "mask": mask, "squares": squares}
    return ResolvedJob(TrainJob(model, data, indices, UNKNOWN, plan, streams, rng_key, label, **terms), *rest)


def span(resolved: ResolvedJob) -> tuple[int, int]:
    """Return the index of the first row of the data that a job uses, and the index after its last row."""
    rows = resolved.job.rows()
    return int(rows.min()), int(rows.max()) + 1


def tensor_of(array: NDArray[Any]) -> Tensor:
    """Return a tensor in the memory of a read-only array. The tensor must not be modified."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
