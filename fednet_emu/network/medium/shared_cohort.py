"""Simultaneous uploads of a cohort, computed as arrays; all times are bit-identical to those of `PlainAir`.

`PlainAir` counts work in large integers. This module stores the remaining work as a float and its rounding error
(Fast2Sum, Dekker 1971), and computes the rates for several possible numbers of senders in one step. If rounding errors
make an end time uncertain, the result is None.
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

_ROUNDING = 2.0**-49  # several times the rounding error of a product and a quotient
_MOST_CHANGES = 8
"""Maximum number of transmission starts and ends for which rates are computed in advance."""
_SPARE = 16
_SNR, _POWER_S, _LEFT, _ERROR, _GAIN = range(5)
"""Row indices of the array that has one column per sender. The rows are the mean SNR (linear), the airtime in s, the
remaining bits times 1e9, the rounding error of the remaining bits times 1e9, and, from row `_GAIN` on, the fading gains
of the planned blocks. A sender whose upload has ended has infinite remaining bits."""


class SharedRequests(NamedTuple):
    """Uploads in the order of requests: sizes in bits, request times and timeouts in ns, mean SNRs, and fading keys."""

    size_bit: IntArray
    requested_ns: IntArray
    limit_ns: IntArray
    snr: Array
    key: Keys


Ended = list[tuple[int, int, int, float]]
"""Row index, start in ns, end in ns and airtime in s of each upload, sorted by end time."""


@final
class SharedCohort:
    """Computes the uploads of one cohort on an idle band.

    Args:
        band: the band, which meets the conditions of `PlainAir`.
        rule: function that returns the allocation of each sender, see `Sharing.plain_rule`.
        share: function that returns the share of the band for each of n senders, given n; None if rates depend on more
            than the number of senders.
        blocks: number of fading blocks in the next plan.
    """

    def __init__(
        self, band: Band, rule: Callable[[Array], Allocation], share: Callable[[int], float] | None, blocks: int
    ) -> None:
        self._band, self._rule, self._share, self.blocks = band, rule, share, blocks
        self._gain_of = band.fading.combined(1).gain
        self._ended: Ended = []
        self._next = 0  # index of the next upload
        self._clear()

    def _clear(self) -> None:
        self._n = 0
        """Number of senders on the air."""
        self._numbers = 0, 0  # number of the first block with cached gains, and count of these blocks
        self._risen = self._fallen = 0  # counts of upload starts and ends since the table was computed
        self._new: list[int] = []
        self._until_ns = FOREVER_NS
        self._place: list[int] = []  # index of the upload in each column
        self._of = np.empty((_GAIN, 0))
        self._table: Array | None = None  # [counts of senders, columns] rates in bit/s in the block `_block`
        self._shares = self._boosts = np.ones((1, 1))  # [counts of senders, 1] shares of the band, and their inverses
        self._block = self._least = self._foreseen = 0

    def play(self, uploads: SharedRequests) -> Ended | None:
        """Compute all uploads; return None if an upload may be lost or has an uncertain end time."""
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
        """Add the senders that start now and draw the fading gains of the next blocks.

        Returns:
        The edges of these blocks in ns.
        """
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
        """Add the columns of new senders, and fill all rows except the fading gains."""
        of, uploads = self._of, self._uploads
        for column, place in enumerate(self._new, len(self._place)):
            of[_SNR, column], of[_LEFT, column] = uploads.snr[place], uploads.size_bit[place] * float(NS_PER_S)
            of[_POWER_S, column] = of[_ERROR, column] = 0.0
            self._until_ns = min(self._until_ns, now_ns + self._limit_ns[place])
        self._place += self._new
        self._risen += len(self._new)

    def _draw(self, begin: int, first: int, count: int) -> None:
        """Draw the fading gains of all columns from `begin` on, for `count` blocks from the block number `first` on."""
        places = self._place[begin:]
        if len(places) == count == 1 and not self._band.constant:
            key = self._uploads.key.item(places[0])
            self._of[_GAIN, begin] = self._gain_of(uniform(key, first), key & 1 == 1)
        else:
            numbers = np.arange(first, first + count)[:, None]
            self._of[_GAIN:, begin : len(self._place)] = self._band.gains(self._uploads.key[places][None, :], numbers)

    def _keep(self, more: int, rows: int) -> None:
        """Drop the columns of senders that have ended; make room for `rows` rows and at least `more` new columns."""
        kept, old = self._on_air(), self._of
        n, same = len(kept), min(rows, len(old))
        self._of = np.zeros((rows, n + more + _SPARE))
        self._of[:same, :n] = old[:same, kept]
        self._place = [self._place[column] for column in kept.tolist()]
        self._table = None

    def _on_air(self) -> IntArray:
        return np.flatnonzero(self._of[_LEFT, : len(self._place)] < np.inf)

    def _rates(self, block: int, row: int) -> Array:
        """Rates [columns] in bit/s in the block with the number `block`, which is the block `row` of the plan."""
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
        """Fill the columns of the senders that will probably start in this block.

        Returns:
        The number of filled columns.
        """
        uploads, column, place = self._uploads, len(self._place), self._next
        most = min(place + _MOST_CHANGES, len(self._started_ns), place + self._of.shape[1] - column)
        while place < most and self._started_ns[place] // self._band.coherence_ns == block:
            key = uploads.key.item(place)
            self._of[_SNR, column] = uploads.snr[place]
            self._of[_GAIN, column] = self._gain_of(uniform(key, block), key & 1 == 1)
            place, column = place + 1, column + 1
        return column

    def _extended(self, table: Array, columns: slice, row: int = 0) -> Array | None:
        """Return the table of rates with `columns` filled in; None if their rates depend on other columns."""
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
        """Carry bits until an upload ends, the next upload is requested, or the plan ends; return this time in ns.

        The result is None if an upload reaches its timeout or has an uncertain end time.
        """
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
        of = self._of[:, : len(rate_bps)]
        before, done = of[_LEFT], rate_bps * span_ns
        after = before - done
        of[_ERROR] += (before - after) - done
        of[_LEFT] = after
        of[_POWER_S] += span_ns / NS_PER_S

    def _end_ns(self, column: int, rate_bps: Array, now_ns: int) -> int | None:
        """Return the end time in ns of an upload at its current rate; None if rounding errors make it uncertain."""
        place, rate = self._place[column], rate_bps.item(column)
        needed = (self._of.item(_LEFT, column) + self._of.item(_ERROR, column)) / rate
        whole = math.ceil(needed)
        size, lasted_ns = self._uploads.size_bit.item(place) * NS_PER_S, now_ns - self._started_ns[place]
        error = (_ROUNDING * size + lasted_ns / SCALE) / rate
        return now_ns + whole if whole - needed > error and needed - (whole - 1) > error else None

    def _end(self, due: list[int], now_ns: int) -> bool:
        """Take the senders in the columns `due` off the air; return True if no sender has exceeded its timeout."""
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
        places = [self._place[column] for column in self._on_air().tolist()]
        self._until_ns = min([self._started_ns[place] + self._limit_ns[place] for place in places], default=FOREVER_NS)
        return self._until_ns <= now_ns
