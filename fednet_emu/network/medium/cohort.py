"""Transfers of a cohort of devices, computed with arrays instead of events: a broadcast, and one upload per device.

If no transfer is lost, all start and end times follow from the requests alone. The computed times are bit-identical to
those of `Medium`. If a transfer may be lost or may end early, a method returns None and leaves the state of the medium
unchanged. The caller must then send the transfers one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from fednet_emu.arrays import Array, IntArray, Keys, least
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.kernel.streams import uniform
from fednet_emu.kernel.work import BIT, SCALE
from fednet_emu.network.access.base import RatedAccess
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.air.band import MOST_BLOCKS, ROUGHLY, Band
from fednet_emu.network.air.plain import PlainAir
from fednet_emu.network.air.separate import BandAir
from fednet_emu.network.air.shared import MOST_GAINS, NEAR_NS, blocks_after
from fednet_emu.network.air.sharing import Allocation
from fednet_emu.network.air.transfer import Grant, Message, Transfer
from fednet_emu.network.links.links import CellLinks
from fednet_emu.network.medium.medium import Medium
from fednet_emu.records.ledger import SERVER, SEVERAL
from fednet_emu.records.reasons import CODE

_ROUNDING = 2.0**-49  # several times the rounding error of a product and a quotient
_MOST_CHANGES = 8
"""Maximum number of transmission starts and ends for which rates are computed in advance."""
_SPARE = 16
_SNR, _POWER_S, _LEFT, _ERROR, _GAIN = range(5)
"""Row indices of the array that has one column per sender. The rows are the mean SNR (linear), the airtime in s, the
remaining bits times 1e9, the rounding error of the remaining bits times 1e9, and, from row `_GAIN` on, the fading gains
of the planned blocks. For a sender whose upload has ended, the number of remaining bits is set to infinity."""


Requests = tuple[IntArray, IntArray, IntArray, Array, Keys]
"""Uploads in the order of their requests: arrays [uploads] of the sizes in bits, the request times in ns, the timeouts
in ns, the mean SNRs (linear), and the keys of the fading draws."""

Ended = list[tuple[int, int, int, float]]
"""Uploads sorted by end time. Each item is (index of the upload, start time in ns, end time in ns, airtime in s)."""


@final
class SharedCohort:
    """Computes the uploads of one cohort on an idle band; all times are bit-identical to those of `PlainAir`.

    `PlainAir`, the model with events, counts remaining bits in large integers. This class stores the remaining bits as
    a float together with its rounding error (Fast2Sum, Dekker 1971), and computes the rates for several possible
    numbers of senders in one step. If rounding errors make an end time uncertain, the result is None.

    Args:
        rule: function that returns the SINR and the band share of each sender, see `Sharing.plain_rule`.
        share: function that returns the share of the band for each of n senders, given n; None if rates depend on more
            than the number of senders.
        blocks: number of fading blocks whose gains are drawn together at first.
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

    def play(self, uploads: Requests) -> Ended | None:
        """Return the start time, end time and airtime of each upload.

        The result is None if an upload may be lost, or if rounding errors make an end time uncertain.
        """
        self._size_bit, starts_ns, limits_ns, self._snr, self._key = uploads
        requested_ns, self._limit_ns = starts_ns.tolist(), limits_ns.tolist()
        self._started_ns, place, now_ns, total = requested_ns, 0, requested_ns[0], len(requested_ns)
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
            The edges [blocks + 1] of these blocks in ns.
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
        """Add a column for each new sender to the array of senders, and fill all rows except the fading gains."""
        of = self._of
        for column, place in enumerate(self._new, len(self._place)):
            of[_SNR, column], of[_LEFT, column] = self._snr[place], self._size_bit[place] * float(NS_PER_S)
            of[_POWER_S, column] = of[_ERROR, column] = 0.0
            self._until_ns = min(self._until_ns, now_ns + self._limit_ns[place])
        self._place += self._new
        self._risen += len(self._new)

    def _draw(self, begin: int, first: int, count: int) -> None:
        """Draw the fading gains of senders from column `begin` on, for `count` fading blocks from number `first` on."""
        places = self._place[begin:]
        if len(places) == count == 1 and not self._band.constant:
            key = self._key.item(places[0])
            self._of[_GAIN, begin] = self._gain_of(uniform(key, first), key & 1 == 1)
        else:
            numbers = np.arange(first, first + count)[:, None]
            self._of[_GAIN:, begin : len(self._place)] = self._band.gains(self._key[places][None, :], numbers)

    def _keep(self, more: int, rows: int) -> None:
        """Remove the columns of senders that have ended; reserve `rows` rows and at least `more` new columns."""
        kept, old = self._on_air(), self._of
        n, same = len(kept), min(rows, len(old))
        self._of = np.zeros((rows, n + more + _SPARE))
        self._of[:same, :n] = old[:same, kept]
        self._place = [self._place[column] for column in kept.tolist()]
        self._table = None

    def _on_air(self) -> IntArray:
        return np.flatnonzero(self._of[_LEFT, : len(self._place)] < np.inf)

    def _rates(self, block: int, row: int) -> Array:
        """Return the rates [columns] in bit/s of all senders in the fading block with the number `block`.

        `row` is the index of this block among the planned blocks.
        """
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
        """Fill in advance the columns of the senders that will probably start in the fading block number `block`.

        Returns:
            The number of filled columns, including the columns of current senders.
        """
        column, place = len(self._place), self._next
        most = min(place + _MOST_CHANGES, len(self._started_ns), place + self._of.shape[1] - column)
        while place < most and self._started_ns[place] // self._band.coherence_ns == block:
            key = self._key.item(place)
            self._of[_SNR, column] = self._snr[place]
            self._of[_GAIN, column] = self._gain_of(uniform(key, block), key & 1 == 1)
            place, column = place + 1, column + 1
        return column

    def _extended(self, table: Array, columns: slice, row: int = 0) -> Array | None:
        """Fill the columns `columns` of a table of rates; return the table, or None if rates depend on other columns.

        `row` is the index of the fading block among the planned blocks.
        """
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

        The result is None if an upload reaches its timeout, or if rounding errors make its end time uncertain.
        `edges_ns` contains the edges of the planned fading blocks in ns, and `next_ns` is the time of the next request
        in ns.
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
        """Return the end time in ns of the upload in a column at its current rate; None if rounding errors matter."""
        place, rate = self._place[column], rate_bps.item(column)
        needed = (self._of.item(_LEFT, column) + self._of.item(_ERROR, column)) / rate
        whole = math.ceil(needed)
        size, lasted_ns = self._size_bit.item(place) * NS_PER_S, now_ns - self._started_ns[place]
        error = (_ROUNDING * size + lasted_ns / SCALE) / rate
        return now_ns + whole if whole - needed > error and needed - (whole - 1) > error else None

    def _end(self, due: list[int], now_ns: int) -> bool:
        """End the uploads in the columns `due` now; return True if none of these uploads has exceeded its timeout."""
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


class Uploads(NamedTuple):
    """Uploads of a cohort that the links deliver, sorted by end time, then by the order of requests.

    Attributes:
        device: [uploads] number of the sending device.
        size_bit: [uploads] number of bits on the air.
        requested_ns, started_ns, ended_ns: [uploads] times in ns.
        air_s: [uploads] airtime in s, multiplied by the fraction of its full power that the sender uses.
        power_w: [uploads] power in W that the sender consumes while it transmits.
        snr: [uploads] mean SNR (linear).
    """

    device: IntArray
    size_bit: IntArray
    requested_ns: IntArray
    started_ns: IntArray
    ended_ns: IntArray
    air_s: Array
    power_w: Array
    snr: Array


@dataclass(slots=True)
class Carried:
    """One upload, with only those attributes that models of random loss read."""

    sender: int
    size_bit: int
    requested_ns: int
    started_ns: int
    receiver: int = SERVER
    grant: Grant[float] | None = None


@final
class CohortBand:
    """Computes the broadcasts to cohorts of devices, and the uploads from cohorts, on one medium.

    Args:
        medium: the medium, with one cell and any number of antennas.
    """

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        air, places = medium.air, medium.turns.places
        alone = isinstance(air, BandAir)
        self.loses = bool(medium.faults.losing)
        """True if transfers may be lost at random."""
        self.broadcasts = medium.is_certain and not self.loses and alone and medium.settings.broadcasts
        """True if the medium meets the conditions for calls of `broadcast_end_ns`."""
        self.uploads = (
            medium.is_certain
            and not medium.turns.clustered
            and ((alone and places == 1) or (isinstance(air, PlainAir) and places is None))
        )
        """True if the medium meets the conditions for calls of `upload`."""

    @property
    def is_idle(self) -> bool:
        return self._medium.is_idle

    def broadcast_end_ns(self, devices: IntArray, size_bit: int, now_ns: int) -> int | None:
        """Return the end time in ns of a broadcast to `devices` [n] that starts now.

        The result is None if a device may be out of reach.
        """
        band, (snr, keys) = self._medium.band, self._links(devices)
        until_ns = self._until_ns(snr, keys, np.full(len(devices), size_bit))
        if until_ns is None:
            return None
        soon_ns, is_through, _ = band.soon_through(snr, keys, size_bit, now_ns)
        last_ns = soon_ns[is_through].max(initial=now_ns)
        decisive = ~is_through | (soon_ns >= last_ns - 1 - (last_ns - now_ns) * ROUGHLY)
        limit_ns = now_ns + int(until_ns.min())
        ends_ns, carried_bit = zip(*(
            band.alone(each, key, size_bit, now_ns, limit_ns)[:2]
            for each, key in zip(snr[decisive].tolist(), keys[decisive].tolist(), strict=True)
        ), strict=True)  # fmt: skip
        return max(ends_ns) if min(carried_bit) == size_bit else None

    def record_broadcast(self, devices: IntArray, size_bit: int, number: int, started_ns: int, ended_ns: int) -> None:
        """Record a broadcast of the payload number `number` to `devices` [n], which must be in increasing order."""
        medium, n = self._medium, len(devices)
        ledger, radios, air_s = medium.ledger, medium.radios, (ended_ns - started_ns) / NS_PER_S
        energy_j = medium.drawn_w(SERVER) * air_s + radios.tx_j_per_bit * float(size_bit)
        each_j, (snr, _) = np.zeros(n), self._links(devices)
        if radios.rx_consumption_w is not None:
            each_j = radios.rx_consumption_w.of(devices) * (ended_ns - started_ns) / NS_PER_S
        if radios.rx_j_per_bit:
            each_j = each_j + radios.rx_j_per_bit * float(size_bit)
        rx_energy_j = sum(each_j.tolist())
        if n > 1:
            ledger.receptions.extend(
                transfer=np.full(n, len(ledger.transfers)),
                receiver=devices,
                loss_reason=np.zeros(n),
                rx_energy_j=each_j,
                snr=snr,
            )
        receiver = SEVERAL if n > 1 else int(devices[0])
        ledger.transfers.append((
            medium.kind, SERVER, receiver, n, size_bit, number, started_ns, started_ns, ended_ns,
            float(size_bit), size_bit * n, 0, energy_j, rx_energy_j, 0, float(snr.min()),
        ))  # fmt: skip
        ledger.offered_bit[medium.kind] += size_bit * n
        ledger.sent_bit[medium.kind] += size_bit
        ledger.energy_j += energy_j + rx_energy_j

    def upload(self, devices: IntArray, size_bit: IntArray, requested_ns: IntArray) -> Uploads | None:
        """Compute one upload from each of `devices` [n], which must be distinct; return None if an upload may be lost.

        `size_bit` [n] contains the sizes in bits, and `requested_ns` [n] the request times in ns.
        """
        snr, keys = self._links(devices)
        limit_ns = self._until_ns(snr, keys, size_bit)
        if limit_ns is None:
            return None
        order = np.lexsort((devices, requested_ns))
        uploads = size_bit[order], requested_ns[order], limit_ns[order], snr[order], keys[order]
        in_turn = self._medium.turns.places == 1
        ended = None if in_turn else self._as_columns(uploads)
        if ended is None:
            rows = list(zip(devices[order].tolist(), *(column.tolist() for column in uploads), strict=True))
            ended = self._in_turn(rows) if in_turn else self._together(rows)
        if ended is None:
            return None
        place, started_ns, ended_ns, air_s = (np.array(column) for column in zip(*ended, strict=True))
        order = order[place]
        radios, drawn_w = self._medium.radios, np.full(len(order), self._medium.radios.full_w)
        if radios.differ:
            drawn_w = np.array([self._medium.drawn_w(k) for k in devices[order].tolist()])
        of_sender = devices[order], size_bit[order], requested_ns[order]
        return Uploads(*of_sender, started_ns, ended_ns, air_s, drawn_w, snr[order])

    def _in_turn(self, rows: list[Any]) -> Ended | None:
        """Compute uploads that are sent one at a time; return None if an upload may be lost."""
        band, free_ns, ended = self._medium.band, 0, []
        share, bandwidth_hz, threshold, gain, rate_of, coherence_ns, constant = band.for_one
        is_plain = share == 1.0 and threshold <= 0.0 and not constant
        for place, (_, size_bit, requested_ns, limit_ns, snr, key) in enumerate(rows):
            start_ns = requested_ns if requested_ns > free_ns else free_ns
            free_ns = FOREVER_NS
            if is_plain:  # first block of `Band.alone`, inlined because few uploads need more blocks
                block = start_ns // coherence_ns
                per_ns = int(rate_of(snr * gain(uniform(key, block), key & 1 == 1), bandwidth_hz) * SCALE)
                if per_ns:
                    free_ns = start_ns - -(size_bit * BIT) // per_ns
            if free_ns > start_ns + limit_ns or not is_plain or free_ns > (block + 1) * coherence_ns:
                free_ns, transmitted_bit, _ = band.alone(snr, key, size_bit, start_ns, start_ns + limit_ns)
                if transmitted_bit < size_bit:
                    return None
            ended.append((place, start_ns, free_ns, (free_ns - start_ns) / NS_PER_S))
        return ended

    def _as_columns(self, uploads: Requests) -> Ended | None:
        """Compute uploads that share the band with `SharedCohort`, which uses arrays instead of one object per upload.

        The result is None if `SharedCohort` does not support the access scheme or the transmission model, if an upload
        may be lost, or if rounding errors make an end time uncertain.
        """
        air, access = self._medium.air, self._medium.settings.access
        if not isinstance(air, PlainAir) or not air.is_plain or not isinstance(access, RatedAccess):
            return None
        if air.rule is None:  # senders take turns, so each sends for only a part of the time
            return None
        share = access.share if isinstance(access, Ofdma) else None
        cohort = SharedCohort(self._medium.band, air.rule, share, air.blocks)
        ended = cohort.play(uploads)
        if ended is not None:
            air.blocks = cohort.blocks
        return ended

    def _together(self, rows: list[Any]) -> Ended | None:
        """Compute uploads that share the band; return None if an upload may be lost."""
        medium, air = self._medium, self._medium.air
        assert isinstance(air, PlainAir)
        before, ended, next_ns, place = air.blocks, [], FOREVER_NS, 0
        places: dict[Transfer, int] = {}
        while place < len(rows) or next_ns < FOREVER_NS:
            now_ns = next_ns if place == len(rows) else min(next_ns, rows[place][2])
            for (leg,) in air.advance(now_ns):
                ended.append((places[leg], leg.started_ns, now_ns, leg.power_s))
                place = len(rows) if leg.lost else place
            starting = []
            while place < len(rows) and rows[place][2] == now_ns:
                device, size_bit, _, limit_ns, snr, key = rows[place]
                leg = Transfer(medium.clock, medium.kind, medium.cancel, device, SERVER, Message(None, size_bit))
                leg.started_ns, leg.until_ns, leg.snr, leg.fading_key = now_ns, now_ns + limit_ns, snr, key
                places[leg] = place
                starting.append([leg])
                place += 1
            next_ns = air.start(starting, now_ns)
        if len(ended) == len(rows) and not any(leg.lost for leg in places):
            return ended
        air.blocks = before
        return None

    def fates(self, sent: Uploads) -> list[str]:
        """Return the reason for the random loss of each upload; an empty string for an upload that arrives."""
        if not self.loses:
            return [""] * len(sent.device)
        rows = zip(*(column.tolist() for column in sent[:4]), strict=True)
        return [self._medium.faults.fate(Carried(device, *each)) for device, *each in rows]

    def record_uploads(self, sent: Uploads, numbers: IntArray, fates: Sequence[str]) -> Array:
        """Record uploads; return the energy in J of each upload [uploads].

        `numbers` contains the numbers of the payloads in the records. `fates` contains the reasons for losses, which
        are empty for uploads that arrive. The caller adds the energies to the total energy of the ledger.
        """
        medium, n, size_bit = self._medium, len(sent.device), sent.size_bit.astype(np.float64)
        ledger, radios = medium.ledger, medium.radios
        energy_j = sent.power_w * sent.air_s + radios.tx_j_per_bit * size_bit
        zeros, lost = np.zeros(n), np.array([CODE[fate] for fate in fates])
        ledger.transfers.extend(
            direction=np.full(n, medium.kind), sender=sent.device, receiver=np.full(n, SERVER), receivers=np.ones(n),
            size_bit=sent.size_bit, value_id=numbers, requested_ns=sent.requested_ns, started_ns=sent.started_ns,
            ended_ns=sent.ended_ns, transmitted_bit=size_bit, delivered_bit=np.where(lost, 0, sent.size_bit),
            loss_reason=lost, energy_j=energy_j, rx_energy_j=zeros, cell=zeros,
            snr=sent.snr if medium.has_snr else zeros,
        )  # fmt: skip
        total_bit = int(sent.size_bit.sum())
        ledger.offered_bit[medium.kind] += total_bit
        ledger.sent_bit[medium.kind] += total_bit
        return energy_j

    def _links(self, devices: IntArray) -> tuple[Array, Keys]:
        links = self._medium.links.now()
        assert isinstance(links, CellLinks), "a cohort sends to the base station"
        return links.mean_snr[devices], links.own_keys[devices]

    def _until_ns(self, snr: Array, keys: Keys, size_bit: IntArray) -> IntArray | None:
        """Return the timeouts of transfers in ns [n]; None if a size is 0, or if a link may be too weak."""
        medium = self._medium
        if size_bit.min() <= 0 or snr.min() <= medium.band.doubtful_snr:
            return None
        limit_ns, patience = np.full(len(snr), medium.timeout_ns), medium.patience
        if patience is not None:
            sizes, which = np.unique(size_bit, return_inverse=True)
            for size in sizes.tolist():
                if math.isinf(patience.ample[size.bit_length()]):  # this SNR is not computed yet
                    patience.limit_ns(size, 1.0, los=False)
            ample = np.array([patience.ample[size.bit_length()] for size in sizes.tolist()])
            for place in np.flatnonzero(snr < ample[which]).tolist():
                los = bool(int(keys[place]) & 1)
                limit_ns[place] = patience.limit_ns(int(size_bit[place]), float(snr[place]), los=los)
        return limit_ns if limit_ns.min() > 0 else None
