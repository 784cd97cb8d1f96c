"""The bursts (transmissions) on the air in one band, as arrays that are updated when a burst starts or ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from operator import mul, sub
from typing import Any

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask, least
from fednet_emu.kernel.work import BIT, SCALE
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.link_gains import LinkGains
from fednet_emu.network.air.roomy import Roomy
from fednet_emu.network.air.sharing import Active
from fednet_emu.network.air.transfer import Burst, Transfer
from fednet_emu.network.links.links import LinksOverTime, radio_of

_ALL = slice(None)
LEG = np.dtype([
    ("row", np.int64), ("until_ns", np.int64), ("left_nbit", np.float64), ("outage", np.bool_), ("dead", np.bool_),
    ("slot_rate_bps", np.float64), ("slot_sinr", np.float64), ("slot_carries", np.bool_),
], align=True)  # fmt: skip
"""Fields of a leg, which is the transfer of a burst to one receiver. `row` is the row of this receiver. `until_ns` is
the time in ns of the timeout, or of the departure of the sender or the receiver if that is earlier. `left_nbit` is the
number of remaining bits times 1e9, rounded. `outage` is true if the leg has had an outage, and `dead` if it can never
be delivered. `slot_rate_bps` and `slot_sinr` are its rate in bit/s and its SINR (linear) in the current slot, and
`slot_carries` is true if it carries bits in this slot."""
BURST = np.dtype([
    ("cell", np.int64), ("legs", np.int64), ("column", np.int64), ("power_s", np.float64), ("slot_power", np.float64)
])  # fmt: skip
"""Fields of a burst (transmission). `cell` is the index of its cell, `legs` its number of receivers, and `column` the
column of its sender. `slot_power` is the fraction of its sender's power that the burst uses in the current slot.
`power_s` is the integral of this fraction over the time on the air so far, in s."""


_NEW_LEG, _NEW_BURST = (False, False, 0.0, 0.0, False), (0.0, 0.0)


SliceOf = Callable[[Transfer], int]
"""Function that returns the index of the network slice of a transfer."""


class ActiveSet:
    """The bursts (transmissions) on the air, in the order of their start times.

    A leg is the transfer of a burst to one of its receivers.

    Attributes:
        legs: the legs of all bursts, in the order of the bursts.
        work: remaining bits of each leg, in the integer units of `kernel.work`.
        leg: array of `LEG` records, one per leg; updated in place.
        burst: array of `BURST` records, one per burst; updated in place.
        plain: True if every burst has exactly one leg.
        gains: SNRs between all senders and receivers on the air.
        cells: the bursts and legs of each cell.
    """

    def __init__(
        self,
        band: Band,
        links: LinksOverTime,
        cells: int,
        *,
        planned: bool = False,
        slice_of: SliceOf | None = None,
    ) -> None:
        self._several_cells, self._planned, self._slice_of = cells > 1, planned, slice_of
        self.gains = LinkGains(band, links)
        self._numbers, self._ones = np.empty(0, np.int64), np.empty(0)
        self._of_leg, self._of_burst = Roomy(np.empty((1, 0), LEG)), Roomy(np.empty((1, 0), BURST))
        self._clear()

    def _clear(self) -> None:
        self.gains.clear()
        self._of_leg.clear()
        self._of_burst.clear()
        self.bursts: list[Burst] = []
        self.legs: list[Transfer] = []
        self.work: list[int] = []
        self._changed()
        self.cells: list[Active] = []
        self._some_are_dead = False
        self._in_order = True  # True if column k is the sender of burst k for every k
        self._bursts_of: dict[int, int] = {}
        self._part_of: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self.bursts)

    @property
    def burst_of_leg(self) -> IntArray:
        if len(self.bursts) > len(self._numbers):
            self._numbers, self._ones = np.arange(2 * len(self.bursts)), np.ones(2 * len(self.bursts))
        numbers = self._numbers[: len(self.bursts)]
        return numbers if self.plain else np.repeat(numbers, self.burst["legs"])

    def of_bursts(self, combine: np.ufunc, values: Array | Mask) -> Any:
        """Return values [bursts, ...]: `values` [legs, ...] reduced over the legs of each burst by `combine`."""
        legs = self.burst["legs"]
        return values if self.plain else combine.reduceat(values, np.cumsum(legs) - legs)

    # ---- changes -----------------------------------------------------------------------------------------------------

    def add(self, bursts: list[Burst]) -> None:
        """Put bursts on the air; a sender that is already on the air keeps its power for the new bursts."""
        legs = list(chain.from_iterable(bursts))
        self.bursts.extend(bursts)
        self.legs.extend(legs)
        self.work.extend([leg.size_bit * BIT for leg in legs])
        rows = self.gains.listen([self._radios(leg)[1] for leg in legs])
        columns = self._columns([(self._radios(burst[0])[0], burst[0].power_part) for burst in bursts])
        new_legs, new_bursts = self._of_leg.grow(len(legs))[0], self._of_burst.grow(len(bursts))[0]
        for place, (leg, row) in enumerate(zip(legs, rows, strict=True)):
            new_legs[place] = (row, leg.until_ns, leg.size_bit * 1e9, *_NEW_LEG)
        for place, (burst, column) in enumerate(zip(bursts, columns, strict=True)):
            new_bursts[place] = (burst[0].cell, len(burst), column, *_NEW_BURST)
        self._changed()

    def _changed(self) -> None:
        self.leg, self.burst = self._of_leg.now[0], self._of_burst.now[0]
        self.plain = len(self.legs) == len(self.bursts)

    def mark_dead(self, dead: Mask | None) -> None:
        """Store the mask `dead` [legs] of legs that can never be delivered; None means that there is no such leg."""
        if dead is not None or self._some_are_dead:
            self.leg["dead"] = False if dead is None else dead
            self._some_are_dead = dead is not None

    def carry(self, rates: list[tuple[Array, int]]) -> None:
        """Subtract the bits that each leg carries from its remaining bits, which never fall below zero.

        Args:
            rates: for each block, the rates [legs] in bit/s and the length of the block in ns.
        """
        work = self.work
        for rate_bps, span_ns in rates:
            work = list(map(sub, work, map(mul, map(int, (rate_bps * SCALE).tolist()), repeat(span_ns))))
        left = np.fromiter(map(float, work), np.float64, len(work))
        if least(left) < 0.0:
            work = [each if each > 0 else 0 for each in work]
            np.maximum(left, 0.0, out=left)
        left /= SCALE
        self.work, self.leg["left_nbit"] = work, left

    def move(self) -> None:
        """Start a movement period: hand over bursts whose device has changed cells, and update all links.

        First, the energy that each burst has used so far is added to its total, because transmit powers may change.
        """
        for burst, power_s in zip(self.bursts, self.burst["power_s"].tolist(), strict=True):
            burst[0].settle(power_s)
        self.burst["power_s"] = 0.0
        new = [burst[0].cell for burst in self.bursts]
        (moved,) = (self.burst["cell"] != new).nonzero()
        if self._several_cells and len(moved):
            self._hand_over(moved)
        self.gains.move()

    def _hand_over(self, moved: IntArray) -> None:
        """Move the bursts at the given indices, each of which has one leg, to the base stations of their new cells."""
        legs, bursts = self.legs_of(moved), [self.bursts[place] for place in moved.tolist()]
        of_leg, of_burst, work = self.leg.take(legs), self.burst.take(moved), [self.work[leg] for leg in legs.tolist()]
        self.remove_legs(legs)
        for burst in bursts:
            burst[0].power_part = self.power_part(burst[0])
        self.add(bursts)
        count = len(bursts)
        of_leg["row"] = self.leg["row"][-count:]
        for name in ("cell", "column"):
            of_burst[name] = self.burst[name][-count:]
        self.leg[-count:], self.burst[-count:], self.work[-count:] = of_leg, of_burst, work

    def power_part(self, first: Transfer) -> float:
        """Return the fraction of full power that a burst's sender uses; a sender on the air keeps its fraction."""
        return self._part_of.setdefault(self._radios(first)[0], first.power_part)

    def remove_legs(self, gone: IntArray) -> list[Burst]:
        """Remove the legs at the indices `gone`; remove and return the bursts that have no leg left."""
        ended = gone
        if not self.plain:
            self.burst["legs"] -= np.bincount(self.burst_of_leg.take(gone), minlength=len(self.bursts))
            ended = (self.burst["legs"] == 0).nonzero()[0]
        bursts = [self.bursts[place] for place in ended.tolist()]
        for burst, power_s in zip(bursts, self.burst["power_s"].take(ended).tolist(), strict=True):
            burst[0].power_s = power_s
        if len(bursts) == len(self.bursts):
            self._clear()
            return bursts
        new_row = self.gains.leave(self.leg["row"].take(gone))
        columns = self.burst["column"].take(ended)
        _drop(self.legs, gone)
        _drop(self.work, gone)
        self._of_leg.drop(gone)
        if bursts:
            _drop(self.bursts, ended)
            self._of_burst.drop(ended)
        self._changed()
        if new_row is not None:
            self.leg["row"] = new_row.take(self.leg["row"])
        if bursts:
            self._forget_senders(columns)
        return bursts

    def legs_of(self, bursts: IntArray) -> IntArray:
        return bursts if self.plain else np.isin(self.burst_of_leg, bursts).nonzero()[0]

    def _columns(self, senders: list[tuple[int, float]]) -> list[int]:
        """Count one more burst for each of `senders`, and return the column of each sender in `gains`.

        A sender is a pair (radio, fraction of full power). A radio that is already on the air keeps its column and its
        power; any other radio gets a new column.
        """
        bursts_of, known = self._bursts_of, len(self._bursts_of)
        new = {}
        for sender, part in senders:
            if sender not in bursts_of:
                bursts_of[sender] = 0
                new[sender] = self._part_of.setdefault(sender, part)
            bursts_of[sender] += 1
        if new:
            self.gains.add([*new], [*new.values()])
        if len(new) == len(senders) and self._in_order:
            return list(range(known, len(bursts_of)))
        self._in_order = False
        column = {sender: place for place, sender in enumerate(self.gains.senders.tolist())}
        return [column[sender] for sender, _ in senders]

    def _forget_senders(self, columns: IntArray) -> None:
        """Record the end of one burst for each entry of `columns`; remove the senders that have no bursts left."""
        silent = []
        for column, sender in zip(columns.tolist(), self.gains.senders.take(columns).tolist(), strict=True):
            self._bursts_of[sender] -= 1
            if not self._bursts_of[sender]:
                del self._bursts_of[sender], self._part_of[sender]
                silent.append(column)
        if not silent:
            return
        gone = np.array(sorted(silent))
        self.gains.drop_senders(gone)
        self.burst["column"] -= np.searchsorted(gone, self.burst["column"])

    def _radios(self, leg: Transfer) -> tuple[int, int]:
        """Return sender and receiver of a leg; if there are several cells, a base station replaces the server."""
        if not self._several_cells:
            return leg.sender, leg.receiver
        station = radio_of(leg.cell)
        return (leg.sender, station) if leg.receiver < 0 else (station, leg.receiver)

    # ---- sharing of bands --------------------------------------------------------------------------------------------

    def gather(self) -> None:
        """Rebuild `cells`, the list of the bursts, legs and remaining bits in each cell, after a change."""
        left = self.leg["left_nbit"] / 1e9
        if self._several_cells:
            self.cells = [self._cell(cell, left) for cell in np.unique(self.burst["cell"]).tolist()]
        else:
            self.cells = [self._whole(left)]

    def _whole(self, left_bit: Array) -> Active:
        gains, column, burst = self.gains, self.burst["column"], self.burst_of_leg
        return Active(
            burst=burst,
            receiver=self.leg["row"],
            sender=column,
            radio=gains.senders,
            part=self._ones[: len(column)] if self._in_order else 1.0 / np.bincount(column)[column],
            left_bit=left_bit,
            mean=gains.mean,
            deaf=gains.deaf(_ALL, _ALL),
            plain=self._in_order and self.plain and len(gains.receivers) == 1,
            grants=self._grants(range(len(self.bursts))) if self._planned else None,
            slice_of=self._slices(range(len(self.bursts))) if self._slice_of is not None else None,
        )

    def _cell(self, cell: int, left_bit: Array) -> Active:
        burst, gains = self.burst_of_leg, self.gains
        bursts = np.flatnonzero(self.burst["cell"] == cell)
        legs = np.flatnonzero(self.burst["cell"][burst] == cell)
        rows, receiver = np.unique(self.leg["row"][legs], return_inverse=True)
        columns, sender = np.unique(self.burst["column"][bursts], return_inverse=True)
        return Active(
            legs=legs,
            bursts=bursts,
            rows=rows,
            columns=columns,
            burst=np.searchsorted(bursts, burst[legs]),
            receiver=receiver,
            sender=sender,
            radio=gains.senders[columns],
            part=1.0 / np.bincount(self.burst["column"])[self.burst["column"][bursts]],
            left_bit=left_bit[legs],
            mean=gains.mean[np.ix_(rows, columns)],
            deaf=gains.deaf(rows, columns),
            plain=False,
            grants=self._grants(bursts.tolist()) if self._planned else None,
            slice_of=self._slices(bursts.tolist()) if self._slice_of is not None else None,
        )

    def _slices(self, bursts: Sequence[int]) -> IntArray:
        assert self._slice_of is not None, "there are slices"
        return np.array([self._slice_of(self.bursts[place][0]) for place in bursts], np.int64)

    def _grants(self, bursts: Sequence[int]) -> Array:
        """Return the planned band share and noise of each burst [bursts, 2]; without a plan, shares are equal."""
        grants = [self.bursts[place][0].grant for place in bursts]
        return np.array([(grant.share, grant.noise) if grant else (1.0 / len(grants), 1.0) for grant in grants])


def _drop(items: list[Any], places: IntArray) -> None:
    """Delete the items at the indices `places` from a list; the indices must be in increasing order.

    Many items are deleted at once by building a new list, which is faster.
    """
    if len(places) < _FEW:
        for place in reversed(places.tolist()):
            del items[place]
    else:
        gone = set(places.tolist())
        items[:] = [item for place, item in enumerate(items) if place not in gone]


_FEW = 8
