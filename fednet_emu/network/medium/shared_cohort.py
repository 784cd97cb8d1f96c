"""The uploads of a cohort that are on the air together, as arrays: the times of `PlainAir`, to the last bit.

`PlainAir` counts work in large integers. Here the work left is a float with its rounding error (Fast2Sum, Dekker 1971),
and the rates for the next numbers of senders are computed at once. An end that the remaining error leaves open makes
the result None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, final

import numpy as np

from fednet_emu.arrays import Array, IntArray, Keys, least
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.kernel.streams import uniform
from fednet_emu.kernel.work import SCALE
from fednet_emu.network.air.band import MOST_BLOCKS, Band
from fednet_emu.network.air.shared import MOST_GAINS, NEAR_NS, blocks_after
from fednet_emu.network.air.sharing import Allocation

_ROUNDING = 2.0**-49  # some times the rounding error of a product and a quotient
_MOST_CHANGES = 8
"""Largest number of starts and ends for which rates are computed ahead."""
_SPARE = 16
_SNR, _POWER_S, _LEFT, _ERROR, _GAIN = range(5)
"""Rows of the numbers of each sender: mean SNR (linear), time on the air in s, 1e9 times the bits left, and their
rounding error, then the fading gains of the planned blocks. A sender that has ended has infinitely many left."""


class SharedRequests(NamedTuple):
    """Uploads in the order of their requests: size in bits, times in ns, mean SNR (linear) and fading key of each."""

    size_bit: IntArray
    requested_ns: IntArray
    limit_ns: IntArray
    snr: Array
    key: Keys


Ended = list[tuple[int, int, int, float]]
"""Place, start and end in ns, and time on the air in s of each upload, in the order of the ends."""


@final
class SharedCohort:
    """Plays the uploads of one cohort on an idle band.

    Args:
        band: the band, as for `PlainAir`.
        rule: allocation of each sender; see `Sharing.plain_rule`.
        share: part of the band of each of n senders, as a function of n; None if rates depend on more than n.
        blocks: number of fading blocks that the next plan covers.
    """

    def __init__(
        self, band: Band, rule: Callable[[Array], Allocation], share: Callable[[int], float] | None, blocks: int
    ) -> None:
        self._band, self._rule, self._share, self.blocks = band, rule, share, blocks
        self._gain_of = band.fading.combined(1).gain
        self._ended: Ended = []
        self._next = 0  # the next upload
        self._clear()

    def _clear(self) -> None:
        self._n = 0
        """Number of senders on the air."""
        self._numbers = 0, 0  # of the blocks whose gains are known: the first, and how many
        self._risen = self._fallen = 0  # starts and ends since the table was made
        self._new: list[int] = []
        self._until_ns = FOREVER_NS
        self._place: list[int] = []  # of each column
        self._of = np.empty((_GAIN, 0))
        self._table: Array | None = None  # [numbers of senders, columns] rates in bit/s in the block of `_block`
        self._shares = self._boosts = np.ones((1, 1))  # [numbers of senders, 1] parts of the band, and their inverses
        self._block = self._least = self._foreseen = 0

    def play(self, uploads: SharedRequests) -> Ended | None:
        """The ends of all uploads; None if one is lost, or may be, or ends at a time that is in doubt."""
        self._uploads, self._started_ns = uploads, uploads.requested_ns.tolist()
        requested_ns, self._limit_ns = self._started_ns, uploads.limit_ns.tolist()
        place, now_ns, total = 0, requested_ns[0], len(requested_ns)
        with np.errstate(divide="ignore", invalid="ignore"):
            while place < total or self._n:
                while place < total and requested_ns[place] == now_ns:
                    self._new.append(place)
                    place += 1
                self._next = place
                next_ns = requested_ns[place] if place < total else FOREVER_NS
                if not self._n and not self._new:
                    now_ns = next_ns
                    continue
                edges_ns = self._plan(now_ns)
                its_ns = self._advance(edges_ns, next_ns)
                if its_ns is None:
                    return None
                self.blocks, now_ns = blocks_after(edges_ns, its_ns, self.blocks), its_ns
        return self._ended

    def _plan(self, now_ns: int) -> list[int]:
        """Add the senders that start now, draw the gains of the next blocks; return the edges in ns of these."""
        band, new, known, m = self._band, self._new, self._numbers, len(self._place)
        self._n += len(new)
        first, count = now_ns // band.coherence_ns, self.blocks
        if count > 1:
            count = 1 if band.constant else max(1, min(count, MOST_GAINS // self._n))
        self._numbers = first, count
        fits = known[0] <= first and first + count <= sum(known)
        if not fits:
            self._keep(len(new), _GAIN + count)
            known, m = self._numbers, 0
            self._start(now_ns)
        elif new:
            if m + len(new) > self._of.shape[1]:
                self._keep(len(new), len(self._of))
                m = len(self._place)
            self._start(now_ns)
        foreseen = self._of[_GAIN, m] if fits and len(new) == 1 and m < self._foreseen else None
        if m < len(self._place):
            self._draw(m, *known)
        if known != self._numbers:
            skip = _GAIN + first - known[0]
            self._of = np.concatenate((self._of[:_GAIN], self._of[skip : skip + count]))
        if fits and new and self._table is not None and self._of[_GAIN, m] != foreseen:
            self._table = self._extended(self._table, slice(m, m + len(new)))
        self._new = []
        return [now_ns, *(number * band.coherence_ns for number in range(first + 1, first + count + 1))]

    def _start(self, now_ns: int) -> None:
        """Fill in the columns of new senders, except the gains."""
        of, uploads = self._of, self._uploads
        for column, place in enumerate(self._new, len(self._place)):
            of[_SNR, column], of[_LEFT, column] = uploads.snr[place], uploads.size_bit[place] * float(NS_PER_S)
            of[_POWER_S, column] = of[_ERROR, column] = 0.0
            self._until_ns = min(self._until_ns, now_ns + self._limit_ns[place])
        self._place += self._new
        self._risen += len(self._new)

    def _draw(self, begin: int, first: int, count: int) -> None:
        """Draw the gains of the columns from `begin` on in blocks, as `PlainAir` does."""
        places = self._place[begin:]
        if len(places) == count == 1 and not self._band.constant:
            key = self._uploads.key.item(places[0])
            self._of[_GAIN, begin] = self._gain_of(uniform(key, first), key & 1 == 1)
        else:
            numbers = np.arange(first, first + count)[:, None]
            self._of[_GAIN:, begin : len(self._place)] = self._band.gains(self._uploads.key[places][None, :], numbers)

    def _keep(self, more: int, rows: int) -> None:
        """Drop the columns of ended senders, and make room for `more` columns and some others of `rows` numbers."""
        kept, old = self._on_air(), self._of
        n, same = len(kept), min(rows, len(old))
        self._of = np.zeros((rows, n + more + _SPARE))
        self._of[:same, :n] = old[:same, kept]
        self._place = [self._place[column] for column in kept.tolist()]
        self._table = None

    def _on_air(self) -> IntArray:
        """The columns of senders that have not ended."""
        return np.flatnonzero(self._of[_LEFT, : len(self._place)] < np.inf)

    def _rates(self, block: int, row: int) -> Array:
        """Rates in bit/s [columns] in the block of this number, in this row of the plan."""
        if self._table is None or block != self._block or not 0 <= self._n - self._least < len(self._table):
            if len(self._place) > self._n:
                self._keep(0, len(self._of))
            self._least = most = self._n
            if self._share is not None:
                self._least = max(1, self._n - min(self._fallen, _MOST_CHANGES))
                most = self._n + min(self._risen, _MOST_CHANGES)
                self._shares = np.array([self._share(n) for n in range(self._least, most + 1)])[:, None]
                self._boosts = 1.0 / self._shares
            self._block, self._risen, self._fallen = block, 0, 0
            table = np.empty((most + 1 - self._least, self._of.shape[1]))
            self._foreseen = self._foresee(block) if self._share is not None and self._numbers[1] == 1 else 0
            self._table = self._extended(table, slice(0, max(self._foreseen, len(self._place))), row)
        assert self._table is not None
        return self._table[self._n - self._least, : len(self._place)]

    def _foresee(self, block: int) -> int:
        """Fill in the columns of the next senders that probably start in this block; return the number of columns."""
        uploads, column, place = self._uploads, len(self._place), self._next
        most = min(place + _MOST_CHANGES, len(self._started_ns), place + self._of.shape[1] - column)
        while place < most and self._started_ns[place] // self._band.coherence_ns == block:
            key = uploads.key.item(place)
            self._of[_SNR, column] = uploads.snr[place]
            self._of[_GAIN, column] = self._gain_of(uniform(key, block), key & 1 == 1)
            place, column = place + 1, column + 1
        return column

    def _extended(self, table: Array, columns: slice, row: int = 0) -> Array | None:
        """The table with the rates of some columns; None if they depend on the other ones."""
        snr = (self._of[_SNR, columns] * self._of[_GAIN + row, columns])[None, :]
        if self._share is not None:
            table[:, columns] = self._band.rates_bps(snr * self._boosts, self._shares)
        elif columns.start:
            return None
        else:
            sinr, share, _, carries = self._rule(snr)
            rate_bps = self._band.rates_bps(sinr, share)
            table[:, columns] = rate_bps if carries is None else np.where(carries, rate_bps, 0.0)
        return table

    def _advance(self, edges_ns: list[int], next_ns: int) -> int | None:
        """Carry bits until the next end, request or end of the plan; return that time, or None."""
        now_ns = edges_ns[0]
        if now_ns - self._started_ns[self._place[0]] > MOST_BLOCKS * self._band.coherence_ns:
            return None
        for row, edge_ns in enumerate(edges_ns[1:]):
            rate_bps, m = self._rates(self._numbers[0] + row, row), len(self._place)
            stop_ns = min(edge_ns, next_ns)
            needed = self._of[_LEFT, :m] / rate_bps
            soonest = float(least(needed))
            end_ns, due = FOREVER_NS, list[int]()
            if now_ns + soonest < stop_ns + NEAR_NS:
                for column in (needed <= soonest + NEAR_NS).nonzero()[0].tolist():
                    its_ns = self._end_ns(column, rate_bps, now_ns)
                    if its_ns is None:
                        return None
                    if its_ns <= end_ns:
                        due, end_ns = [*(due if its_ns == end_ns else ()), column], its_ns
            until_ns = min(end_ns, stop_ns)
            self._flow(rate_bps, until_ns - now_ns)
            now_ns = until_ns
            if now_ns == end_ns and not self._end(due, now_ns):
                return None
            if now_ns >= self._until_ns and self._any_late(now_ns):
                return None
            if now_ns in (end_ns, next_ns):
                break
        return now_ns

    def _flow(self, rate_bps: Array, span_ns: int) -> None:
        """Carry bits for some time."""
        of = self._of[:, : len(rate_bps)]
        before, done = of[_LEFT], rate_bps * span_ns
        after = before - done
        of[_ERROR] += (before - after) - done
        of[_LEFT] = after
        of[_POWER_S] += span_ns / NS_PER_S

    def _end_ns(self, column: int, rate_bps: Array, now_ns: int) -> int | None:
        """When a sender has sent all at its present rate; None if rounding errors leave it open."""
        place, rate = self._place[column], rate_bps.item(column)
        needed = (self._of.item(_LEFT, column) + self._of.item(_ERROR, column)) / rate
        whole = math.ceil(needed)
        size, lasted_ns = self._uploads.size_bit.item(place) * NS_PER_S, now_ns - self._started_ns[place]
        error = (_ROUNDING * size + lasted_ns / SCALE) / rate
        return now_ns + whole if whole - needed > error and needed - (whole - 1) > error else None

    def _end(self, due: list[int], now_ns: int) -> bool:
        """Take the senders in these columns off the air; return whether they are in time."""
        in_time = True
        for column in due:
            place = self._place[column]
            self._of[_LEFT, column] = np.inf
            in_time &= now_ns <= self._started_ns[place] + self._limit_ns[place]
            self._ended.append((place, self._started_ns[place], now_ns, self._of.item(_POWER_S, column)))
        self._n -= len(due)
        self._fallen += len(due)
        if self._share is None:
            self._table = None
        if not self._n:
            self._clear()
        return in_time

    def _any_late(self, now_ns: int) -> bool:
        """Whether an upload on the air has reached its timeout."""
        places = [self._place[column] for column in self._on_air().tolist()]
        self._until_ns = min([self._started_ns[place] + self._limit_ns[place] for place in places], default=FOREVER_NS)
        return self._until_ns <= now_ns
