"""An episode: a run that stops at each decision, and records the steps between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from fednet_emu.emulation.build import build
from fednet_emu.emulation.final_model import final_model
from fednet_emu.emulation.guard import none_left_behind
from fednet_emu.emulation.play import Ended, describe
from fednet_emu.emulation.record import totals
from fednet_emu.environment.rewards import Curve, Step
from fednet_emu.errors import Deadlock, Diverged, ScenarioError
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.federation.outside import Outside, Question
from fednet_emu.files.data_folder import data_folder
from fednet_emu.records.ledger import SERVER, SEVERAL
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.table import Table
from fednet_emu.scenario.model import Scenario


class Episode:
    """A run with open decisions; between calls, it restores the settings of the process and of torch.

    A `task` belongs to an earlier episode with the same data, split and model. `ended` is as in a `Step`; `now` has the
    totals and the latest scores at the latest decision.

    Raises:
        ScenarioError: the run ends before its first question.
        Deadlock: the run waits for ever before its first question.
    """

    def __init__(
        self,
        scenario: Scenario,
        outside: Outside,
        timing_only: bool,
        data_dir: Any,
        task: LearningTask | None = None,
        proxy: Curve | None = None,
    ) -> None:
        self.scenario, self._timing_only, self._data_dir, self._proxy = scenario, timing_only, data_dir, proxy
        self._error: Deadlock | Diverged | None = None
        self.ended, self._threads, self._updates = "", 0, 0
        with self._settings():
            self.fed = build(scenario, data_dir=data_dir, timing_only=timing_only, task=task)
            self._threads = torch.get_num_threads()
        self.fed.outside, ledger = outside, self.fed.ledger
        self._tables: list[Table[Any]] = [ledger.transfers, ledger.receptions, ledger.computes, ledger.rounds]
        self._rows = [0] * len(self._tables)
        before = self._totals()  # polls before the first decision are a part of the first step
        if not self._go(lambda: self.fed.begin(scenario.algorithm)):
            what = f"the run ends before its first decision, got {scenario.algorithm.kind}"
            error = ScenarioError(f"algorithm: {what}; raise the limits of stop, or choose another algorithm")
            raise self._error or error
        self.now = self._totals()
        self._before = before | {"accuracy": self.now["accuracy"]}

    @property
    def question(self) -> Question | None:
        """The open question; None if the run has ended."""
        return None if self.ended else self.fed.question

    def answer(self, value: Any) -> None:
        """Answer the open question, and run until the next one or until the end."""
        self._go(lambda: self.fed.answer(value))

    def step(self, *, dropped: int, filled: bool) -> Step:
        """The record since the last call."""
        before = self._before
        sent, heard, work, rounds = (its.since(row) for its, row in zip(self._tables, self._rows, strict=True))
        self._rows, arrived = list(map(len, self._tables)), int(rounds["arrived"].sum())
        self._updates += arrived
        after = self._before = self.now = self._totals()
        own_j = float(sent["energy_j"][sent["sender"] != SERVER].sum() + sent["receive_j"].sum())
        lost = np.concatenate((sent["lost"][sent["receiver"] != SEVERAL], heard["lost"]))
        gained = after["accuracy"] - before["accuracy"]
        return Step(
            round=self.fed.round,
            began_s=before["now_s"],
            ended_s=after["now_s"],
            energy_j=after["energy_j"] - before["energy_j"],
            device_j=own_j + float(work["energy_j"].sum()) + after["idle_j"] - before["idle_j"],
            bits=after["bits"] - before["bits"],
            invited=int(rounds["invited"].sum()),
            arrived=arrived,
            lost_transfers={REASONS[code]: int((lost == code).sum()) for code in sorted({*lost[lost > 0].tolist()})},
            dropped=dropped,
            filled=filled,
            accuracy=after["accuracy"],
            gained=0.0 if math.isnan(gained) else gained,
            loss=after["loss"],
            ended=self.ended,
        )

    def results(self, name: str) -> Ended:
        """Summary, records and model of the run, which has ended."""
        fed, scenario, diverged = self.fed, self.scenario, self.ended == "diverged"
        with self._settings():
            describe(fed, scenario, self._data_dir)
            status = {"deadlock": "failed", "diverged": "diverged"}.get(self.ended, "done")
            why = (fed.divergence() or str(self._error)) if diverged else None
            facts = {"name": name, "seed": scenario.seed, "timing_only": self._timing_only, "status": status}
            summary = {**facts, "diverged": why, **self.totals, "host_s": 0.0, "host_parts": {}}
            return Ended(summary, fed.ledger, None if diverged else final_model(fed, data_folder(self._data_dir)))

    @property
    def totals(self) -> dict[str, Any]:
        """The summary of the run, which has ended, with the check of the conservation laws as `verified`."""
        return totals(self.fed, self.scenario, measured=False)

    def close(self) -> None:
        """End the run where it is."""
        if not self.ended:
            self.ended = "closed"
            self.fed.close()

    def _totals(self) -> dict[str, Any]:
        fed, ledger, now_ns, scores = self.fed, self.fed.ledger, self.fed.clock.now, self.fed.ledger.evaluations
        accuracy = fed.accuracy if self._proxy is None else self._proxy(self._updates)
        return {
            "now_s": fed.now_s,
            "energy_j": ledger.spent_j(now_ns),
            "idle_j": ledger.idle.until_j(now_ns),
            "bits": sum(ledger.sent_bit),
            "accuracy": math.nan if accuracy is None else accuracy,
            "loss": float(scores.since(len(scores) - 1)["loss"][-1]) if len(scores) else math.nan,
        }

    def _go(self, run: Callable[[], bool]) -> bool:
        """Continue until the next question (True) or the end; other errors than ends of a `Step` close the run."""
        try:
            with self._settings():
                if run():
                    return True
                self.ended = "diverged" if self.fed.divergence() else "stop"
        except (Deadlock, Diverged) as error:
            self.ended, self._error = ("deadlock" if isinstance(error, Deadlock) else "diverged"), error
            self.fed.close()
        except BaseException:
            self.ended = "closed"
            self.fed.close()
            raise
        return False

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """The settings of the process that the run needs, inside the `with` block."""
        with none_left_behind():
            if self._timing_only:
                yield
                return
            with torch.inference_mode(mode=False), torch.enable_grad():
                if self._threads and torch.get_num_threads() != self._threads:
                    torch.set_num_threads(self._threads)
                yield
