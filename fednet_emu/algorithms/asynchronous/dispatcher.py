"""Dispatcher of asynchronous algorithms: it keeps a fixed number of devices busy."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from pydantic import Field
from simpy.events import Process as Started

from fednet_emu.algorithms.base import LocalTraining
from fednet_emu.algorithms.selection.base import RoundWork, chosen
from fednet_emu.algorithms.selection.cohort_sampler import History
from fednet_emu.errors import Deadlock
from fednet_emu.federation import Deferred, Delivery, Device, Federation, Process, SgdPlan
from fednet_emu.federation.cohort import draw
from fednet_emu.federation.exchange import Client
from fednet_emu.federation.outside import Question
from fednet_emu.federation.rounds import is_standstill


class Concurrent(LocalTraining):
    """An algorithm that keeps several devices busy; each device trains the model that is current at its invitation."""

    uses = frozenset({"uplink-compression", "downlink-compression"})
    asynchronous = True

    deadline_s: float | None = Field(None, gt=0)
    """Maximum time from the invitation of a device to its reply (simulated s). After this time the device is cancelled,
    and another device is invited. Null sets no limit."""
    concurrency: int = Field(10, gt=0)
    """Number of busy devices: the server invites this number at the start, and one more device after each reply or
    loss. Fewer devices are busy if fewer have samples or are present."""

    def participants(self, count: int) -> int:
        return min(self.concurrency, count)

    def next(self, fed: Federation, t: int, w: Deferred, client: Client) -> Process:
        """Keep devices busy with model `w` of version `t` until a device replies; return this reply as an `Arrival`.

        The process that runs on device `k` at its invitation number n, counted from 0, is `client(fed, k, w, n)`.
        """
        dispatcher = fed.state(Dispatcher, lambda: Dispatcher(fed, self.concurrency, self.deadline_s, self.plan))
        arrival: Arrival = yield from dispatcher.next(t, w, client)
        fed.answered(arrival.tries, 1)
        return arrival


class Arrival(NamedTuple):
    """A reply that has arrived at the server."""

    device: Device
    payload: Deferred
    version: int  # version of the model that the device received
    arrived_s: float
    tries: int  # number of lost replies since the previous reply, plus 1


class Dispatcher:
    """Invites devices, and returns their replies one by one.

    The next device is drawn uniformly among the idle devices that are present. If none is present, the first idle
    device that returns is invited. After a lost or late reply the server invites another device. Replies that arrive at
    the same instant are returned in the order of devices. New devices are invited only after all of these replies, so
    that they receive a model that includes them. If devices do not move, a device whose link cannot carry data is not
    invited again. A caller that takes the decision `dispatch` (`Federation.outside`) replaces the random draw.
    """

    def __init__(self, fed: Federation, concurrency: int, deadline_s: float | None, plan: SgdPlan) -> None:
        self._fed, self._deadline_s, self._inbox = fed, deadline_s, fed.inbox()
        self._idle = {k.index for k in fed.devices() if k.n_samples}
        self._asked = [0] * fed.n_devices
        self._concurrency, self._left = concurrency, len(self._idle)
        self._came: deque[Arrival] = deque()
        self._trips = self._draws = self._tries = self._ended = 0
        self._fruitful_s = fed.now_s
        self._started: list[Started] = []  # processes of all invitations, including those that have ended
        self._since: dict[int, int] = {}  # by busy device: number of invitations that had ended when it was invited
        self._history: History | None = None
        if "dispatch" in fed.outside.questions:
            self._history = History(fed, ())
            self._work = RoundWork(fed, plan, fed.task.model.size, fed.task.model.size)

    def next(self, version: int, w: Deferred, client: Client) -> Process:
        """Run the process `client` with model `w` on devices until a reply arrives; return the earliest reply."""
        self._version, self._asked_to = version, (w, client)
        while not self._came:
            if not self._left:
                raise Deadlock(self._fed.now_s, "the server waits for an answer; all devices are out of reach")
            while self._trips < min(self._concurrency, self._left):
                self._started.append(self._fed.start(self._trip()))
                self._trips += 1
            self._started = [trip for trip in self._started if trip.is_alive]
            ended = yield self._inbox.collect(sources=self._started)
            self._trips -= len(ended)
            for k, answer, given in ended:
                self._note(k, answer, given)
        return self._came.popleft()

    def _note(self, k: Device, answer: Delivery, version: int) -> None:
        self._tries += 1
        self._ended += 1
        if self._history is not None:
            self._history.heard(k.index, self._version, answer)
        if not answer.lost:
            self._came.append(Arrival(k, answer.payload, version, answer.ended_s, self._tries))
            self._tries, self._fruitful_s = 0, self._fed.now_s
            return
        oldest = self._ended - min(self._since.values(), default=self._ended)
        lasted_s = self._fed.now_s - self._fruitful_s
        if oldest < self._tries and is_standstill(self._tries, lasted_s, moving=self._fed.network.moving):
            raise Deadlock(self._fed.now_s, f"the server waits for an answer; {self._tries} in a row were lost")

    def _trip(self) -> Process:
        k = yield from self._somebody()
        version, number = self._version, self._asked[k.index]
        self._asked[k.index] += 1
        self._since[k.index] = self._ended
        [answer] = yield self._fed.gather([self._fed.ask(k, *self._asked_to, number)], self._deadline_s)
        del self._since[k.index]
        if answer.lost != "unreachable" or self._fed.network.moving:
            self._idle.add(k.index)
        else:
            self._left -= 1
        self._inbox.put(k.index, (k, answer, version))

    def _somebody(self) -> Process:
        """Draw and return an idle device; draw again if another invitation has taken the device in the meantime."""
        while True:
            self._draws += 1
            number, among = self._draws, np.array(sorted(self._idle), dtype=np.int64)
            size = 1 if self._history is None else self._fed.n_devices
            there = yield self._fed.cohort(size, "asked", number, among=among)
            if self._history is not None:
                there = yield from self._decided(there, number, self._history)
            for k in there:
                if k.index in self._idle:
                    self._idle.remove(k.index)
                    return k

    def _decided(self, there: list[Device], number: int, history: History) -> Process:
        """Return a list with the next device, chosen by the run's caller, or at random if the caller returns None."""
        fed, rng = self._fed, self._fed.streams("cohort", "asked", number)
        idle = np.array([k.index for k in there if k.index in self._idle])
        if not len(idle):
            return []
        view = history.view(self._version, 1, idle, None, self._work, rng)
        decided = yield fed.decision(Question("dispatch", view))
        if decided is None:
            [decided] = draw(np.array([k.index for k in there]), 1, rng)
        found = chosen([decided], there)
        if decided in self._idle:
            history.begin(self._version, found)
        return found


def record_arrival(fed: Federation, step: int, arrival: Arrival) -> int:
    """Add a reply to the series `activations`; return its staleness, `step` minus the version of its start model."""
    staleness = step - arrival.version
    k, arrived_s = arrival.device.index, arrival.arrived_s
    fed.ledger.record("activations", step=step + 1, device=k, arrived_s=arrived_s, staleness=staleness)
    return staleness
