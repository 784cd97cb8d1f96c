"""5G NR modulation and coding schemes as a rate model (TS 38.214 Tables 5.1.3.1-1 to -3)."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array
from fednet_emu.radio.nr.numerology import rows
from fednet_emu.radio.rates.base import Repeating, Staircase
from fednet_emu.units import db_to_linear

CQI_RATES_X1024 = {
    1: ((2, 78), (2, 120), (2, 193), (2, 308), (2, 449), (2, 602), (4, 378), (4, 490), (4, 616), (6, 466), (6, 567),
        (6, 666), (6, 772), (6, 873), (6, 948)),
    2: ((2, 78), (2, 193), (2, 449), (4, 378), (4, 490), (4, 616), (6, 466), (6, 567), (6, 666), (6, 772), (6, 873),
        (8, 711), (8, 797), (8, 885), (8, 948)),
    3: ((2, 30), (2, 50), (2, 78), (2, 120), (2, 193), (2, 308), (2, 449), (2, 602), (4, 378), (4, 490), (4, 616),
        (6, 466), (6, 567), (6, 666), (6, 772)),
}  # fmt: skip
"""Bits per symbol and 1024 times the code rate of CQI 1 to 15 (TS 38.214 Tables 5.2.2.1-2 to -4)."""

FIRST_LOSS = 0.1
"""Block error rate of first transmissions at which link adaptation aims (TS 38.214 clause 5.2.2.1)."""


class Scheme(NamedTuple):
    """Efficiency of one row of an MCS table, and the SNRs in dB at which 10 % and 1 % of its code blocks fail."""

    efficiency_bps_hz: float
    snr_at_10_pct_db: float
    snr_at_1_pct_db: float


class NrMcs(Repeating, Staircase):
    """Rate of the fastest scheme of an MCS table with at most 10 % failed first transmissions; failures are resent.

    The thresholds are the SNRs at block error rates of 10 % and 1 %, interpolated in curves of Sionna 2.2. The curves
    are for the 5G NR LDPC code with Gaussian noise and code blocks of 2000 bits, on data channels without transform
    precoding. Schemes without a curve (MCS 0 to 2 of table 1; 0, 1 and 27 of table 2; 0 to 8 of table 3) take the
    table's mean gap to Shannon's limit, 1.50, 1.78 and 1.49 dB. First transmissions fail with a probability of 10 % at
    every SINR, so the rate is a staircase over the SINR. An outer loop (`nr-blocks`) mixes in the next scheme and is up
    to 14 % faster just below a threshold. Below the threshold of the lowest scheme, blocks of this scheme are repeated
    (`max_repetitions`), and first transmissions also fail with a probability of 10 %. No data is lost: a block that
    fails every attempt is sent again by the layer above.
    Ignored here: channel estimation (real receivers need 2 to 5 dB more), frequency selectivity, the delay of channel
    reports and of retransmissions, other code block sizes.
    """

    table: Literal[1, 2, 3] = 1
    """MCS table: 1 up to 64QAM, 2 up to 256QAM, 3 for low rates and high reliability."""
    feedback: Literal["ideal", "cqi"] = "ideal"
    """`ideal` uses all schemes of the MCS table; `cqi` uses only the schemes of the 15 values of the CQI."""
    max_attempts: int = Field(default=4, ge=1, le=16)
    """Maximum number of transmissions of a block, after which the layer above must send the block again."""
    combining: Literal["chase", "none"] = "chase"
    """With `chase`, the receiver adds up the copies of a block (chase combining); with `none`, it discards failed
    copies."""
    overhead_share: float = Field(default=0.14, ge=0, lt=1)
    """Share of the resources that control and reference signals occupy. TS 38.306 clause 4.1.2 states 0.14 for the
    downlink and 0.08 for the uplink up to 7.125 GHz, and 0.18 and 0.10 at higher frequencies."""

    @cached_property
    def stairs(self) -> tuple[list[float], list[float]]:
        thresholds: list[float] = []
        efficiencies_bps_hz = [0.0]
        for scheme in sorted(self._schemes(), key=lambda scheme: scheme.snr_at_10_pct_db):
            snr_db = scheme.snr_at_10_pct_db
            if self.combining == "none":
                found = attempts([FIRST_LOSS] * self.max_attempts)
            else:
                found = chase_combining(snr_db, snr_db, scheme.snr_at_1_pct_db, self.max_attempts)
            net_bps_hz = scheme.efficiency_bps_hz * found.throughput * (1.0 - self.overhead_share)
            if net_bps_hz > efficiencies_bps_hz[-1]:  # a scheme with a higher threshold but a lower rate is never used
                thresholds.append(db_to_linear(snr_db))
                efficiencies_bps_hz.append(net_bps_hz)
        return thresholds, efficiencies_bps_hz[1:]

    @property
    def lowest(self) -> tuple[float, float]:
        return self.stairs[0][0], self.stairs[1][0]

    @property
    def jumps(self) -> Array:
        return np.array([self.min_sinr, *self.stairs[0][1:]])

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        least, enough, slope = self._repeats
        if sinr >= enough:
            return super().rate_bps(sinr, bandwidth_hz)
        return bandwidth_hz * slope * sinr if sinr >= least else 0.0

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        return super().rates_bps(sinr, bandwidth_hz) + bandwidth_hz * self.repeated_bps_hz(sinr)

    def _schemes(self) -> list[Scheme]:
        table = mcs_table(self.table)
        if self.feedback == "ideal":
            return table
        named = []
        for bits, rate in CQI_RATES_X1024[self.table]:
            fitting = [scheme for scheme in table if scheme.efficiency_bps_hz <= bits * rate / 1024]
            named += fitting[-1:]
        return named


def mcs_table(table: int) -> list[Scheme]:
    """Return the schemes of an MCS table in the order of the MCS index, without rows reserved for retransmissions."""
    return [
        Scheme(
            efficiency_bps_hz=int(row["modulation_bits"]) * float(row["code_rate_x1024"]) / 1024,
            snr_at_10_pct_db=float(row["snr_at_bler_0.1_db"]),
            snr_at_1_pct_db=float(row["snr_at_bler_0.01_db"]),
        )
        for row in rows("nr_mcs.csv", table)
    ]


class Attempts(NamedTuple):
    """Expected number of transmission attempts per block, and the probability that all attempts fail."""

    expected: float
    residual_loss: float

    @property
    def throughput(self) -> float:
        """Mean number of blocks delivered per attempt if the layer above resends a block whose attempts all fail."""
        return (1.0 - self.residual_loss) / self.expected


def chase_combining(snr_db: float, snr_at_10_pct_db: float, snr_at_1_pct_db: float, max_attempts: int) -> Attempts:
    """Return the expected attempts per block, and their loss, if the SNRs of all copies add up (chase combining).

    The block error rate after k copies is that of a single copy at k times the SNR. The logarithm of this rate is a
    linear function of the SNR in dB through the points with 10 % and 1 % errors. Given their SNR, attempts fail
    independently. The arguments are the SNR in dB of one copy, and the SNRs in dB with 10 % and 1 % errors.
    Ignored here: the correlation of the noise of successive attempts, fading between attempts, feedback errors.
    """
    decade_db = snr_at_1_pct_db - snr_at_10_pct_db
    losses = []
    for copies in range(1, max_attempts + 1):
        decades = 1.0 + (snr_db + 10.0 * math.log10(copies) - snr_at_10_pct_db) / decade_db
        losses.append(min(10.0**-decades, 1.0))
    return attempts(losses)


def attempts(losses: list[float]) -> Attempts:
    """Return the expected attempts per block, given the loss probabilities of successive, independent attempts."""
    expected, reached = 0.0, 1.0
    for loss in losses:
        expected += reached
        reached *= loss
    return Attempts(expected, reached)
