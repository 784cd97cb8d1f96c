"""Claims about energy, against worked numbers of papers."""

import pytest

from fednet_emu.radio.energy import compute_energy_j, transmit_energy_j


def test_paper_convention_counts_radiated_power_only():
    """23 dBm for 10 s are 2 J when the amplifier is perfect and the circuit draws nothing."""
    assert transmit_energy_j(0.2, 10.0, amplifier_efficiency=1.0, circuit_w=0.0) == pytest.approx(2.0)


def test_amplifier_and_circuit_draw_more_than_is_radiated():
    """(0.7 / 0.35 + 0.5) W for 2 s are 5 J."""
    assert transmit_energy_j(0.7, 2.0, amplifier_efficiency=0.35, circuit_w=0.5) == pytest.approx(5.0)


def test_worked_example_of_tran():
    """2e4 cycles for each of 500 samples at 1 GHz and alpha = 2e-28 (kappa = 1e-28) cost 1 mJ an epoch."""
    alpha = 2e-28

    assert compute_energy_j(2e4 * 500, frequency_hz=1e9, kappa=alpha / 2) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("kappa", "frequency_hz", "expected_w"), [(1e-28, 1e9, 0.1), (1e-28, 2e9, 0.8), (1e-27, 1.5e9, 3.375)]
)
def test_a_second_of_work_costs_kappa_f_cubed(kappa, frequency_hz, expected_w):
    """Power is kappa f^3: twice the clock, eight times the power."""
    assert compute_energy_j(frequency_hz * 1.0, frequency_hz, kappa) == pytest.approx(expected_w)
