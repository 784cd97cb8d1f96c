"""An episode: a run that stops at each decision, and the record of a step between two decisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from fednet_emu.arrays import IntArray
from fednet_emu.emulation.build import build
from fednet_emu.emulation.final_model import final_model
from fednet_emu.emulation.guard import none_left_behind
from fednet_emu.emulation.play import Ended, describe
from fednet_emu.emulation.record import totals
from fednet_emu.errors import Deadlock, Diverged, ScenarioError
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.federation.outside import Outside, Question
from fednet_emu.files.data_folder import data_folder
from fednet_emu.records.ledger import SERVER, SEVERAL, Ledger
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.table import Table
from fednet_emu.scenario.model import Scenario


@dataclass(frozen=True, slots=True)
class Step:
    """The record of a step, from one decision to the next.

    Attributes:
        round: number of completed rounds.
        began_s, ended_s: simulated times of the two decisions, in s.
        energy_j: energy of the whole network in J, as in the summary of a run.
        device_j: energy of the devices in J: computing, sending, receiving and idling.
        bits: bits on the air of all links.
        invited: number of invited devices.
        arrived: number of arrived uploads.
        lost_transfers: numbers of lost transfers, by reason.
        dropped: devices of the action that were away or have no samples.
        filled: whether the action named no available device, so that one was drawn.
        accuracy: accuracy of the latest evaluation; nan before the first.
        gained: change of the accuracy; 0 without an evaluation.
        loss: loss of the latest evaluation; nan before the first.
        ended: empty, or the end of the run: stop, deadlock or diverged.
    """

    round: int
    began_s: float
    ended_s: float
    energy_j: float
    device_j: float
    bits: int
    invited: int
    arrived: int
    lost_transfers: Mapping[str, int]
    dropped: int = 0
    filled: bool = False
    accuracy: float = math.nan
    gained: float = 0.0
    loss: float = math.nan
    ended: str = ""

    @property
    def duration_s(self) -> float:
        """Simulated time between the two decisions."""
        return self.ended_s - self.began_s


class Mark(NamedTuple):
    """The totals of a run at an instant, and the lengths of its tables."""

    now_s: float
    energy_j: float
    idle_j: float
    bits: int
    rows: tuple[int, ...]
    accuracy: float


class Episode:
    """A run with open decisions; between calls, it restores the settings of the process and of torch.

    A `task` belongs to an earlier episode with the same data, split and model. `ended` is as in a `Step`.

    Raises:
        ScenarioError: the run ends before its first question.
        Deadlock: the run waits for ever before its first question.
    """

    def __init__(
        self, scenario: Scenario, outside: Outside, timing_only: bool, data_dir: Any, task: LearningTask | None
    ) -> None:
        self.scenario, self._timing_only, self._data_dir, self.ended = scenario, timing_only, data_dir, ""
        self._threads = 0
        with self._settings():
            self.fed = build(scenario, data_dir=data_dir, timing_only=timing_only, task=task)
            self._threads = torch.get_num_threads()
        self.fed.outside = outside
        self.mark = self.marked()
        if not self._go(lambda: self.fed.begin(scenario.algorithm)):
            if self.ended == "deadlock":
                raise self._end
            what = f"the run ends before its first decision, got {scenario.algorithm.kind}"
            raise ScenarioError(f"algorithm: {what}; raise the limits of stop, or choose another algorithm")
        self.mark = self.mark._replace(accuracy=self.marked().accuracy)  # polls before the first decision count

    @property
    def is_open(self) -> bool:
        """Whether a question is open."""
        return self.fed.clock.asked is not None and not self.ended

    @property
    def question(self) -> Question:
        """The open question."""
        return self.fed.question

    def answer(self, value: Any) -> None:
        """Answer the open question, and run until the next one or until the end."""
        self._go(lambda: self.fed.answer(value))

    def step(self) -> Step:
        """The record since the last call."""
        before, after, ledger = self.mark, self.marked(), self.fed.ledger
        self.mark = after
        sent, heard, work, rounds = (its.since(row) for its, row in zip(_tables(ledger), before.rows, strict=True))
        own_j = float(sent["energy_j"][sent["sender"] != SERVER].sum() + sent["receive_j"].sum())
        known = not math.isnan(after.accuracy) and not math.isnan(before.accuracy)
        return Step(
            round=self.fed.round,
            began_s=before.now_s,
            ended_s=after.now_s,
            energy_j=after.energy_j - before.energy_j,
            device_j=own_j + float(work["energy_j"].sum()) + after.idle_j - before.idle_j,
            bits=after.bits - before.bits,
            invited=int(rounds["invited"].sum()),
            arrived=int(rounds["arrived"].sum()),
            lost_transfers=_reasons(np.concatenate((sent["lost"][sent["receiver"] != SEVERAL], heard["lost"]))),
            accuracy=after.accuracy,
            gained=after.accuracy - before.accuracy if known else 0.0,
            loss=self.latest("loss"),
            ended=self.ended,
        )

    def latest(self, column: str) -> float:
        """A score of the latest evaluation; nan if there is none."""
        table = self.fed.ledger.evaluations
        return float(table.since(len(table) - 1)[column][-1]) if len(table) else math.nan

    def results(self, name: str) -> Ended:
        """Summary, records and model of the run, which has ended."""
        fed, scenario = self.fed, self.scenario
        diverged = self.ended == "diverged"
        with self._settings():
            describe(fed, scenario, self._data_dir)
            facts = {"name": name, "seed": scenario.seed, "timing_only": self._timing_only}
            status = "failed" if self.ended == "deadlock" else "diverged" if diverged else "done"
            whole = {**facts, "status": status, "diverged": (fed.divergence() or str(self._end)) if diverged else None}
            host = {"host_s": 0.0, "host_parts": {}}
            model = None if diverged else final_model(fed, data_folder(self._data_dir))
            return Ended({**whole, **self.totals, **host}, fed.ledger, model)

    @property
    def totals(self) -> dict[str, Any]:
        """The totals of the run, which has ended, with the check of the conservation laws as `verified`."""
        return totals(self.fed, self.scenario, measured=False)

    def close(self) -> None:
        """End the run where it is."""
        if self.is_open:
            self.ended = "closed"
            self.fed.close()

    def marked(self) -> Mark:
        """The totals of the run now."""
        ledger, clock, accuracy = self.fed.ledger, self.fed.clock, self.fed.accuracy
        joules, rows = (ledger.spent_j(clock.now), ledger.idle.until_j(clock.now)), tuple(map(len, _tables(ledger)))
        return Mark(clock.now_s, *joules, sum(ledger.sent_bit), rows, math.nan if accuracy is None else accuracy)

    def _go(self, run: Callable[[], bool]) -> bool:
        """Continue until the next question (True) or the end; other errors than ends of a `Step` close the run."""
        try:
            with self._settings():
                if run():
                    return True
                self.ended = "diverged" if self.fed.divergence() else "stop"
        except (Deadlock, Diverged) as end:
            self.ended, self._end = ("deadlock" if isinstance(end, Deadlock) else "diverged"), end
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


def _tables(ledger: Ledger) -> tuple[Table[Any], ...]:
    return ledger.transfers, ledger.receptions, ledger.computes, ledger.rounds


def _reasons(codes: IntArray) -> dict[str, int]:
    counts = np.bincount(codes, minlength=len(REASONS)).tolist()
    return {reason: count for reason, count in zip(REASONS, counts, strict=True) if reason and count}
