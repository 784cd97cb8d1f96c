"""Slots of 5G NR in time-division duplex: their directions, and the wait of a device for its first slot.

A pattern names the slots of a period: D for the downlink, U for the uplink, S for the special slot between them. Times
count in slots from the start of a period.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

FRAME_MS = 10
"""Length of a radio frame, into which whole periods fit (TS 38.213 clause 11.1)."""


@dataclass(frozen=True)
class TddPattern:
    """A pattern at a subcarrier spacing.

    Ignored here: the few symbols of a special slot that carry data.

    Attributes:
        slots: one of D, S and U for each slot of the period.
        spacing_khz: 15, 30, 60 or 120, by which a slot lasts 1 to 1/8 ms (TS 38.211 clause 4.3.2).

    Raises:
        ValueError: there is no such pattern; the message suggests one.
    """

    slots: str
    spacing_khz: int

    def __post_init__(self) -> None:
        """Refuse an invalid pattern."""
        if set(self.slots) - set("DSU") or not {"D", "U"} <= set(self.slots):
            raise ValueError(
                f"a pattern has slots D, S and U, at least one D for grants and one U to send in, got {self.slots!r}; "
                "DDDSU is usual"
            )
        in_frame = FRAME_MS * self.spacing_khz // 15
        if in_frame % len(self.slots):
            lengths = ", ".join(str(length) for length in range(2, in_frame + 1) if in_frame % length == 0)
            raise ValueError(
                f"whole periods fit into 10 ms, got {len(self.slots)} slots of {15 / self.spacing_khz:g} ms; "
                f"give {lengths} slots"
            )

    @property
    def slot_ns(self) -> int:
        """Length of a slot."""
        return 15_000_000 // self.spacing_khz

    def share(self, kind: str) -> float:
        """Share of the slots that are of a kind."""
        return self.slots.count(kind) / len(self.slots)

    def next(self, slot: int, kinds: str) -> int:
        """The first slot of one of some kinds from a slot on."""
        while self.slots[slot % len(self.slots)] not in kinds:
            slot += 1
        return slot

    def repeated(self, slot: int, decode: int) -> int:
        """Downlink slot of the next attempt of a block: device and base station each take some slots to decode."""
        answer = self.next(slot + 1 + decode, "U")
        return self.next(answer + 1 + decode, "D")


class Grants(NamedTuple):
    """Slots of an arrival that uses one occasion of the scheduling request.

    Attributes:
        after: slot of the occasion before; arrivals after its start use this one.
        occasion: slot of this occasion.
        first: uplink slot of the first grant, in which the device reports its buffer.
        bulk: uplink slot from which on it sends its data.
    """

    after: int
    occasion: int
    first: int
    bulk: int


class Latency(NamedTuple):
    """Least, mean and largest time in slots from a random arrival to the end of an uplink slot."""

    least: float
    mean: float
    most: float


@dataclass(frozen=True)
class UplinkAccess:
    """Scheduling request, buffer status report and grant (TS 38.321 clauses 5.4.4 and 5.4.5).

    An arrival waits for an occasion of the request, an uplink slot. Decoding takes some slots, the grant is sent in the
    next downlink or special slot, and the granted slot is the first uplink slot at least k2 later. This slot carries
    the report. The same procedure then grants the slot in which the bulk begins.
    Ignored here: requests that are lost, other devices' grants, the time within a slot.

    Attributes:
        sr_period: slots between two occasions; each is the first uplink slot from there on.
        k2: least number of slots from a grant to its slot.
        decode: slots that the base station takes to decode.
    """

    pattern: TddPattern
    sr_period: int
    k2: int
    decode: int

    def after(self, slot: int) -> int:
        """Slot of the transmission that is granted on an uplink slot: the next attempt of a block, or more of it."""
        grant = self.pattern.next(slot + 1 + self.decode, "DS")
        return self.pattern.next(grant + self.k2, "U")

    @property
    def hyperperiod(self) -> int:
        """Slots after which pattern and occasions repeat."""
        return math.lcm(len(self.pattern.slots), self.sr_period)

    @cached_property
    def occasions(self) -> tuple[Grants, ...]:
        """All occasions of a hyperperiod, in order."""
        pattern, period = self.pattern, self.hyperperiod
        first = pattern.next(0, "U")
        slots = sorted({pattern.next(first + n, "U") % period for n in range(0, period, self.sr_period)})
        before = [slots[-1] - period, *slots]
        return tuple(
            Grants(after, slot, first := self.after(slot), self.after(first))
            for after, slot in zip(before, slots, strict=False)
        )

    def latency(self, *, bulk: bool) -> Latency:
        """Time from an arrival, uniform over the hyperperiod, to the end of its first or its first bulk slot, exact."""
        ends = [(each, 1 + (each.bulk if bulk else each.first)) for each in self.occasions]
        mean = sum((each.occasion - each.after) * (end - (each.occasion + each.after) / 2) for each, end in ends)
        least, most = min(end - each.occasion for each, end in ends), max(end - each.after for each, end in ends)
        return Latency(least, mean / self.hyperperiod, most)

    @cached_property
    def bulk_slots(self) -> list[int]:
        """Slots [hyperperiod] from which on an arrival at the start of each slot sends its data."""
        occasions = [each.occasion for each in self.occasions]
        bulk = [*(each.bulk for each in self.occasions), self.occasions[0].bulk + self.hyperperiod]
        return [bulk[bisect_left(occasions, slot)] for slot in range(self.hyperperiod)]
