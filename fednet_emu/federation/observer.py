"""The observer of a run: it evaluates the global model when due, at no simulated time, no bits and no energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fednet_emu.federation.learning_task import Scores
from fednet_emu.federation.stop import Evaluation
from fednet_emu.kernel.clock import Clock
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.records.divergence import divergence
from fednet_emu.records.ledger import Ledger

Models = Deferred | Sequence[Deferred]
"""One global model, or every device's own, in the order of the devices."""


class Observer:
    """Evaluates the initial model, the model after every so many rounds, and the last one.

    Attributes:
        latest: the latest global model, or the latest models of all devices.
        accuracy: the latest pooled accuracy, if any was measured; that of a model that has diverged counts for nothing.
    """

    def __init__(
        self, clock: Clock, ledger: Ledger, evaluation: Evaluation, score: Callable[[Models], Scores] | None
    ) -> None:
        self._clock, self._ledger, self._evaluation, self._score = clock, ledger, evaluation, score
        self.latest: Models | None = None
        self.accuracy: float | None = None
        self._latest_round = 0
        self._evaluated_round = -1

    def see(self, model: Models, after_round: int) -> None:
        """Take note of a new global model; evaluate it if it is due."""
        self.latest, self._latest_round = model, after_round
        if after_round % self._evaluation.every_rounds == 0:
            self.evaluate()

    def evaluate(self) -> None:
        """Evaluate the latest model, unless that has been done."""
        if self._score is None or self.latest is None or self._evaluated_round == self._latest_round:
            return
        scores = self._score(self.latest)
        self._evaluated_round = self._latest_round
        self.accuracy = scores.pooled.accuracy
        self._record(scores)
        if divergence(self._ledger):
            self.accuracy = None

    def _record(self, scores: Scores) -> None:
        ledger, pooled, accuracies = self._ledger, scores.pooled, scores.accuracies
        accuracy = np.nan if pooled.accuracy is None else pooled.accuracy
        spread = (accuracies.min(), accuracies.std()) if len(accuracies) else (np.nan, np.nan)
        more = (scores.worst_train_loss, scores.attack_success)
        costs = (*ledger.sent_bit, ledger.energy_j)
        ledger.evaluations.append((self._latest_round, self._clock.now, *costs, pooled.loss, accuracy, *spread, *more))
        if scores.by_device is not None:
            own = scores.by_device
            devices = np.flatnonzero(own.samples)
            ledger.device_evaluations.extend(
                round=np.full(len(devices), self._latest_round),
                device=devices,
                samples=own.samples[devices],
                loss=own.loss[devices],
                accuracy=np.full(len(devices), np.nan) if own.accuracy is None else own.accuracy[devices],
            )
