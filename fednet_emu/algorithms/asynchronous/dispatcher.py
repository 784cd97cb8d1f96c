"""The devices in flight: as many as asked for are always at work, and whoever answers makes room for another one."""

from __future__ import annotations

from collections import deque
from typing import ClassVar, NamedTuple

import numpy as np
from pydantic import Field
from simpy.events import Process as Started

from fednet_emu.algorithms.base import LocalTraining
from fednet_emu.errors import Deadlock
from fednet_emu.federation import Deferred, Delivery, Device, Federation, Process
from fednet_emu.federation.exchange import Client
from fednet_emu.federation.rounds import is_standstill


class Concurrent(LocalTraining):
    """An algorithm that keeps some devices at work all the time, each with the model it was given."""

    uses: ClassVar[frozenset[str]] = frozenset({"uplink-compression", "downlink-compression"})
    asynchronous: ClassVar[bool] = True

    deadline_s: float | None = Field(None, gt=0)
    """Longest time from asking a device to its answer (simulated s); then it is cancelled, and another one is asked.
    Null waits for every device."""
    concurrency: int = Field(10, gt=0)
    """Devices in flight: so many are asked at the start, and one for each that answers or is lost; fewer if fewer have
    samples or are there."""

    def participants(self, count: int) -> int:
        """The devices in flight."""
        return min(self.concurrency, count)

    def next(self, fed: Federation, t: int, w: Deferred, client: Client) -> Process:
        """Keep devices at work on model w, of version t, until one answers: the process's value is its `Arrival`.

        A device does `client(fed, k, w, n)` when it is asked for the nth time, from 0.
        """
        dispatcher = fed.state(Dispatcher, lambda: Dispatcher(fed, self.concurrency, self.deadline_s))
        arrival: Arrival = yield from dispatcher.next(t, w, client)
        fed.answered(arrival.tries, 1)
        return arrival


class Arrival(NamedTuple):
    """An answer.

    Attributes:
        device: whose it is.
        payload: what it says.
        version: of the model that the device was given.
        arrived_s: when it came.
        tries: how many have answered or were lost since the answer before it, itself included.
    """

    device: Device
    payload: Deferred
    version: int
    arrived_s: float
    tries: int


class Dispatcher:
    """Asks devices, and hands their answers over one by one.

    The next one to be asked is drawn uniformly among those that are there and idle; when all of these are away, the
    first that returns is asked. An answer that is lost, or late, only makes room. What comes in one instant is handed
    over in the order of devices, and makes room when all of it has been: so those asked then know all of it. Where
    nobody moves, whoever is out of reach is not asked again.
    """

    def __init__(self, fed: Federation, concurrency: int, deadline_s: float | None) -> None:
        self._fed, self._deadline_s, self._inbox = fed, deadline_s, fed.inbox()
        self._idle = {k.index for k in fed.devices() if k.n_samples}
        self._asked = [0] * fed.n_devices
        self._concurrency, self._left = concurrency, len(self._idle)
        self._came: deque[Arrival] = deque()
        self._trips = self._draws = self._tries = self._ended = 0
        self._fruitful_s = fed.now_s
        self._started: list[Started] = []  # trips, of which some may be over
        self._since: dict[int, int] = {}  # by device at work: how many trips had ended when it was asked

    def next(self, version: int, w: Deferred, client: Client) -> Process:
        """Keep devices at work on `client`, with the model w of this version, until there is an `Arrival`: the result.

        Raises:
            Deadlock: nobody's answer has arrived for too many tries.
        """
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
        if not answer.lost:
            self._came.append(Arrival(k, answer.payload, version, answer.ended_s, self._tries))
            self._tries, self._fruitful_s = 0, self._fed.now_s
            return
        oldest = self._ended - min(self._since.values(), default=self._ended)
        lasted_s = self._fed.now_s - self._fruitful_s
        if oldest < self._tries and is_standstill(self._tries, lasted_s, moving=self._fed.network.moving):
            raise Deadlock(self._fed.now_s, f"the server waits for an answer; {self._tries} in a row were lost")

    def _trip(self) -> Process:
        """Ask a device, with the model that is the latest when one is there."""
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
        """Draw a device; again if it was asked by another trip that was waiting for somebody, too."""
        while True:
            self._draws += 1
            among = np.array(sorted(self._idle), dtype=np.int64)
            [k] = yield self._fed.cohort(1, "asked", self._draws, among=among)
            if k.index in self._idle:
                self._idle.remove(k.index)
                return k


def record_arrival(fed: Federation, step: int, arrival: Arrival) -> int:
    """Add an arrival to the series `activations` of a server that makes version `step` next; return its staleness."""
    staleness = step - arrival.version
    k, arrived_s = arrival.device.index, arrival.arrived_s
    fed.ledger.record("activations", step=step + 1, device=k, arrived_s=arrived_s, staleness=staleness)
    return staleness
