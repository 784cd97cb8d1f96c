"""Wi-Fi: modulation and coding schemes of IEEE 802.11a, n, ac and ax, the SNRs they need, and how long frames last.

Durations are whole nanoseconds and hold for one encoder. At 2.4 GHz an interframe space is 6 us shorter and each frame
is followed by a signal extension of 6 us, so that nothing else differs there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

WifiStandard = Literal["a", "n", "ac", "ax"]

MAX_PPDU_NS = 5_484_000
"""Longest frame in ns (aPPDUMaxTime of the 802.11n, ac and ax PHYs)."""

_SERVICE_TAIL_BIT = 16 + 6
_LEGACY_PREAMBLE_NS, _LEGACY_SYMBOL_NS = 20_000, 4_000
_TRAINING_NS = 4_000


class Family(NamedTuple):
    """Common properties of the frames of a standard.

    Attributes:
        preamble_ns: preamble of one stream, from the first training field to the data.
        symbol_ns: an OFDM symbol without its guard interval.
        guard_ns: the shortest guard interval.
        subcarriers: data subcarriers, by the width of the channel in MHz.
        schemes: number of modulation and coding schemes, from index 0 on; 0 of 802.11a, which has rates instead.
    """

    preamble_ns: int
    symbol_ns: int
    guard_ns: int
    subcarriers: Mapping[int, int]
    schemes: int

    def ppdu_ns(self, psdu_byte: int, data_bit: int, guard_ns: int, streams: int = 1) -> int:
        """Duration of a frame of `psdu_byte` with `data_bit` data bits in a symbol.

        Each stream beyond the first has one more training field of 4 us (of 802.11ax: as long, assumed).
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
"""IEEE 802.11 clauses 17, 19, 21 and 27: frames in mixed format (HT) and of a single user (VHT, HE)."""


class Coding(NamedTuple):
    """A modulation with a code.

    Attributes:
        bit: bits of a subcarrier.
        rate: numerator and denominator of the code rate.
        snr_db: SNR in dB at which 10 % of the frames of 1458 bytes fail over Gaussian noise.
        control_mbps: rate in Mbit/s of the control frames that belong to it: the fastest mandatory one, 6, 12 or 24,
            that is not faster than 802.11a's rate with this modulation and code.
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
"""MCS 0 to 11. SNRs are from the tables of error rates in ns-3 3.44; its other model, NIST, needs 1 to 5 dB more,
and real receivers differ by as much. The last two have no table of their own there."""


class Scheme(NamedTuple):
    """A scheme as a channel of a width has it: data bits of a symbol, SNR in dB, control rate in Mbit/s."""

    data_bit: int
    snr_db: float
    control_mbps: int


@lru_cache
def schemes(standard: WifiStandard, width_mhz: int, streams: int = 1) -> tuple[Scheme, ...]:
    """The schemes of a standard in rising order; those without a whole number of bits in a symbol do not exist in ac.

    Args:
        width_mhz: a width that it has.
        streams: spatial streams. `snr_db` stays the SNR of each stream.
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
    """Duration of a control frame, which is sent as 802.11a has it: 6, 12 or 24 Mbit/s."""
    symbols = -(-(_SERVICE_TAIL_BIT + 8 * size_byte) // (4 * mbps))
    return _LEGACY_PREAMBLE_NS + _LEGACY_SYMBOL_NS * symbols
