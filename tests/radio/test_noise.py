"""Claims about noise."""

import pytest

from fednet_emu.radio.channel import thermal_noise_w
from fednet_emu.units import linear_to_db


@pytest.mark.parametrize(
    ("bandwidth_hz", "expected_dbm"), [(180e3, -121.447), (1e6, -114.0), (10e6, -104.0), (20e6, -100.99)]
)
def test_noise_floors(bandwidth_hz, expected_dbm):
    """One resource block, 1, 10 and 20 MHz at -174 dBm/Hz have their textbook floors."""
    noise_dbm = 30 + linear_to_db(thermal_noise_w(bandwidth_hz, noise_figure_db=0.0))

    assert noise_dbm == pytest.approx(expected_dbm, abs=1e-3)


def test_noise_is_a_power_over_the_band_not_a_density():
    """20 MHz of 3.98e-21 W/Hz are 7.96e-14 W, the trap of papers that quote one for the other."""
    assert thermal_noise_w(1.0, noise_figure_db=0.0) == pytest.approx(3.98107e-21, rel=1e-5)
    assert thermal_noise_w(20e6, noise_figure_db=0.0) == pytest.approx(7.96214e-14, rel=1e-5)


def test_half_the_band_has_half_the_noise():
    """A share of the band costs its own noise only, which is why narrow transmissions reach farther."""
    assert 2 * thermal_noise_w(10e6, 5.0) == pytest.approx(thermal_noise_w(20e6, 5.0))


def test_the_noise_figure_adds_in_decibel():
    """A handset of 9 dB hears 20 MHz at -91.99 dBm."""
    assert 30 + linear_to_db(thermal_noise_w(20e6, noise_figure_db=9.0)) == pytest.approx(-91.99, abs=1e-3)


def test_another_density_replaces_the_thermal_one():
    """1e-10 W over 1 MHz, the noise of Tran et al., is -130 dBm/Hz: 44 dB above thermal."""
    assert thermal_noise_w(1e6, noise_figure_db=0.0, density_dbm_hz=-130.0) == pytest.approx(1e-10)
