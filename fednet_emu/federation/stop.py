"""Stop rules and evaluation times of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from fednet_emu.component.component import Component, exactly_one
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.metrics import AnyMetric
from fednet_emu.records.rows import DeviceEvaluationRow, EvaluationRow

NO_ACCURACY = "a regression has no accuracy"
COSTS = ("rounds", "simulated_s", "bits", "energy_j")
"""Names of the costs of a run at which milestones apply."""


class Milestone(Component):
    """Minimum accuracy at a given cost. A run with a lower accuracy at that cost ends early."""

    _one_cost = exactly_one(*COSTS)

    rounds: int | None = Field(None, gt=0)
    """Number of rounds after which the accuracy is compared."""
    simulated_s: float | None = Field(None, gt=0, le=1e9)
    """Simulated time in s after which the accuracy is compared."""
    bits: float | None = Field(None, gt=0)
    """Number of bits on the air, over all links, after which the accuracy is compared."""
    energy_j: float | None = Field(None, gt=0)
    """Energy in J, defined as `energy_j` of the summary, after which the accuracy is compared."""
    accuracy: float = Field(gt=0, le=1)
    """Minimum accuracy (column `accuracy` of the evaluations), between 0 and 1, at which the run continues."""

    def is_missed(self, spent: Mapping[str, float], accuracy: float) -> bool:
        """Return True if the accuracy is too low for the costs `spent`, which are named as in `COSTS`."""
        return accuracy < self.accuracy and any(spent[name] >= (getattr(self, name) or math.inf) for name in COSTS)


class Patience(Component):
    """Early stopping: the run ends after a number of evaluations without a gain on the validation samples.

    The validation samples (`server.validation_samples`) are used neither for training nor for testing. Each evaluation
    of the model (`evaluation.every_rounds`), including the initial one, also scores the model on the validation
    samples, and records the scores in the series `validation`. The final model is the last model, not the best one. If
    each device has a model, the mean of the models' scores counts.
    """

    evaluations: int = Field(10, gt=0)
    """Number of successive evaluations without a gain after which the run ends."""
    metric: Literal["loss", "accuracy"] = "loss"
    """Score that must improve: the loss must fall, or the accuracy must rise."""
    min_gain: float = Field(0.0, ge=0)
    """Improvement over the best earlier evaluation that must be exceeded to count as a gain."""


class Stop(Component):
    """Limits of a run. The limit on simulated time ends the run immediately, any other limit at the end of a round."""

    rounds: int | None = Field(None, gt=0)
    """Maximum number of rounds of the algorithm; null for no limit."""
    simulated_s: float | None = Field(None, gt=0, le=1e9)
    """Maximum simulated time in s; null for no limit."""
    bits: float | None = Field(None, gt=0)
    """Maximum number of bits on the air, over all links, without the backhaul; null for no limit."""
    energy_j: float | None = Field(None, gt=0)
    """Maximum energy in J, null for no limit. It is the `energy_j` of the summary, which includes transmissions,
    receptions, computations, the backhaul, and the idle power of devices and base stations."""
    accuracy: float | None = Field(None, gt=0, le=1)
    """Accuracy (column `accuracy` of the evaluations), between 0 and 1, at which the run ends; null for no limit."""
    patience: Patience | None = None
    """Early stopping if the model no longer improves, in addition to the other limits; null for no early stopping."""
    milestones: tuple[Milestone, ...] = ()
    """Minimum accuracies at given costs; a run that misses a milestone ends at the end of the round."""

    @model_validator(mode="after")
    def _something_ends_the_run(self) -> Stop:
        limits = (self.rounds, self.simulated_s, self.bits, self.energy_j, self.accuracy)
        if all(limit is None for limit in limits):
            raise ValueError(f"nothing ends the run, got no limit; give one of {', '.join((*COSTS, 'accuracy'))}")
        return self

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        if scenario.data is not None and scenario.data.regression:
            asked = {"accuracy": self.accuracy, "milestones": len(self.milestones)}
            for key, value in asked.items():
                if value:
                    yield key, f"{NO_ACCURACY}, got {value:g}; leave it out, and give rounds or simulated_s"
        if self.patience is None:
            return
        if scenario.algorithm.own_learning:
            what = f"the algorithm {scenario.algorithm.kind} measures its own models, got a patience"
            yield "patience", f"{what}; leave it out"
        elif not scenario.server.validation_samples:
            what = "needs samples on which nothing is trained or tested, got server.validation_samples: 0"
            yield "patience", f"{what}; give some, for example 500"
        if scenario.evaluation.every_rounds is None:
            yield "patience", "counts evaluations at the ends of rounds, got evaluation.every_rounds: null; give 1"

    def reached(self, spent: Mapping[str, float], accuracy: float | None) -> bool:
        """Return True if a limit is reached by the costs `spent`, named as in `COSTS`, or by the latest `accuracy`."""
        for name, limit in (("rounds", self.rounds), ("bits", self.bits), ("energy_j", self.energy_j)):
            if limit is not None and spent[name] >= limit:
                return True
        if accuracy is None:
            return False
        return accuracy >= (self.accuracy or math.inf) or any(m.is_missed(spent, accuracy) for m in self.milestones)

    @property
    def depends_on_learning(self) -> bool:
        return self.accuracy is not None or bool(self.milestones) or self.patience is not None

    @property
    def only_accuracy(self) -> bool:
        return all(limit is None for limit in (self.rounds, self.simulated_s, self.bits, self.energy_j))

    def refuse_accuracy(self, *, timing_only: bool, regression: bool) -> None:
        """Raise a `ScenarioError` if a stop rule needs an accuracy that a regression or a timing-only run lacks."""
        if regression and (self.accuracy is not None or self.milestones):
            key = "milestones" if self.accuracy is None else "accuracy"
            raise ScenarioError(f"stop.{key}: {NO_ACCURACY}, got one; leave it out, and give rounds or simulated_s")
        if timing_only and self.only_accuracy:
            what = "cannot end a timing-only run, got no other limit"
            raise ScenarioError(f"stop.accuracy: {what}; give rounds or simulated_s")
        if regression and self.patience is not None and self.patience.metric == "accuracy":
            raise ScenarioError("stop.patience.metric: a regression has no accuracy, got accuracy; give loss")


class Evaluation(Component):
    """Evaluation of the global model, at no cost in simulated time, bits and energy."""

    every_rounds: int | None = Field(1, gt=0)
    """Number of rounds between evaluations; null for no evaluations at the ends of rounds. The initial and the last
    model are always evaluated."""
    every_s: float | None = Field(None, ge=1e-6)
    """Simulated time in s between evaluations of the current global model, in addition to evaluations at the ends of
    rounds; null for none. If the model has been evaluated before, its scores are recorded again."""
    per_device: bool = False
    """Whether to also evaluate the model on each device's share of the test set, which gives the minimum accuracy over
    devices and the standard deviation of the accuracy."""
    worst_train_loss: bool = False
    """Whether to also measure the maximum over devices of the loss on the device's training samples."""
    consensus: bool = False
    """Whether `loss` and `accuracy` are those of the mean of the devices' own models on the whole test set, in place of
    those of each model on its device's share, for algorithms in which each device has a model. Two columns are added:
    `consensus_distance`, sqrt(mean |x_i - mean|^2) of the models x_i over the devices with training samples, and
    `local_model_accuracy`, the mean accuracy of the devices' own models on the whole test set. With `per_device`, each
    device's own model is also scored on the device's share of the test set."""
    metrics: tuple[AnyMetric, ...] = ()
    """Metrics in addition to loss and accuracy: a list of kinds, each with its own column in the records. Metrics are
    measured on the test set, and with `per_device` also on each device's share of the test set."""

    @model_validator(mode="after")
    def _each_metric_has_its_own_column(self) -> Evaluation:
        columns = self.columns
        for place, name in enumerate(columns):
            if name in columns[:place] or name in {*EvaluationRow._fields, *DeviceEvaluationRow._fields}:
                raise ValueError(f"metrics: two columns of one name, got {name} again; leave one of them out")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        return (
            *(metric.column for metric in self.metrics),
            *(("consensus_distance", "local_model_accuracy") if self.consensus else ()),
        )

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        if self.consensus:
            yield from scenario.unless_used("consensus", "has no models whose mean can be scored", "true", "consensus")
