"""Link draws: every random number that the large-scale propagation of a link needs, drawn by the caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from fednet_emu.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class LinkDraws:
    """One value per link of each random quantity; arrays broadcast against the hop.

    Key `shadowing`, `los` and `environment` by the unordered pair of ends, so that a link is the same both ways, and
    `indoor`, `building` and `depth` by the device alone: whoever is indoors is so for every base station.

    Attributes:
        shadowing: standard normal, times the standard deviation of the shadowing.
        los: uniform in (0, 1); line of sight where it is below the probability.
        environment: uniform in (0, 1); the effective environment height of the urban macro model.
        indoor: uniform in (0, 1); indoors where it is below the share of indoor devices.
        building: uniform in (0, 1); a high-loss building where it is below their share.
        depth: uniform in (0, 1); how far inside the building.
        penetration: standard normal; the spread of the loss through walls, or through the vehicle in between.
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
        """Draws from a source of uniforms in the open interval (0, 1), asked once for each attribute by its name."""
        return cls(
            shadowing=np.asarray(scipy.special.ndtri(uniform("shadowing"))),
            los=uniform("los"),
            environment=uniform("environment"),
            indoor=uniform("indoor"),
            building=uniform("building"),
            depth=uniform("depth"),
            penetration=np.asarray(scipy.special.ndtri(uniform("penetration"))),
        )

    @classmethod
    def typical(cls, shadowing: Array | None = None) -> LinkDraws:
        """Every draw at its median: the likelier state of each link, and median shadowing unless it is given."""
        half, zero = np.asarray(0.5), np.asarray(0.0)
        shadowing = zero if shadowing is None else shadowing
        return cls(shadowing, los=half, environment=half, indoor=half, building=half, depth=half, penetration=zero)
