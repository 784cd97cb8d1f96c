"""LoRa: uncoordinated senders, each of which transmits frames for a small share of the time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
from pydantic import Field
from typing_extensions import override

from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.network.access.base import Access, Use
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.air.queue import TurnQueue
from fednet_emu.network.air.separate import Air, Power, Rates
from fednet_emu.network.air.transfer import Burst, Transfer
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.radio.fading import NoFading
from fednet_emu.radio.rates.base import Staircase
from fednet_emu.radio.receiver.combining import Reception
from fednet_emu.units import db_to_linear, linear_to_db


class Frames(NamedTuple):
    """The LoRaWAN frames of a message.

    Attributes:
        group: collision group (spreading factor); only frames of the same group collide with each other.
        number: number of frames.
        frame_ns: airtime in ns of each frame except the last.
        last_ns: airtime in ns of the last frame.
    """

    group: int
    number: int
    frame_ns: int
    last_ns: int


@dataclass(eq=False)
class _Sending:
    """State of a burst (transmission of a message) on the air.

    Attributes:
        burst: the transfers of the burst, one for each receiver.
        frames: the frames of the burst.
        begins_ns: time in ns at which the sender may start the burst.
        done: expected number of frames that have arrived so far.
        arrives: probability that a frame arrives.
        period_ns: time in ns from the start of a frame to the start of the next frame.
    """

    burst: Burst
    frames: Frames
    begins_ns: int
    done: float = 0.0
    arrives: float = 1.0
    period_ns: float = 1.0

    def arrival_ns(self, now_ns: int) -> int:
        """Return the time in ns at which the last frame arrives if frames continue at the current rate."""
        left = self.frames.number - self.arrives - self.done
        return round(max(now_ns, self.begins_ns) + left / self.arrives * self.period_ns + self.frames.last_ns)

    def end_ns(self, now_ns: int) -> int:
        """Return the end of the burst in ns: the arrival of its last frame, or the latest timeout of a transfer."""
        until_ns = max([leg.until_ns for leg in self.burst])
        return max(now_ns, min(self.arrival_ns(now_ns), until_ns))


@final
class DutyCycleAir(Air):
    """Model of many uncoordinated senders (pure ALOHA), each of which transmits frames for a small share of the time.

    After each frame, including the last, a sender pauses until its duty cycle permits the next frame. A frame with the
    airtime T arrives if no other frame of its group starts within T before or after its start; with n senders, the
    probability of arrival is e^(-2 (n - 1) `duty`). Lost frames are repeated. The duration of a burst assumes the mean
    number of repetitions. Simultaneous bursts of one sender split its permitted airtime.

    Args:
        frames: function that marks the unreachable receivers of a burst as lost and returns the frames of the burst, or
            None if all receivers are unreachable.
        duty: maximum share of the time for which a sender may transmit.
    """

    def __init__(self, frames: Callable[[Burst], Frames | None], duty: float) -> None:
        self._frames, self._duty = frames, duty
        self._on_air: list[_Sending] = []
        self._lost: list[Burst] = []
        self._free_ns: dict[int, int] = defaultdict(int)
        self._since_ns = 0

    def start(self, bursts: list[Burst], now_ns: int) -> int:
        for burst in bursts:
            frames, self._since_ns = self._frames(burst), now_ns
            if frames is None:
                self._lost.append(burst)
            else:
                self._on_air.append(_Sending(burst, frames, max(now_ns, self._free_ns[burst[0].sender])))
        if bursts:
            self._pace()
        ends_ns = [sending.end_ns(self._since_ns) for sending in self._on_air]
        return self._since_ns if self._lost else min(ends_ns, default=FOREVER_NS)

    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        """Do nothing; the next call of `advance` ends the aborted transfers."""

    def advance(self, now_ns: int) -> list[Burst]:
        for sending in self._on_air:
            span_ns = max(now_ns - max(self._since_ns, sending.begins_ns), 0)
            sending.done += span_ns * sending.arrives / sending.period_ns
        self._since_ns = now_ns
        ended, self._lost = self._lost, []
        over = [sending for sending in self._on_air if sending.end_ns(now_ns) <= now_ns]
        if over:
            self._on_air = [sending for sending in self._on_air if sending not in over]
            self._pace()
        return ended + [self._end(sending, now_ns) for sending in over]

    def powers(self) -> Iterator[Power]:
        for sending in self._on_air:
            share = sending.frames.frame_ns / sending.period_ns
            yield sending.burst[0], [self._since_ns], [share]

    def rates(self) -> Iterator[Rates]:
        for sending in self._on_air:
            per_s = sending.arrives / sending.period_ns / sending.frames.number * NS_PER_S
            yield sending.burst, [self._since_ns], np.array([[leg.size_bit * per_s] for leg in sending.burst])

    def _pace(self) -> None:
        bursts = Counter(sending.burst[0].sender for sending in self._on_air)
        senders = Counter(group for group, _ in {(each.frames.group, each.burst[0].sender) for each in self._on_air})
        for sending in self._on_air:
            others = senders[sending.frames.group] - 1
            sending.arrives = math.exp(-2.0 * self._duty * others)
            sending.period_ns = sending.frames.frame_ns / self._duty * bursts[sending.burst[0].sender]

    def _end(self, sending: _Sending, now_ns: int) -> Burst:
        burst, frames = sending.burst, sending.frames
        through = sending.arrival_ns(now_ns) <= now_ns
        for leg in burst:
            if not leg.lost and (leg.until_ns < now_ns or not through):
                leg.lost = leg.until_reason
                leg.transmitted_bit = min(sending.done / frames.number, 1.0) * leg.size_bit
            elif not leg.lost:
                leg.transmitted_bit = float(leg.size_bit)
        elapsed_ns = now_ns - sending.begins_ns
        if elapsed_ns > 0:
            sent_ns = elapsed_ns * frames.frame_ns / sending.period_ns + frames.last_ns * (1.0 - self._duty)
            burst[0].power_s = min(sent_ns, elapsed_ns) / NS_PER_S
            silent_ns = round(frames.last_ns * (1.0 / self._duty - 1.0))
            self._free_ns[burst[0].sender] = max(self._free_ns[burst[0].sender], now_ns + silent_ns)
        return burst


HEADER_BYTE = 13
"""Size in bytes of the LoRaWAN header and integrity code of each frame."""

MOST_BYTE = {7: 222, 8: 222, 9: 115, 10: 51, 11: 51, 12: 51}
"""Maximum size of a frame in bytes, including the header, for each spreading factor."""

REQUIRED_DB = {7: -7.5, 8: -10.0, 9: -12.5, 10: -15.0, 11: -17.5, 12: -20.0}
"""Minimum SNR in dB for each spreading factor. The values are not verified; check them in data sheets before
quoting."""

_MARGIN_DB, _STEP_DB = 10.0, 3.0
_PREAMBLE_SYMBOLS, _LOW_RATE_S = 8, 16e-3


def time_on_air_ns(size_byte: int, spreading_factor: int, bandwidth_hz: float) -> int:
    """Return the airtime in ns of a frame of `size_byte` bytes at code rate 4/5, with 8 preamble symbols and header.

    The formula, which includes the checksum, is from Semtech's data sheets of SX1276 (4.1.1.7) and SX1261 (6.1.4).
    """
    symbol_s = (1 << spreading_factor) / bandwidth_hz
    slow = 2 if symbol_s >= _LOW_RATE_S else 0  # low data rate optimisation
    needed_bit = max(8 * size_byte - 4 * spreading_factor + 28 + 16, 0)
    symbols = 8 + 5 * -(-needed_bit // (4 * (spreading_factor - slow)))
    return round((_PREAMBLE_SYMBOLS + 4.25 + symbols) * symbol_s * 1e9)


def adapted(snr_db: float) -> int:
    """Return the spreading factor of a link after its adaptation by LoRaWAN (ADR).

    The spreading factor starts at 12, and decreases by 1 as long as the SNR exceeds the minimum SNR of the factor by at
    least 13 dB: a margin of 10 dB plus a step of 3 dB. The result is 12 even for a link that is too weak for this
    factor. The Things Network is said to use this rule (not verified).
    Ignored here: the decrease of the transmit power after factor 7 is reached.
    """
    spreading_factor = 12
    while spreading_factor > 7 and snr_db - REQUIRED_DB[spreading_factor] - _MARGIN_DB >= _STEP_DB:
        spreading_factor -= 1
    return spreading_factor


def adapted_from_db(spreading_factor: int) -> float:
    """Return the minimum SNR in dB at which LoRaWAN assigns this spreading factor or a lower one to a link."""
    return REQUIRED_DB[12] if spreading_factor == 12 else REQUIRED_DB[spreading_factor + 1] + _MARGIN_DB + _STEP_DB


_WIDTHS_HZ = (125e3, 250e3, 500e3)


class LoneLora(Staircase):
    """Rate law of a LoRa device without collisions, averaged over its frames and the pauses between frames."""

    spreading_factor: tuple[int, ...]
    """Spreading factors in decreasing order."""

    thresholds_db: tuple[float, ...]
    """Minimum SNR in dB at which each spreading factor is used, in the same order."""

    duty_cycle: float
    """Share of the time for which a sender transmits."""

    @cached_property
    def stairs(self) -> tuple[list[float], list[float]]:
        width_hz = _WIDTHS_HZ[0]
        rates = [
            8 * (MOST_BYTE[each] - HEADER_BYTE) * self.duty_cycle / time_on_air_ns(MOST_BYTE[each], each, width_hz)
            for each in self.spreading_factor
        ]
        return [db_to_linear(each) for each in self.thresholds_db], [rate * NS_PER_S / width_hz for rate in rates]


class Lora(Access):
    """LoRa: messages are split into LoRaWAN frames, and senders pause after each frame as their duty cycle requires.

    A frame with the airtime T is followed by a pause of T (1 / `duty_cycle` - 1), also before the sender's next
    message. The airtime follows Semtech's data sheets, with code rate 4/5 and frames of 222, 115 or 51 bytes, of which
    13 bytes are headers. Frames collide with other senders' frames of the same spreading factor, as in pure ALOHA: at
    an offered load of G frames per airtime, S = G e^(-2G) frames per airtime arrive. Lost frames are repeated after the
    pause; each message takes the mean number of repetitions. The band is one LoRa channel of 125, 250 or 500 kHz. With
    a duty cycle of 1 % and spreading factor 7, a model of 10 kB takes half an hour, and a model of 2.9 MB takes six
    days: set `timeout_s` if a message may take more than an hour. `channel.rate` has no effect. The minimum SNRs of
    spreading factors are not verified; check them before quoting.
    Ignored here: fading (links have their mean SNR), capture of the stronger frame, collisions between spreading
    factors, acknowledgements, several channels, adaptation of the power, and movement during a message.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})
    overlapping: ClassVar[bool] = True

    spreading_factor: Literal["adr", 7, 8, 9, 10, 11, 12] = "adr"
    """Spreading factor of all links. If `adr`, LoRaWAN's adaptation selects the factor of each link, and a broadcast
    uses the factor of its weakest receiver."""

    duty_cycle: float = Field(0.01, gt=0, le=1)
    """Maximum fraction of time in which a sender may transmit: 0.01 in most of the European 868 MHz band."""

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        width_hz = scenario.channel.bandwidth_hz
        if width_hz not in _WIDTHS_HZ:
            what = f"LoRa has channels of 125, 250 and 500 kHz, got channel.bandwidth_hz {width_hz:g} with {self.kind}"
            yield "", f"{what}; set channel.bandwidth_hz: 125e3, or choose another access"
        if (count := scenario.network.cells.count) > 1:
            what = f"a frame is for every gateway that hears it, got {count} cells with {self.kind}"
            yield "", f"{what}; set network.cells: single, or choose another access"

    @override
    def conflict_with_antennas(self, reception: Reception) -> str:
        return f"gateways have one antenna, got {reception.kind} with {self.kind}; leave it out"

    @override
    def law(self, bandwidth_hz: float) -> LoneLora:
        factors = tuple(reversed(MOST_BYTE)) if self.spreading_factor == "adr" else (self.spreading_factor,)
        needed_db = adapted_from_db if self.spreading_factor == "adr" else REQUIRED_DB.__getitem__
        return LoneLora(
            spreading_factor=factors, thresholds_db=tuple(map(needed_db, factors)), duty_cycle=self.duty_cycle
        )

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        own = replace(band, law=self.law(band.bandwidth_hz), fading=NoFading(), coherence_ns=FOREVER_NS)
        air = DutyCycleAir(partial(self._frames, own), self.duty_cycle)
        return Use(own, TurnQueue(None, cells), air, patience=Patience(own, disturbed=True))

    def _frames(self, band: Band, burst: Burst) -> Frames | None:
        """Mark transfers with too low an SNR as lost; return the burst's frames, or None if all transfers are lost."""
        reached = []
        for leg in burst:
            if leg.snr >= band.law.min_sinr:
                reached.append(leg)
            else:
                leg.lost = "unreachable"
        if not reached:
            return None
        snr_db = linear_to_db(min(leg.snr for leg in reached))
        spreading_factor = adapted(snr_db) if self.spreading_factor == "adr" else self.spreading_factor
        net_bit = 8 * (MOST_BYTE[spreading_factor] - HEADER_BYTE)
        count = max(-(-burst[0].size_bit // net_bit), 1)
        last_byte = HEADER_BYTE + -(-(burst[0].size_bit - (count - 1) * net_bit) // 8)
        frame_ns, last_ns = (
            time_on_air_ns(size_byte, spreading_factor, band.bandwidth_hz)
            for size_byte in (MOST_BYTE[spreading_factor], last_byte)
        )
        return Frames(spreading_factor, count, frame_ns, last_ns)
