"""Local training of a cohort (a set of devices that start from the same model), described by a single record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, final
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import AlgorithmError
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.jobs import ResolvedJob, SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.flat import FlatModel

SHARED = frozenset({"scale", "linear", "drift", "prox", "anchor", "mask", "base"})
"""Names of the optional fields of a training job that may have the same value for all devices of a cohort."""
OWN = frozenset({"linear", "drift", "anchor"})
"""Names of the optional terms of a training job that may differ between the devices of a cohort."""

_UNKNOWN_PARAMS = torch.empty(0)


@final
@dataclass(slots=True, eq=False)
class Columns:
    """Training jobs of n devices that start from the same model, stored as arrays with one entry per device.

    Model, data, plan and random streams are the same for all devices. The record has no deferred values. Parameters and
    terms whose values are not known yet are left out.
    """

    model: FlatModel
    data: TrainData
    plan: SgdPlan
    streams: Streams
    key: tuple[Any, ...]  # end of the name of each device's random stream, which begins with ("batch", device)
    t: int  # index of the round, from 0, which is used in error messages
    device: IntArray  # [n] indices of the devices
    first: IntArray  # [n] first row of each device in the data
    n_samples: IntArray  # [n] number of rows of each device, from the first row on
    params: Tensor = _UNKNOWN_PARAMS  # [P] parameters from which all jobs start; empty as long as they are unknown
    terms: Mapping[str, Any] = field(default_factory=dict)  # terms of the gradient of all devices, out of `SHARED`
    own: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # further terms per device [n], out of `OWN`

    def __len__(self) -> int:
        return len(self.device)

    @property
    def flop(self) -> Array:
        return self.by_n_samples(lambda n: float(self.model.flop_per_sample * self.plan.n_samples_processed(n)))

    @property
    def steps(self) -> IntArray:
        return self.by_n_samples(self.plan.n_steps).astype(np.int64)

    def by_n_samples(self, function: Any) -> Array:
        """Apply `function` to the number of samples of each device, and return the results as an array [n]."""
        if len(self) and (self.n_samples == self.n_samples[0]).all():  # the common case, which needs no sort
            return np.full(len(self), function(int(self.n_samples[0])))
        counts, place = np.unique(self.n_samples, return_inverse=True)
        return np.asarray(np.array([function(count) for count in counts.tolist()])[place])

    def name_of_stream(self, device: int) -> tuple[Any, ...]:
        return "batch", device, *self.key

    def part(self, places: Sequence[int] | IntArray) -> Columns:
        """Return a record with only the jobs at the indices `places`."""
        own = {name: [values[place] for place in places] for name, values in self.own.items()}
        columns = {name: getattr(self, name)[places] for name in ("device", "first", "n_samples")}
        return replace(self, **columns, own=own)

    def jobs(self) -> list[ResolvedJob]:
        shared, params, prox = dict(self.terms), self.params, float(self.terms.get("prox", 0.0))
        mask, base, scale = shared.get("mask"), shared.get("base"), float(shared.get("scale", 1.0))
        rest = [self.own.get(name) or [shared.get(name)] * len(self) for name in ("linear", "drift", "anchor")]
        rows = zip(self.device.tolist(), self.first.tolist(), self.n_samples.tolist(), *rest, strict=True)
        made = []
        for device, first, n, linear, drift, anchor in rows:
            names = self.name_of_stream(device), f"dev-{device}, round {self.t + 1}"
            given = slice(first, first + n), UNKNOWN, self.plan, self.streams, *names
            job = TrainJob(self.model, self.data, *given, mask=mask)
            near = (params if anchor is None else anchor) if prox else None
            made.append(ResolvedJob(job, params, scale, linear, drift, prox, near, None, base))
        return made


UNKNOWN = Deferred(0, 0)
"""Placeholder for the Deferred of the parameters, in jobs whose parameters are already known."""


class Begun(NamedTuple):
    """Training jobs that have been started, and weak references to the graph nodes of their results."""

    columns: Columns
    results: list[ref[Deferred]]


@final
@dataclass(slots=True, eq=False)
class CohortJob:
    """Training of n devices from the same model, as the computation of one node of the deferred graph."""

    columns: Columns  # the jobs, without unknown parameters and terms
    params: Deferred  # the model that all devices start from
    terms: Mapping[str, Any] = field(default_factory=dict)  # terms of all devices, out of `SHARED`; may be Deferreds
    own: dict[str, list[Deferred]] = field(default_factory=dict)  # further terms per device [n], out of `OWN`
    results: list[ref[Deferred]] = field(default_factory=list)  # [n] the nodes with the parameters after training
    begun: Begun | None = None  # the jobs that have begun; None if none has

    def with_terms(self, own: Callable[[int], Mapping[str, Deferred]] | None) -> Iterator[int]:
        """Yield the index of each device, after adding its own terms, which `own` returns; None if there are none."""
        for place in range(len(self.columns)):
            for name, value in (own(place) if own is not None else {}).items():
                if name not in OWN:
                    what = f"gives each device terms of its own, got {name}"
                    raise AlgorithmError("LocalStep", what, f"give {', '.join(sorted(OWN))}, or write a generator")
                self.own.setdefault(name, []).append(value)
            yield place

    def inputs(self) -> list[Deferred]:
        """Return the Deferreds that must be known before any device can start training."""
        shared = [self.params, *self.terms.values()]
        return [x for x in shared if type(x) is Deferred] + [x for column in self.own.values() for x in column]

    @property
    def in_order(self) -> bool:
        return bool((np.diff(self.columns.device) > 0).all())

    def single(self, place: int) -> TrainJob:
        """Return the device at index `place` as a single job, with a bit-identical result."""
        shared, first = self.columns, int(self.columns.first[place])
        terms: dict[str, Any] = {**self.terms, **{name: column[place] for name, column in self.own.items()}}
        return TrainJob(
            shared.model,
            shared.data,
            slice(first, first + int(shared.n_samples[place])),
            self.params,
            shared.plan,
            shared.streams,
            shared.name_of_stream(device := int(shared.device[place])),
            f"dev-{device}, round {shared.t + 1}",
            **terms,
        )

    def singles(self) -> Iterator[TrainJob]:
        return map(self.single, range(len(self.columns)))

    def begin(self) -> tuple[Columns, list[Deferred]]:
        """Mark the jobs whose results are still needed as started. Return these jobs and the nodes of their results."""
        columns, params = self.columns, self.params.value
        if params.numel() != columns.model.size:
            what = f"starts from {params.numel()} numbers, got a model of {columns.model.size} parameters"
            where = f"training (dev-{columns.device[0]}, round {columns.t + 1})"
            raise AlgorithmError(where, what, "return a model of its shape", line="")
        known = replace(
            columns,
            params=params,
            terms={name: x.value if type(x) is Deferred else x for name, x in self.terms.items()},
            own={name: [x.value for x in column] for name, column in self.own.items()},
        )
        awaited = [(place, node) for place, me in enumerate(self.results) if (node := me()) is not None and node._work]
        if len(awaited) < len(known):
            known = known.part([place for place, _ in awaited])
        self.begun = Begun(known, [self.results[place] for place, _ in awaited])
        return known, [node for _, node in awaited]
