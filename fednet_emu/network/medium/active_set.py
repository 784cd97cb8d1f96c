"""Who is on the air, as arrays that are kept between changes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.network.access.base import Crew
from fednet_emu.network.links.links import Links
from fednet_emu.network.medium.air import DUST
from fednet_emu.network.medium.band import Band
from fednet_emu.network.medium.link_gains import Hearing, Places
from fednet_emu.network.medium.transfer import Burst, Transfer

_ALL = slice(None)
_DUST, _LEFT, _CHANGED, _HELD = 0, 1, 2, slice(3, 6)
_UNTIL, _EAR, _FATE = range(3)
_CELL, _LEGS, _COLUMN = range(3)
OUTAGE, DEAD = 1, 2
"""Fates of a leg, beside 0: it has met an outage; it can never carry anything."""


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One cell's part of a roster: where its legs, bursts, ears and senders are, and who they are."""

    legs: Places
    bursts: Places
    ears: Places
    columns: Places
    crew: Crew


class Roster:
    """The bursts on the air in the order of their starts, with their legs.

    Attributes:
        bursts: the bursts.
        legs: the legs of all bursts, in the same order.
        spent: [2, bursts] time in s on the air so far, times the part of the sender's power; and that part in the slot
            that is under way.
        hearing: what is heard of them.
        cells: who shares a band with whom; see `gather`.
    """

    def __init__(self, band: Band, links: Links, cells: int) -> None:
        self._links, self._several_cells = links, cells > 1
        self.hearing = Hearing(band, links)
        self.bursts: list[Burst] = []
        self.legs: list[Transfer] = []
        self._clear()

    def _clear(self) -> None:
        self.hearing.clear()
        self._bits: Array = np.empty((6, 0))
        self._times: IntArray = np.empty((3, 0), np.int64)
        self._kinds: IntArray = np.empty((3, 0), np.int64)
        self._in_order = True  # column k is the sender of burst k
        self.spent: Array = np.empty((2, 0))
        self.cells: list[Cell] = []
        self._bursts_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.bursts)

    @property
    def left_bit(self) -> Array:
        """What each leg still has to carry; changes in place."""
        row: Array = self._bits[_LEFT]
        return row

    @property
    def dust_bit(self) -> Array:
        """What may be left of each leg when it is through: the rounding noise of its segments' sum."""
        row: Array = self._bits[_DUST]
        return row

    @property
    def until_ns(self) -> IntArray:
        """When each leg's patience, or the presence of its ends, is over."""
        row: IntArray = self._times[_UNTIL]
        return row

    @property
    def fate(self) -> IntArray:
        """0, `OUTAGE` or `DEAD` for each leg; changes in place."""
        row: IntArray = self._times[_FATE]
        return row

    @property
    def held(self) -> Array:
        """Rate, SINR and whether it carries bits [3, legs] in the slot that is under way; 0 for newcomers."""
        rows: Array = self._bits[_HELD]
        return rows

    @property
    def plain(self) -> bool:
        """Whether every burst is one leg."""
        return len(self.legs) == len(self.bursts)

    @property
    def burst(self) -> IntArray:
        """The burst of each leg."""
        numbers = np.arange(len(self.bursts))
        return numbers if self.plain else np.repeat(numbers, self._kinds[_LEGS])

    def of_bursts(self, combine: np.ufunc, values: Array | Mask) -> Any:
        """What a property of legs amounts to for each burst, by a function of two such as the maximum."""
        return values if self.plain else combine.reduceat(values, np.cumsum(self._kinds[_LEGS]) - self._kinds[_LEGS])

    def add(self, bursts: list[Burst]) -> None:
        """Put bursts on the air."""
        legs = list(chain.from_iterable(bursts))
        self.bursts.extend(bursts)
        self.legs.extend(legs)
        rows = self.hearing.listen([self._radios(leg)[1] for leg in legs])
        senders = [self._radios(burst[0])[0] for burst in bursts]
        columns = self._columns(senders, [burst[0].power_part for burst in bursts])
        bits = np.zeros((6, len(legs)))
        bits[_LEFT] = [leg.size_bit for leg in legs]
        bits[_DUST] = DUST * bits[_LEFT]
        times = [[leg.until_ns for leg in legs], rows, [0] * len(legs)]
        kinds = [[burst[0].cell for burst in bursts], [len(burst) for burst in bursts], columns]
        self._bits = np.concatenate((self._bits, bits), axis=1)
        self._times = np.concatenate((self._times, np.array(times, np.int64)), axis=1)
        self._kinds = np.concatenate((self._kinds, np.array(kinds, np.int64)), axis=1)
        self.spent = np.concatenate((self.spent, np.zeros((2, len(bursts)))), axis=1)

    def legs_of(self, bursts: IntArray) -> IntArray:
        """The places of the legs of the bursts at these places."""
        return bursts if self.plain else np.isin(self.burst, bursts).nonzero()[0]

    def remove(self, gone: IntArray) -> list[Burst]:
        """Take the bursts at these places, in order, off the air and return them."""
        ended = [self.bursts[place] for place in gone.tolist()]
        if len(ended) == len(self.bursts):
            self.bursts, self.legs = [], []
            self._clear()
            return ended
        gone_legs, gone_columns = self.legs_of(gone), self._kinds[_COLUMN].take(gone)
        stays = _others(gone_legs, len(self.legs))
        stay = stays if self.plain else _others(gone, len(self.bursts))
        _drop(self.bursts, gone)
        _drop(self.legs, gone_legs)
        self._bits, self._times = self._bits.take(stays, axis=1), self._times.take(stays, axis=1)
        self._kinds, self.spent = self._kinds.take(stay, axis=1), self.spent.take(stay, axis=1)
        self._forget_senders(gone_columns)
        if len(self.hearing.ears) > 1:
            self._times[_EAR] = self.hearing.keep_rows(self._times[_EAR])
        return ended

    def _columns(self, senders: list[int], power_part: list[float]) -> list[int]:
        """The columns of the senders of new bursts; new senders get theirs, and send with the power of their first."""
        bursts_of, known = self._bursts_of, len(self._bursts_of)
        for sender in senders:
            bursts_of[sender] = bursts_of.get(sender, 0) + 1
        if len(bursts_of) == known + len(senders):
            self.hearing.add(senders, power_part)
            return list(range(known, len(bursts_of)))
        self._in_order = False
        there = set(self.hearing.senders.tolist())
        new: dict[int, float] = {}
        for sender, part in zip(senders, power_part, strict=True):
            if sender not in there:
                new.setdefault(sender, part)
        if new:
            self.hearing.add([*new], [*new.values()])
        column = {sender: place for place, sender in enumerate(self.hearing.senders.tolist())}
        return [column[sender] for sender in senders]

    def _forget_senders(self, columns: IntArray) -> None:
        """Count down the bursts of the senders in these columns, and drop those that have none left."""
        silent = []
        for column, sender in zip(columns.tolist(), self.hearing.senders.take(columns).tolist(), strict=True):
            self._bursts_of[sender] -= 1
            if not self._bursts_of[sender]:
                del self._bursts_of[sender]
                silent.append(column)
        if not silent:
            return
        stay = _others(np.array(silent), len(self.hearing.senders))
        self.hearing.keep(stay)
        if self._in_order:
            self._kinds[_COLUMN] = np.arange(len(self.bursts))
        else:
            self._kinds[_COLUMN] = np.searchsorted(stay, self._kinds[_COLUMN])

    def _radios(self, leg: Transfer) -> tuple[int, int]:
        """The device, and in the server's place the base station that served it when it asked."""
        if not self._several_cells:
            return leg.sender, leg.receiver
        station = -1 - leg.cell
        return (leg.sender, station) if leg.receiver < 0 else (station, leg.receiver)

    def gather(self) -> None:
        """Take stock after a change: who shares a band with whom, and what everybody has left to carry."""
        self._bits[_CHANGED] = self._bits[_LEFT]
        if self._several_cells:
            self.cells = [self._cell(cell) for cell in np.unique(self._kinds[_CELL]).tolist()]
        else:
            self.cells = [self._whole()]

    def _whole(self) -> Cell:
        hearing, column = self.hearing, self._kinds[_COLUMN]
        crew = Crew(
            burst=self.burst,
            ear=self._times[_EAR],
            sender=column,
            radio=hearing.senders,
            part=np.ones(len(column)) if self._in_order else 1.0 / np.bincount(column)[column],
            left_bit=self._bits[_CHANGED],
            mean=hearing.mean,
            deaf=hearing.deaf(_ALL, _ALL),
            plain=self._in_order and self.plain and len(hearing.ears) == 1,
        )
        return Cell(_ALL, _ALL, _ALL, _ALL, crew)

    def _cell(self, cell: int) -> Cell:
        burst, hearing = self.burst, self.hearing
        bursts = np.flatnonzero(self._kinds[_CELL] == cell)
        legs = np.flatnonzero(self._kinds[_CELL][burst] == cell)
        ears, ear = np.unique(self._times[_EAR][legs], return_inverse=True)
        columns, sender = np.unique(self._kinds[_COLUMN][bursts], return_inverse=True)
        crew = Crew(
            burst=np.searchsorted(bursts, burst[legs]),
            ear=ear,
            sender=sender,
            radio=hearing.senders[columns],
            part=1.0 / np.bincount(sender)[sender],
            left_bit=self._bits[_CHANGED][legs],
            mean=hearing.mean[np.ix_(ears, columns)],
            deaf=hearing.deaf(ears, columns),
            plain=False,
        )
        return Cell(legs, bursts, ears, columns, crew)


def _others(places: IntArray, count: int) -> IntArray:
    """All other places."""
    other = np.ones(count, np.bool_)
    other[places] = False
    return other.nonzero()[0]


def _drop(items: list[Any], places: IntArray) -> None:
    """Delete items at places in order: few one by one, many at once."""
    if len(places) < _FEW:
        for place in reversed(places.tolist()):
            del items[place]
    else:
        gone = set(places.tolist())
        items[:] = [item for place, item in enumerate(items) if place not in gone]


_FEW = 8
