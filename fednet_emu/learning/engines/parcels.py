"""Serialisation of training jobs (packing), so that they can be sent to other processes.

Models and data are sent separately, and each tensor is sent once.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
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


def without_constants(model: FlatModel, constants: Sequence[Tensor]) -> bytes:
    """Pickle a model. Each of its tensors in `constants` is replaced by the index of the tensor in `constants`."""
    places, file = {id(tensor): place for place, tensor in enumerate(constants)}, io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing: Any) -> int | None:
            return places.get(id(thing))

    Pickler(file).dump(model)
    return file.getvalue()


def with_constants(text: bytes, constants: Sequence[Tensor]) -> FlatModel:
    """Unpickle a model that `without_constants` has pickled. Indices are replaced by the tensors `constants`."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, place: int) -> Tensor:
            return constants[place]

    model: FlatModel = Unpickler(io.BytesIO(text)).load()
    return model


def packed(jobs: Sequence[ResolvedJob], pickler: Callable[[io.BytesIO], Any]) -> Parcel:
    """Serialise jobs with the pickler class `pickler`, which may support more objects than `pickle`, such as lambdas.

    Values that several jobs share are written only once, so that packing a hundred jobs takes a millisecond.
    """
    parcel, places, shared = Parcel(b"", [], []), dict[int, int](), list[tuple[str, Any]]()

    def place(item: Any) -> int:
        own = places.get(id(item))
        if own is None:
            own = places[id(item)] = len(shared)
            kind = "tensors" if isinstance(item, Tensor) else "kept" if isinstance(item, FlatModel | TrainData) else ""
            if kind:
                items: list[Any] = getattr(parcel, kind)
                items.append(item)
            shared.append((kind, len(items) - 1 if kind else item))
        return own

    rows = [
        (job.indices, job.rng_key, job.label, own.scale, own.prox, job.l1, job.squares, *map(place, _shared(own)))
        for own, job in ((resolved, resolved.job) for resolved in jobs)
    ]
    file = io.BytesIO()
    pickler(file).dump((rows, shared))
    return parcel._replace(text=file.getvalue())


def packed_columns(columns: Columns) -> Parcel:
    """Serialise a group of jobs that is given as a `Columns` record."""
    tensors, places = [columns.params], {id(columns.params): 0}

    def place(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in places:
            places[id(value)] = len(tensors)
            tensors.append(value)
        return _Place(places[id(value)])

    terms = {name: place(value) for name, value in columns.terms.items()}
    own = {name: list(map(place, values)) for name, values in columns.own.items()}
    table = np.array((columns.device, columns.first, columns.n_samples)).tobytes()
    text = pickle.dumps((columns.plan, columns.streams, columns.key, columns.t, table, terms, own))
    return Parcel(text, [columns.model, columns.data], tensors)


def unpacked_columns(text: bytes, kept: Sequence[Any], tensors: Sequence[Tensor]) -> Columns:
    """Unpack a `Columns` record from the text of a parcel, with the given models, data and tensors."""
    plan, streams, key, t, table, terms, own = pickle.loads(text)
    device, first, n_samples = np.frombuffer(table, np.int64).reshape(3, -1)
    terms = {name: tensors[value] if type(value) is _Place else value for name, value in terms.items()}
    own = {name: [tensors[value] for value in values] for name, values in own.items()}
    model, data = kept
    return Columns(model, data, plan, streams, key, t, device, first, n_samples, tensors[0], terms, own)


class _Place(int):
    """Index of a tensor in a parcel."""


def _shared(own: ResolvedJob) -> tuple[Any, ...]:
    """Return the values that jobs may have in common, where a Deferred is replaced by its value."""
    job = own.job
    its = (job.model, job.data, job.plan, job.streams, job.loss, job.augment, job.mask)
    return (*its, own.params, own.linear, own.drift, own.anchor, own.targets, own.base)


def unpacked(text: bytes, kept: Sequence[Any], tensors: Sequence[Tensor]) -> list[ResolvedJob]:
    """Unpack the jobs of a parcel. Indices are replaced by the given models, shards of data and tensors."""
    rows, shared = pickle.loads(text)
    sources = {"kept": kept, "tensors": tensors}
    things = [sources[kind][value] if kind else value for kind, value in shared]
    jobs = []
    for given, rng_key, label, scale, prox, l1, squares, *places in rows:
        model, data, plan, streams, loss, augment, mask, params, *rest = (things[own] for own in places)
        linear, drift, anchor, targets, base = rest
        if isinstance(data, Shard):
            given, data = data.own(given), data.data  # noqa: PLW2901
        terms = {"l1": l1, "loss": loss, "augment": augment, "mask": mask, "squares": squares}
        job = TrainJob(model, data, given, UNKNOWN, plan, streams, rng_key, label, **terms)
        jobs.append(ResolvedJob(job, params, scale, linear, drift, prox, anchor, targets, base))
    return jobs


def span(resolved: ResolvedJob) -> tuple[int, int]:
    """Return the index of the first row of the data that a job uses, and the index after its last row."""
    rows = resolved.job.rows()
    return int(rows.min()), int(rows.max()) + 1


def tensor_of(array: NDArray[Any]) -> Tensor:
    """Return a tensor in the memory of a read-only array. The tensor must not be modified."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
