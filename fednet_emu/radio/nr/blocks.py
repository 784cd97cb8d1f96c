"""5G NR transport blocks, and the outer loop of link adaptation, as a rate model."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy
from pydantic import Field

from fednet_emu.arrays import Array, IntArray, exp10, log10
from fednet_emu.radio.nr.numerology import rows
from fednet_emu.radio.rates.base import MAX_REPETITIONS, Repeating
from fednet_emu.units import db_to_linear

WINDOW_NS = 100_000_000
"""Time in ns between two decisions of link adaptation by block errors; it is ten frames of 10 ms."""

_START, FLOOR = 9, 6
_LOW, _HIGH, _OLD = 0.05, 0.15, 0.9
_FIRST, _LATER = 32, 256


class Climb(NamedTuple):
    """Efficiencies in bit/s/Hz of link adaptation by block errors on links with constant SNRs [points]."""

    first: Array  # [windows, points] efficiency in each of the first windows of a transfer
    settled: Array  # [points] mean efficiency in the long run


def climb(efficiency_bps_hz: Array, errors: Array) -> Climb:
    """Simulate OpenAirInterface's BLER-based link adaptation at many SNRs, and return its efficiencies.

    The simulation uses the expected block error rate (BLER) in each window of 100 ms. It begins at MCS 9 with an
    estimated BLER of 0. After each window, the estimate becomes 0.9 times its old value plus 0.1 times the BLER of the
    window. The MCS moves up by one if the estimate is below 5 %, and down by one, but not below MCS 6, if the estimate
    is above 15 % (`get_mcs_from_bler`, 2024). `errors` [schemes, points] is the BLER of first transmissions;
    `efficiency_bps_hz` [schemes, points] is the mean efficiency in bit/s/Hz over all attempts.
    """
    points = np.arange(errors.shape[1])
    mcs: IntArray = np.full(len(points), _START)
    share = np.zeros(len(points))
    first, total = np.empty((_FIRST, len(points))), np.zeros(len(points))
    for window in range(_FIRST + _LATER):
        carried = efficiency_bps_hz[mcs, points]
        if window < _FIRST:
            first[window] = carried
        else:
            total += carried
        share = _OLD * share + (1.0 - _OLD) * errors[mcs, points]
        mcs = mcs + ((share < _LOW) & (mcs < len(errors) - 1)).astype(np.int64) - ((share > _HIGH) & (mcs > FLOOR))
    return Climb(first, total / _LATER)


WATERFALL_DB = 0.2
"""Standard deviation in dB of the normal distribution by which the block error rate falls from 1 to 0 as the SNR rises,
for code blocks of 3000 to 8448 bits. The value follows from the normal approximation, which fits the curves of blocks
of 24 to 2000 bits within 23 %."""

MAX_ATTEMPTS = 4
"""Maximum number of transmissions of a block; the receiver adds up the copies (chase combining)."""

_REPORT_S, _DELAY_S = 0.02, 0.004
_TABLE, _TARGET_BLER = 1, 0.1
_CERTAIN = 8.0
_STEP_DB = 0.01
_SAME = 1.0 + 1e-9
_WIDE_BLOCKS = 273
_HERTZ_SLOTS = 180.0
"""Bandwidth of a resource block times the duration of a slot: 12 x 15 kHz x 1 ms, the same at every spacing."""

MOST_RE = 156
"""Maximum number of resource elements that count per resource block (TS 38.214 clause 5.1.3.2)."""

_SMALL_BIT = 3824
_CODE_BLOCK_BIT, _LOW_RATE_CODE_BLOCK_BIT = 8424, 3816
_SIZES_BIT: tuple[int, ...] = (
    *range(24, 193, 8), *range(208, 385, 16), *range(408, 577, 24), *range(608, 769, 32), 808, 848, 888, 928, 984, 1032,
    1064, 1128, 1160, 1192, 1224, 1256, 1288, 1320, 1352, 1416, 1480, 1544, 1608, 1672, 1736, 1800, 1864, 1928, 2024,
    2088, 2152, 2216, 2280, 2408, 2472, 2536, 2600, 2664, 2728, 2792, 2856, 2976, 3104, 3240, 3368, 3496, 3624, 3752,
    _SMALL_BIT,
)  # fmt: skip
"""The 93 transport block sizes in bits of TS 38.214 Table 5.1.3.2-1."""


class Curve(NamedTuple):
    """Mean efficiency in bit/s/Hz of a modulation and coding scheme, and SNR in dB at which half the blocks fail."""

    efficiency_bps_hz: float
    half_db: float


class NrBlocks(Repeating):
    """Transport blocks of 5G NR, with schemes chosen by an outer loop that maintains a target block error rate.

    The loop adjusts the scheme after each block, so that a share p (`target_bler`) of first transmissions fails on any
    channel. On a constant link, the loop mixes two neighbouring schemes m and m + 1 with the block error rates b_m and
    b_(m+1) and the transport block sizes TBS_m and TBS_(m+1). A share f = (p - b_m) / (b_(m+1) - b_m) of the blocks
    uses the faster scheme, and a failed block arrives at the second attempt, so the rate is ((1 - f) TBS_m + f
    TBS_(m+1)) / (1 + p) per slot. Below the threshold of the lowest scheme, blocks of this scheme are repeated
    (`max_repetitions`). HARQ also combines the copies of its four attempts, down to the SINR at which half of the
    blocks fail every attempt. HARQ combining is modelled only below the SINR that repetition reaches, so no copy is
    counted twice. Block sizes follow TS 38.214 clause 5.1.3.2 for all resource blocks of the channel, because each slot
    belongs to one sender. A block fails with probability Q((SNR - SNR_50) / 0.2 dB), where Q is the tail probability of
    a standard normal variable. SNR_50 is fitted to curves of Sionna 2.2 for the LDPC code with Gaussian noise and code
    blocks of 2000 bits; for schemes without a curve, SNR_50 is 1.68 dB above Shannon's SNR. With `feedback: aged`, the
    rate is a mean over fading (`fading_model: ergodic`).
    Ignored here: several layers, the oscillation of a loop with large steps, incremental redundancy, RLC
    retransmissions, synchronisation signals and random access (1 to 5 % of a wide carrier).
    """

    table: Literal[1, 2, 3] = 1
    """MCS table: 1 up to 64QAM, 2 up to 256QAM, 3 for low rates and high reliability."""
    target_bler: float = Field(default=_TARGET_BLER, gt=0, lt=0.5)
    """Target block error rate of the outer loop: the share of first transmissions that fail."""
    margin_db: float = Field(default=2.0, ge=0)
    """SNR in dB that a receiver needs in addition to the theoretical curves; about 2 for software receivers."""
    symbols: int = Field(default=13, ge=2, le=14)
    """Number of allocated symbols, of the 14 in a slot, including those of `dmrs`: 13 on an uplink with
    one symbol for sounding or short control, 12 on a downlink with two symbols for control."""
    dmrs: Literal[6, 12, 18, 24, 36] = 12
    """Number of resource elements per resource block that carry demodulation reference signals; 12 is one symbol."""
    feedback: Literal["ideal", "aged", "olla"] = "ideal"
    """Input of link adaptation. With `ideal`, it is the SINR of each block. With `aged`, it is a reported SINR whose
    age follows from `report_s` and `delay_s`. With `olla`, only block errors are used, as in OpenAirInterface: each
    transfer begins at MCS 9, and the scheme may move up or down by one every 100 ms."""
    report_s: float = Field(default=_REPORT_S, gt=0)
    """Period of the channel reports in s, for `feedback: aged`."""
    delay_s: float = Field(default=_DELAY_S, ge=0)
    """Time in s from a measurement to the first block that uses its report, for `feedback: aged`."""
    resource_blocks: int | None = Field(default=None, gt=0, le=275)
    """Number of resource blocks in a slot, which determines the rounding of transport block sizes. Null takes the
    number of resource blocks of the channel or, if `subcarrier_spacing_khz` is null, 273 (a 100 MHz channel)."""

    def _check(self) -> None:
        given = (self.report_s, self.delay_s) != (_REPORT_S, _DELAY_S)
        if self.feedback != "aged" and given:
            raise ValueError(
                f"report_s and delay_s have no effect with feedback: {self.feedback}, got {self.report_s:g} and "
                f"{self.delay_s:g}; leave them out, or set feedback: aged"
            )
        fixed = {"table": _TABLE, "target_bler": _TARGET_BLER, "max_repetitions": MAX_REPETITIONS}
        for name, only in fixed.items() if self.climbs else ():
            if (got := getattr(self, name)) != only:
                raise ValueError(f"{name} is fixed with feedback: olla, got {got:g}; leave it out")

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        network = scenario.network
        ways = {network.uplink.access.kind, network.downlink.access.kind}
        if self.climbs and (ways != {"nr-grants"} or network.cells.count > 1):
            what = f"transfers climb in the slots of one cell, got olla with {network.cells.count} cells and "
            remedy = "set access nr-grants in both directions and one cell, or feedback: ideal"
            yield "feedback", f"{what}network.*.access: {', '.join(sorted(ways))}; {remedy}"

    @property
    def climbs(self) -> bool:
        """True if each transfer begins at a low MCS (`feedback: olla`); `rate_bps` is then the long-run mean rate."""
        return self.feedback == "olla"

    def in_blocks(self, blocks: int) -> NrBlocks:
        """Return the rate model for `blocks` resource blocks; the model itself if `resource_blocks` is not null."""
        return self if self.resource_blocks else NrBlocks(**{**self.model_dump(), "resource_blocks": blocks})

    @property
    def lowest(self) -> tuple[float, float]:
        return db_to_linear(float(self.thresholds_db[0])), self.curves[0].efficiency_bps_hz / (1.0 + self.target_bler)

    @property
    def min_sinr(self) -> float:
        """Minimum SINR (linear) at which the rate is above 0.

        It is the smaller of two values: the minimum SINR with repetition, and the SINR at which half of the blocks of
        the slowest scheme fail all attempts. With `feedback: olla`, it is always the second value.
        """
        lowest = self.schemes[FLOOR] if self.climbs else self.curves[0]
        of_attempts = db_to_linear(lowest.half_db) / MAX_ATTEMPTS
        return of_attempts if self.climbs else min(of_attempts, super().min_sinr)

    @property
    def peaks(self) -> Array:
        loop = self._loop
        if self.climbs:
            return np.empty(0)
        sinr = exp10((loop.low_db + _STEP_DB * np.arange(len(loop.steps))) / 10.0)
        per_sinr = np.concatenate([[0.0], loop.efficiency_bps_hz / sinr, [0.0]])
        rises, falls = per_sinr[1:-1] > _SAME * per_sinr[:-2], _SAME * per_sinr[1:-1] >= per_sinr[2:]
        return sinr[rises & falls]  # the lowest SINR of a plateau

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        loop = self._loop
        if sinr < loop.least:
            return 0.0
        place = (10.0 * math.log10(sinr) - loop.low_db) / _STEP_DB
        steps, below = loop.steps, int(place)
        if below >= len(steps) - 1:
            return bandwidth_hz * steps[-1]
        return bandwidth_hz * (steps[below] + (place - below) * (steps[below + 1] - steps[below]))

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        loop = self._loop
        steps, last = loop.efficiency_bps_hz, len(loop.steps) - 1
        with np.errstate(divide="ignore"):
            place = np.clip((10.0 * log10(sinr) - loop.low_db) / _STEP_DB, 0.0, last)
        below = np.minimum(place.astype(np.int64), last - 1)
        efficiency_bps_hz = steps[below] + (place - below) * (steps[below + 1] - steps[below])
        return bandwidth_hz * np.where(np.asarray(sinr) < loop.least, 0.0, efficiency_bps_hz)

    @cached_property
    def schemes(self) -> list[Curve]:
        """All schemes of the MCS table, in the order of the MCS index."""
        blocks = self.resource_blocks or _WIDE_BLOCKS
        halves_db = {int(row["mcs"]): float(row["snr_at_bler_0.5_db"]) for row in rows("nr_bler.csv", self.table)}
        found = []
        for row in rows("nr_mcs.csv", self.table):
            size = int(row["modulation_bits"]), float(row["code_rate_x1024"])
            bit = transport_block_bit(blocks, self.symbols, self.dmrs, *size)
            found.append(Curve(bit / (_HERTZ_SLOTS * blocks), halves_db[int(row["mcs"])] + self.margin_db))
        return found

    @cached_property
    def curves(self) -> list[Curve]:
        """Schemes in increasing order of SNR and efficiency, without schemes slower than one at a lower SNR."""
        used: list[Curve] = []
        for curve in sorted(self.schemes, key=lambda curve: curve.half_db):
            if not used or curve.efficiency_bps_hz > used[-1].efficiency_bps_hz:
                used.append(curve)
        return used

    @property
    def thresholds_db(self) -> Array:
        """SNR [schemes] in dB at which each scheme has the target block error rate."""
        target_db = -WATERFALL_DB * float(scipy.special.ndtri(self.target_bler))
        return np.array([curve.half_db for curve in self.curves]) + target_db

    def block_errors(self, snr_db: Array) -> Array:
        return _block_errors(self.curves, snr_db)

    def always_repeated_bps_hz(self, snr_db: Array) -> float:
        """Return the lowest scheme's mean efficiency in bit/s/Hz with the best fixed number of copies per block.

        `snr_db` [blocks] are the SNRs of single copies in dB.
        """
        copies = np.arange(1.0, self.max_repetitions + 1.0)
        lost = _block_errors(self.curves[:1], snr_db + 10.0 * log10(copies)[:, None])[0]
        return self.curves[0].efficiency_bps_hz * float(np.max((1.0 - lost.mean(axis=1)) / copies))

    @cached_property
    def _loop(self) -> OuterLoop:
        return _climbing(self)[0] if self.climbs else _outer_loop(self)

    def climbed(self, sinr: Array, window: IntArray) -> Array:
        """Return the rate in windows of 100 ms of a transfer, divided by the long-run rate at the same SINR.

        `window` is the index of each window, counted from 0 at the start of the transfer; it is broadcast with the
        linear `sinr`.
        """
        loop, relative = _climbing(self)
        with np.errstate(divide="ignore"):
            place = np.clip((10.0 * log10(sinr) - loop.low_db) / _STEP_DB, 0.0, relative.shape[1] - 1)
        return np.asarray(relative[np.minimum(window, len(relative) - 1), np.rint(place).astype(np.int64)])


@dataclass(frozen=True, slots=True, eq=False)
class OuterLoop:
    """Mean efficiency in bit/s/Hz of link adaptation on a link with a constant SINR, on a grid of SINRs."""

    least: float  # SINR (linear) below which the rate is 0
    low_db: float  # `least` in dB, the first point of the grid
    efficiency_bps_hz: Array  # [points] efficiency every 0.01 dB, up to the SINR above which it is constant
    steps: list[float]  # `efficiency_bps_hz` as a list, for fast access to one entry


@lru_cache(maxsize=64)
def _outer_loop(law: NrBlocks) -> OuterLoop:
    """Return the efficiency at each SNR of the mix of schemes that the outer loop of the rate model `law` uses."""
    low_db = 10.0 * math.log10(law.min_sinr)
    thresholds_db, of_scheme = law.thresholds_db, np.array([curve.efficiency_bps_hz for curve in law.curves])
    span_db = float(thresholds_db[-1]) + 10.0 * WATERFALL_DB - low_db
    snr_db: Array = low_db + _STEP_DB * np.arange(math.ceil(span_db / _STEP_DB) + 1, dtype=np.float64)
    errors, points = law.block_errors(snr_db), np.arange(len(snr_db))
    scheme = np.searchsorted(thresholds_db, snr_db, side="right") - 1
    below, above = np.maximum(scheme, 0), np.minimum(scheme + 1, len(of_scheme) - 1)
    few, many = errors[below, points], errors[above, points]
    mixes = (scheme >= 0) & (above > below)
    faster = np.divide(law.target_bler - few, many - few, out=np.zeros(len(points)), where=mixes)
    mixed = (1.0 - faster) * of_scheme[below] + faster * of_scheme[above]
    throughput = np.where(mixes, 1.0 / (1.0 + law.target_bler), _chase(law.curves, snr_db)[below, points])
    repeated = law.repeated_bps_hz(np.maximum(exp10(snr_db / 10.0), law.min_sinr))
    efficiency_bps_hz = np.maximum.accumulate(np.where(repeated > 0.0, repeated, mixed * throughput))
    return OuterLoop(law.min_sinr, low_db, efficiency_bps_hz, efficiency_bps_hz.tolist())


@lru_cache(maxsize=16)
def _climbing(law: NrBlocks) -> tuple[OuterLoop, Array]:
    """Return the long-run efficiency of link adaptation by block errors, and the relative efficiency of first windows.

    The relative efficiencies [windows, points] are those in the first windows of a transfer, divided by the long-run
    efficiency; the last row (all ones) stands for all later windows. Because the MCS oscillates, efficiencies at
    neighbouring SNRs differ by up to 27 %, but a rate must not fall with the SNR. The returned long-run efficiency is
    therefore midway between the best efficiency at any lower SNR and the worst at any higher SNR. It is accurate to 1 %
    in the mean over SNRs, and to 14 % at each SNR.
    """
    low_db = 10.0 * math.log10(law.min_sinr)
    span_db = law.schemes[-1].half_db + 10.0 * WATERFALL_DB - low_db
    snr_db: Array = low_db + _STEP_DB * np.arange(math.ceil(span_db / _STEP_DB) + 1, dtype=np.float64)
    of_scheme = np.array([[scheme.efficiency_bps_hz] for scheme in law.schemes])
    first, settled = climb(of_scheme * _chase(law.schemes, snr_db), _block_errors(law.schemes, snr_db))
    settled = 0.5 * (np.maximum.accumulate(settled) + np.minimum.accumulate(settled[::-1])[::-1])
    relative = np.divide(first, settled, out=np.zeros_like(first), where=settled > 0.0)
    relative = np.concatenate([relative, np.ones((1, len(settled)))])
    return OuterLoop(law.min_sinr, low_db, settled, settled.tolist()), relative


def _block_errors(curves: list[Curve], snr_db: Array) -> Array:
    half_db = np.array([curve.half_db for curve in curves]).reshape(-1, *[1] * np.ndim(snr_db))
    deviation = np.asarray((half_db - snr_db) / WATERFALL_DB)
    errors = (deviation > 0.0).astype(np.float64)
    doubtful = np.abs(deviation) < _CERTAIN
    errors[doubtful] = scipy.special.ndtr(deviation[doubtful])
    return errors


def _chase(curves: list[Curve], snr_db: Array) -> Array:
    """Return the mean number of blocks delivered per attempt [schemes, points] if the SNRs of all copies add up."""
    expected, reached = np.zeros((len(curves), len(snr_db))), np.ones((len(curves), len(snr_db)))
    for copies in range(1, MAX_ATTEMPTS + 1):
        expected += reached
        reached *= _block_errors(curves, snr_db + 10.0 * math.log10(copies))
    return (1.0 - reached) / expected


def transport_block_bit(
    blocks: int, symbols: int, dmrs: int, modulation_bits: int, rate_x1024: float, *, overhead: int = 0, layers: int = 1
) -> int:
    """Return the size in bits of a slot's transport block (TS 38.214 clauses 5.1.3.2 and 6.1.4.2); 0 if no data fits.

    The slot has `symbols` symbols in `blocks` resource blocks. A scheme has `modulation_bits` bits per symbol and the
    code rate `rate_x1024` / 1024. In a resource block, `dmrs` resource elements are demodulation reference signals, and
    `overhead` further resource elements (0, 6, 12 or 18) carry no data. Ignored here: the scaling of N_info for paging
    and random access.
    """
    elements = min(MOST_RE, 12 * symbols - dmrs - overhead) * blocks
    rate = Fraction(rate_x1024) / 1024
    info = elements * rate * modulation_bits * layers
    if info <= 0:
        return 0
    if info <= _SMALL_BIT:
        step = 1 << max(3, _floor_log2(info) - 6)
        return _SIZES_BIT[bisect_left(_SIZES_BIT, max(24, step * (info // step)))]
    step = 1 << (_floor_log2(info - 24) - 5)
    quantised = max(3840, step * math.floor((info - 24) / step + Fraction(1, 2)))
    if rate <= Fraction(1, 4):
        code_blocks = -(-(quantised + 24) // _LOW_RATE_CODE_BLOCK_BIT)
    elif quantised > _CODE_BLOCK_BIT:
        code_blocks = -(-(quantised + 24) // _CODE_BLOCK_BIT)
    else:
        code_blocks = 1
    unit = 8 * code_blocks
    return unit * -(-(quantised + 24) // unit) - 24


def _floor_log2(number: Fraction) -> int:
    return (8 * number.numerator // number.denominator).bit_length() - 4  # for numbers of at least 1 / 8
