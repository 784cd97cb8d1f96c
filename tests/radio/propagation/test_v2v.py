"""Claims about links between vehicles, against TR 37.885; losses are held against ns-3 in test_tr38901.py."""

import numpy as np
import pytest

from fednet_emu.errors import ScenarioError
from fednet_emu.radio.propagation.link import Hop, LinkDraws
from fednet_emu.radio.propagation.v2v import V2v, blockage_db, same_street_los_probability

COUNT = 100_000


def hop(distance_m, high_m=1.5, low_m=1.5):
    """Hops between vehicles."""
    return Hop(np.atleast_1d(np.asarray(distance_m, float)), np.asarray(low_m), np.asarray(high_m))


def luck():
    """Independent draws for many links."""
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


@pytest.mark.parametrize(("road", "expected"), [("urban", 0.33581), ("highway", 0.84031)])
def test_a_street_without_a_density_is_that_of_its_road(road, expected):
    """At 100 m, and never behind buildings."""
    seen, behind = V2v(road=road).probabilities(np.array([100.0]))

    assert seen == pytest.approx([expected], abs=1e-5)
    assert behind.tolist() == [0.0]


def test_links_in_one_street_are_seen_or_blocked_but_never_behind_buildings():
    """A blocked link pays at least what one in sight pays, and counts as without line of sight."""
    law = V2v(road="highway")
    state = law.propagate(hop(200.0), 5.9e9, luck())
    seen_db = V2v(road="highway", los="always").loss_db(hop(200.0), 5.9e9)

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

    assert blockage_db(hop(100.0, high_m, low_m), 1.6, normal) == pytest.approx(
        np.maximum(0.0, mean_db + spread_db * normal)
    )


def test_far_blockage_costs_more():
    """From 541 m on the mean grows with 15 log10(d) - 41 dB: 4 dB more at 1 km."""
    assert blockage_db(hop(1000.0), 1.6, np.array(0.0)) == pytest.approx([13.0])


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
    state = law.propagate(hop(80.0), 5.9e9, luck())

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
    laws = [V2v(road=road).propagate(hop(50.0), 5.9e9, LinkDraws.typical()) for road in ("urban", "highway")]

    assert [float(np.max(law.correlation_m)) for law in laws] == [10.0, 25.0]


def test_a_carrier_out_of_range_is_refused():
    """Below 0.5 GHz nobody measured."""
    with pytest.raises(ScenarioError, match=r"v2v: carrier in GHz .* got 0.3"):
        V2v(road="urban").loss_db(hop(50.0), 3e8)
