"""Geometry of the two ends of a link, as propagation formulas need it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fednet_emu.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class Hop:
    """The geometry of one or many links; the three arrays broadcast against each other.

    Ignored here: terrain, buildings, antenna orientation and the curvature of the earth.

    Attributes:
        distance_2d_m: horizontal distance between transmitter and receiver.
        tx_height_m: height of the transmitting antenna above ground.
        rx_height_m: height of the receiving antenna above ground.
    """

    distance_2d_m: Array
    tx_height_m: Array
    rx_height_m: Array

    @classmethod
    def between(cls, tx_xyz_m: Array, rx_xyz_m: Array) -> Hop:
        """The hop from each transmitter to each receiver, positions of shape [..., 3] that broadcast.

        One receiver of shape [3] and n transmitters of shape [n, 3] give n links; shapes [n, 1, 3] and [m, 3] give all
        n x m of them.
        """
        offset_m = rx_xyz_m - tx_xyz_m
        return cls(
            distance_2d_m=np.hypot(offset_m[..., 0], offset_m[..., 1]),
            tx_height_m=tx_xyz_m[..., 2],
            rx_height_m=rx_xyz_m[..., 2],
        )

    @property
    def distance_3d_m(self) -> Array:
        """Straight-line distance between the two antennas, in the broadcast shape."""
        return np.hypot(self.distance_2d_m, self.tx_height_m - self.rx_height_m)

    @property
    def high_m(self) -> Array:
        """Height of the higher antenna: formulas that tell a base station from a device take it for the former."""
        return np.maximum(self.tx_height_m, self.rx_height_m)

    @property
    def low_m(self) -> Array:
        """Height of the lower antenna, which such formulas take for the device."""
        return np.minimum(self.tx_height_m, self.rx_height_m)

    def at_least(self, distance_2d_m: float) -> Hop:
        """The same hops with every horizontal distance below a minimum raised to it."""
        return Hop(np.maximum(self.distance_2d_m, distance_2d_m), self.tx_height_m, self.rx_height_m)
