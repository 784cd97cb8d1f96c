"""A fast model of simultaneous uplinks to one cell with one antenna.

The results of `PlainAir` and `SharedAir` are bit-identical; tests compare both. As long as devices do not move and each
device sends one burst (transmission) to the server, one array of senders replaces the general matrices of receivers and
senders. This saves about seventy calls for each start or end of a burst, which would take half of the computing time.
If a burst of any other kind starts, `SharedAir` computes all bursts until no burst is on the air.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from operator import mul, sub
from typing import final

import numpy as np

from fednet_emu.arrays import Array, Mask, least
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.kernel.streams import uniform
from fednet_emu.kernel.work import BIT, SCALE
from fednet_emu.network.air.band import Band, needed_ns, passed
from fednet_emu.network.air.roomy import others
from fednet_emu.network.air.separate import Air, Power, Rates
from fednet_emu.network.air.shared import BLOCKS, MOST_GAINS, NEAR_NS, SharedAir, blocks_after, end_of
from fednet_emu.network.air.sharing import Allocation, Sharing
from fednet_emu.network.air.transfer import Burst, Transfer
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.records.ledger import SERVER

_SNR, _POWER_S, _GAIN = range(3)
"""Row indices of the array that has one column per sender. The rows are the mean SNR (linear), the airtime so far in s
multiplied by the fraction of full power, and, from row `_GAIN` on, the fading gain in each planned block."""
_ROOM = 16


def shared_air(sharing: Sharing, band: Band, links: LinksOverTime, cells: int) -> Air:
    """Return the model of bursts that share a band: `PlainAir` if its conditions can be met, otherwise `SharedAir`."""
    rule, duty = sharing.plain_rule(), sharing.plain_duty
    at_rest, alone = links.until_ns() == FOREVER_NS, band.reception.antennas == 1 and not band.reception.NULLS
    shares = rule is not None or duty is not None
    if not shares or cells > 1 or band.down or not at_rest or not alone or band.slotted or band.outage_sinr > 0:
        return SharedAir(sharing, band, links, cells)
    return PlainAir(rule, band, SharedAir(sharing, band, links), duty)


@final
class PlainAir(Air):
    """Simultaneous uplink bursts to one cell; each device sends one burst to the server, and devices do not move.

    Args:
        rule: function that returns the SINR and the band share of each sender, see `Sharing.plain_rule`; None if
            senders take turns.
        band: the band, with one antenna, without slots, and with a rate law without outage.
        general: a `SharedAir` of the band without bursts, which takes over if other bursts start.
        duty: share of the time in which one of the senders radiates power, see `Sharing.plain_duty`; None if all
            senders transmit all the time.
    """

    def __init__(
        self, rule: Callable[[Array], Allocation] | None, band: Band, general: SharedAir, duty: float | None = None
    ) -> None:
        self.rule, self._band, self._general, self.is_plain = rule, band, general, True
        self._duty, self._power, self.blocks, self._since_ns = duty, 1.0, BLOCKS, 0
        fading, self._doubtful_snr = band.fading.combined(1), band.doubtful_snr
        self._gain_of, self._steady_gain = fading.gain, fading.gain(0.5) if band.constant else None
        self._of: Array = np.empty((_GAIN if self._steady_gain is None else _GAIN + 1, _ROOM))
        self._clear()

    def _clear(self) -> None:
        self._senders: set[int] = set()
        self._bursts: list[Burst] = []  # in the order of the columns of `_of`, which has spare columns
        self._work: list[int] = []
        self._until_ns: list[int] = []
        self._first_until_ns = FOREVER_NS
        self._numbers: list[int] = [] if self._steady_gain is None else [0]  # numbers of the blocks with cached gains
        self._edges_ns: list[int] = []  # edges of the planned blocks; empty without a plan
        self._rate_bps: Array = np.empty((0, 0))  # [blocks, senders]
        self._next_ns = self._end_ns = FOREVER_NS
        self._due: list[int] = []  # indices of the bursts that are delivered at `_end_ns`

    def start(self, bursts: list[Burst], now_ns: int) -> int:
        """Start bursts; `SharedAir` takes over if a burst violates the conditions of this class."""
        if bursts and not self.is_plain and not len(self._general):
            self.is_plain, self.blocks = True, self._general.blocks
        if not self.is_plain:
            return self._general.start(bursts, now_ns)
        for burst in bursts:
            leg = burst[0]
            is_known = len(burst) > 1 or leg.receiver != SERVER or leg.sender in self._senders
            if is_known or leg.size_bit <= 0 or leg.snr <= self._doubtful_snr:
                self._hand_over(now_ns)
                return self._general.start(bursts, now_ns)
            self._senders.add(leg.sender)
        before, count = len(self._bursts), len(self._bursts) + len(bursts)
        if count > self._of.shape[1]:
            known, self._of = self._of, np.empty((len(self._of), 2 * count))
            self._of[:, :before] = known[:, :before]
        if bursts:
            self._since_ns, self._edges_ns, columns = now_ns, [], self._of[:, before:count]
            columns[_SNR], columns[_POWER_S] = [leg.snr for (leg,) in bursts], 0.0
            self._bursts += bursts
            self._work += [leg.size_bit * BIT for (leg,) in bursts]
            self._until_ns += [leg.until_ns for (leg,) in bursts]
            self._first_until_ns = min(self._first_until_ns, *self._until_ns[before:])
            if self._numbers:
                columns[_GAIN:] = self._gains(bursts) if self._steady_gain is None else self._steady_gain
        if self._bursts and not self._edges_ns:
            self._plan()
        return self._next_ns if self._bursts else FOREVER_NS

    def _hand_over(self, now_ns: int) -> None:
        self.is_plain, general, of = False, self._general, self._of[:, : len(self._bursts)]
        general.blocks = self.blocks
        if self._bursts:
            general.go_on(self._bursts, self._work, of[_POWER_S], np.array(self._numbers), of[_GAIN:].T, now_ns)
        self._clear()

    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        if not self.is_plain:
            self._general.cut(leg, burst, now_ns)
        elif burst in self._bursts:
            self._until_ns[self._bursts.index(burst)] = self._first_until_ns = now_ns

    def extend(self, leg: Transfer, bits: int) -> None:
        if self.is_plain:
            self._hand_over(self._since_ns)
        self._general.extend(leg, bits)

    def advance(self, now_ns: int) -> list[Burst]:
        if not self.is_plain:
            return self._general.advance(now_ns)
        gone: list[int] = []
        edges_ns, until_ns = self._edges_ns, self._until_ns
        if edges_ns and now_ns > self._since_ns:
            power_s = self._of[_POWER_S, : len(until_ns)]
            for block, span_ns in passed(edges_ns, now_ns) if len(edges_ns) > 2 else ((0, now_ns - edges_ns[0]),):
                per_ns = map(int, (self._rate_bps[block] * SCALE).tolist())
                self._work = list(map(sub, self._work, map(mul, per_ns, repeat(span_ns))))
                power_s += self._power * (span_ns / NS_PER_S)
            one_block = len(edges_ns) == 2 and now_ns < edges_ns[1]
            self.blocks = 1 if one_block else blocks_after(edges_ns, now_ns, self.blocks)
            if now_ns >= self._end_ns:
                gone = self._due
                for place in gone:
                    self._work[place] = 0
            self._edges_ns = []
        self._since_ns = now_ns
        if now_ns >= self._first_until_ns:
            over = [place for place, its_ns in enumerate(until_ns) if its_ns <= now_ns]
            gone = over + [place for place in gone if place not in over]
            self._first_until_ns = min([its_ns for its_ns in until_ns if its_ns > now_ns], default=FOREVER_NS)
        bursts, work, of = self._bursts, self._work, self._of
        ended = [bursts[place] for place in gone]
        for place, (leg,) in zip(gone, ended, strict=True):
            left, leg.power_s = work[place], float(of[_POWER_S, place])
            leg.transmitted_bit = leg.size_bit - left / BIT
            leg.lost = leg.until_reason if left else ""
            self._senders.remove(leg.sender)
        if len(gone) == 1:
            of[:, gone[0] : len(work) - 1] = of[:, gone[0] + 1 : len(work)]
        elif gone:
            of[:, : len(work) - len(gone)] = of[:, others(np.array(gone), len(work))]
        if gone:
            self._edges_ns = []
        for place in sorted(gone, reverse=True):
            del bursts[place], work[place], until_ns[place]
        if not bursts:
            self._first_until_ns, self._numbers = FOREVER_NS, [] if self._steady_gain is None else [0]
        return ended

    def powers(self) -> Iterator[Power]:
        if not self.is_plain:
            yield from self._general.powers()
        elif self._edges_ns:
            for burst in self._bursts:
                yield burst[0], self._edges_ns[:1], [self._power]

    def rates(self) -> Iterator[Rates]:
        if not self.is_plain:
            yield from self._general.rates()
        elif self._edges_ns:
            for place, burst in enumerate(self._bursts):
                yield burst, self._edges_ns[:-1], self._rate_bps[None, :, place]

    def _plan(self) -> None:
        band, since_ns, work, n = self._band, self._since_ns, self._work, len(self._work)
        edges_ns = self._know_gains() if self._steady_gain is None else [since_ns, FOREVER_NS]
        snr, one_block = self._of[_SNR, :n] * self._of[_GAIN:, :n], len(edges_ns) == 2
        share: Array | float = 1.0 / n
        carries: Mask | None = None
        if self._duty is not None:
            self._power, sinr = self._duty / n, snr / share
        elif self.rule is not None:
            sinr, share, _, carries = self.rule(snr)
        rate_bps = band.law.rates_bps(sinr, band.bandwidth_hz * share)
        if band.threshold > 0:
            rate_bps = np.where(sinr >= band.threshold, rate_bps, 0.0)
        if carries is not None:
            rate_bps = np.where(carries, rate_bps, 0.0)
        left = np.fromiter(map(float, work), np.float64, len(work))
        left /= SCALE
        through = one_block and least(rate_bps[0]) > 0.0
        needed = left / rate_bps[0] if through else needed_ns(np.array(edges_ns), rate_bps.T, left)
        soonest, end_ns = float(least(needed)), FOREVER_NS
        due: list[int] = []
        if since_ns + soonest < edges_ns[-1] + NEAR_NS:
            for place in (needed <= soonest + NEAR_NS).nonzero()[0].tolist():
                per_ns = int(float(rate_bps[0, place]) * SCALE)
                its_end_ns = since_ns - -work[place] // per_ns if per_ns else FOREVER_NS
                if its_end_ns > edges_ns[1]:  # the burst does not end in the first block
                    its_end_ns = end_of(work[place], rate_bps[:, place], edges_ns)
                if its_end_ns < end_ns:
                    end_ns, due = its_end_ns, [place]
                elif its_end_ns == end_ns:
                    due.append(place)
        self._edges_ns, self._rate_bps, self._end_ns, self._due = edges_ns, rate_bps, end_ns, due
        self._next_ns = min(self._first_until_ns, edges_ns[-1], end_ns)

    def _know_gains(self) -> list[int]:
        """Draw the fading gains of the next blocks, and return the edges of these blocks in ns.

        Gains that are already drawn for the last plan are reused.
        """
        since_ns, length_ns, known = self._since_ns, self._band.coherence_ns, self._numbers
        self._band.check_blocks(self._bursts[0][0].started_ns, since_ns)
        blocks = max(1, min(self.blocks, MOST_GAINS // len(self._work)))
        if blocks == 1:
            first = since_ns // length_ns
            edges_ns, numbers = [since_ns, (first + 1) * length_ns], [first]
        else:
            edges, planned = self._band.blocks(since_ns, blocks)
            edges_ns, numbers = edges.tolist(), planned.tolist()
        if numbers != known:
            before, n, self._numbers = self._of, len(self._bursts), numbers
            if known and known[0] <= numbers[0] and numbers[-1] <= known[-1]:
                skip = _GAIN + numbers[0] - known[0]
                gains: Array | float = before[skip : skip + len(numbers), :n]
            else:
                gains = self._gains(self._bursts)
            if len(before) != _GAIN + len(numbers):
                self._of = np.empty((_GAIN + len(numbers), n + _ROOM))
                self._of[:_GAIN, :n] = before[:_GAIN, :n]
            self._of[_GAIN:, :n] = gains
        return edges_ns

    def _gains(self, bursts: list[Burst]) -> Array | float:
        if len(bursts) == len(self._numbers) == 1:
            key = bursts[0][0].fading_key
            return self._gain_of(uniform(key, self._numbers[0]), key & 1 == 1)
        keys = np.array([leg.fading_key for (leg,) in bursts], np.uint64)
        return self._band.gains(keys[None, :], np.array(self._numbers, np.int64)[:, None])
