"""The learning of a run: local training as computations of devices, reading of computed values, and scores.

An interrupted run cannot save the generators of its algorithm, but the simulation of events is cheap and deterministic.
A resumed run therefore repeats the simulation from the start, and reads the results of learning operations from a
store. All runs with the same sequence of learning operations share the stored results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from fednet_emu.arrays import Array, IntArray
from fednet_emu.devices.processors import Work
from fednet_emu.errors import AlgorithmError, ScenarioError
from fednet_emu.federation.device import Device
from fednet_emu.federation.learning_task import LearningTask, Scores
from fednet_emu.federation.observer import Models
from fednet_emu.federation.stop import Evaluation
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.cohort import SHARED, CohortJob, Columns
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.evaluate import Metrics, score_samples
from fednet_emu.learning.models.flat import FlatModel


class Evaluated(NamedTuple):
    """Deferred mean loss and accuracy of a model on a device's local samples; the accuracy of a regression is None."""

    loss: Deferred
    accuracy: Deferred


class Kept:
    """Store of values by key for a resumed run; this base class, used if there is no run folder, stores nothing."""

    def get(self, key: str) -> Any:
        """Return the value that is stored under `key`; None if there is none."""

    def put(self, key: str, value: Any) -> None:
        """Store `value` under `key`."""


def scored(model: FlatModel, vector: Tensor, x: Tensor, y: Tensor) -> Metrics:
    """Return metrics of a model with parameters `vector` [P] on samples `x` [n, ...] and `y` [n]; nan if n is 0."""
    return score_samples(model, vector, x, y).pooled()


@final
class Learner:
    """Creates the training jobs of a run, and reads their results, which are not computed in a timing-only run.

    `nominal` is True after `read` has returned a nominal value in place of one that a timing-only run does not compute.
    """

    def __init__(self, graph: Graph, task: LearningTask | None, streams: Streams, *, timing_only: bool) -> None:
        self._graph, self._streams, self._timing_only = graph, streams, timing_only
        if task is not None:  # else the algorithm has its own learning, and does not use the learner
            self._task = task
        self._plans: set[SgdPlan] = set()
        self.nominal = False
        self._zeros: Deferred | None = None

    def initial(self) -> Deferred:
        model = self._task.model
        return self._graph.call(_never, size=model.size) if self._timing_only else self._graph.constant(model.initial())

    def zeros(self) -> Deferred:
        """Return a vector with a zero for each trainable parameter; all calls return the same deferred value."""
        n = self._task.model.n_trainable
        if self._zeros is None:
            self._zeros = self._graph.call(torch.Tensor.new_zeros, self.initial(), n, size=n)
        return self._zeros

    def train(
        self,
        device: Device,
        params: Deferred,
        plan: SgdPlan,
        key: tuple[Any, ...],
        t: int,
        *,
        squares: bool = False,
        **terms: Any,
    ) -> Work:
        subset, of, model = terms.get("subset"), terms.get("of"), terms.get("model") or self._task.model
        mine = self._task.slice_of((of or device).index)
        if params.size != model.size:
            self.check(params, "k.train")
        n_samples = mine.stop - mine.start if subset is None else len(subset)
        if plan.private is not None and model.min_batch > 1:
            what = "batch norm mixes samples, so that none has a gradient of its own, got a model with it"
            raise ScenarioError(f"algorithm.dp_sgd: {what}; choose another model, or leave it out")
        if n_samples and model.min_batch > 1:
            self._check_batches(plan, {device.name: n_samples}, everybody=subset is None and of is None)
        if self._timing_only and n_samples:
            flop = model.flop_per_sample * plan.n_samples_processed(n_samples)
            trained = self._graph.untrained(model.size, squares=squares)
            work: Work = _new(Work, (flop, trained, params.number, trained.params.number))
            return work
        job = self.job(device, params, plan, key, t, squares=squares, **terms)
        trained = self._graph.train(job)
        return Work(job.flop, trained, params.number, trained.params.number)

    def train_cohort(
        self,
        devices: IntArray,
        params: Deferred,
        plan: SgdPlan,
        t: int,
        terms: Mapping[str, Any],
        own: Callable[[int], Mapping[str, Any]] | None = None,
    ) -> tuple[Array, list[Deferred]]:
        """Train `devices` [n] locally in round `t` from one model; return the FLOP [n] and the trained parameters.

        The results equal those of calling `train` for each device in this order, with the key (t,), the `terms` of the
        objective that all devices share, and the terms that `own` returns for the device's position in `devices`.
        """
        model, n_samples, engine = self._task.model, self._task.n_samples[devices], self._graph.engine
        columns = Columns(
            model=model,
            data=self._task.data,
            plan=plan.in_round(t),
            streams=self._streams,
            key=(t,),
            t=t,
            device=devices,
            first=self._task.offsets[devices],
            n_samples=n_samples,
        )
        plain = plan.private is None and model.min_batch == 1 and params.size == model.size
        in_columns = self._timing_only or (engine is not None and terms.keys() <= SHARED and engine.takes(columns))
        if not (plain and in_columns and n_samples.all()):
            works = [
                self.train(Device(None, k), params, plan, (t,), t, **terms, **({} if own is None else own(place)))
                for place, k in enumerate(devices.tolist())
            ]
            return np.array([work.flop for work in works]), [work.result.params for work in works]
        return columns.flop, self._graph.train_cohort(CohortJob(columns, params, terms), own)

    def job(
        self,
        device: Device,
        params: Deferred,
        plan: SgdPlan,
        key: tuple[Any, ...],
        t: int,
        subset: IntArray | None = None,
        data: TrainData | None = None,
        *,
        of: Device | None = None,
        model: FlatModel | None = None,
        **terms: Any,
    ) -> TrainJob:
        """Return the training job of a device in round `t`, without starting it."""
        mine = self._task.slice_of((of or device).index)
        return TrainJob(
            model=model or self._task.model,
            data=data or self._task.data,
            indices=mine if subset is None else mine.start + subset,
            params=params,
            plan=plan.in_round(t),
            streams=self._streams,
            rng_key=("batch", device.index, *key),
            label=f"{device.name}, round {t + 1}",
            **terms,
        )

    def evaluate(self, device: Device, models: Deferred | Sequence[Deferred]) -> Work:
        self.check(models, "k.evaluate")
        rows = self._task.slice_of(device.index)
        flop = self._task.model.forward_flop_per_sample * (rows.stop - rows.start)
        if not isinstance(models, Deferred):
            return Work(len(models) * flop, [self._scored(w, rows) for w in models])
        scores = self._scored(models, rows)
        return Work(flop, scores, models.number, scores.loss.number)

    def _scored(self, w: Deferred, rows: slice) -> Evaluated:
        metrics = self._graph.call(
            scored, self._task.model, w, self._task.data.x[rows], self._task.data.y[rows], size=2
        )
        return Evaluated(metrics.part("loss", 1), metrics.part("accuracy", 1))

    def check(self, models: Models | None, verb: str) -> None:
        """Check that `models`, an argument of the operation `verb`, is a model, a sequence of models or None.

        An `AlgorithmError` is raised if a model is not a deferred value, or has the wrong number of parameters.
        """
        if models is None:
            return
        size = self._task.model.size
        whole = size if verb == "k.train" else size + self._task.model.base_size
        for model in (models,) if isinstance(models, Deferred) or not isinstance(models, Sequence) else models:
            if not isinstance(model, Deferred):
                what = f"expected a model, or a list of one for each device, got {type(models).__name__}"
                raise AlgorithmError(verb, what, "give a value, for example the `params` of a training result")
            if model.size not in (size, whole):
                what = f"got a value of {model.size} numbers, the model of the scenario has {size} parameters"
                raise AlgorithmError(verb, what, "give a model of its shape, or `size` where it is made")

    def _check_batches(self, plan: SgdPlan, n_samples: dict[str, int], *, everybody: bool) -> None:
        """Raise a `ScenarioError` if a batch is too small for the model.

        `n_samples` are the devices to check; if `everybody` is True, a plan that is new is checked for all devices.
        """
        if everybody and plan not in self._plans:
            self._plans.add(plan)
            n_samples |= {f"dev-{device}": count for device, count in enumerate(self._task.n_samples.tolist()) if count}
        least = self._task.model.min_batch
        small = [name for name, count in n_samples.items() if plan.min_batch(count) < least]
        if small:
            more = f" and {len(small) - _NAMED} more" if len(small) > _NAMED else ""
            raise ScenarioError(
                f"algorithm.batch_size: the model has batch norm, so a batch must have {least} samples or more, "
                f"got {plan.batch_size}, with which batches of 1 remain for {', '.join(small[:_NAMED])}{more}; "
                "choose another batch_size or partition, or a model without batch norm"
            )

    def read(self, value: Deferred, nominal: Any) -> Any:
        """Compute and return a deferred value; in a timing-only run, return `nominal` instead, unless it is None."""
        if self._timing_only and nominal is not None:
            self.nominal = True
            return nominal
        return self._graph.recall("read", [value], lambda: self._graph.read(value))

    def score(self, model: Models, evaluation: Evaluation, *, validate: bool = False) -> Scores:
        """Score one model, or the model of every device, and if `validate` is True also on the validation samples."""
        one = isinstance(model, Deferred)
        nodes = [model] if isinstance(model, Deferred) else list(model)
        per_device, train_loss, metrics = evaluation.per_device, evaluation.worst_train_loss, evaluation.metrics

        def compute() -> Scores:
            vectors = [self._model(own) for own in nodes]
            what: Any = {"per_device": per_device, "train_loss": train_loss, "metrics": metrics}
            if evaluation.consensus:
                found = self._task.score_together(vectors * len(self._task.n_samples) if one else vectors, **what)
            else:
                found = self._task.score(vectors[0], **what) if one else self._task.score_own(vectors, **what)
            return found._replace(validation=self._task.validation(vectors)) if validate else found

        with self._graph.host.part("evaluation"):
            key = "score", one, validate, per_device, train_loss, evaluation.consensus, metrics
            scores: Scores = self._graph.recall(key, nodes, compute)
        return scores

    def _model(self, model: Deferred) -> Tensor:
        """Return the computed parameters of a model; raise an `AlgorithmError` if their number is wrong."""
        params: Tensor = self._graph.read(model)
        if params.numel() != model.size:
            what = f"made a model of {params.numel()} numbers, the model of the scenario has {model.size} parameters"
            raise AlgorithmError(f"deferred {model.number}", what, "return a model of its shape", line="")
        return params


_new = tuple.__new__  # the constructor of a named tuple takes twice as long

_NAMED = 3
"""Maximum number of devices that an error message names; further devices are only counted."""


def _never() -> Any:
    raise AssertionError("a timing-only run computes nothing")
