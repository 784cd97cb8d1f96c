"""The inputs of propagation formulas: the geometry of links, and random numbers drawn by the caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.special import ndtri

from fednet_emu.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class Hop:
    """The geometry of one or many links; the arrays of distances and heights are broadcast with each other.

    Ignored here: terrain, buildings, antenna orientation and the curvature of the earth.

    Attributes:
        distance_2d_m: horizontal distance between transmitter and receiver in m.
        tx_height_m: height of the transmitting antenna above ground in m.
        rx_height_m: height of the receiving antenna above ground in m.
        place_m: coordinates [..., 2] of the devices in m, for models that need them; None if only distances are known.
        station: index of the base station of all links.
    """

    distance_2d_m: Array
    tx_height_m: Array
    rx_height_m: Array
    place_m: Array | None = None
    station: int = 0

    @classmethod
    def between(cls, tx_xyz_m: Array, rx_xyz_m: Array) -> Hop:
        """Return the links between transmitters and receivers at positions [..., 3] in m; the arrays are broadcast.

        One receiver [3] and n transmitters [n, 3] give n links; transmitters [n, 1, 3] and receivers [m, 3] give all
        n x m links.
        """
        offset_m = rx_xyz_m - tx_xyz_m
        return cls(
            distance_2d_m=np.hypot(offset_m[..., 0], offset_m[..., 1]),
            tx_height_m=tx_xyz_m[..., 2],
            rx_height_m=rx_xyz_m[..., 2],
        )

    @property
    def distance_3d_m(self) -> Array:
        """Straight-line distance in m between the two antennas of each link, in the broadcast shape."""
        return np.hypot(self.distance_2d_m, self.tx_height_m - self.rx_height_m)

    @property
    def high_m(self) -> Array:
        """Height in m of the higher antenna, which counts as the base station in formulas."""
        return np.maximum(self.tx_height_m, self.rx_height_m)

    @property
    def low_m(self) -> Array:
        """Height in m of the lower antenna, which counts as the device in formulas."""
        return np.minimum(self.tx_height_m, self.rx_height_m)

    def at_least(self, distance_2d_m: float) -> Hop:
        """Return a copy in which shorter horizontal distances are raised to `distance_2d_m`."""
        return replace(self, distance_2d_m=np.maximum(self.distance_2d_m, distance_2d_m))


@dataclass(frozen=True, slots=True, eq=False)
class LinkDraws:
    """Random numbers of links, one value of each quantity per link; the arrays are broadcast with those of `Hop`.

    The caller must draw `shadowing`, `los` and `environment` once for each unordered pair of antennas, so that a link
    is the same in both directions. The caller must draw `indoor`, `building` and `depth` once per device, so that a
    device is indoors for all base stations or for none.

    Attributes:
        shadowing: standard normal, to be multiplied by the standard deviation of the shadowing.
        los: uniform in (0, 1); the link has line of sight if the value is below the probability.
        environment: uniform in (0, 1), for the effective environment height of the urban macro model.
        indoor: uniform in (0, 1); the device is indoors if the value is below the share of indoor devices.
        building: uniform in (0, 1); the building is a high-loss building if the value is below the share of such
            buildings.
        depth: uniform in (0, 1), for the depth inside the building.
        penetration: standard normal, for the variation of the loss through walls or through a blocking vehicle.
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
        """Return draws made by `uniform`, which maps the name of an attribute to uniform random numbers in (0, 1)."""
        names = [field.name for field in fields(cls)]
        normal = ("shadowing", "penetration")
        return cls(*(np.asarray(ndtri(uniform(name))) if name in normal else uniform(name) for name in names))

    @classmethod
    def typical(cls, shadowing: Array | None = None) -> LinkDraws:
        """Return draws that are all medians, so that links have their more likely state; `shadowing` may be given."""
        half, zero = np.asarray(0.5), np.asarray(0.0)
        shadowing = zero if shadowing is None else shadowing
        return cls(shadowing, los=half, environment=half, indoor=half, building=half, depth=half, penetration=zero)
