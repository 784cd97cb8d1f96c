"""Claims about energy, against worked numbers of papers."""

import pytest
from pydantic import ValidationError

from fednet_emu.radio.energy import (
    COMPUTE_ENERGIES,
    CmosEnergy,
    MeasuredEnergy,
    PublishedEnergy,
    Transmitter,
    compute_energy_j,
)


def test_paper_convention_counts_radiated_power_only():
    """23 dBm for 10 s are 2 J when the amplifier is perfect and the circuit draws nothing."""
    assert Transmitter(efficiency=1.0, circuit_w=0.0).drawn_w(0.2) * 10.0 == pytest.approx(2.0)


def test_amplifier_and_circuit_draw_more_than_is_radiated():
    """(0.7 / 0.35 + 0.5) W for 2 s are 5 J."""
    assert Transmitter(efficiency=0.35, circuit_w=0.5).drawn_w(0.7) * 2.0 == pytest.approx(5.0)


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


def test_kappa_of_a_component_is_that_of_the_formula():
    """1e10 operations at 8 per cycle: 1.25e9 cycles at 1 GHz cost 0.125 J, at half the clock a quarter of it."""
    law = CmosEnergy(clock_hz=1e9, flop_per_cycle=8, kappa=1e-28)

    assert law.energy_j(1e10, duration_s=99.0) == pytest.approx(0.125)
    assert law.energy_j(1e10, duration_s=99.0, clock=0.5) == pytest.approx(0.125 / 4)


@pytest.mark.parametrize("lacking", ["clock_hz", "flop_per_cycle"])
def test_a_clock_is_never_made_up(lacking):
    """Speed over 8 as the clock gave 1.56 nW at 2e7 FLOP/s and 1.56 kW at 2e11; now clock and cycles must be given."""
    assert compute_energy_j(2e7 / 8, 2e7 / 8, 1e-28) == pytest.approx(1.56e-9, rel=2e-3)
    settings = {"clock_hz": 1e9, "flop_per_cycle": 8.0}
    del settings[lacking]

    with pytest.raises(ValidationError, match=lacking):
        CmosEnergy(**settings)
    with pytest.raises(ValidationError, match=lacking):
        PublishedEnergy(preset="tran-2019", **settings)


def test_measured_power_counts_time_not_cycles():
    """4.2 W for 10 s are 42 J, however much was computed."""
    assert MeasuredEnergy(active_w=4.2).energy_j(1.0, duration_s=10.0) == pytest.approx(42.0)


@pytest.mark.parametrize(
    ("preset", "cycles", "frequency_hz", "expected_j"),
    [
        ("tran-2019", 20 * 8 * 5e6, 1e9, 0.08),
        ("chen-2021-code", 40 * 1e6, 1e9, 0.04),
        ("yang-2021", 2e4 * 500, 2e9, 4e-3),
    ],
)
def test_presets_reproduce_a_worked_number(preset, cycles, frequency_hz, expected_j):
    """Tran: 20 cycles on each bit of 5 MB; Chen: 40 on each bit of 1 Mbit; Yang: 2e4 on each of 500 samples."""
    law = PublishedEnergy(preset=preset, clock_hz=frequency_hz, flop_per_cycle=1)

    assert law.energy_j(cycles, duration_s=0.0) == pytest.approx(expected_j)


def test_every_kind_of_compute_energy_has_claims_here():
    """The table and this file name the same kinds."""
    assert set(COMPUTE_ENERGIES) == {"cmos", "published", "measured"}
