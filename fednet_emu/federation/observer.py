"""The observer of a run, which evaluates the global model at no cost in simulated time, bits and energy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from simpy.events import Event, EventPriority

from fednet_emu.federation.learning_task import Scores
from fednet_emu.federation.stop import Evaluation, Patience
from fednet_emu.kernel.clock import FOREVER_NS, Clock, Timer, to_ns
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.models.evaluate import Metrics
from fednet_emu.records.ledger import Ledger
from fednet_emu.records.rows import EvaluationRow
from fednet_emu.records.summaries import LOWER, divergence

Models = Deferred | Sequence[Deferred]
"""One global model, or one model per device in the order of the devices."""

OBSERVE = EventPriority(4)
"""Event priority of evaluations, which run after all other events at the same time."""


class Observer:
    """Evaluates the initial model, the current model at regular rounds or simulated times, and the final model.

    Attributes:
        latest: the latest global model, or the latest models of all devices.
        accuracy: the latest accuracy on the whole test set; None before the first evaluation, and after divergence.
        not_finite: error text for the first loss that was not finite; empty if all losses were finite.
    """

    def __init__(
        self,
        clock: Clock,
        ledger: Ledger,
        evaluation: Evaluation,
        score: Callable[[Models], Scores] | None,
        patience: Patience | None = None,
    ) -> None:
        self._clock, self._ledger, self._evaluation, self._score = clock, ledger, evaluation, score
        self._patience, self._best, self._without_gain = patience, -math.inf, 0
        self.latest: Models | None = None
        self.accuracy: float | None = None
        self.not_finite = ""
        self._latest_round = 0
        self._scores: Scores | None = None  # scores of the latest round's model; None before its evaluation
        self._judged = True  # False if the algorithm reports no loss, so that the loss cannot show divergence
        self._recorded_ns = -1
        self._instants = 0
        self._until_ns = FOREVER_NS
        self._timer: Timer | None = None

    def see(self, model: Models, after_round: int) -> None:
        """Store a new global model, and evaluate it if an evaluation is due."""
        if after_round != self._latest_round:
            self._scores = None
        self.latest, self._latest_round = model, after_round
        every = self._evaluation.every_rounds
        if after_round == 0 or (every is not None and after_round % every == 0):
            self.evaluate()

    def evaluate(self) -> None:
        """Evaluate the latest model, unless this model has been evaluated already."""
        if self._score is None or self.latest is None or self._scores is not None:
            return
        self._scores = scores = self._score(self.latest)
        self.accuracy = scores.pooled.accuracy
        self._record(scores)
        if self.divergence():
            self.accuracy = None
        self._record_devices(scores)
        if self._patience is not None and scores.validation is not None:
            self._validated(self._patience, scores.validation)

    def _validated(self, patience: Patience, found: Metrics) -> None:
        accuracy = math.nan if found.accuracy is None else found.accuracy
        value = -found.loss if patience.metric == "loss" else accuracy
        self._without_gain += 1
        if value > self._best + patience.min_gain:
            self._best, self._without_gain = value, 0
        row = {"round": self._latest_round, "simulated_s": self._clock.now_s, "loss": found.loss, "accuracy": accuracy}
        self._ledger.record("validation", **row, without_gain=self._without_gain)

    @property
    def out_of_patience(self) -> bool:
        return self._patience is not None and self._without_gain >= self._patience.evaluations

    def report(self, after_round: int, loss: float | None, accuracy: float | None) -> None:
        self._latest_round, self._judged, self.accuracy = after_round, loss is not None, accuracy
        self._record(Scores(Metrics(math.nan if loss is None else loss, accuracy, 0), None))
        if self.divergence():
            self.accuracy = None

    def divergence(self) -> str:
        if not self.not_finite and self._judged:
            return divergence(self._ledger)
        return self.not_finite

    # ---- evaluations at regular simulated times ----------------------------------------------------------------------

    def start(self, until_s: float | None) -> None:
        self._until_ns = FOREVER_NS if until_s is None else to_ns(until_s)
        self._set_timer()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        every_s = self._evaluation.every_s
        if every_s is None or self._score is None:
            return
        self._instants += 1
        at_ns = to_ns(self._instants * every_s)
        if at_ns < self._until_ns:
            self._timer = self._clock.call_at(at_ns, self._look, OBSERVE, background=True)

    def _look(self, _event: Event) -> None:
        if self._scores is None:
            self.evaluate()
        elif self._recorded_ns < self._clock.now:
            self._record(self._scores)
        self._set_timer()

    def _record(self, scores: Scores) -> None:
        self._recorded_ns = self._clock.now
        ledger, pooled, accuracies = self._ledger, scores.pooled, scores.accuracies
        accuracy = np.nan if pooled.accuracy is None else pooled.accuracy
        uplink_bit, downlink_bit, sidelink_bit = ledger.sent_bit
        row = EvaluationRow(
            round=self._latest_round,
            simulated_ns=self._clock.now,
            uplink_bit=uplink_bit,
            downlink_bit=downlink_bit,
            sidelink_bit=sidelink_bit,
            energy_j=ledger.spent_j(self._clock.now),
            loss=pooled.loss,
            accuracy=accuracy,
            worst_accuracy=accuracies.min() if len(accuracies) else np.nan,
            std_accuracy=accuracies.std() if len(accuracies) else np.nan,
            worst_train_loss=scores.worst_train_loss,
            attack_success=scores.attack_success,
        )
        if self._judged and not math.isfinite(pooled.loss):
            self.not_finite = self.not_finite or (
                f"the loss is not finite after round {self._latest_round}, got {pooled.loss:g}; {LOWER}"
            )
        ledger.add_evaluation(row, (pooled.metrics.get(name, np.nan) for name in ledger.metrics))

    def _record_devices(self, scores: Scores) -> None:
        if scores.by_device is not None:
            own = scores.by_device
            devices = np.flatnonzero(own.samples)
            self._ledger.device_evaluations.extend(
                round=np.full(len(devices), self._latest_round),
                device=devices,
                samples=own.samples[devices],
                loss=own.loss[devices],
                accuracy=np.full(len(devices), np.nan) if own.accuracy is None else own.accuracy[devices],
                **{name: values[devices] for name, values in own.metrics.items()},
            )
