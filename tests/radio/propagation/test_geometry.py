"""Claims about hops."""

import numpy as np
import pytest

from fednet_emu.radio.propagation.link import Hop


def test_3d_distance_is_the_hypotenuse_of_distance_and_height_difference():
    """A ground distance of 8 m and a height difference of 6 m make 10 m."""
    hop = Hop(distance_2d_m=np.array([8.0]), tx_height_m=np.array(1.5), rx_height_m=np.array(7.5))

    assert hop.distance_3d_m == pytest.approx([10.0])


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
