"""Wi-Fi: modulation and coding schemes of IEEE 802.11a, n, ac and ax, their minimum SNRs, and durations of frames.

Durations are in whole ns, for one encoder. At 2.4 GHz, interframe spaces are 6 us shorter, but a signal extension of 6
us follows each frame, so that the sums of durations are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

WifiStandard = Literal["a", "n", "ac", "ax"]

MAX_PPDU_NS = 5_484_000
"""Maximum duration of a frame in ns (aPPDUMaxTime of the 802.11n, ac and ax PHYs)."""

_SERVICE_TAIL_BIT = 16 + 6
_LEGACY_PREAMBLE_NS, _LEGACY_SYMBOL_NS = 20_000, 4_000
_TRAINING_NS = 4_000


class Family(NamedTuple):
    """Properties of all frames of a standard.

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
"""IEEE 802.11 clauses 17, 19, 21 and 27: frames in mixed format (HT), and frames for a single user (VHT, HE)."""


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
"""MCS 0 to 11. The SNRs are from the error rate tables of ns-3 3.44, which has no separate tables for the last two MCS.
With the NIST model of ns-3, the SNRs are 1 to 5 dB higher. The SNRs of real receivers differ from the tables by similar
amounts."""


class Scheme(NamedTuple):
    """A modulation and coding scheme on a channel of given width: data bits per symbol, minimum SNR, control rate."""

    data_bit: int
    snr_db: float
    control_mbps: int


@lru_cache
def schemes(standard: WifiStandard, width_mhz: int, streams: int = 1) -> tuple[Scheme, ...]:
    """Return the schemes of a standard in increasing order.

    802.11ac excludes schemes with a fractional number of data bits per symbol.

    Args:
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
