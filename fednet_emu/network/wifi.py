"""Wi-Fi: stations contend for a channel (distributed coordination function, DCF, of IEEE 802.11).

The rates of stations that always have data to send follow from the durations of their frame exchanges, by Bianchi's
fixed point (IEEE JSAC 18, 2000). All stations have the same contention window. Probabilities therefore depend only on
the number of stations. Durations are in whole ns, and assume one encoder. At 2.4 GHz, interframe spaces are 6 us
shorter, but a signal extension of 6 us follows each frame, so that the sums of durations are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from typing_extensions import override

from fednet_emu.arrays import Array, IntArray, bisected, power
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.access.base import RatedAccess, Use
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.air.queue import TurnQueue
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.sharing import Allocation, RateInputs
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.radio.fading import NoFading
from fednet_emu.radio.rates.base import Staircase
from fednet_emu.units import db_to_linear

WifiStandard = Literal["a", "n", "ac", "ax"]

MAX_PPDU_NS = 5_484_000
"""Maximum duration of a frame in ns (aPPDUMaxTime of the 802.11n, ac and ax PHYs)."""

_SERVICE_TAIL_BIT = 16 + 6
_LEGACY_PREAMBLE_NS, _LEGACY_SYMBOL_NS = 20_000, 4_000
_TRAINING_NS = 4_000


class Family(NamedTuple):
    """Frame format of one version of IEEE 802.11.

    Attributes:
        preamble_ns: duration in ns of the preamble for one stream, from the first training field to the data.
        symbol_ns: duration in ns of an OFDM symbol without guard interval.
        guard_ns: duration in ns of the shortest guard interval.
        subcarriers: number of data subcarriers for each channel width in MHz.
        schemes: number of modulation and coding schemes (MCS), from index 0 on; 0 for 802.11a, which has no MCS index.
    """

    preamble_ns: int
    symbol_ns: int
    guard_ns: int
    subcarriers: Mapping[int, int]
    schemes: int

    def ppdu_ns(self, psdu_byte: int, data_bit: int, guard_ns: int, streams: int = 1) -> int:
        """Return the duration in ns of a frame with `psdu_byte` bytes and `data_bit` data bits per symbol.

        Each stream after the first adds a training field of 4 us; for 802.11ax this duration is an assumption.
        """
        symbols = -(-(_SERVICE_TAIL_BIT + 8 * psdu_byte) // data_bit)
        return self.preamble_ns + _TRAINING_NS * (streams - 1) + (self.symbol_ns + guard_ns) * symbols


_FOUR_WIDTHS = MappingProxyType({20: 52, 40: 108, 80: 234, 160: 468})
FAMILIES: Mapping[WifiStandard, Family] = MappingProxyType(
    {
        "a": Family(_LEGACY_PREAMBLE_NS, 3_200, 800, MappingProxyType({20: 48}), 0),
        "n": Family(36_000, 3_200, 400, MappingProxyType({20: 52, 40: 108}), 8),
        "ac": Family(40_000, 3_200, 400, _FOUR_WIDTHS, 10),
        "ax": Family(44_000, 12_800, 800, MappingProxyType({20: 234, 40: 468, 80: 980, 160: 1960}), 12),
    }
)
"""Frame formats by version of IEEE 802.11 (clauses 17, 19, 21 and 27). 802.11n has frames in mixed format (HT), and
802.11ac and ax have frames for a single user (VHT, HE)."""


class Coding(NamedTuple):
    """A modulation and a code rate.

    Attributes:
        bit: number of bits per subcarrier.
        rate: numerator and denominator of the code rate.
        snr_db: SNR in dB at which 10 % of frames with 1458 bytes fail in Gaussian noise.
        control_mbps: rate of control frames in Mbit/s: the fastest of the mandatory rates 6, 12 and 24 that is not
            faster than the rate of 802.11a with this modulation and code rate.
    """

    bit: int
    rate: tuple[int, int]
    snr_db: float
    control_mbps: int


_HALF_BPSK, _MORE_BPSK = Coding(1, (1, 2), 0.925, 6), Coding(1, (3, 4), 3.026, 6)
CODINGS = (
    _HALF_BPSK,
    Coding(2, (1, 2), 3.945, 12),
    Coding(2, (3, 4), 6.435, 12),
    Coding(4, (1, 2), 9.705, 24),
    Coding(4, (3, 4), 12.805, 24),
    Coding(6, (2, 3), 17.045, 24),
    Coding(6, (3, 4), 18.375, 24),
    Coding(6, (5, 6), 19.635, 24),
    Coding(8, (3, 4), 23.705, 24),
    Coding(8, (5, 6), 25.145, 24),
    Coding(10, (3, 4), 32.409, 24),
    Coding(10, (5, 6), 34.324, 24),
)
"""Modulation and code rate of MCS 0 to 11. The SNRs are from the error rate tables of ns-3 3.44, which has no separate
tables for the last two MCS. With the NIST model of ns-3, the SNRs are 1 to 5 dB higher. The SNRs of real receivers
differ from the tables by similar amounts."""


class Scheme(NamedTuple):
    """A modulation and coding scheme (MCS) on a channel of given width.

    The attributes are the number of data bits per OFDM symbol, the minimum SNR of each stream in dB, and the rate of
    control frames in Mbit/s.
    """

    data_bit: int
    snr_db: float
    control_mbps: int


@lru_cache
def schemes(standard: WifiStandard, width_mhz: int, streams: int = 1) -> tuple[Scheme, ...]:
    """Return the modulation and coding schemes of a standard, in the order of increasing rates.

    802.11ac excludes schemes with a fractional number of data bits per symbol.

    Args:
        standard: the version of IEEE 802.11.
        width_mhz: width of the channel in MHz, which the standard must support.
        streams: number of spatial streams; `snr_db` is the SNR of each stream.
    """
    family = FAMILIES[standard]
    codings = CODINGS[: family.schemes] or (_HALF_BPSK, _MORE_BPSK, *CODINGS[1:7])
    found = []
    for bit, (numerator, denominator), snr_db, control_mbps in codings:
        data_bit, rest = divmod(family.subcarriers[width_mhz] * bit * numerator * streams, denominator)
        if not rest or standard != "ac":
            found.append(Scheme(data_bit, snr_db, control_mbps))
    return tuple(found)


def control_ns(size_byte: int, mbps: int) -> int:
    """Return the duration in ns of a control frame, which is sent in the format of 802.11a at 6, 12 or 24 Mbit/s."""
    symbols = -(-(_SERVICE_TAIL_BIT + 8 * size_byte) // (4 * mbps))
    return _LEGACY_PREAMBLE_NS + _LEGACY_SYMBOL_NS * symbols


WINDOW, DOUBLINGS = 16, 6
"""First contention window in slots, and maximum number of doublings of this window, for best-effort traffic (CWmin is
15, and CWmax is 1023)."""

_HALVINGS = 60


class Slots(NamedTuple):
    """Probabilities of events in a backoff slot of n stations; a busy period counts as one slot.

    Each attribute is the probability of the event that is described. A *request* is a block-ack request: a station that
    misses the acknowledgement of aggregated frames requests it before it sends further frames. Therefore the share of
    requests in all attempts is the collision probability p.

    Attributes:
        idle: no station sends.
        attempt: a given station sends data.
        success: only a given station sends, and it sends data.
        request: a given station sends a request.
        answered: only a given station sends, and it sends a request.
        collision: [n] entry k: frames collide, and the longest of these frames has rank k if the data frames of all
            stations are sorted by increasing length; 0 for n = 1.
        requests_only: several stations send, and all of them send requests.
    """

    idle: float
    attempt: float
    success: float
    request: float
    answered: float
    collision: Array
    requests_only: float


def fixed_point(stations: int) -> tuple[float, float]:
    """Return the probability tau that a station sends in a slot, and the probability p that its frame collides.

    For n stations, a first window of W slots and m doublings, tau is 2 / (1 + W + p W (1 + 2p + ... + (2p)^(m-1))), and
    p is 1 - (1 - tau)^(n-1). Both equations are solved by bisection in p.
    """

    def chance(sends: float) -> float:
        return 1.0 - (1.0 - sends) ** (stations - 1)

    low, _ = bisected(lambda collides: chance(_attempt(collides)) > collides, 0.0, 1.0, _HALVINGS)
    sends = _attempt(low)
    return sends, chance(sends)


def _attempt(collides: float) -> float:
    stages = sum((2.0 * collides) ** stage for stage in range(DOUBLINGS))
    return 2.0 / (1.0 + WINDOW + collides * WINDOW * stages)


@lru_cache(maxsize=512)
def slots(stations: int, *, requests: bool) -> Slots:
    """Return the probabilities of events in a backoff slot.

    Args:
        stations: number of stations, at least one.
        requests: True if a station sends block-ack requests after a collision, until a request is answered.
    """
    sends, collides = fixed_point(stations)
    attempt = sends * (1.0 - collides) if requests else sends
    others_silent = (1.0 - sends) ** (stations - 1)
    success, answered = attempt * others_silent, (sends - attempt) * others_silent
    idle = others_silent * (1.0 - sends)
    longer = np.arange(stations - 1, -1, -1.0)
    return Slots(
        idle=idle,
        attempt=attempt,
        success=success,
        request=sends - attempt,
        answered=answered,
        collision=np.maximum(attempt * power(1.0 - attempt, longer) - success, 0.0),
        requests_only=max((1.0 - attempt) ** stations - idle - stations * answered, 0.0),
    )


PACKET_BYTE = 1500
"""Size in bytes of the IP packet in a frame."""
AMPDU_BYTE = 65_535
"""Maximum size of an aggregate in bytes in 802.11n. ns-3 uses the same limit for 802.11ac and 802.11ax."""

_SLOT_NS, _SIFS_NS = 9_000, 16_000
_WAIT_NS = {"a": _SIFS_NS + 2 * _SLOT_NS, "n": _SIFS_NS + 3 * _SLOT_NS}  # a: DIFS; n, ac, ax: AIFS of best effort
_LLC_BYTE, _CHECKSUM_BYTE, _HEADER_BYTE, _QOS_HEADER_BYTE, _DELIMITER_BYTE = 8, 4, 24, 26, 4
_RTS_BYTE, _CTS_BYTE, _ACK_BYTE, _REQUEST_BYTE, _BLOCK_ACK_BYTE = 20, 14, 14, 24, 32
_WINDOW_FRAMES = {"a": 1, "n": 64, "ac": 64, "ax": 256}


@dataclass(frozen=True)
class Mode:
    """The transmission mode of all stations on a channel.

    Attributes:
        standard: the version of IEEE 802.11.
        width_mhz: width of the channel in MHz, which the standard must support.
        streams: number of spatial streams.
        aggregates: True if frames are aggregated.
        rts: True if RTS and CTS precede each frame.
        requests: True if a block-ack request follows an aggregate that has collided.
        ampdu_byte: maximum size of an aggregate in bytes.
    """

    standard: WifiStandard
    width_mhz: int
    streams: int = 1
    aggregates: bool = True
    rts: bool = False
    requests: bool = True
    ampdu_byte: int = AMPDU_BYTE


class Exchange(NamedTuple):
    """Bits and durations of one attempt to send, as arrays [schemes] with one entry for each MCS.

    Durations include the time up to the next backoff slot. If frames are not aggregated or if RTS is used, backoff is
    frozen while other stations send. Only the station that has just sent may use the next slot, and does so with
    probability 1 / W (Tinnirello, Bianchi and Xiao, IEEE TVT 59, 2010). The bits and times of a successful attempt
    therefore include a series of frames.

    Attributes:
        ip_bit: bits of the IP packets that a successful attempt carries.
        success_ns: duration in ns of a successful attempt: the data and the acknowledgement.
        collision_ns: duration in ns of a collision in which the frame of this MCS is the longest frame.
        answered_ns: duration in ns of a block-ack request with its answer.
        unanswered_ns: duration in ns of a block-ack request that collides.
        sent_ns: time in ns for which the sender radiates in a successful attempt.
        wasted_ns: time in ns for which the sender radiates data in a collision.
        request_ns: time in ns for which the sender radiates a block-ack request.
    """

    ip_bit: Array
    success_ns: Array
    collision_ns: Array
    answered_ns: Array
    unanswered_ns: Array
    sent_ns: Array
    wasted_ns: Array
    request_ns: Array


@lru_cache
def exchange(mode: Mode) -> Exchange:
    """Return the bits and durations of frame exchanges in a transmission mode, for each MCS in the order of rates."""
    family = FAMILIES[mode.standard]
    rows = [_exchange(mode, family, scheme) for scheme in schemes(mode.standard, mode.width_mhz, mode.streams)]
    return Exchange(*np.array(rows, np.float64).T)


def _exchange(mode: Mode, family: Family, scheme: Scheme) -> tuple[float, ...]:
    def frames_ns(count: int) -> int:
        return family.ppdu_ns(_psdu_byte(mode, count), scheme.data_bit, family.guard_ns, mode.streams)

    frames, mbps = 1, scheme.control_mbps
    most = _WINDOW_FRAMES[mode.standard] if mode.aggregates else 1
    while frames < most and _psdu_byte(mode, frames + 1) <= mode.ampdu_byte and frames_ns(frames + 1) <= MAX_PPDU_NS:
        frames += 1
    data_ns, wait_ns = frames_ns(frames), _WAIT_NS["a" if mode.standard == "a" else "n"]
    answer_ns = _SIFS_NS + control_ns(_BLOCK_ACK_BYTE if mode.aggregates else _ACK_BYTE, mbps)
    rts_ns, cts_ns = (control_ns(size, mbps) for size in (_RTS_BYTE, _CTS_BYTE))
    before_ns = rts_ns + _SIFS_NS + cts_ns + _SIFS_NS if mode.rts else 0
    success_ns = before_ns + data_ns + answer_ns + wait_ns
    sent_ns, wasted_ns = (rts_ns + data_ns, rts_ns) if mode.rts else (data_ns, data_ns)
    collision_ns = (rts_ns + _SIFS_NS + cts_ns if mode.rts else data_ns) + wait_ns
    series, pause_ns = 1.0, 0.0
    if mode.rts or not mode.aggregates:
        series, pause_ns = 1.0 / (1.0 - 1.0 / WINDOW), _SLOT_NS
    request_ns = control_ns(_REQUEST_BYTE, mbps) if mode.requests else 0
    return (
        8.0 * PACKET_BYTE * frames * series,
        success_ns * series + pause_ns,
        collision_ns,
        request_ns + answer_ns + wait_ns,
        request_ns + wait_ns,
        sent_ns * series,
        wasted_ns,
        request_ns,
    )


def _psdu_byte(mode: Mode, frames: int) -> int:
    """Return the size in bytes of `frames` frames with one packet each, padded to multiples of 4 in an aggregate."""
    header_byte = _HEADER_BYTE if mode.standard == "a" else _QOS_HEADER_BYTE
    frame_byte = header_byte + _LLC_BYTE + PACKET_BYTE + _CHECKSUM_BYTE
    return frames * 4 * -(-(frame_byte + _DELIMITER_BYTE) // 4) if mode.aggregates else frame_byte


class Shares(NamedTuple):
    """Results of contention for each burst (transmission) and fading block.

    `rate_bps` [bursts, blocks] is the rate in bit/s, and `airtime` [bursts, blocks] the fraction of time on the air.
    """

    rate_bps: Array
    airtime: Array


def contend(mode: Mode, scheme: IntArray, station: IntArray) -> Shares:
    """Return the rates and airtimes of bursts (transmissions) whose stations contend for one channel.

    All stations send with the same probability, and therefore the same number of frames. A collision lasts as long as
    its longest frame. The bursts of one station have equal shares of its frames, and all frames of a station are
    assumed to have the mean duration of these frames.

    Args:
        mode: the transmission mode of the stations.
        scheme: [bursts, blocks] index of each burst's modulation and coding scheme; -1 if the burst is silent in the
            block.
        station: [bursts] index of each burst's station; all indices from 0 on occur.
    """
    sending = scheme >= 0
    own = Exchange(*(np.where(sending, times.take(scheme, mode="clip"), 0.0) for times in exchange(mode)))
    turn = sending.astype(np.float64)
    if len(np.unique(station)) < len(station):
        turn /= np.maximum(_of_stations(turn, station), 1.0)[station]
    mean = Exchange(*(_of_stations(times * turn, station) for times in own))
    present = np.count_nonzero(_of_stations(turn, station), axis=0)
    rate_bps, airtime = np.zeros(scheme.shape), np.zeros(scheme.shape)
    for count in np.unique(present[present > 0]).tolist():
        blocks, of_slot = present == count, slots(count, requests=mode.requests)
        longest_ns = np.sort(mean.collision_ns[:, blocks], axis=0)[-count:]
        slot_ns = (
            of_slot.idle * _SLOT_NS
            + of_slot.success * mean.success_ns[:, blocks].sum(axis=0)
            + (of_slot.collision[:, None] * longest_ns).sum(axis=0)
            + of_slot.answered * mean.answered_ns[:, blocks].sum(axis=0)
            + of_slot.requests_only * mean.unanswered_ns[:, blocks].sum(axis=0) / count
        )
        per_ns = turn[:, blocks] / slot_ns
        rate_bps[:, blocks] = per_ns * (of_slot.success * NS_PER_S) * own.ip_bit[:, blocks]
        airtime[:, blocks] = per_ns * (
            of_slot.success * own.sent_ns[:, blocks]
            + (of_slot.attempt - of_slot.success) * own.wasted_ns[:, blocks]
            + of_slot.request * own.request_ns[:, blocks]
        )
    return Shares(rate_bps, airtime)


def _of_stations(values: Array, station: IntArray) -> Array:
    total = np.zeros((int(station.max()) + 1, values.shape[1]))
    np.add.at(total, station, values)
    return total


class Uncontended(Staircase):
    """Rate law of a Wi-Fi station that is alone on the channel, in bit/s of IP packets of 1500 bytes.

    The station uses the fastest scheme whose frame error rate at the SINR is at most 10 % (ideal rate control). The
    rate assumes that no frame is lost.
    """

    mode: Mode
    """Transmission mode of all stations on the channel."""

    @override
    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        """Return the share of the band that the Wi-Fi channel covers; a station sends with full power on this share."""
        return np.minimum(self.mode.width_mhz * 1e6 / bandwidth_hz, 1.0)

    @cached_property
    def stairs(self) -> tuple[list[float], list[float]]:
        mode = self.mode
        known = schemes(mode.standard, mode.width_mhz, mode.streams)
        alone = contend(mode, np.arange(len(known))[None, :], np.zeros(1, np.int64)).rate_bps[0]
        thresholds = [mode.streams * db_to_linear(scheme.snr_db) for scheme in known]
        return thresholds, (alone / (mode.width_mhz * 1e6)).tolist()


class Dcf(RatedAccess):
    """Wi-Fi: the stations of a direction contend for a channel, each with its fastest scheme in a fading block.

    Rates are computed whenever a transmission starts or ends, and assume backlogged stations (Bianchi, IEEE JSAC 18,
    2000). All stations send the same number of frames, so that slow stations slow down all others. Single frames and
    RTS/CTS use the correction for frozen backoff by Tinnirello, Bianchi and Xiao (IEEE TVT 59, 2010). A station that
    misses a block acknowledgement requests this acknowledgement before it sends again (`block_ack_request`). Rates are
    within 5 % of ns-3 3.44 for 1 to 20 stations (10 % if one of them is slow). With aggregation, more than 20 stations
    are not validated, because some stations get hardly any airtime in ns-3. A base station counts as one station, which
    sends to its receivers in turn.

    Rates are in bit/s of IP packets of 1500 bytes, and do not depend on `channel.rate` and `channel.narrowing`. The
    model has best-effort traffic, 5 GHz timing, the shortest guard interval, and aggregates of at most 65,535 bytes, 64
    frames (256 in ax) and 5.484 ms. A station whose SNR is too low for all schemes sends nothing. A sender uses power
    only while it sends.
    Ignored here: contention between uplink and downlink, which share a channel in Wi-Fi; TCP's acknowledgements on the
    air (2 to 3 % with aggregation, 20 % in 802.11a); hidden stations, capture, packet errors, beacons, delayed rate
    control, and random advantages of some stations for several seconds.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})
    multicasts: ClassVar[bool] = False

    standard: WifiStandard = "ac"
    """Version of IEEE 802.11: a, n (Wi-Fi 4), ac (Wi-Fi 5) or ax (Wi-Fi 6, one user at a time)."""

    width_mhz: Literal[20, 40, 80, 160] | None = None
    """Width of the Wi-Fi channel in MHz, which may be a part of the band; null for the whole band."""

    streams: Literal[1, 2] = 1
    """Number of spatial streams, which divide the power of the sender and do not interfere with each other."""

    aggregation: bool | None = None
    """Whether frames are aggregated (A-MPDU); null means true for all standards except `a`."""

    rts: bool = False
    """Whether a request to send (RTS) and a clear to send (CTS) precede each frame, which shortens collisions."""

    block_ack_request: bool | None = None
    """Whether a station sends a block-ack request after an aggregate without acknowledgement; null means true if frames
    are aggregated and `rts` is false. If false, rates are 3 to 10 % higher than in ns-3."""

    def _check(self) -> None:
        widths = FAMILIES[self.standard].subcarriers
        if self.width_mhz is not None and self.width_mhz not in widths:
            known = ", ".join(map(str, widths))
            raise ValueError(f"802.11{self.standard} has channels of {known} MHz, got width_mhz {self.width_mhz}")
        if self.standard == "a" and (self.streams > 1 or self.aggregation):
            got = "aggregation: true" if self.aggregation else f"streams: {self.streams}"
            raise ValueError(
                f"802.11a has one stream and single frames, got {got}; leave it out, or choose n, ac or ax"
            )
        if self.block_ack_request is not None and (self.rts or not self._aggregates):
            got = "rts: true" if self.rts else "single frames"
            raise ValueError(
                f"block-ack requests follow aggregates that collided, got block_ack_request with {got}; leave it out"
            )

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        channel, widths = scenario.channel, FAMILIES[self.standard].subcarriers
        wide_mhz, got = channel.bandwidth_hz / 1e6, f"got channel.bandwidth_hz {channel.bandwidth_hz:g}"
        if self.width_mhz is None and wide_mhz not in widths:
            known = ", ".join(map(str, widths))
            yield "width_mhz", f"802.11{self.standard} has channels of {known} MHz, {got}; set that, or width_mhz too"
        if self.width_mhz is not None and self.width_mhz > wide_mhz:
            what = f"is wider than the band, got {self.width_mhz} MHz in {wide_mhz:g}"
            yield "width_mhz", f"{what}; set channel.bandwidth_hz: {self.width_mhz}e6"
        if channel.subcarrier_spacing_khz is not None:
            what = (
                f"resource blocks belong to 5G NR, got channel.subcarrier_spacing_khz {channel.subcarrier_spacing_khz}"
            )
            yield "", f"{what} with {self.kind}; set it to null, or choose another access"
        if channel.fading_model == "ergodic" and not isinstance(channel.fading, NoFading):
            what = "stations share the channel per fading block, got channel.fading_model ergodic"
            yield "", f"{what} with {self.kind}; set per-block, or channel.fading: none"
        if (count := scenario.network.cells.count) > 1:
            what = f"base stations on one channel contend with each other, got {count} of them with {self.kind}"
            yield "", f"{what}; set network.cells: single, or choose another access"

    @property
    def _aggregates(self) -> bool:
        return self.standard != "a" if self.aggregation is None else self.aggregation

    def mode(self, bandwidth_hz: float) -> Mode:
        aggregates, width_mhz = self._aggregates, float(self.width_mhz or bandwidth_hz / 1e6)
        requests = aggregates and not self.rts and self.block_ack_request is not False
        return Mode(self.standard, round(width_mhz), self.streams, aggregates, self.rts, requests)

    @override
    def law(self, bandwidth_hz: float) -> Uncontended:
        return Uncontended(mode=self.mode(bandwidth_hz))

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        law = self.law(band.bandwidth_hz)
        own = replace(band, law=law, share=law.mode.width_mhz * 1e6 / band.bandwidth_hz)
        air = SharedAir(self, own, links, cells)
        return Use(own, TurnQueue(self.capacity, cells), air, patience=Patience(own, disturbed=True))

    def power(self, inputs: RateInputs) -> Array:
        return self._contend(inputs).airtime

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        band, sinr = inputs.band, inputs.own / inputs.band.share
        alone_bps = band.rates_bps(sinr, band.share)
        part = np.divide(self._contend(inputs).rate_bps, alone_bps, out=np.zeros_like(sinr), where=alone_bps > 0)
        return Allocation(sinr, part * band.share, sinr)

    def _contend(self, inputs: RateInputs) -> Shares:
        law, active = inputs.band.law, inputs.active
        assert isinstance(law, Uncontended), "a band as this scheme uses it has this law"
        return contend(law.mode, law.scheme(inputs.own / inputs.band.share), active.sender[active.burst])
