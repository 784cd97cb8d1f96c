"""Claims about links between handsets, against points worked out from WINNER+ D5.3 and TR 36.843."""

import csv
from pathlib import Path

import numpy as np
import pytest

from fednet_emu.errors import ScenarioError
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
from fednet_emu.radio.propagation.tr38901.indoor import IndoorOffice

with (Path(__file__).parents[1] / "reference" / "winnerplus_b1_d2d_formula_points.csv").open(encoding="utf-8") as _file:
    POINTS = list(csv.DictReader(_file))


def level(*distances_m):
    """A hop between two handsets."""
    return Hop(np.array(distances_m, float), np.array(1.5), np.array(1.5))


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point['fc_ghz']}-{point['d_m']}")
def test_outdoor_points(point):
    """Loss in both states, probability of line of sight and breakpoint at every point of the table, to its digits."""
    distance_m, carrier_hz = float(point["d_m"]), float(point["fc_ghz"]) * 1e9

    seen_db = D2dOutdoor(los="always").loss_db(level(distance_m), carrier_hz)
    unseen_db = D2dOutdoor(los="never").loss_db(level(distance_m), carrier_hz)

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
def test_loss_never_falls_with_distance(law):
    """Across free space, breakpoint and both formulas."""
    assert np.all(np.diff(law.loss_db(level(*np.geomspace(0.1, 149, 400)), 2e9)) >= -1e-9)


def test_indoor_points():
    """At 100 m: 89.5 - 16.9 = 72.6 dB with line of sight, 147.4 - 43.3 = 104.1 dB without."""
    assert D2dIndoor(los="always").loss_db(level(100.0), 2e9) == pytest.approx([72.6])
    assert D2dIndoor(los="never").loss_db(level(100.0), 2e9) == pytest.approx([104.1])


def test_line_of_sight_indoors_by_distance():
    """Certain up to 18 m, e^(-(d - 18) / 27) up to 37 m, a half beyond."""
    expected = [1.0, 1.0, np.exp(-12 / 27), 0.5, 0.5]

    assert indoor_los_probability(np.array([1.0, 18.0, 30.0, 37.0, 100.0])) == pytest.approx(expected, rel=1e-12)


def test_indoor_states_differ_in_shadowing():
    """3 dB over 10 m with line of sight, 4 dB over 6 m without."""
    states = [D2dIndoor(los=los).propagate(level(20.0), 2e9, LinkDraws.typical()) for los in ("always", "never")]

    assert [float(state.sigma_db[0]) for state in states] == [3.0, 4.0]
    assert [float(state.correlation_m[0]) for state in states] == [10.0, 6.0]


def test_line_of_sight_comes_and_goes_as_in_offices():
    """Over 10 m: the report on handsets states no distance of its own."""
    assert D2dIndoor().los_correlation_m == IndoorOffice().los_correlation_m == 10.0


def test_handsets_beyond_5_km_are_refused():
    """The fit ends there."""
    with pytest.raises(ScenarioError, match=r"d2d-outdoor: distance in m .* got 5200; expected 0 to 5000"):
        D2dOutdoor().loss_db(level(5200.0), 2e9)


def test_handsets_indoors_beyond_150_m_are_refused():
    """The error names the distance and the range."""
    with pytest.raises(ScenarioError, match=r"d2d-indoor: distance in m .* got 151; expected 0 to 150"):
        D2dIndoor().loss_db(level(151.0), 2e9)
