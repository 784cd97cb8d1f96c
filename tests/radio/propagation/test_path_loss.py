"""Claims about path loss, against points of ns-3 test suites and closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.errors import ScenarioError
from fednet_emu.radio.propagation.link import Hop
from fednet_emu.radio.propagation.path_loss import (
    PATH_LOSSES,
    FreeSpace,
    LogDistance,
    MacroClassic,
    TwoRayGround,
    free_space_loss_db,
)
from tests.quick import examples

EXACT_C_SHIFT_DB = 20 * np.log10(3.0e8 / 299_792_458)
TX_POWER_W = 0.05035702
LAWS = [
    FreeSpace(),
    LogDistance(exponent=3.0),
    LogDistance(exponent=3.53, reference_distance_m=10, reference_loss_db=69),
    TwoRayGround(),
    MacroClassic(),
]
ELSEWHERE = {"3gpp-uma", "3gpp-umi", "3gpp-rma", "3gpp-inh", "3gpp-inf", "d2d-outdoor", "d2d-indoor", "v2v", "table"}


def level(*distances_m):
    """A hop between antennas of equal height."""
    return Hop(distance_2d_m=np.array(distances_m), tx_height_m=np.array(1.5), rx_height_m=np.array(1.5))


def test_free_space_gives_the_received_powers_of_ns3():
    """Friis at a wavelength of 12.5 cm: the four powers of ns-3's propagation-loss test suite."""
    loss_db = FreeSpace().loss_db(level(100, 500, 1000, 2000), carrier_hz=3.0e8 / 0.125)

    received_w = TX_POWER_W * 10 ** (-loss_db / 10)

    assert received_w == pytest.approx([4.98265e-10, 1.99306e-11, 4.98265e-12, 1.24566e-12], rel=2e-6)


@pytest.mark.parametrize(
    ("carrier_hz", "expected_db"),
    [(0.9e9, 71.5326), (2.4e9, 80.0520), (3.5e9, 83.3291), (5.15e9, 86.6839), (28e9, 101.3909)],
)
def test_free_space_at_100_m_matches_the_oracle_but_for_the_speed_of_light(carrier_hz, expected_db):
    """The whole difference to ns-3 is 3.0e8 m/s instead of 299792458 m/s: 0.006 dB."""
    loss_db = FreeSpace().loss_db(level(100.0), carrier_hz)

    assert loss_db + EXACT_C_SHIFT_DB == pytest.approx([expected_db], abs=6e-5)
    assert loss_db == pytest.approx([expected_db], abs=0.0061)


def test_free_space_is_flat_below_its_minimum_distance():
    """A link of zero length loses as much as one at the clamp, and no more is asked of the near field."""
    law = FreeSpace(min_distance_m=5.0)

    losses_db = law.loss_db(level(0.0, 2.0, 5.0, 50.0), 2e9)

    assert losses_db[:3] == pytest.approx(losses_db[2])
    assert losses_db[3] - losses_db[2] == pytest.approx(20.0)


def test_log_distance_gives_the_received_powers_of_ns3():
    """Exponent 3 from 40.045997 dB at 1 m: the four powers of ns-3's propagation-loss test suite."""
    law = LogDistance(exponent=3.0, reference_loss_db=40.045997)

    received_w = TX_POWER_W * 10 ** (-law.loss_db(level(10, 20, 40, 80), carrier_hz=2.4e9) / 10)

    assert received_w == pytest.approx([4.98265e-9, 6.22831e-10, 7.78539e-11, 9.73173e-12], rel=5e-6)


def test_log_distance_starts_from_free_space_when_no_reference_loss_is_given():
    """At 5.15 GHz and 1 m that is 46.6777 dB, the default of ns-3 (which took 3e8 m/s there too)."""
    law = LogDistance(exponent=3.0)

    losses_db = law.loss_db(level(1.0, 100.0), carrier_hz=5.15e9)

    assert losses_db == pytest.approx([46.6777, 106.6777], abs=3e-4)


def test_log_distance_with_exponent_two_is_free_space():
    """From any reference distance the two laws agree, on both sides of it and up to 1 m."""
    hop = level(0.0, 1.0, 2.0, 7.0, 70.0, 900.0)

    losses_db = LogDistance(exponent=2.0, reference_distance_m=7.0).loss_db(hop, 3.5e9)

    assert losses_db == pytest.approx(FreeSpace().loss_db(hop, 3.5e9))


def test_log_distance_is_one_line_over_the_logarithm_wherever_its_reference_is():
    """128.1 dB at 1 km and 37.6 dB a decade: 90.5 dB at 100 m, 15.3 dB at 1 m; from 10 m or from 1 m the same law."""
    hop, expected = level(0.0, 0.5, 1.0, 10.0, 100.0, 1000.0, 10_000.0), [15.3, 15.3, 15.3, 52.9, 90.5, 128.1, 165.7]

    for reference_m, loss_db in ((1.0, 15.3), (10.0, 52.9), (1000.0, 128.1)):
        law = LogDistance(exponent=3.76, reference_distance_m=reference_m, reference_loss_db=loss_db)
        assert law.loss_db(hop, 2e9) == pytest.approx(expected)


def test_log_distance_below_a_metre_begins_at_its_reference():
    """A reference distance of 10 cm: the loss there holds for shorter links, and 20 dB more at 1 m."""
    law = LogDistance(exponent=2.0, reference_distance_m=0.1, reference_loss_db=20.0)

    assert law.loss_db(level(0.0, 0.1, 1.0), 2e9) == pytest.approx([20.0, 20.0, 40.0])


def test_losses_use_the_distance_between_the_antennas():
    """Right under a mast of 101.5 m a handset is 100 m away, not 0 m."""
    under = Hop(distance_2d_m=np.array([0.0]), tx_height_m=np.array([1.5]), rx_height_m=np.array([101.5]))

    for law in (FreeSpace(), LogDistance(exponent=3.0)):
        np.testing.assert_allclose(law.loss_db(under, 3.5e9), law.loss_db(level(100.0), 3.5e9), rtol=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.kind}-{getattr(law, 'exponent', 2)}")
@examples(40)
@given(distance_m=st.floats(0.0, 1e5), factor=st.floats(1.0, 1e3), carrier_hz=st.floats(1e8, 1e11))
def test_loss_never_falls_with_distance(law, distance_m, factor, carrier_hz):
    """A farther receiver never hears more, at any carrier."""
    near_db, far_db = law.loss_db(level(distance_m, distance_m * factor), carrier_hz)

    assert far_db >= near_db - 1e-9


def test_ten_times_the_carrier_costs_twenty_db_in_free_space():
    """Isotropic antennas shrink with the wavelength."""
    assert free_space_loss_db(np.array(50.0), 28e9) - free_space_loss_db(np.array(50.0), 2.8e9) == pytest.approx(20.0)


def test_two_ray_gives_the_received_powers_of_ns3():
    """Both antennas at 1.5 m: free space at 100 m, then d^4, the four powers of ns-3's propagation-loss test suite."""
    loss_db = TwoRayGround().loss_db(level(100, 500, 1000, 2000), carrier_hz=3.0e8 / 0.125)

    received_w = TX_POWER_W * 10 ** (-loss_db / 10)

    assert received_w == pytest.approx([4.98265e-10, 4.07891862e-12, 2.5493241375e-13, 1.593327585938e-14], rel=2e-6)


@given(height_m=st.floats(0.5, 30), carrier_hz=st.floats(1e8, 1e10))
@examples(30)
def test_two_ray_is_continuous_at_the_crossover(height_m, carrier_hz):
    """4 pi h1 h2 / wavelength is where both branches give the same loss."""
    crossover_m = 4 * np.pi * height_m**2 * carrier_hz / 3.0e8
    around = Hop(crossover_m * np.array([1 - 1e-9, 1 + 1e-9]), np.array(height_m), np.array(height_m))

    before_db, after_db = TwoRayGround(min_distance_m=1e-3).loss_db(around, carrier_hz)

    assert after_db == pytest.approx(before_db, abs=1e-6)


def test_two_ray_needs_antennas_above_ground():
    """On the ground both waves cancel altogether."""
    with pytest.raises(ScenarioError, match="an antenna stands on the ground"):
        TwoRayGround().loss_db(Hop(np.array([50.0]), np.array(0.0), np.array(10.0)), 2e9)


def test_classic_macro_law_uses_the_horizontal_distance():
    """128.1 dB at 1 km, 90.5 dB at 100 m and 52.9 dB up to 10 m whatever the heights; 20 dB more through walls."""
    hop = Hop(np.array([1000.0, 100.0, 10.0, 0.0]), np.array(1.5), np.array(25.0))

    assert MacroClassic().loss_db(hop, 2e9) == pytest.approx([128.1, 90.5, 52.9, 52.9])
    assert MacroClassic(penetration_db=20).loss_db(hop, 2e9)[0] == pytest.approx(148.1)


def test_every_kind_of_path_loss_has_claims_here():
    """The laws of this file, and of test_tr38901, test_d2d, test_v2v and test_traced, are all that the table names."""
    assert set(PATH_LOSSES) == {law.kind for law in LAWS} | ELSEWHERE
