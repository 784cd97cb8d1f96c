"""Delay spreads of TR 38.901: how far apart in time the paths of a link arrive (Table 7.5-6)."""

from __future__ import annotations

import math

_LOG10_S = {
    ("3gpp-uma", True): (-6.955, -0.0963, 0.0, 6.0),
    ("3gpp-uma", False): (-6.28, -0.204, 0.0, 6.0),
    ("3gpp-umi", True): (-7.14, -0.24, 1.0, 2.0),
    ("3gpp-umi", False): (-6.83, -0.24, 1.0, 2.0),
    ("3gpp-rma", True): (-7.49, 0.0, 0.0, 0.5),
    ("3gpp-rma", False): (-7.43, 0.0, 0.0, 0.5),
    ("3gpp-inh", True): (-7.692, -0.01, 1.0, 6.0),
    ("3gpp-inh", False): (-7.173, -0.28, 1.0, 6.0),
}
"""By path loss and line of sight: a, b, c and the least f in lg(s) = a + b lg(c + f), f in GHz."""

KINDS = tuple(dict.fromkeys(kind for kind, _ in _LOG10_S))
"""Kinds of path loss with a median."""


def median_delay_spread_s(path_loss: str, carrier_hz: float, *, los: bool) -> float:
    """Median over places of the root-mean-square delay spread in s.

    Ignored here: its spread between places (a factor of 1.5 to 4.6 either way), devices indoors.

    Args:
        path_loss: a kind of path loss, one of `KINDS`.
        carrier_hz: centre frequency; below 6 GHz (`3gpp-umi`: 2 GHz) the value there holds.
        los: whether links have line of sight.
    """
    constant, slope, offset, least_ghz = _LOG10_S[path_loss, los]
    return math.pow(10.0, constant + slope * math.log10(offset + max(carrier_hz / 1e9, least_ghz)))
