"""Claims about retransmissions, against closed forms."""

import json
from pathlib import Path

import pytest

from fednet_emu.radio.nr.mcs import attempts, chase_combining

TABLE = json.loads((Path(__file__).parents[1] / "reference" / "analytic_checkpoints.json").read_text())[
    "truncated_arq_M4"
]


@pytest.mark.parametrize("loss", [0.1, 0.3, 0.5])
def test_truncated_arq_with_four_attempts(loss):
    """Expected attempts (1 - p^4) / (1 - p) and residual loss p^4 of the analytic table."""
    expected, residual = TABLE[f"p={loss}"]

    assert attempts([loss] * 4) == pytest.approx((expected, residual), abs=6e-4)
    assert attempts([loss] * 4).throughput == pytest.approx(1 - loss)


def test_a_second_copy_is_worth_three_decibel():
    """Twice the SNR moves 3.01 dB down a curve of a decade per 0.5 dB: from 10 % to 10^-7.02."""
    got = chase_combining(snr_db=8.0, snr_at_10_pct_db=8.0, snr_at_1_pct_db=8.5, max_attempts=2)

    assert got.expected == pytest.approx(1.1)
    assert got.residual_loss == pytest.approx(0.1 * 10 ** -(1 + 3.0103 / 0.5), rel=1e-4)


def test_hopeless_blocks_use_all_attempts():
    """Ten dB below the threshold four copies add up to 6 dB: nothing gets through."""
    assert chase_combining(-2.0, 8.0, 8.5, max_attempts=4) == (4.0, 1.0)


def test_attempts_multiply_losses_in_order():
    """Losses of 1/2 and 1/5: one and a half attempts, one block in ten lost."""
    assert attempts([0.5, 0.2]) == pytest.approx((1.5, 0.1))
