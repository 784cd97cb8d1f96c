"""5G NR in time-division duplex: slots, grants, their rates, and the delays before and after a transmission.

Times of patterns and grants are counted in slots from the start of a period.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, final

import numpy as np
from pydantic import Field
from typing_extensions import override

from fednet_emu.arrays import Array, exp10, log10
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.network.access.base import RatedAccess, Use
from fednet_emu.network.access.schedulers import best_of_each_block
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.sharing import Allocation, RateInputs, Sharing
from fednet_emu.network.air.transfer import Burst, Transfer
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.radio.nr.blocks import WINDOW_NS, NrBlocks
from fednet_emu.radio.nr.numerology import SUBCARRIERS_PER_BLOCK
from fednet_emu.radio.rates.base import OfLaw, RateLaw
from fednet_emu.radio.rates.narrowing import Narrowed

FRAME_MS = 10
"""Length of a radio frame in ms, into which a whole number of periods must fit (TS 38.213 clause 11.1)."""


@dataclass(frozen=True)
class TddPattern:
    """A periodic sequence of downlink (D), uplink (U) and special (S) slots in time-division duplex (TDD).

    Ignored here: the few symbols of a special slot that carry data.

    Attributes:
        slots: one letter D, S or U for each slot of the period.
        subcarrier_spacing_khz: subcarrier spacing, which is 15, 30, 60 or 120 kHz; a slot lasts 1 to 1/8 ms (TS 38.211
            clause 4.3.2).

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
        return 15_000_000 // self.subcarrier_spacing_khz

    def share(self, kind: str) -> float:
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


@dataclass(frozen=True)
class UplinkAccess:
    """Procedure by which a device gets uplink slots: scheduling request, buffer status report and grant.

    The procedure follows TS 38.321 clauses 5.4.4 and 5.4.5. Arriving data wait for an uplink slot in which the device
    may send a request. The base station needs `decode` slots to decode, and sends the grant in the next downlink or
    special slot. The granted slot is the first uplink slot at least `k2` slots after the grant, and carries the report.
    The same procedure then grants the first slot with data.
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

    @property
    def occasions(self) -> list[int]:
        """Uplink slots of a hyperperiod in which the device may send a request, in order of time."""
        pattern, period = self.pattern, self.hyperperiod
        first = pattern.next(0, "U")
        return sorted({pattern.next(first + n, "U") % period for n in range(0, period, self.sr_period)})

    @cached_property
    def bulk_slots(self) -> list[int]:
        """First slot with data, for data that arrive at the start of each slot of the hyperperiod [hyperperiod]."""
        occasions, period = self.occasions, self.hyperperiod
        bulk = [self.after(self.after(occasion)) for occasion in (*occasions, occasions[0] + period)]
        return [bulk[bisect_left(occasions, slot)] for slot in range(period)]


_STEP_DB = 0.01


class WholeBlocks(OfLaw):
    """Rate law of a grant of whole resource blocks, which receive the whole power of the sender.

    A link has the SINR s on the whole carrier of N blocks and B Hz. On M blocks, the SINR is s N / M and the rate is
    e(s N / M) B M / N, where e(x) is the spectral efficiency of `law` at the SINR x. The grant has the number M of
    blocks with the highest rate. The power headroom is therefore never negative (TS 38.213 clause 7.7.1): a sender
    whose power suffices for x blocks with a coding scheme gets at most floor(x) blocks with this scheme. Rates are
    taken from a table in steps of 0.01 dB, and are within 0.5 % of the best rate.
    Ignored here: the rounding of transport block sizes, which matters more in fewer blocks (0.5 % in ten blocks).
    """

    law: RateLaw
    """Rate law of a transmission on a part of the carrier."""

    count: int = Field(gt=0)
    """Number of resource blocks in the whole carrier."""

    fewest: int = Field(gt=0)
    """Number of resource blocks in the smallest grant."""

    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        return self.fewest / self.count

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        return float(self.rates_bps(np.array(sinr), bandwidth_hz))

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        best, last = self._best, len(self._best.efficiency_bps_hz) - 1
        with np.errstate(divide="ignore"):
            place = (10.0 * log10(np.asarray(sinr)) - best.low_db) / _STEP_DB
        rates_bps = bandwidth_hz * np.interp(place, np.arange(last + 1), best.efficiency_bps_hz, left=0.0)
        above = place >= last
        return np.where(above, self.law.rates_bps(sinr, bandwidth_hz), rates_bps) if above.any() else rates_bps

    @cached_property
    def _best(self) -> Best:
        max_db = 10.0 * float(np.log10(self.count / self.fewest))
        low_db = 10.0 * float(np.log10(self.law.min_sinr)) - max_db
        high_db = 10.0 * float(np.log10(self.law.peaks.max(initial=self.law.min_sinr)))
        sinr = exp10((low_db + _STEP_DB * np.arange(max(round((high_db - low_db) / _STEP_DB), 0) + 2)) / 10.0)
        best = np.zeros(len(sinr))
        for count in range(self.fewest, self.count + 1):
            part = count / self.count
            np.maximum(best, part * self.law.rates_bps(sinr / part, 1.0), out=best)
        return Best(low_db, best)


@dataclass(frozen=True, slots=True, eq=False)  # pydantic compares cached values by ==, which fails for arrays
class Best:
    """Highest efficiencies [points] of the carrier in bit/s/Hz, in steps of 0.01 dB of the SINR from `low_db` on."""

    low_db: float
    efficiency_bps_hz: Array


def in_whole_blocks(law: RateLaw, bandwidth_hz: float, block_hz: float) -> RateLaw:
    """Return a rate law in which a sender uses whole resource blocks of a carrier.

    `bandwidth_hz` is the width of the carrier in Hz, and `block_hz` the width of a block in Hz. If `law` is not of the
    class `Narrowed`, it is returned unchanged.
    """
    if not isinstance(law, Narrowed):
        return law
    count = int(bandwidth_hz / block_hz)
    if count < 2:
        return law.law
    fewest = min(max(int(np.ceil(law.narrowest_hz / block_hz - 1e-9)), 1), count)
    return WholeBlocks(law=law.law, count=count, fewest=fewest)


class InSlots(OfLaw):
    """Rate law of senders that take turns in slots, in each of which one sender has the whole band.

    A sender has the fraction x of the slots of its direction, and the SINR s in these slots. Its rate is the product of
    x, `share` and the rate of `law` at the SINR s on the whole band. The bandwidth argument of the methods is x times
    the width of the band, and their SINR argument is s / x, as if all power were in the part x of the band.
    """

    law: RateLaw
    """Rate law of a transmission on the whole band."""

    whole_hz: float = Field(gt=0)
    """Width of the band in Hz."""

    share: float = Field(gt=0, le=1)
    """Share of all slots that carry transmissions in this direction."""

    @property
    def peaks(self) -> Array:
        return self.law.peaks

    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        return self.law.narrowest_part(self.whole_hz)

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        part = bandwidth_hz / self.whole_hz
        return part * self.share * self.law.rate_bps(sinr * part, self.whole_hz)

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        part = bandwidth_hz / self.whole_hz
        return part * self.share * self.law.rates_bps(sinr * part, self.whole_hz)


@final
class Climbing(Sharing):
    """Sharing of slots between transfers whose modulation and coding scheme (MCS) rises with the time since the start.

    A transfer has only the fraction of its full rate that its current MCS permits.
    """

    overlapping = False

    def __init__(self, slots: Sharing, law: NrBlocks) -> None:
        self._slots, self._law = slots, law
        self.begun: list[int] = []
        """Indices of the 100 ms windows in which the transfers on the air began, in the order of bursts."""

    @override
    def power(self, inputs: RateInputs) -> Array | None:
        return self._slots.power(inputs)

    @override
    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        plain = self._slots.allocate(inputs, power)
        begun = np.array(self.begun)[inputs.active.burst]
        part = self._law.climbed(plain.sinr * plain.share, inputs.numbers - begun[:, None])
        sinr = np.divide(
            plain.sinr, part, out=np.zeros(np.broadcast_shapes(plain.sinr.shape, part.shape)), where=part > 0
        )
        return plain._replace(sinr=sinr, share=plain.share * part)


@final
class ClimbingAir(SharedAir):
    """Transmissions in the slots of one cell, with coding schemes that rise with the time since a transfer's start."""

    def __init__(self, slots: Sharing, band: Band, law: NrBlocks, links: LinksOverTime) -> None:
        self._climbing, self._bursts = Climbing(slots, law), list[Burst]()
        super().__init__(self._climbing, band, links)

    @override
    def start(self, bursts: list[Burst], now_ns: int) -> int:
        for burst in bursts:
            leg = burst[0]
            begun_ns = now_ns if leg.phases is None else leg.requested_ns + leg.phases.wait_ns
            self._bursts.append(burst)
            self._climbing.begun.append(begun_ns // WINDOW_NS)
        return super().start(bursts, now_ns)

    @override
    def advance(self, now_ns: int) -> list[Burst]:
        ended = super().advance(now_ns)
        for burst in ended:
            place = next(place for place, other in enumerate(self._bursts) if other is burst)
            del self._bursts[place], self._climbing.begun[place]
        return ended


_MOST_REPEATS = 3


class NrGrants(RatedAccess):
    """5G NR in time-division duplex: senders take turns in the uplink or downlink slots of a pattern.

    An uplink starts with a scheduling request, a grant for the buffer status report, and a grant for the first data (TS
    38.321 clauses 5.4.4 and 5.4.5); this takes 10.5 to 30.5 ms with the defaults. Each device may send requests in
    periodic uplink slots, which are drawn once. A downlink waits for the next downlink slot. A transfer ends with the
    time to decode its last block. Each transmission of the last block fails with probability `bler`, and each
    repetition takes one more round trip. In its slots, a sender has the whole band at full power; only these slots
    count for energy. Rates are averaged over slots, with an error of at most one slot per device and turn. The slots of
    all cells are synchronous.
    Ignored here: data in special slots, lost requests, requests that current transfers make unnecessary, contention
    for grants, and RLC segmentation.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})

    pattern: str = "DDDSU"
    """Slots of a period, one letter each: D is a downlink slot, U an uplink slot, and S a special slot between them,
    which carries no data. A whole number of periods must fit into 10 ms."""

    subcarrier_spacing_khz: Literal[15, 30, 60, 120] = 30
    """Subcarrier spacing in kHz; a slot lasts 1, 0.5, 0.25 or 0.125 ms. Must equal the key of the same name in
    `channel`, if that key is set."""

    sr_period_s: float = Field(default=0.02, gt=0)
    """Time in s between two occasions at which a device may send a scheduling request; a whole number of slots."""

    k2_slots: int = Field(default=4, ge=1, le=32)
    """Minimum number of slots from a grant to the granted slot."""

    decode_slots: int = Field(default=2, ge=0)
    """Number of slots that a receiver needs to decode a block."""

    bler: float = Field(default=0.1, ge=0, lt=0.5)
    """Block error rate (BLER) of a transfer's last block, each of whose failed transmissions adds one round trip. The
    rate does not depend on it; see `target_bler` of the rate `nr-blocks`."""

    scheduler: Literal["round-robin", "proportional-fair"] = "round-robin"
    """Assignment of slots. round-robin: senders take turns, with equal shares of the slots. proportional-fair: the link
    with the highest ratio of gain to mean gain gets all slots of a fading block, as in proportional-fair scheduling if
    fading is slow; without fading, all senders have equal shares."""

    def _check(self) -> None:
        period = self.sr_period_s * NS_PER_S / self.frame.slot_ns
        if round(period) < 1 or abs(period - round(period)) > 1e-6:
            raise ValueError(
                f"sr_period_s is a whole number of slots of {self.frame.slot_ns / NS_PER_S:g} s, at least one, got "
                f"{self.sr_period_s:g}; 0.005 to 0.04 are usual"
            )

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        key, spacing_khz = "subcarrier_spacing_khz", scenario.channel.subcarrier_spacing_khz
        if spacing_khz not in {None, self.subcarrier_spacing_khz}:
            what = f"the channel has another subcarrier spacing, got {self.subcarrier_spacing_khz} and channel.{key}"
            yield key, f"{what}: {spacing_khz}; set both alike"

    @cached_property
    def frame(self) -> TddPattern:
        return TddPattern(self.pattern, self.subcarrier_spacing_khz)

    def duty(self, *, down: bool) -> float:
        """Return the share of all slots that belong to the downlink if `down` is True, otherwise to the uplink."""
        return self.frame.share("D" if down else "U")

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        granted = in_whole_blocks(
            band.law, band.bandwidth_hz, SUBCARRIERS_PER_BLOCK * self.subcarrier_spacing_khz * 1e3
        )
        law = InSlots(law=granted, whole_hz=band.bandwidth_hz, share=self.duty(down=band.down))
        climbs = isinstance(granted, NrBlocks) and granted.climbs
        own = replace(band, law=law, coherence_ns=WINDOW_NS if climbs else band.coherence_ns)
        use, delays = super().use(own, links, cells, devices), SlotDelays(self, band)
        if isinstance(granted, NrBlocks) and climbs:
            use = use._replace(air=ClimbingAir(self, use.band, granted, links))
        return use._replace(before=delays.before_ns, after=delays.after_ns)

    @property
    @override
    def plain_duty(self) -> float | None:
        return self.duty(down=False) if self.scheduler == "round-robin" else None

    def power(self, inputs: RateInputs) -> Array:
        """Return the share of time for which each burst is on the air [bursts, blocks or 1]."""
        active, duty = inputs.active, self.duty(down=inputs.band.down)
        senders = len(active.sender)
        if self.scheduler == "round-robin" or inputs.band.constant:
            return np.full((senders, 1), duty / senders)
        return duty * best_of_each_block(inputs.own, active.of_legs(active.mean), active.first_leg)

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """Return the SINR of each transfer in its slots, at the full power of its sender.

        All interference from other cells is assumed to fall into the slots of this direction.
        """
        assert power is not None, "slots always say who sends"
        active, duty = inputs.active, self.duty(down=inputs.band.down)
        noise = 1.0 + (inputs.noise[active.receiver] - 1.0) / duty
        if power.shape[1] == 1:
            share = self.share(len(active.sender))
            return Allocation(inputs.own / noise / share, share, inputs.own / share)
        return Allocation(inputs.own / noise, 1.0, inputs.own, power[active.burst] > 0)


@final
class SlotDelays:
    """Delays of transfers in one direction of a TDD pattern.

    A transfer waits before its first slot with data. After the first transmission of its last block, it waits for
    decoding and for repetitions.
    """

    def __init__(self, access: NrGrants, band: Band) -> None:
        self._frame, self._key, self._numbers, down = access.frame, band.access_key, band.numbers, band.down
        self._down = down
        self._decode, self._loss, self._slot_ns = access.decode_slots, access.bler, access.frame.slot_ns
        self._sr_period = round(access.sr_period_s * NS_PER_S / self._slot_ns)
        uplink = UplinkAccess(self._frame, self._sr_period, access.k2_slots, access.decode_slots)
        first = self._frame.next(0, "D" if down else "U")
        again = self._frame.repeated(first, access.decode_slots) if down else uplink.after(first)
        self._repeat = again - first  # number of slots from one attempt of a block to the next attempt
        downlink = [self._frame.next(slot, "D") for slot in range(len(self._frame.slots))]
        self._data_slots = downlink if down else uplink.bulk_slots
        self._of_device = lru_cache(maxsize=1 << 16)(self._draw)

    def _draw(self, device: int) -> tuple[int, int]:
        """Return the key of a device's random draws, and the offset of its request occasions in ns."""
        number = device if self._numbers is None else int(self._numbers[device])
        key, length = mix(self._key, number), len(self._frame.slots)
        own = int(uniform(key, 0) * max(self._sr_period // length, 1)) * length
        return key, 0 if self._down else own * self._slot_ns

    def before_ns(self, transfer: Transfer, now_ns: int) -> int:
        """Return the time in ns until the next downlink slot, or until an uplink's first slot with data."""
        sender, receiver, data_slots = transfer.sender, transfer.receiver, self._data_slots
        at_ns = now_ns + self._of_device(receiver if sender < receiver else sender)[1]
        periods, slot = divmod(-(-at_ns // self._slot_ns), len(data_slots))
        return (periods * len(data_slots) + data_slots[slot]) * self._slot_ns - at_ns

    def after_ns(self, transfer: Transfer, now_ns: int) -> int:
        """Return the time in ns for decoding the last block of a transfer, and for the repetitions of this block."""
        repeats = 0
        if self._loss:
            sender, receiver = transfer.sender, transfer.receiver
            key = self._of_device(receiver if sender < receiver else sender)[0]
            draw = uniform(key, 1 + transfer.requested_ns)
            repeats = min(int(math.log(draw) / math.log(self._loss)), _MOST_REPEATS)
        return (self._decode + repeats * self._repeat) * self._slot_ns
