"""The inputs of propagation formulas: the geometry of links, and random numbers drawn by the caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.special import ndtri

from fednet_emu.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class Hop:
    """The geometry of one or many links; the first three arrays broadcast against each other.

    Ignored here: terrain, buildings, antenna orientation and the curvature of the earth.

    Attributes:
        distance_2d_m: horizontal distance between transmitter and receiver.
        tx_height_m: height of the transmitting antenna above ground.
        rx_height_m: height of the receiving antenna above ground.
        place_m: coordinates [..., 2] of the devices, for laws that need them; None where only distances are known.
        station: index of the station at the other end of all these links.
    """

    distance_2d_m: Array
    tx_height_m: Array
    rx_height_m: Array
    place_m: Array | None = None
    station: int = 0

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
        """Height of the higher antenna, which formulas with different ends take for the base station."""
        return np.maximum(self.tx_height_m, self.rx_height_m)

    @property
    def low_m(self) -> Array:
        """Height of the lower antenna, which formulas with different ends take for the device."""
        return np.minimum(self.tx_height_m, self.rx_height_m)

    def at_least(self, distance_2d_m: float) -> Hop:
        """A copy with horizontal distances of at least `distance_2d_m`; shorter ones are raised to it."""
        return replace(self, distance_2d_m=np.maximum(self.distance_2d_m, distance_2d_m))


@dataclass(frozen=True, slots=True, eq=False)
class LinkDraws:
    """One value per link of each random quantity; arrays broadcast against the hop.

    Key `shadowing`, `los` and `environment` by the unordered pair of ends, so that a link is the same in both
    directions, and `indoor`, `building` and `depth` by the device alone: a device is indoors for all base stations.

    Attributes:
        shadowing: standard normal, multiplied by the standard deviation of the shadowing.
        los: uniform in (0, 1); line of sight where it is below the probability.
        environment: uniform in (0, 1); the effective environment height of the urban macro model.
        indoor: uniform in (0, 1); indoors where it is below the share of indoor devices.
        building: uniform in (0, 1); a high-loss building where it is below their share.
        depth: uniform in (0, 1); the depth inside the building.
        penetration: standard normal; the variation of the loss through walls, or through a vehicle in between.
    """

    shadowing: Array
    los: Array
    environment: Array
    indoor: Array
    building: Array
    depth: Array
    penetration: Array

    @classmethod
    def of(cls, uniform: Callable[[str], Array]) -> LinkDraws:
        """Draws from a source of uniforms in the open interval (0, 1), called once per attribute with its name."""
        names = [field.name for field in fields(cls)]
        normal = ("shadowing", "penetration")
        return cls(*(np.asarray(ndtri(uniform(name))) if name in normal else uniform(name) for name in names))

    @classmethod
    def typical(cls, shadowing: Array | None = None) -> LinkDraws:
        """All draws at their medians: each link in its likelier state, with median shadowing unless it is given."""
        half, zero = np.asarray(0.5), np.asarray(0.0)
        shadowing = zero if shadowing is None else shadowing
        return cls(shadowing, los=half, environment=half, indoor=half, building=half, depth=half, penetration=zero)
