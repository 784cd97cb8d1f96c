"""The transfers of a cohort, computed as arrays without events: a broadcast to all devices, and an upload per device.

If no transfer is lost, all start and end times follow from the requests alone. The computed times are bit-identical to
those of `Medium`. A method returns None if a transfer may be lost or may end early. The state of the medium is then
unchanged, and the caller must send the transfers one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from fednet_emu.arrays import Array, IntArray, Keys
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.kernel.streams import uniform
from fednet_emu.kernel.work import BIT, SCALE
from fednet_emu.network.access.base import RatedAccess
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.air.band import ROUGHLY
from fednet_emu.network.air.plain import PlainAir
from fednet_emu.network.air.separate import BandAir
from fednet_emu.network.air.transfer import Grant, Message, Transfer
from fednet_emu.network.medium.medium import Medium
from fednet_emu.network.medium.shared_cohort import Ended, SharedCohort, SharedRequests
from fednet_emu.records.ledger import SERVER, SEVERAL
from fednet_emu.records.reasons import CODE


class Uploads(NamedTuple):
    """Uploads that the links deliver, sorted by end time, and uploads with equal end times by request.

    Attributes:
        device: [uploads] the sender.
        size_bit: [uploads] number of bits on the air.
        requested_ns, started_ns, ended_ns: [uploads] times in ns.
        air_s: [uploads] airtime in s, times the share of the sender's power.
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
    """One upload, with those attributes of `Uploads` that faults read."""

    sender: int
    size_bit: int
    requested_ns: int
    started_ns: int
    receiver: int = SERVER
    grant: Grant[float] | None = None


@final
class CohortBand:
    """Broadcasts and uploads of cohorts on one medium.

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
        """True if `broadcast_end_ns` may be called."""
        self.uploads = (
            medium.is_certain
            and not medium.turns.clustered
            and ((alone and places == 1) or (isinstance(air, PlainAir) and places is None))
        )
        """True if `upload` may be called."""

    @property
    def is_idle(self) -> bool:
        return self._medium.is_idle

    def broadcast_end_ns(self, devices: IntArray, size_bit: int, now_ns: int) -> int | None:
        """End time in ns of a broadcast to `devices` [n] that starts now; None if a device may be out of reach."""
        band, (snr, keys) = self._medium.band, self._links(devices, down=True)
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
        """Record a broadcast of the payload with this number to `devices` [n], which are in increasing order."""
        medium, n = self._medium, len(devices)
        ledger, radios, air_s = medium.ledger, medium.radios, (ended_ns - started_ns) / NS_PER_S
        energy_j = medium.drawn_w(SERVER) * air_s + radios.transmit_j_per_bit * float(size_bit)
        each_j, (snr, _) = np.zeros(n), self._links(devices, down=True)
        if radios.receive_w is not None:
            each_j = radios.receive_w.of(devices) * (ended_ns - started_ns) / NS_PER_S
        if radios.receive_j_per_bit:
            each_j = each_j + radios.receive_j_per_bit * float(size_bit)
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
        """Compute one upload from each of the distinct `devices` [n]; None if an upload may be lost."""
        snr, keys = self._links(devices, down=False)
        limit_ns = self._until_ns(snr, keys, size_bit)
        if limit_ns is None:
            return None
        order = np.lexsort((devices, requested_ns))
        uploads = SharedRequests(size_bit[order], requested_ns[order], limit_ns[order], snr[order], keys[order])
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

    def _in_turn(self, rows: list[Any]) -> list[tuple[int, int, int, float]] | None:
        """Compute uploads that take turns: return row index, start in ns, end in ns and airtime in s of each upload."""
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

    def _as_columns(self, uploads: SharedRequests) -> Ended | None:
        """Return the result of `_together`, computed with arrays; None if only `_together` can compute the result."""
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

    def _together(self, rows: list[Any]) -> list[tuple[int, int, int, float]] | None:
        """Compute uploads that share the band: return row index, start in ns, end in ns and airtime in s of each."""
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
        """Return the reason for which a fault loses each upload; an empty string for an upload that arrives."""
        if not self.loses:
            return [""] * len(sent.device)
        rows = zip(*(column.tolist() for column in sent[:4]), strict=True)
        return [self._medium.faults.fate(Carried(device, *each)) for device, *each in rows]

    def record_uploads(self, sent: Uploads, numbers: IntArray, fates: Sequence[str]) -> Array:
        """Record uploads; return the energy in J of each upload [uploads].

        `numbers` are the numbers of the payloads in the records, and `fates` the reasons for losses. The caller adds
        the energies to the total energy of the ledger.
        """
        medium, n, size_bit = self._medium, len(sent.device), sent.size_bit.astype(np.float64)
        ledger, radios = medium.ledger, medium.radios
        energy_j = sent.power_w * sent.air_s + radios.transmit_j_per_bit * size_bit
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

    def _links(self, devices: IntArray, *, down: bool) -> tuple[Array, Keys]:
        links, station = self._medium.links.now(), np.full(len(devices), SERVER)
        ends = (station, devices) if down else (devices, station)
        return links.snrs(*ends), links.fading_keys(*ends)

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
