"""Slots of 5G NR in time-division duplex: their directions, and the time until the first slot of a device.

A pattern names the slots of a period: D for the downlink, U for the uplink, S for the special slot between them. Times
are counted in slots from the start of a period.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

FRAME_MS = 10
"""Length of a radio frame in ms, into which a whole number of periods must fit (TS 38.213 clause 11.1)."""


@dataclass(frozen=True)
class TddPattern:
    """A TDD pattern with a subcarrier spacing.

    Ignored here: the few symbols of a special slot that carry data.

    Attributes:
        slots: one letter D, S or U for each slot of the period.
        subcarrier_spacing_khz: 15, 30, 60 or 120; a slot lasts 1 to 1/8 ms (TS 38.211 clause 4.3.2).

    Raises:
        ValueError: the pattern is invalid; the message suggests a valid pattern.
    """

    slots: str
    subcarrier_spacing_khz: int

    def __post_init__(self) -> None:
        if set(self.slots) - set("DSU") or not {"D", "U"} <= set(self.slots):
            raise ValueError(
                f"a pattern has slots D, S and U, at least one D for grants and one U to send in, got {self.slots!r}; "
                "DDDSU is usual"
            )
        in_frame = FRAME_MS * self.subcarrier_spacing_khz // 15
        if in_frame % len(self.slots):
            lengths = ", ".join(str(length) for length in range(2, in_frame + 1) if in_frame % length == 0)
            raise ValueError(
                f"whole periods fit into 10 ms, got {len(self.slots)} slots of {15 / self.subcarrier_spacing_khz:g} "
                f"ms; give {lengths} slots"
            )

    @property
    def slot_ns(self) -> int:
        """Length of a slot in ns."""
        return 15_000_000 // self.subcarrier_spacing_khz

    def share(self, kind: str) -> float:
        """Share of the slots that have the letter `kind`."""
        return self.slots.count(kind) / len(self.slots)

    def next(self, slot: int, kinds: str) -> int:
        """Return the first slot at or after `slot` whose letter is in `kinds`."""
        while self.slots[slot % len(self.slots)] not in kinds:
            slot += 1
        return slot

    def repeated(self, slot: int, decode: int) -> int:
        """Return the downlink slot in which a block is sent again after a failure in the slot `slot`.

        The device and the base station each need `decode` slots to decode what they have received.
        """
        answer = self.next(slot + 1 + decode, "U")
        return self.next(answer + 1 + decode, "D")


class Grants(NamedTuple):
    """Uplink slots that are granted after a scheduling request at one occasion.

    Attributes:
        after: slot of the previous request occasion; the request for data that arrive after the start of this slot is
            sent at `occasion`.
        occasion: slot in which the scheduling request is sent.
        first: uplink slot of the first grant, in which the device sends its buffer status report.
        bulk: first uplink slot that carries data.
    """

    after: int
    occasion: int
    first: int
    bulk: int


class Latency(NamedTuple):
    """Minimum, mean and maximum time, in slots, from the random arrival of data to the end of an uplink slot."""

    least: float
    mean: float
    most: float


@dataclass(frozen=True)
class UplinkAccess:
    """Scheduling request, buffer status report and grant (TS 38.321 clauses 5.4.4 and 5.4.5).

    Arriving data wait for an uplink slot in which the device may send a request. The base station needs `decode` slots
    to decode, and sends the grant in the next downlink or special slot. The granted slot is the first uplink slot at
    least `k2` slots after the grant, and carries the report. The same procedure then grants the first slot with data.
    Ignored here: lost requests, other devices' grants, and times within a slot.

    Attributes:
        pattern: the TDD pattern.
        sr_period: number of slots between two request occasions, before each occasion is moved to the next uplink slot.
        k2: minimum number of slots from a grant to the granted slot.
        decode: number of slots that the base station needs to decode.
    """

    pattern: TddPattern
    sr_period: int
    k2: int
    decode: int

    def after(self, slot: int) -> int:
        """Return the uplink slot that is granted after a transmission in the uplink slot `slot`."""
        grant = self.pattern.next(slot + 1 + self.decode, "DS")
        return self.pattern.next(grant + self.k2, "U")

    @property
    def hyperperiod(self) -> int:
        """Number of slots after which both the pattern and the request occasions repeat."""
        return math.lcm(len(self.pattern.slots), self.sr_period)

    @cached_property
    def occasions(self) -> tuple[Grants, ...]:
        """Grants for all request occasions of a hyperperiod, in order of time."""
        pattern, period = self.pattern, self.hyperperiod
        first = pattern.next(0, "U")
        slots = sorted({pattern.next(first + n, "U") % period for n in range(0, period, self.sr_period)})
        before = [slots[-1] - period, *slots]
        return tuple(
            Grants(after, slot, first := self.after(slot), self.after(first))
            for after, slot in zip(before, slots, strict=False)
        )

    def latency(self, *, bulk: bool) -> Latency:
        """Return the exact latency from the arrival of data to the end of a granted slot.

        The slot is the first data slot if `bulk` is True, and the slot of the buffer status report otherwise. Arrivals
        of data are uniformly distributed over the hyperperiod.
        """
        ends = [(each, 1 + (each.bulk if bulk else each.first)) for each in self.occasions]
        mean = sum((each.occasion - each.after) * (end - (each.occasion + each.after) / 2) for each, end in ends)
        least, most = min(end - each.occasion for each, end in ends), max(end - each.after for each, end in ends)
        return Latency(least, mean / self.hyperperiod, most)

    @cached_property
    def bulk_slots(self) -> list[int]:
        """First slot that carries data, for data that arrive at the start of each slot [hyperperiod]."""
        occasions = [each.occasion for each in self.occasions]
        bulk = [*(each.bulk for each in self.occasions), self.occasions[0].bulk + self.hyperperiod]
        return [bulk[bisect_left(occasions, slot)] for slot in range(self.hyperperiod)]
