"""Propagation: path loss, shadowing, geometry, and models for rooms, streets and devices."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.radio.propagation.d2d import (
    D2dIndoor,
    D2dOutdoor,
    b1_breakpoint_m,
    b1_los_db,
    b1_los_probability,
    b1_nlos_db,
    indoor_los_probability,
)
from fednet_emu.radio.propagation.link import Hop, LinkDraws
from fednet_emu.radio.propagation.path_loss import PATH_LOSSES, FreeSpace, LogDistance, MacroClassic, TwoRayGround
from fednet_emu.radio.propagation.shadowing import (
    SHADOWINGS,
    WAVES,
    LogNormalShadowing,
    NoShadowing,
    ShadowingOfPathLoss,
    shadow_normals,
)
from fednet_emu.radio.propagation.tr38901.buildings import OutdoorToIndoor
from fednet_emu.radio.propagation.tr38901.indoor import IndoorFactory, IndoorOffice
from fednet_emu.radio.propagation.tr38901.urban import UrbanMacro
from fednet_emu.radio.propagation.v2v import V2v, blockage_db, same_street_los_probability
from tests.quick import examples
from tests.radio.propagation.test_tr38901 import draws, hop

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


def test_classic_macro_law_uses_the_horizontal_distance():
    """128.1 dB at 1 km, 90.5 dB at 100 m and 52.9 dB up to 10 m whatever the heights; 20 dB more through walls."""
    hop = Hop(np.array([1000.0, 100.0, 10.0, 0.0]), np.array(1.5), np.array(25.0))

    assert MacroClassic().loss_db(hop, 2e9) == pytest.approx([128.1, 90.5, 52.9, 52.9])
    assert MacroClassic(penetration_db=20).loss_db(hop, 2e9)[0] == pytest.approx(148.1)


def test_every_kind_of_path_loss_has_claims_here():
    """The laws of this file, and of test_tr38901, test_d2d, test_v2v and test_traced, are all that the table names."""
    assert set(PATH_LOSSES) == {law.kind for law in LAWS} | ELSEWHERE


def test_one_standard_deviation_costs_sigma_db():
    """A positive draw is a loss: +1 costs 7.82 dB, -2 wins 15.64 dB."""
    loss_db = LogNormalShadowing(sigma_db=7.82).loss_db(np.array([1.0, 0.0, -2.0]))

    assert loss_db == pytest.approx([7.82, 0.0, -15.64])


def test_the_path_loss_may_state_the_deviation():
    """Each link has its own: one draw of +1 costs 4 dB here and 7.82 dB there, over its own distance."""
    law = ShadowingOfPathLoss()

    assert law.loss_db(np.ones(2), np.array([4.0, 7.82])) == pytest.approx([4.0, 7.82])
    np.testing.assert_array_equal(law.correlation_m(np.array([10.0, 13.0])), [10.0, 13.0])


def test_a_deviation_of_its_own_overrides_what_the_path_loss_states():
    """So does its own correlation distance, and no shadowing never changes."""
    law = LogNormalShadowing(sigma_db=8.0, decorrelation_m=20.0)

    np.testing.assert_array_equal(law.loss_db(np.ones(2), np.array([4.0, 7.82])), [8.0, 8.0])
    np.testing.assert_array_equal(law.correlation_m(np.array([10.0, 13.0])), [20.0, 20.0])
    assert np.all(np.isinf(NoShadowing().correlation_m(np.ones(2))))


def test_every_kind_takes_a_draw_per_link():
    """The shape of the loss is the shape of the draws, for every kind in the table."""
    laws = [NoShadowing(), LogNormalShadowing(sigma_db=8.0), ShadowingOfPathLoss()]

    assert [law.kind for law in laws] == list(SHADOWINGS)
    assert [law.loss_db(np.zeros((3, 4))).shape for law in laws] == 3 * [(3, 4)]


def test_positions_give_ground_distance_and_both_heights():
    """Two devices and one base station make two hops, each with the heights of its own ends."""
    devices_m = np.array([[3.0, 4.0, 1.5], [0.0, 12.0, 2.0]])
    station_m = np.array([0.0, 0.0, 10.0])

    hop = Hop.between(devices_m, station_m)

    assert hop.distance_2d_m == pytest.approx([5.0, 12.0])
    assert hop.tx_height_m == pytest.approx([1.5, 2.0])
    assert hop.rx_height_m == pytest.approx(10.0)
    assert hop.distance_3d_m == pytest.approx([np.sqrt(25 + 72.25), np.sqrt(144 + 64)])


def test_positions_broadcast_to_every_pair():
    """Shapes [n, 1, 3] and [m, 3] give n x m hops, and the way back is as long as the way there."""
    places_m = np.array([[0.0, 0.0, 1.5], [30.0, 0.0, 1.5], [0.0, 40.0, 10.0]])

    there = Hop.between(places_m[:, None], places_m)

    assert there.distance_3d_m.shape == (3, 3)
    assert there.distance_2d_m[1, 2] == pytest.approx(50.0)
    np.testing.assert_array_equal(there.distance_3d_m, there.distance_3d_m.T)
    assert (there.tx_height_m[2, 0], there.rx_height_m[0]) == (10.0, 1.5)


LINKS = 20_000


def uniforms(coordinates, links=LINKS, waves=4):
    return np.random.default_rng(4).uniform(size=(links, waves, 1 + coordinates))


@pytest.mark.parametrize("moved_m", [0.0, 1.0, 5.0, 10.0, 20.0, 40.0])
def test_correlation_over_links_falls_exponentially(moved_m):
    """Variance 1, and exp(-d / 10 m) between places d apart in any direction, for any number of waves."""
    luck = uniforms(2)
    here = shadow_normals(np.array([30.0, -7.0]), 10.0, luck)
    there = shadow_normals(np.array([30.0 + 0.6 * moved_m, -7.0 + 0.8 * moved_m]), 10.0, luck)

    assert here.mean() == pytest.approx(0.0, abs=0.03)
    assert here.var() == pytest.approx(1.0, abs=0.03)
    assert (here * there).mean() == pytest.approx(np.exp(-moved_m / 10), abs=0.03)


def test_correlation_of_two_moving_ends_multiplies():
    """Both ends of a link between handsets move: exp(-d_a / 13) exp(-d_b / 13)."""
    luck = uniforms(4)
    here = shadow_normals(np.zeros(4), 13.0, luck)
    there = shadow_normals(np.array([3.0, 4.0, 0.0, 6.0]), 13.0, luck)

    assert (here * there).mean() == pytest.approx(np.exp(-11 / 13), abs=0.03)


def test_correlation_along_the_path_of_one_link():
    """On a walk of 40 km one link shows the correlation itself, with the recommended number of waves."""
    luck = uniforms(2, links=1, waves=WAVES)[0]
    path_m = np.column_stack([np.arange(0, 40_000, 2.0), np.zeros(20_000)])
    walk = shadow_normals(path_m, 20.0, luck)

    for lag, expected in ((5, np.exp(-0.5)), (10, np.exp(-1.0)), (20, np.exp(-2.0))):
        assert np.corrcoef(walk[:-lag], walk[lag:])[0, 1] == pytest.approx(expected, abs=0.15)


def test_values_are_nearly_normal():
    """Over links the fourth moment is 3 - 1.5 / N and the quantiles are those of the normal law."""
    values = shadow_normals(np.array([12.0, 3.0]), 10.0, uniforms(2, links=8000, waves=WAVES))

    assert np.quantile(values, [0.023, 0.159, 0.5, 0.841, 0.977]) == pytest.approx([-2, -1, 0, 1, 2], abs=0.06)
    assert (values**4).mean() == pytest.approx(3 - 1.5 / WAVES, abs=0.15)


def test_a_place_looks_the_same_whenever_it_is_visited():
    """A function of position: any order, one by one or together, gives the same numbers."""
    luck = uniforms(2, links=3)
    places_m = np.array([[5.0, 5.0], [80.0, 2.0], [-4.0, 9.0]])

    together = shadow_normals(places_m, np.array([10.0, 13.0, 50.0]), luck)
    alone = [float(shadow_normals(places_m[i], d, luck[i])) for i, d in ((2, 50.0), (0, 10.0), (1, 13.0))]

    assert together[[2, 0, 1]] == pytest.approx(alone, rel=1e-12)


def test_coated_walls_spread_more():
    """High-loss buildings vary with 6.5 dB: at the 84th percentile of luck, a wall loses one deviation more."""
    buildings = OutdoorToIndoor(indoor_share=1.0, high_loss_share=1.0)
    lucks = [draws(1, penetration=luck) for luck in (0.5, 0.8413447460685429)]
    entries = [buildings.enter(10e9, luck, np.zeros(1)) for luck in lucks]

    assert entries[1].loss_db - entries[0].loss_db == pytest.approx([6.5])


def test_who_is_indoors_is_seen_from_the_wall():
    """Of 200,000 devices 300 m away and up to 25 m inside, as many are in sight as halls of that depth begin nearer."""
    buildings = OutdoorToIndoor(indoor_share=1.0, high_loss_share=0.0)
    luck = draws(200_000, depth=1.0)
    depth_m = UrbanMacro(buildings=buildings).propagate(hop(300.0, 25.0), 2e9, luck)
    walls = UrbanMacro().propagate(hop(275.0, 25.0), 2e9, luck)

    assert depth_m.los.tolist() == walls.los.tolist()


def test_links_in_a_factory_count_as_1_m_at_least():
    """Half a metre costs what one does, and one and a half more."""
    losses_db = [IndoorFactory(hall="SL", los="always").loss_db(hop(d, 1.5), 3.5e9) for d in (0.5, 1.0, 1.5)]

    assert losses_db[0] == losses_db[1] < losses_db[2]


with (Path(__file__).parents[1] / "reference" / "winnerplus_b1_d2d_formula_points.csv").open(encoding="utf-8") as _file:
    POINTS = list(csv.DictReader(_file))


def level_of_d2d(*distances_m):
    return Hop(np.array(distances_m, float), np.array(1.5), np.array(1.5))


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point['fc_ghz']}-{point['d_m']}")
def test_outdoor_points(point):
    """Loss in both states, probability of line of sight and breakpoint at every point of the table, to its digits."""
    distance_m, carrier_hz = float(point["d_m"]), float(point["fc_ghz"]) * 1e9

    seen_db = D2dOutdoor(los="always").loss_db(level_of_d2d(distance_m), carrier_hz)
    unseen_db = D2dOutdoor(los="never").loss_db(level_of_d2d(distance_m), carrier_hz)

    assert seen_db == pytest.approx([float(point["pl_los_tot_db(max,offset0)"])], abs=1e-4)
    assert unseen_db == pytest.approx([float(point["pl_nlos_tot_db(max,offset-5)"])], abs=1e-4)
    assert b1_los_probability(np.array(distance_m)) == pytest.approx(float(point["p_los"]), abs=6e-6)
    assert b1_breakpoint_m(carrier_hz) == pytest.approx(float(point["dbp_m"]), abs=1e-3)


@pytest.mark.parametrize("carrier_hz", [7e8, 2e9, 5.9e9])
def test_both_branches_meet_at_the_breakpoint(carrier_hz):
    """As published they differ by 0.02 dB there, upwards."""
    at_m = b1_breakpoint_m(carrier_hz) * np.array([1 - 1e-9, 1 + 1e-9])
    before_db, after_db = b1_los_db(at_m, carrier_hz)

    assert 0.0 <= after_db - before_db < 0.03


@pytest.mark.parametrize("border_hz", [1.5e9, 2.0e9])
def test_frequency_pieces_meet(border_hz):
    """The three frequency terms without line of sight join within 0.01 dB, which confirms their constants."""
    below, above = (b1_nlos_db(np.array(100.0), border_hz * factor) for factor in (1 - 1e-9, 1 + 1e-9))

    assert above == pytest.approx(below, abs=0.01)


@pytest.mark.parametrize("law", [D2dOutdoor(los="always"), D2dOutdoor(los="never"), D2dIndoor(los="never")])
def test_loss_never_falls_with_distance_d2d(law):
    """Across free space, breakpoint and both formulas."""
    assert np.all(np.diff(law.loss_db(level_of_d2d(*np.geomspace(0.1, 149, 400)), 2e9)) >= -1e-9)


def test_indoor_points():
    """At 100 m: 89.5 - 16.9 = 72.6 dB with line of sight, 147.4 - 43.3 = 104.1 dB without."""
    assert D2dIndoor(los="always").loss_db(level_of_d2d(100.0), 2e9) == pytest.approx([72.6])
    assert D2dIndoor(los="never").loss_db(level_of_d2d(100.0), 2e9) == pytest.approx([104.1])


def test_line_of_sight_indoors_by_distance():
    """Certain up to 18 m, e^(-(d - 18) / 27) up to 37 m, a half beyond."""
    expected = [1.0, 1.0, np.exp(-12 / 27), 0.5, 0.5]

    assert indoor_los_probability(np.array([1.0, 18.0, 30.0, 37.0, 100.0])) == pytest.approx(expected, rel=1e-12)


def test_indoor_states_differ_in_shadowing():
    """3 dB over 10 m with line of sight, 4 dB over 6 m without."""
    states = [D2dIndoor(los=los).propagate(level_of_d2d(20.0), 2e9, LinkDraws.typical()) for los in ("always", "never")]

    assert [float(state.sigma_db[0]) for state in states] == [3.0, 4.0]
    assert [float(state.correlation_m[0]) for state in states] == [10.0, 6.0]


def test_line_of_sight_comes_and_goes_as_in_offices():
    """Over 10 m: the report on handsets states no distance of its own."""
    assert D2dIndoor().los_correlation_m == IndoorOffice().los_correlation_m == 10.0


COUNT = 100_000


def hop_of_v2v(distance_m, high_m=1.5, low_m=1.5):
    return Hop(np.atleast_1d(np.asarray(distance_m, float)), np.asarray(low_m), np.asarray(high_m))


def luck():
    rng = np.random.default_rng(3)
    return LinkDraws.of(lambda name: rng.uniform(size=COUNT))


@pytest.mark.parametrize(
    ("road", "distance_m", "expected"),
    [("urban", 0, 1.0), ("urban", 100, 0.33581), ("highway", 5, 1.0), ("highway", 100, 0.84031),
     ("highway", 475, 0.54341), ("highway", 475.9, 0.5391), ("highway", 600, 0.415), ("highway", 1100, 0.0)],
)  # fmt: skip
def test_probability_in_one_street(road, distance_m, expected):
    """1.05 exp(-0.0114 d) in cities; a parabola to 475 m and a straight line to zero on highways (Table 6.2-1)."""
    probability = same_street_los_probability(np.array(float(distance_m)), road)

    assert probability == pytest.approx(expected, abs=1e-5)


def test_links_in_one_street_are_seen_or_blocked_but_never_behind_buildings():
    """A blocked link pays at least what one in sight pays, and counts as without line of sight."""
    law = V2v(road="highway")
    state = law.propagate(hop_of_v2v(200.0), 5.9e9, luck())
    seen_db = V2v(road="highway", los="always").loss_db(hop_of_v2v(200.0), 5.9e9)

    assert state.los.mean() == pytest.approx(2.1013e-6 * 4e4 - 0.4 + 1.0193, abs=5e-3)
    assert np.all(state.loss_db >= seen_db)
    assert np.all(state.loss_db[state.los] == seen_db)
    assert np.all(state.sigma_db == 3.0)


@pytest.mark.parametrize(
    ("high_m", "low_m", "mean_db", "spread_db"),
    [(1.5, 1.5, 9.0, 4.5), (1.6, 1.5, 5.0, 4.0), (1.7, 1.5, 5.0, 4.0), (1.7, 1.7, 0.0, 0.0)],
)
def test_blockage_depends_on_who_looks_over_the_roof(high_m, low_m, mean_db, spread_db):
    """A car of 1.6 m costs 9, 5 or 0 dB in the median when it hides both antennas, one, or none."""
    normal = np.array([-3.0, 0.0, 1.0])

    assert blockage_db(hop_of_v2v(100.0, high_m, low_m), 1.6, normal) == pytest.approx(
        np.maximum(0.0, mean_db + spread_db * normal)
    )


def test_far_blockage_costs_more():
    """From 541 m on the mean grows with 15 log10(d) - 41 dB: 4 dB more at 1 km."""
    assert blockage_db(hop_of_v2v(1000.0), 1.6, np.array(0.0)) == pytest.approx([13.0])


@pytest.mark.parametrize(
    ("road", "density", "distance_m", "seen", "behind"),
    [
        ("urban", "low", 50.0, 0.8548 * np.exp(-0.32), 0.08228),
        ("urban", "high", 100.0, 0.8962 * np.exp(-1.7), 0.45281),
        ("highway", "low", 100.0, 0.865, 0.0578),
        ("highway", "medium", 200.0, 0.608, 0.1222),
    ],
)
def test_measured_probabilities_by_density(road, density, distance_m, seen, behind):
    """Shares in sight and behind obstacles as in ns-3's probabilistic model, worked out by hand from its constants."""
    got_seen, got_behind = V2v(road=road, density=density).probabilities(np.array([distance_m]))

    assert got_seen == pytest.approx([seen], rel=1e-9)
    assert got_behind == pytest.approx([behind], abs=5e-5)


def test_all_three_states_occur_at_the_probabilities_given():
    """One uniform picks the state: in sight, then blocked, then behind buildings with 4 dB of shadowing."""
    law = V2v(road="urban", density="medium")
    seen, behind = law.probabilities(np.array([80.0]))
    state = law.propagate(hop_of_v2v(80.0), 5.9e9, luck())

    assert state.los.mean() == pytest.approx(seen[0], abs=5e-3)
    assert (state.sigma_db == 4.0).mean() == pytest.approx(behind[0], abs=5e-3)


@pytest.mark.parametrize("density", ["low", "medium", "high"])
@pytest.mark.parametrize("road", ["urban", "highway"])
def test_probabilities_are_probabilities_at_any_distance(road, density):
    """Both stay within [0, 1] and leave room for the third state, beyond where the fits turn too."""
    seen, behind = V2v(road=road, density=density).probabilities(np.geomspace(0.1, 1e4, 300))

    assert np.all((seen >= 0) & (behind >= 0) & (seen + behind <= 1 + 1e-12))


def test_shadowing_changes_faster_in_cities():
    """Correlated over 10 m in cities and 25 m on highways."""
    laws = [V2v(road=road).propagate(hop_of_v2v(50.0), 5.9e9, LinkDraws.typical()) for road in ("urban", "highway")]

    assert [float(np.max(law.correlation_m)) for law in laws] == [10.0, 25.0]
