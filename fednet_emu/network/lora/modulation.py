"""LoRa: how long frames last, and which spreading factor a link uses."""

from __future__ import annotations

HEADER_BYTE = 13
"""LoRaWAN header and integrity code of each frame."""

MOST_BYTE = {7: 222, 8: 222, 9: 115, 10: 51, 11: 51, 12: 51}
"""Longest frame in bytes, header included, by spreading factor."""

REQUIRED_DB = {7: -7.5, 8: -10.0, 9: -12.5, 10: -15.0, 11: -17.5, 12: -20.0}
"""SNR in dB that each spreading factor needs; from memory of data sheets, to be checked before quoting."""

_MARGIN_DB, _STEP_DB = 10.0, 3.0
_PREAMBLE_SYMBOLS, _LOW_RATE_S = 8, 16e-3


def time_on_air_ns(size_byte: int, spreading: int, bandwidth_hz: float) -> int:
    """Duration in ns of a frame of so many bytes with a code rate of 4/5, a preamble of 8 symbols, header and checksum.

    Semtech, data sheets of SX1276 (4.1.1.7) and SX1261 (6.1.4).
    """
    symbol_s = (1 << spreading) / bandwidth_hz
    slow = 2 if symbol_s >= _LOW_RATE_S else 0  # low data rate optimisation
    needed_bit = max(8 * size_byte - 4 * spreading + 28 + 16, 0)
    symbols = 8 + 5 * -(-needed_bit // (4 * (spreading - slow)))
    return round((_PREAMBLE_SYMBOLS + 4.25 + symbols) * symbol_s * 1e9)


def adapted(snr_db: float) -> int:
    """Spreading factor of a link after adaptation (ADR); 12 where no other is reached, though it may need more SNR.

    From 12 on it falls by one for each 3 dB by which the SNR is more than 10 dB above what the present one needs, as
    The Things Network is said to do it (not verified). Ignored here: that power falls once the factor is 7.
    """
    spreading = 12
    while spreading > 7 and snr_db - REQUIRED_DB[spreading] - _MARGIN_DB >= _STEP_DB:
        spreading -= 1
    return spreading


def adapted_from_db(spreading: int) -> float:
    """The SNR in dB from which on `adapted` gives this factor or a lower one."""
    return REQUIRED_DB[12] if spreading == 12 else REQUIRED_DB[spreading + 1] + _MARGIN_DB + _STEP_DB
