"""Files of other users over time: each file arrives, waits for earlier files of its user, and is transmitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, final

from simpy.events import NORMAL

from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, Clock, Timer
from fednet_emu.network.air.transfer import FileTransfer, Message
from fednet_emu.network.traffic.users import Source
from fednet_emu.records.ledger import NEVER_NS, SERVER, Ledger
from fednet_emu.records.reasons import CODE
from fednet_emu.records.rows import KINDS, TrafficRow

MOST_FILES = 10_000
"""Number of files of one user class, waiting or on the air, at which a run ends with an error."""
_SOME = 1000
"""Number of file arrivals between two checks for a deadlock of the algorithm."""


@final
class OtherUsers:
    """Simulates the arrivals and the transmissions of the files of all users outside the federation.

    Args:
        media: the medium (`Medium`) of each direction, by the code of the direction.
        names: names of the classes of other users.

    Attributes:
        under_way: the files that a medium transmits or queues, each with its source.
    """

    def __init__(
        self, clock: Clock, ledger: Ledger, sources: Sequence[Source], media: Mapping[int, Any], names: Sequence[str]
    ) -> None:
        self._clock, self._ledger, self._media, self._names = clock, ledger, media, names
        self._sources = sources
        self._arrivals: list[tuple[int, int, Source]] = []
        self._timer: Timer | None = None
        self._due_ns = FOREVER_NS
        self.under_way: dict[FileTransfer, Source] = {}
        self._present = [0] * len(names)  # number of files waiting or on the air, by class
        self._changed_ns = self._arrived = 0
        for order, source in enumerate(sources):
            source.order = order
            self._expect(source, 0)
        self._arm()

    def _expect(self, source: Source, since_ns: int) -> None:
        """Draw the next file of a source; the gap before its arrival begins at the time `since_ns`."""
        drawn = next(source.files, None)
        if drawn is not None:
            gap_ns, source.size_bit = drawn
            if since_ns + gap_ns < FOREVER_NS:
                heappush(self._arrivals, (since_ns + gap_ns, source.order, source))

    def _arm(self) -> None:
        next_ns = self._arrivals[0][0] if self._arrivals else FOREVER_NS
        if next_ns < self._due_ns:
            if self._timer is not None:
                self._timer.cancel()
            self._due_ns = next_ns
            self._timer = self._clock.call_at(next_ns, self._arrive, NORMAL, background=True)

    def _arrive(self, _timer: Any) -> None:
        now_ns, arrivals, self._timer, self._due_ns = self._clock.now, self._arrivals, None, FOREVER_NS
        while arrivals and arrivals[0][0] <= now_ns:
            source = heappop(arrivals)[2]
            size_bit = source.size_bit
            self._count(source.of, 1)
            self._ledger.traffic_bit += size_bit
            if not source.follows:
                self._expect(source, now_ns)
            if source.queues and source.busy:
                source.waiting.append((size_bit, now_ns))
            else:
                self._send(source, size_bit, now_ns)
        self._arm()
        self._arrived += 1
        if not self._arrived % _SOME and self._is_alone():
            arrivals.clear()  # a deadlock of the algorithm, which the clock detects when no events are left

    def _send(self, source: Source, size_bit: int, arrived_ns: int) -> None:
        medium, place = self._media[source.kind], source.sent % source.places
        ends = (source.radio + place, SERVER) if KINDS[source.kind] == "uplink" else (SERVER, source.radio + place)
        transfer = medium.send(*ends, Message(None, size_bit), cls=FileTransfer)
        assert type(transfer) is FileTransfer
        transfer.arrived_ns, transfer.user, transfer.slice = arrived_ns, source.user + place, source.slice
        transfer.callbacks.append(self._end)
        source.sent, source.busy = source.sent + 1, True
        self.under_way[transfer] = source

    def _end(self, transfer: Any) -> None:
        """Record a file whose transfer has ended, and send the next file of its source."""
        source = self.under_way.pop(transfer)
        self._record(source, transfer)
        source.busy = False
        if source.follows:
            self._expect(source, self._clock.now)
            self._arm()
        if source.waiting:
            self._send(source, *source.waiting.popleft())

    def _record(self, source: Source, its: FileTransfer) -> None:
        size_bit = its.size_bit if its.phases is None else its.phases.payload_bit
        self._write(source, size_bit, its.arrived_ns, its.user, its.cell, its.started_ns, its.transmitted_bit, its.lost)

    def _write(
        self, source: Source, size_bit: int, arrived_ns: int,
        user: int, cell: int = 0, started_ns: int = NEVER_NS, sent_bit: float = 0.0, lost: str = "end",
    ) -> None:  # fmt: skip
        self._count(source.of, -1)
        place, times_ns = (source.kind, cell, source.slice), (arrived_ns, started_ns, self._clock.now)
        self._ledger.traffic.append(TrafficRow(source.of, user, *place, size_bit, *times_ns, sent_bit, CODE[lost]))

    def _count(self, of: int, by: int) -> None:
        """Change the number of files of a class that wait or are on the air.

        Also update the integral of the total number of files over time, and raise `ScenarioError` if the class has too
        many files.
        """
        now_ns, present = self._clock.now, self._present
        self._ledger.traffic_ns += sum(present) * (now_ns - self._changed_ns)
        self._changed_ns = now_ns
        present[of] += by
        if present[of] >= MOST_FILES:
            what = f"{self._names[of]} have {MOST_FILES:,} files waiting after {now_ns / NS_PER_S:.4g} s"
            raise ScenarioError(f"traffic: {what}; lower their load, or shorten the run")

    def _is_alone(self) -> bool:
        """Return True if only other users are active.

        In this case, all remaining events are timers of the media, and the media carry only files of other users.
        """
        timers = sum(medium.is_timed for medium in self._media.values())
        return self._clock.waking <= timers and all(medium.is_foreign for medium in self._media.values())

    def close(self) -> None:
        """Record the unfinished files at the end of the run, after the media are closed."""
        self._arrivals.clear()
        under_way, self.under_way = self.under_way, {}
        for transfer, source in under_way.items():
            transfer.lost = transfer.lost or "end"
            self._record(source, transfer)
        for source in self._sources:
            while source.waiting:
                self._write(source, *source.waiting.popleft(), source.user)
