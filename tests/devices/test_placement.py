"""Claims about where devices stand."""

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from fednet_emu.devices.placement import Disc, Listed
from fednet_emu.emulation.load import load_scenario
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.streams import Streams


def place(placement, count, seed=1):
    """Positions from the stream that a run uses."""
    return placement.positions_m(count, Streams(seed)("placement"))


def test_a_disc_is_uniform_over_its_area():
    """Half of the devices are beyond 0.707 of the radius, not beyond half of it; angles are even."""
    xy_m = place(Disc(radius_m=200.0), 20_000)
    distance_m, angle = np.hypot(*xy_m.T), np.arctan2(xy_m[:, 1], xy_m[:, 0])

    assert stats.kstest((distance_m / 200.0) ** 2, "uniform").pvalue > 1e-3
    assert stats.kstest(angle / (2 * np.pi) + 0.5, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(distance_m, angle)[0, 1]) < 4 / np.sqrt(20_000)


def test_a_ring_is_uniform_over_its_area():
    """Nobody inside the inner radius, nobody outside the outer one, and area for area the same number."""
    distance_m = np.hypot(*place(Disc(radius_m=500.0, inner_radius_m=300.0), 20_000).T)

    assert 300.0 <= distance_m.min() < distance_m.max() <= 500.0
    assert stats.kstest((distance_m**2 - 300.0**2) / (500.0**2 - 300.0**2), "uniform").pvalue > 1e-3


def test_more_devices_move_none_of_the_others():
    """Device k stands in the same place in a network of ten and of a thousand."""
    disc = Disc(radius_m=200.0)

    assert place(disc, 1000)[:10].tolist() == place(disc, 10).tolist()
    assert place(disc, 10, seed=2).tolist() != place(disc, 10).tolist()


def test_a_ring_needs_some_width():
    """The text shows both radii."""
    with pytest.raises(ValidationError, match="inner_radius_m must be below radius_m, got 200 and 200"):
        Disc(radius_m=200.0, inner_radius_m=200.0)


def test_a_list_is_taken_as_it_is():
    """Coordinates in the order of the devices."""
    assert place(Listed(xy_m=((1.0, 2.0), (3.0, 4.0))), 2).tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("count", [1, 3])
def test_a_list_needs_one_pair_per_device(count):
    """Too few or too many pairs are refused; the text has the number of pairs and of devices."""
    placement = "devices.placement={kind: list, xy_m: [[1, 2], [3, 4]]}"
    with pytest.raises(ScenarioError) as caught:
        load_scenario("quickstart", [f"devices.count={count}", placement])

    assert f"xy_m: not one for each device, got 2; must be as many as devices.count, {count}" in str(caught.value)
