"""Claims about mobility: stationary laws, walls, and positions that depend on device and time only."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from fednet_emu.devices.mobility import GaussMarkov, RandomDirection, RandomWaypoint, Static
from fednet_emu.devices.mobility.regions import BoxRegion, DiscRegion
from fednet_emu.kernel.streams import Streams
from tests.quick import crossed, examples

DISC = DiscRegion(radius_m=200.0)
BOX = BoxRegion(width_m=1000.0, length_m=600.0)
LAWS = [
    RandomDirection(min_speed_m_s=5, max_speed_m_s=15, mean_leg_s=20),
    RandomWaypoint(min_speed_m_s=5, max_speed_m_s=15, pause_s=3),
    RandomWaypoint(min_speed_m_s=5, max_speed_m_s=15, start="placement"),
    GaussMarkov(mean_speed_m_s=10, speed_sigma_m_s=4),
]
IDS = [f"{law.kind}-{index}" for index, law in enumerate(LAWS)]


def uniform_points(region, count, seed=0):
    rng = np.random.default_rng(seed)
    return region.points_m(rng.random(count), rng.random(count))


def paths(law, region=DISC, count=50, seed=1):
    """Paths of devices that start uniformly over the region."""
    return law.paths(uniform_points(region, count), region, Streams(seed))


def everybody(count):
    return np.arange(count)


def squares(region, xy_m):
    """Two coordinates [k] each that are uniform in (0, 1) and independent when points are uniform over the region."""
    if isinstance(region, DiscRegion):
        return (xy_m**2).sum(axis=1) / region.radius_m**2, np.arctan2(xy_m[:, 1], xy_m[:, 0]) / (2 * math.pi) + 0.5
    return xy_m[:, 0] / region.width_m + 0.5, xy_m[:, 1] / region.length_m + 0.5


def test_static_devices_stay_where_they_were_placed():
    """Static paths give the placement at every time, for the devices asked, and have no speed."""
    still = Static().paths(np.array([[1.0, 2.0], [3.0, 4.0]]), DISC, Streams(1))

    assert still.positions_m(np.array([1, 0]), 1e6).tolist() == [[3, 4], [1, 2]]
    assert still.speed_m_s == 0


@pytest.mark.parametrize(("law", "region"), crossed(LAWS, [DISC, BOX]))
def test_the_order_and_company_of_questions_do_not_matter(law, region):
    """Positions asked singly, in a jumble of times, are bit for bit those asked together in order of time."""
    together, singly = paths(law, region), paths(law, region)
    times_s = np.array([0.0, 0.1, 7.0, 55.5, 56.0, 400.0, 3000.0])
    expected = {time_s: together.positions_m(everybody(50), time_s) for time_s in times_s}

    jumble = np.random.default_rng(3).permutation([(d, k) for d in range(0, 50, 7) for k in range(len(times_s))])
    for device, k in jumble:
        assert singly.positions_m(np.array([device]), times_s[k]).tolist() == [expected[times_s[k]][device].tolist()]


@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_more_devices_move_none_of_the_others(law):
    """The first devices' paths are the same whether 10 or 50 are in the run; another seed gives other paths."""
    placed = uniform_points(DISC, 50)
    few, many = law.paths(placed[:10], DISC, Streams(1)), law.paths(placed, DISC, Streams(1))
    other = law.paths(placed, DISC, Streams(2))

    for time_s in (0.0, 30.0, 2000.0):
        assert np.array_equal(few.positions_m(everybody(10), time_s), many.positions_m(everybody(50), time_s)[:10])
    assert not np.any(other.positions_m(everybody(50), 2000.0) == many.positions_m(everybody(50), 2000.0))


@pytest.mark.parametrize("law", LAWS, ids=IDS)
@pytest.mark.parametrize("region", [DISC, BOX], ids=["disc", "box"])
def test_nobody_jumps_or_leaves_the_region(law, region):
    """In steps of 0.1 s devices move at most their top speed times the step and stay within the walls."""
    walk = paths(law, region, count=200)
    fastest_m_s = 40 if isinstance(law, GaussMarkov) else 15

    before = walk.positions_m(everybody(200), 0.0)
    for step in range(1, 400):
        after = walk.positions_m(everybody(200), step / 10)
        assert np.hypot(*(after - before).T).max() <= fastest_m_s / 10 * (1 + 1e-6)
        assert region.holds(after).all()
        before = after


@pytest.mark.parametrize("law", [LAWS[0], LAWS[3]], ids=["random-direction", "gauss-markov"])
@pytest.mark.parametrize("region", [DISC, BOX], ids=["disc", "box"])
def test_uniform_devices_stay_uniform(law, region):
    """After many legs and bounces, positions pass a Kolmogorov-Smirnov test against the uniform law."""
    walk = paths(law, region, count=4000)

    for time_s in (33.0, 700.0):
        first, second = squares(region, walk.positions_m(everybody(4000), time_s))
        assert stats.kstest(first, "uniform").pvalue > 1e-3
        assert stats.kstest(second, "uniform").pvalue > 1e-3
        assert abs(stats.spearmanr(first, second).statistic) < 4 / math.sqrt(4000)


def test_random_direction_forgets_a_placement_that_is_not_uniform():
    """Devices that all start at the centre are uniform over the disc in the end."""
    walk = LAWS[0].paths(np.zeros((4000, 2)), DISC, Streams(1))

    first, second = squares(DISC, walk.positions_m(everybody(4000), 1000.0))
    assert stats.kstest(first, "uniform").pvalue > 1e-3
    assert stats.kstest(second, "uniform").pvalue > 1e-3


def test_random_direction_walks_straight_at_its_speed_between_turns():
    """With one speed and endless legs the path is the billiard's: straight, and mirrored at the wall of the box."""
    law = RandomDirection(min_speed_m_s=10, max_speed_m_s=10, mean_leg_s=1e12)
    walk = law.paths(np.array([[0.0, 0.0]]), BOX, Streams(5))
    device = everybody(1)

    velocity = walk.positions_m(device, 1.0)[0]
    assert np.hypot(*velocity) == pytest.approx(10)

    for time_s in (3.0, 40.0, 171.0, 999.0):
        unfolded = velocity * time_s / [1000, 600] + 0.5
        folded = (1 - np.abs(unfolded % 2 - 1) - 0.5) * [1000, 600]
        assert walk.positions_m(device, time_s)[0] == pytest.approx(folded, abs=1e-6)


def test_a_billiard_in_the_disc_keeps_its_angular_momentum():
    """Reflection by a circular wall leaves speed and distance of the chords from the centre unchanged."""
    law = RandomDirection(min_speed_m_s=10, max_speed_m_s=10, mean_leg_s=1e12)
    walk = law.paths(np.array([[120.0, 0.0]]), DISC, Streams(8))

    def momentum(time_s):
        here, there = (walk.positions_m(everybody(1), time_s + dt)[0] for dt in (0.0, 1e-3))
        return np.cross(np.append(here, 0), np.append(there - here, 0))[2] / 1e-3

    # the wall is met at most every few seconds, so hardly an interval of 1 ms holds a bounce
    values = [momentum(t) for t in np.linspace(0.0, 400.0, 41)]
    assert np.median(np.abs(np.array(values) - values[0])) < 1e-6
    assert abs(values[0]) > 100


@pytest.mark.parametrize("time_s", [0.001, 1000.0])
def test_random_waypoint_starts_in_its_stationary_law(time_s):
    """Moments of ns-3's steady-state test: 1000 m x 600 m, speeds 0.01 to 20 m/s, at the start and after 1000 s."""
    law = RandomWaypoint(min_speed_m_s=0.01, max_speed_m_s=20)
    walk = law.paths(np.zeros((10_000, 2)), BOX, Streams(1))

    here = walk.positions_m(everybody(10_000), time_s)
    there = walk.positions_m(everybody(10_000), time_s + 1e-6)
    speed = np.hypot(*(there - here).T) / 1e-6

    assert here.mean(axis=0) == pytest.approx([0, 0], abs=15)
    assert here.std(axis=0) == pytest.approx([230, 140], abs=7)
    assert speed.mean() == pytest.approx(2.6, abs=0.13)
    assert speed.std() == pytest.approx(4.4, abs=0.22)


def test_random_waypoint_in_a_disc_does_not_drift():
    """Distances from the centre at 0 s and after 2000 s are of one law, which is not the uniform one."""
    law = RandomWaypoint(min_speed_m_s=5, max_speed_m_s=15, pause_s=10)
    walk = paths(law, DISC, count=4000)
    start, late = (np.hypot(*walk.positions_m(everybody(4000), t).T) for t in (0.0, 2000.0))

    assert stats.ks_2samp(start, late).pvalue > 1e-3
    assert stats.kstest((start / 200) ** 2, "uniform").pvalue < 1e-6


@pytest.mark.parametrize("time_s", [0.0, 1500.0])
def test_the_share_of_pausing_devices_is_pause_over_cycle(time_s):
    """P(pause) = pause / (pause + E[trip length] E[1 / speed]), at the start and later."""
    law = RandomWaypoint(min_speed_m_s=5, max_speed_m_s=15, pause_s=20)
    walk = paths(law, DISC, count=4000)

    here, there = (walk.positions_m(everybody(4000), time_s + dt) for dt in (0.0, 1e-6))
    trip_s = 128 * 200 / (45 * math.pi) * math.log(3) / 10
    share = 20 / (20 + trip_s)
    assert np.mean(np.all(here == there, axis=1)) == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 4000))


@pytest.mark.parametrize(("low", "high", "mean"), [(0.01, 20, 2.62995), (0.3, 0.7, 0.47209), (2, 2, 2)])
def test_the_mean_speed_over_time_is_the_published_one(low, high, mean):
    """(max - min) / ln(max / min), with its limit at equal speeds."""
    law = RandomWaypoint(min_speed_m_s=low, max_speed_m_s=high)

    assert paths(law).speed_m_s == pytest.approx(mean, rel=1e-5)


def test_a_waypoint_trip_may_start_where_the_device_was_placed():
    """With start: placement the position at 0 s is the placement's."""
    placed = uniform_points(DISC, 20)

    assert np.array_equal(LAWS[2].paths(placed, DISC, Streams(1)).positions_m(everybody(20), 0.0), placed)


@pytest.mark.parametrize("speed", [0, -1])
def test_a_waypoint_speed_of_zero_is_refused_with_its_reason(speed):
    """The message names the value and why 0 is wrong."""
    with pytest.raises(ValidationError, match=rf"must be above 0, got {speed}: .*decays for ever"):
        RandomWaypoint(min_speed_m_s=speed)


def test_gauss_markov_has_the_stated_moments_and_memory():
    """Speeds have the stated mean and deviation, and correlation alpha from one step to the next, at any time."""
    law = GaussMarkov(alpha=0.6, mean_speed_m_s=10, speed_sigma_m_s=2, heading_sigma_rad=0.3, step_s=1)
    far = BoxRegion(width_m=1e7, length_m=1e7)
    walk = law.paths(np.zeros((20_000, 2)), far, Streams(2))
    at = [walk.positions_m(everybody(20_000), t) for t in (0.0, 1.0, 2.0, 50.0, 51.0)]

    speeds = [np.hypot(*(at[b] - at[a]).T) for a, b in ((0, 1), (1, 2), (3, 4))]
    for speed in speeds:
        assert speed.mean() == pytest.approx(10, abs=0.06)
        assert speed.std() == pytest.approx(2, abs=0.05)
    assert np.corrcoef(speeds[0], speeds[1])[0, 1] == pytest.approx(0.6, abs=0.02)


def test_gauss_markov_keeps_to_its_mean_heading():
    """Over many steps a device moves mean speed x exp(-sigma^2 / 2) per second along one direction of its own."""
    law = GaussMarkov(alpha=0.5, mean_speed_m_s=10, speed_sigma_m_s=1, heading_sigma_rad=0.8, step_s=1)
    far = BoxRegion(width_m=1e7, length_m=1e7)
    walk = law.paths(np.zeros((400, 2)), far, Streams(2))

    reached = walk.positions_m(everybody(400), 2000.0)
    assert np.hypot(*reached.T).mean() / 2000 == pytest.approx(10 * math.exp(-0.32), rel=0.01)
    assert stats.kstest(np.arctan2(reached[:, 1], reached[:, 0]) / (2 * math.pi) + 0.5, "uniform").pvalue > 1e-3


def test_a_device_on_the_wall_walks_away_from_it():
    """Devices placed exactly on the circle, in whatever direction they set out, come off it and stay inside."""
    angle = np.linspace(0, 2 * math.pi, 500, endpoint=False)
    walk = LAWS[0].paths(200 * np.stack([np.cos(angle), np.sin(angle)], axis=1), DISC, Streams(1))

    distance = np.hypot(*walk.positions_m(everybody(500), 1.0).T)
    assert distance.max() <= 200 * (1 + 1e-9)
    assert np.mean(distance < 199) > 0.9


@pytest.mark.parametrize("xy_m", [(120.0, 160.0), (-200.0, 0.0), (0.0, 0.0)])
def test_a_device_at_rest_never_reaches_a_wall(xy_m):
    """At rest no wall is ever ahead, not even the one that a device stands on; a law that pauses goes on from there."""
    here_m = np.array([xy_m])
    half_at_rest = GaussMarkov(mean_speed_m_s=1e-3, speed_sigma_m_s=1, alpha=0, step_s=1)

    for region in (DISC, BoxRegion(width_m=400, length_m=400)):
        assert region.exit_s(here_m, np.zeros((1, 2))).tolist() == [math.inf]
        walk = half_at_rest.paths(np.repeat(here_m, 100, axis=0), region, Streams(1)).positions_m(everybody(100), 50.0)
        assert region.holds(walk).all()


@pytest.mark.parametrize("region", [DISC, BOX, BoxRegion(width_m=1, length_m=1)], ids=["disc", "box", "square"])
def test_mean_distances_agree_with_draws(region):
    """The closed forms agree with 200,000 random pairs; the unit square's is the known 0.5214."""
    a, b = uniform_points(region, 200_000, seed=1), uniform_points(region, 200_000, seed=2)

    assert np.hypot(*(a - b).T).mean() == pytest.approx(region.mean_distance_m(), rel=5e-3)
    if region.diameter_m() == math.sqrt(2):
        assert region.mean_distance_m() == pytest.approx(0.521405433, rel=1e-8)


@examples(40)
@given(st.sampled_from([DISC, BOX]), st.floats(0, 1), st.floats(0, 1), st.floats(0, 2 * math.pi), st.floats(1e-3, 1e3))
def test_an_exit_time_leads_exactly_to_the_wall(region, u, v, angle, speed):
    """Moving for `exit_s` ends on the wall, half of it ends inside."""
    start = region.clipped_m(region.points_m(np.array([u]), np.array([v])))
    velocity = speed * np.array([[math.cos(angle), math.sin(angle)]])
    exit_s = region.exit_s(start, velocity)

    end, half = start + velocity * exit_s[:, None], start + velocity * exit_s[:, None] / 2
    assert region.holds(end).all()
    assert region.holds(half).all()
    if isinstance(region, DiscRegion):
        assert np.hypot(*end[0]) == pytest.approx(200, rel=1e-9)
    else:
        assert max(abs(end[0, 0]) / 500, abs(end[0, 1]) / 300) == pytest.approx(1, rel=1e-9)
