"""Rounds whose clients only compute, simulated with arrays instead of single events.

A client marked by `computes_only` waits only for computations of its device between the received message and its reply.
If no transfer of such a round can be interrupted, all times can be calculated from sizes, work and links. The times of
the broadcast, of the computations and of all uploads are then calculated together. Events, records, energies and values
are the same as in an event-by-event simulation, at a fraction of the computing time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from heapq import heapify, heappop, heappush
from itertools import repeat, starmap
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, final

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.devices.processors import Work
from fednet_emu.errors import AlgorithmError
from fednet_emu.federation.device import Device, Fed
from fednet_emu.federation.exchange import Exchange, Upload, received, resent, upload_of
from fednet_emu.kernel.all_of import AllOf
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, Process, to_ns
from fednet_emu.kernel.events import describe
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.jobs import SgdPlan
from fednet_emu.network.air.transfer import Delivery
from fednet_emu.network.medium.cohort import CohortBand, Uploads
from fednet_emu.records.ledger import SERVER

Function = TypeVar("Function", bound=Callable[..., Any])


def computes_only(client: Function) -> Function:
    """Mark a client (decorator) that yields only computations of its device, and reads neither clock nor network."""
    client.computes_only = True  # type: ignore[attr-defined]
    return client


class LocalDevice(Device):
    """Device whose methods `train` and `compute` return the computation without starting it."""

    __slots__ = ()

    def train(self, w: Any, plan: Any, *key: Any, **what: Any) -> Any:
        return self.training(w, plan, *key, **what)

    def compute(self, work: Work) -> Any:
        return work


@final
@dataclass(frozen=True, slots=True)
class LocalStep:
    """Client that trains the received model once and sends a function of the result, defined by data instead of code.

    The message is a model w, or a tuple that begins with w. In the signatures below, `more` are the further elements of
    the message, followed by the arguments of the exchange. The first integer in `more` is the round.

    Attributes:
        plan: steps and batches.
        terms: further terms of the objective that all devices share, as for `Device.training`.
        own: `own(fed, k, w, *more)` returns terms of the objective of device k alone: `linear`, `drift` or `anchor`.
        reply: `reply(fed, k, params, w, *more)` returns the reply of device k; None means the trained parameters.
    """

    plan: SgdPlan
    terms: Mapping[str, Any] = field(default_factory=dict)
    own: Callable[..., Mapping[str, Any]] | None = None
    reply: Callable[..., Any] | None = None
    computes_only: ClassVar[bool] = True

    def __call__(self, fed: Fed, k: Device, w: Deferred, *more: Any) -> Process:
        """Return the equivalent client process of device k, for event-by-event simulation."""
        own = {} if self.own is None else self.own(fed, k, w, *more)
        trained = yield k.train(w, self.plan, self.round_of(more), **self.terms, **own)
        return trained.params if self.reply is None else self.reply(fed, k, trained.params, w, *more)

    @staticmethod
    def round_of(more: Sequence[Any]) -> int:
        """Return the index of the round, which is the first integer in `more`."""
        return next(item for item in more if isinstance(item, int))


class Computed(NamedTuple):
    """Computations of a cohort in the order of their end times."""

    place: IntArray  # [computations] position of the device in the cohort
    flop: Array  # [computations] work in FLOP
    started_ns: IntArray  # [computations] start times in ns
    ended_ns: IntArray  # [computations] end times in ns
    input: IntArray  # [computations] identification numbers of the deferred input values
    output: IntArray  # [computations] identification numbers of the deferred output values

    @classmethod
    def of(cls, rows: Sequence[tuple[int, Work, int, int]]) -> Self:
        """Return the columns for rows (position in the cohort, work, start in ns, end in ns)."""
        places, works, started_ns, ended_ns = zip(*rows, strict=True) if rows else ((), (), (), ())
        numbers = (np.array([work[column] for work in works], np.int64) for column in (2, 3))
        times_ns = np.array(started_ns, np.int64), np.array(ended_ns, np.int64)
        return cls(np.array(places, np.int64), np.array([work.flop for work in works]), *times_ns, *numbers)


class Answers(NamedTuple):
    """The replies of a cohort, in the order of the cohort."""

    payloads: Sequence[Any]  # [devices] the content of each upload
    size_bit: IntArray  # [devices] size of each upload in bits, with headers
    number: IntArray  # [devices] number that identifies each payload in the records
    ready_ns: IntArray  # [devices] times in ns at which the uploads are ready
    uploads: Sequence[Upload] | None = None  # [devices] None if every reply is the trained parameters alone


@final
class LocalRounds:
    """Decides which exchanges can be simulated with arrays until the simulated time `until_s`, and simulates them.

    `alone` is True if nothing else happens during an exchange: the algorithm is a single process, and no evaluation at
    a regular simulated time reads the records within a round. `played` is the number of exchanges that can be simulated
    with arrays; `refused` is the number of all others, for each reason.
    """

    def __init__(self, fed: Fed, until_s: float | None, *, alone: bool) -> None:
        self._fed, self.alone = fed, alone
        self.played, self.refused = 0, Counter[str]()
        self._limit_ns = FOREVER_NS if until_s is None else to_ns(until_s)

    @cached_property
    def _bands(self) -> tuple[CohortBand, CohortBand]:
        return CohortBand(self._fed.network.downlink), CohortBand(self._fed.network.uplink)

    def _refusals(self, client: Any, message: Any, how: Exchange) -> Iterator[str]:
        fed, (down, up) = self._fed, self._bands
        once = isinstance(client, LocalStep) and client.reply is None
        if how.deadline_s is not None and not once:  # late devices would train for nothing
            yield "the exchange has a deadline, and the client does more than train once"
        if not self.alone:
            yield "other processes or timed evaluations act during a round"
        if not getattr(client, "computes_only", False):
            yield "the client does more than compute (no `computes_only`)"
        if callable(message):
            yield "each device has a message of its own"
        if not fed.presence.always:
            yield "devices may be absent or run out of charge"
        if not fed.links.sends_plainly:
            yield "messages are compressed"
        if fed.ledger.is_shared:
            yield "other users share the bands"
        if not down.broadcasts:
            yield "the downlink is unicast, or its messages may be lost or late, or its links change"
        if not up.uploads:
            yield "messages of the uplink may be late, or its links change, or its access has plans or groups"
        if up.loses and (how.retries or how.patience_s is not None):
            yield "lost messages are sent again"
        if not fed.processors.are_certain or fed.links.grants:
            yield "computations are under way, or uploads or clocks are planned"
        if not all(band.is_idle for band in self._bands) or not fed.clock.is_quiet:
            yield "other transfers or events are under way"

    def take(self, client: Any, message: Any, how: Exchange) -> bool:
        """Return True, and count the exchange, if it can be simulated with arrays; else count the reason why not."""
        why = next(self._refusals(client, message, how), "")
        self.refused.update([why] if why else [])
        self.played += not why
        return not why

    def play(self, invited: Sequence[Device], message: Any, client: Any, args: Sequence[Any], how: Exchange) -> Process:
        """Process that simulates an exchange and returns the deliveries in order of `invited`; None if it cannot."""
        fed, clock = self._fed, self._fed.clock
        down, up = self._bands
        devices = np.array([k.index for k in invited], np.int64)
        order = np.argsort(devices)
        cohort, devices = [invited[place] for place in order.tolist()], devices[order]
        payload, size_bit, number, *_ = fed.links.parcel(
            message if isinstance(message, Deferred) else fed.shared(message)
        )
        began_ns = clock.now
        deadline_ns = FOREVER_NS if how.deadline_s is None else began_ns + to_ns(how.deadline_s)
        arrived_ns = down.broadcast_end_ns(devices, size_bit, began_ns) if cohort else None
        if arrived_ns is None or arrived_ns >= min(self._limit_ns, deadline_ns):
            return None
        yield clock.sleep_until(arrived_ns)
        down.record_broadcast(devices, size_bit, number, began_ns, arrived_ns)
        parts = payload if isinstance(payload, tuple) else (payload,)
        if isinstance(client, LocalStep) and not cohort[0].invitation.statistics and fed.orders.steps is None:
            computed, answers = self._step(cohort, devices, client, *parts, *args)
        else:
            computed, answers = self._run(cohort, devices, partial(client, fed), (*parts, *args))
        fed.asks(len(cohort) + len(computed.place))
        sent = self._sent(up, devices, answers)
        if sent is None or sent.ended_ns[-1] >= self._limit_ns or sent.ended_ns[-1] > deadline_ns:
            deliveries = yield from self._one_by_one(cohort, computed, answers, how, deadline_ns)
        else:
            fed.asks(len(cohort))
            yield clock.sleep_until(int(sent.ended_ns[-1]))
            deliveries = self._record(up, devices, computed, answers, sent)
        if answers.uploads is not None:
            deliveries = [received(*each) for each in zip(answers.uploads, deliveries, strict=True)]
        return [deliveries[place] for place in np.argsort(order).tolist()]

    def _step(
        self, cohort: Sequence[Device], devices: IntArray, client: LocalStep, w: Deferred, *more: Any
    ) -> tuple[Computed, Answers]:
        fed, now_ns, n, made = self._fed, self._fed.clock.now, len(devices), client.own
        own = None if made is None else lambda place: made(fed, cohort[place], w, *more)
        t = client.round_of(more)
        flop, trained = fed.learner.train_cohort(devices, w, client.plan, t, client.terms, own)
        ended_ns = now_ns + fed.processors.durations_ns(devices, flop, now_ns)
        order, number = np.argsort(ended_ns, kind="stable"), np.array([params.number for params in trained])
        values = np.full(n, w.number), number[order]
        computed = Computed(order, flop[order], np.full(n, now_ns), ended_ns[order], *values)
        if client.reply is None:
            size_bit = np.full(n, fed.links.parcel(trained[0]).size_bit)
            return computed, Answers(trained, size_bit, number, ended_ns)
        replies: list[Any] = [None] * n
        for place in order.tolist():  # in the order of end times, as deferred values are numbered by creation
            replies[place] = client.reply(fed, cohort[place], trained[place], w, *more)
        return computed, self._answers(cohort, replies, ended_ns)

    def _answers(self, cohort: Sequence[Device], replies: Sequence[Any], ready_ns: IntArray) -> Answers:
        uploads = [upload_of(k, reply, None) for k, reply in zip(cohort, replies, strict=True)]
        parcels = [self._fed.links.parcel(upload.payload) for upload in uploads]
        payloads, size_bit, number = ([parcel[column] for parcel in parcels] for column in range(3))
        return Answers(payloads, np.array(size_bit), np.array(number), ready_ns, uploads)

    def _run(
        self, invited: Sequence[Device], devices: IntArray, client: Callable[..., Process], args: tuple[Any, ...]
    ) -> tuple[Computed, Answers]:
        """Run all clients, starting now; return their computations, sorted by end time, and their replies."""
        fed, processors, now_ns = self._fed, self._fed.processors, self._fed.clock.now
        cohort = [LocalDevice(fed, k.index, k.invitation) for k in invited]
        processes = [client(k, *args) for k in cohort]
        replies: list[Any] = [None] * len(cohort)
        works: list[tuple[int, Work]] = []
        for place, process in enumerate(processes):
            try:
                works.append((place, _computation(next(process))))
            except StopIteration as end:
                replies[place] = end.value, now_ns
        places = np.array([place for place, _ in works], np.int64)
        spans_ns = processors.durations_ns(devices[places], np.array([work.flop for _, work in works]), now_ns)
        running = [
            (now_ns + span_ns, count, place, work, now_ns)
            for count, ((place, work), span_ns) in enumerate(zip(works, spans_ns.tolist(), strict=True))
        ]
        del works
        heapify(running)
        begun, rows, earlier = len(running), [], [0] * len(cohort)
        while running:
            ended_ns, _, place, work, started_ns = heappop(running)
            rows.append((place, work._replace(result=None), started_ns, ended_ns))
            try:
                work = _computation(processes[place].send(work.result))
            except StopIteration as end:
                replies[place] = end.value, ended_ns
                continue
            earlier[place] += 1
            which, flop = devices[place : place + 1], np.array([work.flop])
            span_ns = int(processors.durations_ns(which, flop, ended_ns, earlier[place])[0])
            heappush(running, (ended_ns + span_ns, begun, place, work, ended_ns))
            begun += 1
        for k, one in zip(invited, cohort, strict=True):
            k.measured = one.measured
        for reply, _ in replies:
            if isinstance(reply, Work | Delivery):
                raise _not_local(
                    f"returns a {type(reply).__name__}", "write `yield` before k.train, and return its value"
                )
        ready_ns = np.array([ready_ns for _, ready_ns in replies])
        return Computed.of(rows), self._answers(cohort, [reply for reply, _ in replies], ready_ns)

    def _sent(self, up: CohortBand, devices: IntArray, answers: Answers) -> Uploads | None:
        if answers.uploads is not None and any(upload.power_part != 1.0 for upload in answers.uploads):
            return None
        return up.upload(devices, answers.size_bit, answers.ready_ns)

    def _one_by_one(
        self, cohort: Sequence[Device], computed: Computed, answers: Answers, how: Exchange, deadline_ns: int
    ) -> Process:
        """Simulate the computations and uploads event by event, starting at the end of the broadcast."""
        fed, works, late = self._fed, [list[Work]() for _ in cohort], lambda: Delivery.given_up(self._fed.now_s)
        uploads = answers.uploads or [Upload(payload, None, 1.0, 0, several=False) for payload in answers.payloads]
        columns = (column.tolist() for column in (computed.place, computed.flop, computed.input, computed.output))
        for place, flop, given, made in zip(*columns, strict=True):
            works[place].append(Work(flop, None, given, made))

        def rest(place: int, k: Device) -> Process:
            upload = uploads[place]
            for work in works[place]:
                yield fed.processors.run(k.index, work)
            send = partial(fed.uplink, k, upload.payload, since=upload.since, power_part=upload.power_part)
            if not how.retries and how.patience_s is None:
                return (yield send())
            return (yield from resent(fed, send, how))

        left_s = None if how.deadline_s is None else (deadline_ns - fed.clock.now) / NS_PER_S
        return (yield AllOf(fed.clock, fed.clock.begin(starmap(rest, enumerate(cohort))), left_s, late))

    def _record(
        self, up: CohortBand, devices: IntArray, computed: Computed, answers: Answers, sent: Uploads
    ) -> list[Delivery]:
        ledger, payloads = self._fed.ledger, answers.payloads
        places = np.searchsorted(devices, sent.device)
        compute_j = self._fed.processors.add(devices[computed.place], *computed[1:])
        fates = up.fates(sent)
        upload_j = up.record_uploads(sent, answers.number[places], fates)
        # added in the order of events, as floating-point sums depend on the order
        order = np.argsort(np.concatenate((computed.ended_ns, sent.ended_ns)), kind="stable")
        spent_j = np.concatenate((compute_j, upload_j))[order]
        ledger.energy_j = float(np.cumsum(np.append(ledger.energy_j, spent_j))[-1])
        of_place = np.argsort(places)
        times_s = [column[of_place] / NS_PER_S for column in (sent.requested_ns, sent.started_ns, sent.ended_ns)]
        times = [column.tolist() for column in times_s]
        if up.loses:
            fates = [fates[place] for place in of_place.tolist()]
            payloads = [None if fate else payload for fate, payload in zip(fates, payloads, strict=True)]
        rows = zip(devices.tolist(), repeat(SERVER), payloads, sent.size_bit[of_place].tolist(), *times, fates)
        return list(map(_new, repeat(Delivery), rows))


def _computation(event: Any) -> Work:
    """Return the computation that a client yields; raise an `AlgorithmError` if the client waits for anything else."""
    if type(event) is not Work:
        raise _not_local(f"waits for {describe(event)}", "yield computations of k only, or leave the mark out")
    return event


def _not_local(what: str, remedy: str) -> AlgorithmError:
    return AlgorithmError("computes_only", f"marks clients that only compute, got one that {what}", remedy)


_new = tuple.__new__  # takes half the time of the named tuple's own constructor
