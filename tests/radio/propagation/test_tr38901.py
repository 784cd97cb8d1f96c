"""Claims about TR 38.901 and TR 37.885, against vectors of ns-3 and Sionna and against the formulas' own properties."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.radio.propagation.link import Hop, LinkDraws
from fednet_emu.radio.propagation.tr38901.buildings import OutdoorToIndoor, OutdoorToIndoorBelow6GHz
from fednet_emu.radio.propagation.tr38901.indoor import (
    IndoorFactory,
    IndoorOffice,
    inf_nlos_loss_db,
    inh_mixed_los_probability,
    inh_open_los_probability,
)
from fednet_emu.radio.propagation.tr38901.rural import RuralMacro, rma_breakpoint_m, rma_los_probability
from fednet_emu.radio.propagation.tr38901.urban import (
    UrbanMacro,
    UrbanMicro,
    uma_environment_height_m,
    uma_los_probability,
    umi_los_probability,
)
from fednet_emu.radio.propagation.v2v import V2v
from tests.quick import examples
from tests.tables import rows_of

REFERENCE = Path(__file__).parents[1] / "reference"
STATE = {"LOS": "always", "NLOS": "never"}
SITES = {
    "RMa": RuralMacro,
    "UMa": UrbanMacro,
    "UMi-StreetCanyon": UrbanMicro,
    "InH-Office": IndoorOffice,
    "V2V-Urban": lambda **settings: V2v(road="urban", **settings),
    "V2V-Highway": lambda **settings: V2v(road="highway", **settings),
}
LOS_PROBABILITIES = {
    "RMa": lambda d, h: rma_los_probability(d),
    "UMa": uma_los_probability,
    "UMi-StreetCanyon": lambda d, h: umi_los_probability(d),
    "InH-mixed": lambda d, h: inh_mixed_los_probability(d),
    "InH-open": lambda d, h: inh_open_los_probability(d),
}
HEIGHTS_M = {"3gpp-uma": 25.0, "3gpp-umi": 10.0, "3gpp-rma": 35.0, "3gpp-inh": 3.0, "3gpp-inf": 8.0}
ALL_STATES = [
    site(los=los) for site in (UrbanMacro, UrbanMicro, RuralMacro, IndoorOffice) for los in ("always", "never")
] + [IndoorFactory(hall=hall, los=los) for hall in ("SL", "DL", "SH", "DH") for los in ("always", "never")]
BY_STATE = pytest.mark.parametrize(
    "law", ALL_STATES, ids=lambda law: f"{law.kind}-{getattr(law, 'hall', '')}-{law.los}"
)


def hop(distances_2d_m, high_m, low_m=1.5):
    return Hop(np.atleast_1d(np.asarray(distances_2d_m, float)), np.asarray(low_m), np.asarray(high_m))


def draws(count, **fixed):
    """Many draws, stratified in the ones that are not fixed."""
    rng = np.random.default_rng(1)
    return LinkDraws.of(lambda name: np.full(count, fixed[name]) if name in fixed else rng.uniform(size=count))


@pytest.mark.parametrize(
    "row",
    rows_of(REFERENCE / "ns3_38901_37885_pathloss_reference.csv"),
    ids=lambda row: "-".join([row["scenario"], row["condition"], row["d2d_m"]]),
)
def test_loss_is_that_of_the_ns3_suite(row):
    """All 44 reference losses at 5 GHz within 0.01 dB, those that the suite of ns-3 forgets to run included."""
    law = SITES[row["scenario"]](los=STATE[row["condition"]])
    link = hop(float(row["d2d_m"]), float(row["h_bs_or_a_m"]), float(row["h_ut_or_b_m"]))

    assert law.loss_db(link, float(row["fc_hz"])) == pytest.approx([float(row["pathloss_db"])], abs=1e-4)


@pytest.mark.parametrize(
    "row",
    rows_of(REFERENCE / "los_probability_reference.csv"),
    ids=lambda row: "-".join([row["scenario"], row["d2d_m"], row["h_ut_m"]]),
)
def test_probability_of_line_of_sight_is_that_of_the_ns3_suite(row):
    """All 17 reference probabilities to their six digits."""
    probability = LOS_PROBABILITIES[row["scenario"]](np.array([float(row["d2d_m"])]), np.array(float(row["h_ut_m"])))

    assert probability == pytest.approx([float(row["p_los"])], abs=1e-6)


def test_an_office_changes_its_formula_at_6_5_m():
    """At 6.5 m the far formula holds: 0.32; just below, the near one: exp(-5.3 / 4.7)."""
    seen = inh_mixed_los_probability(np.array([6.5 - 1e-9, 6.5]))

    assert seen == pytest.approx([np.exp(-5.3 / 4.7), 0.32], abs=1e-8)


def test_rural_loss_is_that_of_mathworks():
    """The 5G Toolbox has, for RMa, h = 7 m, W = 25 m, 3.5 GHz, from (0, 0, 30) to (1000, 1000, 1.5)."""
    point = json.loads((REFERENCE / "analytic_checkpoints.json").read_text())["mathworks_nrPathLoss_RMa_LOS"]
    law = RuralMacro(los="always", building_height_m=point["h"], street_width_m=point["W"])
    link = Hop.between(np.array([point["ue"]], float), np.array(point["bs"], float))

    assert law.loss_db(link, point["fc_hz"]) == pytest.approx([point["pl_db"]], abs=5e-5)


@pytest.mark.parametrize(
    ("hall", "high_m", "distance_m", "expected_db"),
    [("SL", 1.5, 10, 69.3814), ("SL", 1.5, 50, 87.2051), ("DL", 1.5, 50, 90.1346), ("SH", 8, 50, 82.4414),
     ("DH", 8, 50, 81.7985)],
)  # fmt: skip
def test_factory_loss_without_line_of_sight_is_that_of_sionna(hall, high_m, distance_m, expected_db):
    """Spot values of Sionna 2.2 at 3.5 GHz."""
    losses_db = IndoorFactory(hall=hall, los="never").loss_db(hop(distance_m, high_m), 3.5e9)

    assert losses_db == pytest.approx([expected_db], abs=6e-5)


def test_a_dense_hall_never_loses_less_than_a_sparse_one():
    """Ten metres at 1 GHz: 33 + 25.5 dB in SL exceed the 18.6 + 35.7 dB of DL, which so loses 58.5 dB, too."""
    assert inf_nlos_loss_db(np.array([10.0]), 1e9, "DL") == pytest.approx([58.5])


@pytest.mark.parametrize(("hall", "high_m", "expected"), [("SL", 1.5, 0.327680), ("SH", 8.0, 0.917755)])
def test_factory_line_of_sight_is_that_of_sionna(hall, high_m, expected):
    """At 50 m in sparse clutter, a share of links that Sionna's probability gives."""
    state = IndoorFactory(hall=hall).propagate(hop(50.0, high_m), 3.5e9, draws(200_000))

    assert state.los.mean() == pytest.approx(expected, abs=4e-3)


@BY_STATE
@examples(25)
@given(near=st.floats(0, 140), far=st.floats(0, 140), carrier_hz=st.floats(5e8, 3e10))
def test_loss_never_falls_with_distance(law, near, far, carrier_hz):
    """A farther receiver in the same state never hears more, across minimum distance and breakpoint."""
    near_db, far_db = law.loss_db(hop(sorted((near, far)), HEIGHTS_M[law.kind]), carrier_hz)

    assert far_db >= near_db - 1e-9


@pytest.mark.parametrize("law", [UrbanMacro(los="always"), UrbanMicro(los="always")], ids=lambda law: law.kind)
@examples(25)
@given(carrier_hz=st.floats(5e8, 1e11), low_m=st.floats(1.5, 12.9))
def test_loss_in_sight_is_continuous_at_the_breakpoint(law, carrier_hz, low_m):
    """18 log d3 equals 9 log(d_BP^2 + gap^2) there, so both branches meet exactly."""
    high_m = HEIGHTS_M[law.kind]
    breakpoint_m = 4 * (high_m - 1) * (low_m - 1) * carrier_hz / 3.0e8
    law = law.model_copy(update={"out_of_range": "extrapolate"})
    around = hop(breakpoint_m * np.array([1 - 1e-9, 1 + 1e-9]), high_m, low_m)

    if breakpoint_m < 10:
        return
    before_db, after_db = law.loss_db(around, carrier_hz)
    assert after_db == pytest.approx(before_db, abs=1e-6)


def test_rural_loss_in_sight_is_continuous_at_the_breakpoint_to_a_thousandth():
    """The table mixes 2D and 3D distance there, which leaves a step of less than 0.001 dB."""
    at_m = rma_breakpoint_m(hop(1.0, 35.0), 5e9)
    before_db, after_db = RuralMacro(los="always").loss_db(hop(at_m * np.array([1 - 1e-9, 1 + 1e-9]), 35.0), 5e9)

    assert after_db == pytest.approx(before_db, abs=1e-3)


@BY_STATE
def test_a_link_is_the_same_both_ways(law):
    """The higher antenna is the base station, whoever sends."""
    there, back = hop([20.0, 130.0], HEIGHTS_M[law.kind]), hop([20.0, 130.0], 1.5, HEIGHTS_M[law.kind])

    np.testing.assert_array_equal(law.loss_db(there, 3.5e9), law.loss_db(back, 3.5e9))


@BY_STATE
def test_no_line_of_sight_never_helps(law):
    """Without line of sight a link loses at least what it would with it, at short range exactly that."""
    link, high_m = hop(np.geomspace(1, 140, 60), HEIGHTS_M[law.kind]), HEIGHTS_M[law.kind]
    seen = law.model_copy(update={"los": "always"}).loss_db(link, 2e9)

    assert np.all(law.loss_db(link, 2e9) >= seen)
    assert law.loss_db(hop(1.0, high_m), 2e9) >= seen[0]


@pytest.mark.parametrize(
    ("law", "seen_db", "unseen_db", "seen_m", "unseen_m"),
    [
        (UrbanMacro(), 4, 6, 37, 50),
        (UrbanMicro(), 4, 7.82, 10, 13),
        (RuralMacro(), 4, 8, 37, 120),
        (IndoorOffice(), 3, 8.03, 10, 6),
        (IndoorFactory(hall="SL"), 4.3, 5.7, 10, 10),
        (IndoorFactory(hall="SH"), 4.3, 5.9, 10, 10),
    ],
    ids=lambda value: getattr(value, "kind", str(value)),
)
def test_shadowing_depends_on_the_state(law, seen_db, unseen_db, seen_m, unseen_m):
    """Standard deviations of Table 7.4.1-1 and correlation distances of Table 7.5-6."""
    state = law.propagate(hop(60.0, HEIGHTS_M[law.kind]), 3.5e9, draws(500))

    assert 0 < state.los.sum() < 500
    np.testing.assert_allclose(state.sigma_db, np.where(state.los, seen_db, unseen_db))
    np.testing.assert_allclose(state.correlation_m, np.where(state.los, seen_m, unseen_m))


def test_rural_shadowing_is_wider_beyond_the_breakpoint():
    """With line of sight 4 dB up to it, 6 dB beyond: at 700 MHz and 35 m it is at 770 m."""
    state = RuralMacro(los="always").propagate(hop([700.0, 800.0], 35.0), 7e8, LinkDraws.typical())

    np.testing.assert_array_equal(state.sigma_db, [4.0, 6.0])


def test_environment_height_of_a_high_device():
    """At 22.5 m it is 1 m with probability 1 / (1 + C), else 12, 15, 18 or 21 m, each as often."""
    link = Hop(np.full(400_000, 200.0), np.asarray(22.5), np.asarray(25.0))
    c = 0.95**1.5 * 1.25 * 8 * np.exp(-200 / 150)

    heights_m = uma_environment_height_m(link, (np.arange(400_000) + 0.5) / 400_000)
    values, counts = np.unique(heights_m, return_counts=True)

    np.testing.assert_array_equal(values, [1, 12, 15, 18, 21])
    expected = [1 / (1 + c)] + 4 * [c / (1 + c) / 4]
    assert counts / 400_000 == pytest.approx(expected, abs=1e-5)


def test_environment_of_a_low_device_is_fixed():
    """Below 13 m the effective height is 1 m whatever the draw, so the loss in sight is deterministic."""
    state = UrbanMacro(los="always").propagate(hop(500.0, 25.0, 12.9), 3.5e9, draws(200))

    assert np.ptp(state.loss_db) == 0.0


@pytest.mark.parametrize("law", [UrbanMacro(), UrbanMicro(), RuralMacro()], ids=lambda law: law.kind)
def test_short_links_count_as_10_m(law):
    """Under the mast a device loses as much as 10 m away, as stated."""
    losses_db = law.loss_db(hop([0.0, 4.0, 10.0], HEIGHTS_M[law.kind]), 3.5e9)

    assert losses_db == pytest.approx(np.full(3, losses_db[2]), abs=1e-12)


def test_high_loss_building_costs_what_the_table_says():
    """At 10 GHz: coated glass 26 dB and concrete 45 dB make 32.53 dB, and 0.5 dB per metre inside."""
    buildings = OutdoorToIndoor(indoor_share=1.0, high_loss_share=1.0)
    wall_db = 5 - 10 * np.log10(0.7 * 10**-2.6 + 0.3 * 10**-4.5)
    luck = draws(1, depth=0.75, penetration=0.5, los=0.0)

    state = UrbanMicro(buildings=buildings).propagate(hop(100.0, 10.0), 10e9, luck)
    outdoors = UrbanMicro().propagate(hop(100.0, 10.0), 10e9, luck)

    assert wall_db == pytest.approx(32.53, abs=5e-3)
    assert state.loss_db - outdoors.loss_db == pytest.approx([wall_db + 0.5 * 12.5])
    assert (state.sigma_db, state.correlation_m) == (7.0, 7.0)


def test_low_loss_building_costs_less_and_spreads_less():
    """At 2 GHz: glass 2.4 dB and concrete 13 dB make 11.83 dB, with a spread of 4.4 dB."""
    buildings = OutdoorToIndoor(indoor_share=1.0, high_loss_share=0.0)

    entry = buildings.enter(2e9, draws(100_000), np.zeros(100_000))

    assert entry.loss_db.mean() == pytest.approx(11.8253, abs=0.05)
    assert entry.loss_db.std() == pytest.approx(4.4, abs=0.05)


def test_single_frequency_model_is_20_db_and_up_to_25_m_of_depth():
    """Mean 20 + 0.5 x 12.5 dB, from 20 to 32.5 dB."""
    entry = OutdoorToIndoorBelow6GHz().enter(2e9, draws(100_000), np.zeros(100_000))

    assert entry.loss_db.mean() == pytest.approx(26.25, abs=0.05)
    assert 20.0 < entry.loss_db.min() < entry.loss_db.max() < 32.5


def test_only_the_given_share_of_devices_is_indoors():
    """The others lose exactly what they lose without buildings."""
    buildings = OutdoorToIndoor(indoor_share=0.3, high_loss_share=0.5)
    luck = draws(50_000)

    entry = buildings.enter(3.5e9, luck, np.full(50_000, 5.0))

    assert entry.indoor.mean() == pytest.approx(0.3, abs=0.01)
    assert np.all(entry.loss_db[~entry.indoor] == 0.0)
    assert np.all(entry.depth_m == np.where(entry.indoor, 5.0, 0.0))


def test_depth_in_cities_is_the_lesser_of_two_draws():
    """P(depth < 5 m) = 1 - (20 / 25)^2 = 0.36 of 25 m."""
    buildings = OutdoorToIndoor(indoor_share=1.0, high_loss_share=0.0)
    luck = draws(100_000, penetration=0.5)
    losses_db = UrbanMacro(buildings=buildings, los="always").propagate(hop(500.0, 25.0), 2e9, luck).loss_db
    extra_db = losses_db - UrbanMacro(los="always").loss_db(hop(500.0, 25.0), 2e9)

    assert ((extra_db - 11.8253) / 0.5 < 5.0).mean() == pytest.approx(0.36, abs=5e-3)


def test_depth_in_the_country_is_the_lesser_of_two_draws():
    """Quantiles of the lesser of two independent U(0, 10) m (clause 7.4.3.1): median 2.93 m, mean 3.33 m, not 5 m."""
    buildings = OutdoorToIndoor(indoor_share=1.0, high_loss_share=0.0)
    luck = draws(200_000, penetration=0.5)
    losses_db = RuralMacro(buildings=buildings, los="always").propagate(hop(500.0, 35.0), 2e9, luck).loss_db
    depth_m = (losses_db - RuralMacro(los="always").loss_db(hop(500.0, 35.0), 2e9) - 11.8253) / 0.5
    both_m = np.random.default_rng(3).uniform(0, 10, (2, 200_000))

    levels = [0.05, 0.25, 0.5, 0.75, 0.95, 0.999]
    assert np.quantile(depth_m, levels) == pytest.approx(np.quantile(both_m.min(axis=0), levels), abs=0.1)
    assert depth_m.mean() == pytest.approx(10 / 3, abs=0.02)


@pytest.mark.parametrize(
    ("law", "expected_m"),
    [
        (RuralMacro(), 60),
        (UrbanMacro(), 50),
        (UrbanMicro(), 50),
        (IndoorOffice(), 10),
        (IndoorFactory(hall="SL"), 5),
        (IndoorFactory(hall="DH"), 1),
        (IndoorFactory(hall="SH", clutter_size_m=8), 4),
    ],
    ids=lambda value: getattr(value, "kind", str(value)),
)
def test_line_of_sight_comes_and_goes_over_the_distance_of_the_table(law, expected_m):
    """Table 7.6.3.1-2: 60 m in the country, 50 m in cities, 10 m in offices, half a machine's width in factories."""
    assert law.los_correlation_m == expected_m


@pytest.mark.parametrize("law", [UrbanMacro(), UrbanMicro(), RuralMacro(), IndoorOffice(layout="open")])
def test_the_share_of_links_in_sight_is_the_probability(law):
    """Drawn states follow Table 7.4.2-1 at 60 m, and one uniform gives one state."""
    probability = {
        "3gpp-uma": uma_los_probability(np.array(60.0), np.array(1.5)),
        "3gpp-umi": umi_los_probability(np.array(60.0)),
        "3gpp-rma": rma_los_probability(np.array(60.0)),
        "3gpp-inh": inh_open_los_probability(np.array(60.0)),
    }[law.kind]

    state = law.propagate(hop(60.0, HEIGHTS_M[law.kind]), 3.5e9, draws(100_000))

    assert state.los.mean() == pytest.approx(float(probability), abs=5e-3)
