"""The selection rule of a run: it draws cohorts, and records the results of the cohorts as the server sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fednet_emu.algorithms.selection.base import RoundWork, Selection, ServerView, chosen
from fednet_emu.algorithms.selection.rules import Uniform
from fednet_emu.arrays import Array, IntArray
from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.federation import Arrived, Deferred, Delivery, Device, Federation, Process, Statistic
from fednet_emu.federation.outside import Question
from fednet_emu.federation.round_plans import RoundPlans

NOMINAL_LOSS = 1.0
"""Value that a timing-only run assumes for every loss."""


class CohortSampler:
    """Selects a cohort of `size` devices in every round, and keeps a history if the rule or a caller needs one.

    If the caller of the run takes the decision `invite` (`Federation.outside`), its choice replaces the choice of the
    rule. The metrics and losses that the rule requests from devices are still sent. `work` is the work of a device in a
    round; `deadline_s` limits the wait for requested losses in simulated s.
    """

    def __init__(
        self, fed: Federation, selection: Selection, size: int, work: RoundWork, deadline_s: float | None
    ) -> None:
        self._fed, self._rule, self._size, self._work, self._deadline_s = fed, selection, size, work, deadline_s
        self._history: History | None = None
        asks = fed.outside.questions
        self._plans = RoundPlans(fed.network, fed.processors, fed.links, fed.ledger, fed.streams, asks="grants" in asks)
        self._asks = "invite" in asks
        self.reports = tuple(dict.fromkeys((*selection.reports, *fed.outside.statistics)))
        if self._asks or type(selection) is not Uniform:
            self._history = History(fed, self.reports)
            self._memory = selection.start(fed.n_devices)

    def cohort(self, t: int, message: Any) -> Process:
        """Process that returns the list of devices invited in round `t`; `message` begins with the model."""
        self._plans.clear()
        if self._history is None:
            cohort = yield self._fed.cohort(self._size, t)
        else:
            cohort = yield from self._chosen(t, message, self._history)
        cohort = yield from self.planned(t, cohort)
        if self._history is not None:
            self._history.begin(t, cohort)
        return cohort

    def planned(self, t: int, cohort: Sequence[Device]) -> Process:
        """Process that plans the resources of round `t`, if rounds are planned, and returns the participants."""
        if not self._plans.active or not cohort:
            return list(cohort)
        work = self._work
        up_bit = work.up_bit + FLOAT_BIT * len(self.reports)
        numbers, flop = [k.index for k in cohort], work.flop_of(self._fed.orders)
        asked = yield from self._plans.plan(numbers, flop, work.n_samples, FLOAT_BIT * work.down, up_bit, t)
        return [self._fed.device(number) for number in asked]

    def note(self, arrived: Arrived) -> None:
        self._fed.ledger.invited.update([k.index for k in arrived.cohort])
        if self._history is not None:
            self._history.note(arrived, self.reports)

    def _chosen(self, t: int, message: Any, history: History) -> Process:
        fed, rule = self._fed, self._rule
        there = yield fed.cohort(fed.n_devices, t)
        numbers, rng = np.array([k.index for k in there]), fed.streams("selection", t)
        view = history.view(t, self._size, numbers, self._memory, self._work, rng)
        if rule.polls:
            polled = rule.poll(view)
            w = message[0] if isinstance(message, tuple) else message
            told = yield from fed.exchange(
                [fed.device(number) for number in polled], w, self._loss, t, deadline_s=self._deadline_s, counts=False
            )
            losses = np.full(fed.n_devices, np.nan)
            for k, loss in told:
                losses[k.index] = fed.read(loss, NOMINAL_LOSS)
            view = replace(view, now_s=fed.now_s, polled=np.array(polled, np.int64), polled_loss=losses)
        given = (yield fed.decision(Question("invite", view))) if self._asks else rule.choose(view)
        return chosen(given, there)

    def _loss(self, fed: Federation, k: Device, w: Deferred, t: int) -> Process:
        return (yield k.loss(w, t, "poll", batch_size=self._rule.poll_batch(self._work.plan)))


class History:
    """The results of earlier rounds for each device: invitations, arrivals, durations and metrics."""

    def __init__(self, fed: Federation, reports: Sequence[Statistic]) -> None:
        n, self._fed = fed.n_devices, fed
        never = partial(np.full, n, -1, dtype=np.int64)
        self._invited: IntArray = np.zeros(n, np.int64)
        self._arrived: IntArray = np.zeros(n, np.int64)
        self._last_invited: IntArray = never()
        self._last_arrived: IntArray = never()
        self._took_s: Array = np.full(n, np.nan)
        self._told: dict[Statistic, Array] = {name: np.full(n, np.nan) for name in reports}
        self._unread: list[tuple[int, Statistic, Deferred | int]] = []
        self._asked_s = np.zeros(n)

    def begin(self, t: int, cohort: Sequence[Device]) -> None:
        numbers = [k.index for k in cohort]
        self._asked_s[numbers] = self._fed.now_s
        self._invited[numbers] += 1
        self._last_invited[numbers] = t

    def note(self, arrived: Arrived, reports: Sequence[Statistic]) -> None:
        """Record the replies of the cohort at the end of the round, in the history and in the series `selection`."""
        now = {"round": self._fed.round + 1, "simulated_s": self._fed.now_s}
        for k, reply in zip(arrived.cohort, arrived.replies, strict=True):
            took_s = self.heard(k.index, int(self._last_invited[k.index]), reply)
            if reports and not reply.lost:
                self._unread += [(k.index, name, value) for name, value in zip(reports, k.measured, strict=False)]
            self._fed.ledger.record("selection", **now, device=k.index, arrived=not reply.lost, took_s=took_s)

    def heard(self, device: int, t: int, reply: Delivery) -> float:
        """Record a reply that belongs to round `t`; return the time in s from the invitation to the reply."""
        took_s = float(reply.ended_s - self._asked_s[device])
        if not reply.lost:
            self._arrived[device] += 1
            self._last_arrived[device] = t
        if reply.lost in ("", "deadline"):
            self._took_s[device] = took_s
        return took_s

    def view(
        self, t: int, size: int, there: IntArray, memory: Any, work: RoundWork, rng: np.random.Generator
    ) -> ServerView:
        """Return the server's current information for a decision; this reads the losses that have arrived."""
        for number, name, value in self._unread:
            told = self._fed.read(value, NOMINAL_LOSS) if isinstance(value, Deferred) else value
            self._told[name][number] = told
        self._unread.clear()
        return ServerView(
            t=t,
            now_s=self._fed.now_s,
            size=size,
            rng=rng,
            there=there,
            n_samples=work.n_samples,
            flop_per_s=work.flop_per_s,
            invited=self._invited.copy(),
            last_invited=self._last_invited.copy(),
            arrived=self._arrived.copy(),
            last_arrived=self._last_arrived.copy(),
            took_s=self._took_s.copy(),
            told={name: values.copy() for name, values in self._told.items()},
            polled=there[:0],
            polled_loss=np.full(len(self._invited), np.nan),
            memory=memory,
            work=work,
            later=lambda now: self.view(now, size, there, memory, work, rng),
        )
