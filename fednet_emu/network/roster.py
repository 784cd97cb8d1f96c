"""Who is on the air, as arrays that are kept between changes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np

from fednet_emu.kernel.clock import FOREVER_NS
from fednet_emu.network.band import Band
from fednet_emu.network.hearing import Hearing
from fednet_emu.network.links import Links
from fednet_emu.network.sharing import Crew, IntArray, Mask
from fednet_emu.network.transfer import Burst, Transfer
from fednet_emu.units import Array

Places = IntArray | slice
_ALL = slice(None)
_SIZE, _LEFT, _CHANGED, _HELD = 0, 1, 2, slice(3, 6)
_UNTIL, _END, _EAR, _FATE = range(4)
_CELL, _LEGS = range(2)
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
        self._times: IntArray = np.empty((4, 0), np.int64)
        self._kinds: IntArray = np.empty((2, 0), np.int64)
        self.spent: Array = np.empty((2, 0))
        self.cells: list[Cell] = []

    def __len__(self) -> int:
        return len(self.bursts)

    @property
    def size_bit(self) -> Array:
        """Payload of each leg."""
        return self._bits[_SIZE]

    @property
    def left_bit(self) -> Array:
        """What each leg still has to carry; changes in place."""
        return self._bits[_LEFT]

    @property
    def until_ns(self) -> IntArray:
        """When each leg's patience, or the presence of its ends, is over."""
        return self._times[_UNTIL]

    @property
    def end_ns(self) -> IntArray:
        """When each leg ends as planned; changes in place."""
        return self._times[_END]

    @property
    def fate(self) -> IntArray:
        """0, `OUTAGE` or `DEAD` for each leg; changes in place."""
        return self._times[_FATE]

    @property
    def held(self) -> Array:
        """Rate, SINR and whether it carries bits of each leg [3, legs] in the slot that is under way; 0 for new ones."""
        return self._bits[_HELD]

    @property
    def plain(self) -> bool:
        """Whether every burst is one leg."""
        return len(self.legs) == len(self.bursts)

    @property
    def burst(self) -> IntArray:
        """The burst of each leg."""
        numbers = np.arange(len(self.bursts))
        return numbers if self.plain else np.repeat(numbers, self._kinds[_LEGS])

    def burst_ends_ns(self) -> IntArray:
        """When each burst ends as planned: with the last of its legs."""
        if self.plain:
            return self.end_ns
        ends: IntArray = np.maximum.reduceat(self.end_ns, np.cumsum(self._kinds[_LEGS]) - self._kinds[_LEGS])
        return ends

    def add(self, bursts: list[Burst]) -> None:
        """Put bursts on the air."""
        legs = list(chain.from_iterable(bursts))
        radios = [self._radios(leg) for leg in legs]
        first = np.cumsum([0, *map(len, bursts)])[:-1]
        self.bursts.extend(bursts)
        self.legs.extend(legs)
        rows = self.hearing.listen([ear for _, ear in radios])
        self.hearing.add(np.array([radios[leg][0] for leg in first.tolist()], np.int64))
        size_bit = [leg.size_bit for leg in legs]
        none = [0] * len(legs)
        bits = np.array([size_bit, size_bit, size_bit, none, none, none], np.float64)
        times = np.array([[leg.until_ns for leg in legs], [FOREVER_NS] * len(legs), rows, none], np.int64)
        kinds = np.array([[burst[0].cell for burst in bursts], list(map(len, bursts))], np.int64)
        self._bits = np.concatenate((self._bits, bits), axis=1)
        self._times = np.concatenate((self._times, times), axis=1)
        self._kinds = np.concatenate((self._kinds, kinds), axis=1)
        self.spent = np.concatenate((self.spent, np.zeros((2, len(bursts)))), axis=1)

    def remove(self, gone: Mask) -> list[Burst]:
        """Take bursts [bursts] off the air and return them."""
        ended = [self.bursts[index] for index in np.flatnonzero(gone).tolist()]
        if len(ended) == len(self.bursts):
            self.bursts, self.legs = [], []
            self._clear()
            return ended
        stay = np.flatnonzero(~gone)
        stays = stay if self.plain else np.flatnonzero(~gone[self.burst])
        self.bursts = [self.bursts[index] for index in stay.tolist()]
        self.legs = [self.legs[index] for index in stays.tolist()]
        self._bits, self._times = self._bits.take(stays, axis=1), self._times.take(stays, axis=1)
        self._kinds, self.spent = self._kinds.take(stay, axis=1), self.spent.take(stay, axis=1)
        self.hearing.keep(stay)
        self._times[_EAR] = self.hearing.keep_rows(self._times[_EAR])
        return ended

    def _radios(self, leg: Transfer) -> tuple[int, int]:
        if self._several_cells:
            return self._links.radios(leg.sender, leg.receiver)
        return leg.sender, leg.receiver

    def gather(self) -> None:
        """Take stock after a change: who shares a band with whom, and what everybody has left to carry."""
        self._bits[_CHANGED] = self._bits[_LEFT]
        if self._several_cells:
            self.cells = [self._cell(cell) for cell in np.unique(self._kinds[_CELL]).tolist()]
        else:
            self.cells = [self._whole()]

    def _whole(self) -> Cell:
        columns, sender, bursts_of = _distinct(self.hearing.senders)
        crew = Crew(
            burst=self.burst,
            ear=self._times[_EAR],
            sender=sender,
            radio=self.hearing.senders[columns],
            bursts_of=bursts_of,
            left_bit=self._bits[_CHANGED],
            mean=self.hearing.mean[:, columns],
            deaf=self._deaf(_ALL, columns),
        )
        return Cell(_ALL, _ALL, _ALL, columns, crew)

    def _cell(self, cell: int) -> Cell:
        burst = self.burst
        bursts = np.flatnonzero(self._kinds[_CELL] == cell)
        legs = np.flatnonzero(self._kinds[_CELL][burst] == cell)
        ears, ear = np.unique(self._times[_EAR][legs], return_inverse=True)
        chosen, sender, bursts_of = _distinct(self.hearing.senders[bursts])
        columns = bursts[chosen]
        crew = Crew(
            burst=np.searchsorted(bursts, burst[legs]),
            ear=ear,
            sender=sender,
            radio=self.hearing.senders[columns],
            bursts_of=bursts_of,
            left_bit=self._bits[_CHANGED][legs],
            mean=self.hearing.mean[np.ix_(ears, columns)],
            deaf=self._deaf(ears, columns),
        )
        return Cell(legs, bursts, ears, columns, crew)

    def _deaf(self, ears: Places, columns: Places) -> Mask | None:
        same = self.hearing.ears[ears][:, None] == self.hearing.senders[columns]
        return same if same.any() else None


def _distinct(radios: IntArray) -> tuple[Places, IntArray, IntArray]:
    """Of the senders of bursts: one burst of each, the sender [bursts] of each burst, and how many bursts each has."""
    count = len(radios)
    if len(set(radios.tolist())) == count:
        return _ALL, np.arange(count), np.ones(count, np.int64)
    _, columns, sender, bursts_of = np.unique(radios, return_index=True, return_inverse=True, return_counts=True)
    return columns, sender, bursts_of
