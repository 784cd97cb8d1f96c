"""Satellites: devices on orbits of a Walker constellation, or on the orbits of real satellites."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from fednet_emu.arrays import Array, IntArray, cos, sin
from fednet_emu.devices.mobility.base import Mobility
from fednet_emu.devices.mobility.regions import Region
from fednet_emu.devices.orbits import GRAVITY_M3_S2, MEAN_RADIUS_M, TURN_RAD_S, Orbits, sidereal_rad, turned
from fednet_emu.errors import DataError, FednetError, ScenarioError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.tle import Elements, read_elements
from fednet_emu.kernel.streams import Streams

J2 = 1.08262668e-3
"""Second zonal harmonic of the Earth's gravity field."""
EQUATOR_M = 6_378_137.0
"""Equatorial radius of the Earth, in m (WGS84)."""
FRESH_DAYS = 14.0
"""Maximum time in days between the epoch of orbital elements and time 0 of the run, unless `stale` is `allow`. Position
errors grow by a few kilometres per day."""


class Satellites(Mobility):
    """Devices on orbits around the Earth; the base stations must be ground stations, `cells: {kind: ground}`."""

    ORBITS: ClassVar[bool] = True
    places = True

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        kind, network, channel = self.kind, scenario.network, scenario.channel
        if network.cells.kind != "ground":
            yield (
                "",
                f"satellites have stations on the ground, got {kind} with network.cells: {network.cells.kind}; "
                + ("give {kind: ground, sites: [...]}"),
            )
        to_the_ground = "consensus" not in scenario.algorithm.uses or network.sidelink is None
        if scenario.devices.availability.kind == "always" and to_the_ground:
            yield "", f"satellites set, got {kind} with availability: always; give {{kind: passes, mask_deg: 10}}"
        if channel.path_loss.kind not in ("free-space", "log-distance"):
            what = f"laws for the ground know no slant range, got {kind} with channel.path_loss"
            yield "", f"{what}: {channel.path_loss.kind}; choose free-space or log-distance"


class Walker(Satellites):
    """A Walker constellation (Walker 1984): one satellite per device, on circular orbits in evenly spaced planes.

    With S satellites in each plane, device k is satellite k mod S of plane k // S. At time 0, the first satellite of
    plane 0 is at its ascending node, at longitude 0. Ignored here: drag, the gravity of other bodies, and, if `drift`
    is `none`, the flattening of the Earth.
    """

    planes: int = Field(ge=1)
    """Number of orbital planes; P in Walker's notation i:T/P/F."""
    phasing: int = Field(0, ge=0)
    """Phase shift between adjacent planes in units of 360 degrees / T, where T is the number of satellites; F in
    Walker's notation i:T/P/F."""
    inclination_deg: float = Field(ge=0, le=180)
    """Inclination of the orbital planes to the equator, in degrees."""
    height_m: float = Field(ge=1e5, le=1e8)
    """Height of the orbits above a sphere with a radius of 6371 km, in m."""
    pattern: Literal["delta", "star"] = "delta"
    """Range of the ascending nodes, which are evenly spaced: `delta` over 360 degrees, `star` over 180 degrees for
    near-polar orbits."""
    drift: Literal["none", "j2"] = "none"
    """Rotation of the planes due to the Earth's flattening. With `none`, they do not rotate; with `j2`, the nodes move
    at the secular rate -1.5 n J2 (R / a)^2 cos i, some degrees per day, where n is the mean motion, R the Earth's
    equatorial radius, a the radius of the orbit and i the inclination. Ignored here: the effect along the orbit, half a
    minute per day."""

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(scenario)
        if scenario.devices.count % self.planes:
            yield "planes", f"must divide the number of devices, got {self.planes} for {scenario.devices.count}"
        if self.phasing >= self.planes:
            yield "phasing", f"must be below the number of planes, got {self.phasing} of {self.planes}"

    def paths(
        self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None
    ) -> CircularOrbits:
        return CircularOrbits(self, len(initial_xy_m))


class CircularOrbits(Orbits):
    """Satellites on the circular orbits of a Walker constellation."""

    def __init__(self, law: Walker, count: int) -> None:
        self.count = count
        self._radius_m = MEAN_RADIUS_M + law.height_m
        self._motion_rad_s = math.sqrt(GRAVITY_M3_S2 / self._radius_m**3)
        self.speed_m_s = self._motion_rad_s * self._radius_m
        self.planes, self.phasing, self.star = law.planes, law.phasing, law.pattern == "star"
        plane, place = np.divmod(np.arange(count), count // law.planes)
        turn, spread = 2 * math.pi, math.pi if law.pattern == "star" else 2 * math.pi
        self._node_rad = spread * plane / law.planes
        self._phase_rad = turn * (place * law.planes + law.phasing * plane) / count
        j2 = J2 * (EQUATOR_M / self._radius_m) ** 2 * math.cos(math.radians(law.inclination_deg))
        self.node_rad_s = -1.5 * self._motion_rad_s * j2 if law.drift == "j2" else 0.0
        self._tilt = math.cos(math.radians(law.inclination_deg)), math.sin(math.radians(law.inclination_deg))

    def places_m(self, satellites: IntArray, time_s: Array) -> Array:
        along = self._phase_rad[satellites, None] + self._motion_rad_s * time_s
        c, s = cos(along), sin(along)
        in_plane = np.stack([c, self._tilt[0] * s, self._tilt[1] * s], axis=-1)
        node_rad = self._node_rad[satellites, None]
        return turned(turned(self._radius_m * in_plane, -node_rad), (TURN_RAD_S - self.node_rad_s) * time_s)


class Tle(Satellites):
    """Satellites from two-line elements or OMM, propagated by SGP4 (AIAA 2006-6753); needs the extra `orbits`.

    Device k is satellite k of the file. Coordinates are transformed from the frame of the elements (TEME) to the
    Earth-fixed frame by a rotation by Greenwich mean sidereal time, with errors of up to 0.005 degrees and 0.05 km.
    Ignored here: polar motion, and the difference between UT1 and UTC.
    """

    elements: str
    """File of orbital elements: two-line elements, with or without names, or OMM in CSV, JSON or XML. Catalogues use
    OMM for satellite numbers with more than five digits. A relative path is searched in the data folder first."""
    epoch: str | None = None
    """Time 0 of the simulation in UTC, such as 2026-03-01T12:00:00Z; null means the epoch of the latest elements."""
    stale: Literal["error", "allow"] = "error"
    """Action for elements that are more than 14 days older or newer than time 0: `error` raises an error, and `allow`
    uses them."""

    @field_validator("epoch")
    @classmethod
    def _is_a_time(cls, epoch: str | None) -> str | None:
        if epoch is not None:
            _julian_day(epoch)
        return epoch

    def paths(
        self, initial_xy_m: Array, region: Region, streams: Streams, data_dir: Path | None = None
    ) -> ElementOrbits:
        all_of_them, count = read_elements(locate(self.elements, data_dir)), len(initial_xy_m)
        if len(all_of_them) < count:
            what = f"{self.elements} has {len(all_of_them)} satellites, got {count}"
            raise ScenarioError(f"devices.count: {what}; give {len(all_of_them)} or fewer, or more elements")
        return ElementOrbits(self, all_of_them[:count])


class ElementOrbits(Orbits):
    """Satellites on orbits that are given by orbital elements and propagated by SGP4."""

    def __init__(self, law: Tle, elements: list[Elements]) -> None:
        self.count = len(elements)
        self._where = [its.where for its in elements]
        self._satellites = [_satellite(its) for its in elements]
        epochs = [its.jdsatepoch + its.jdsatepochF for its in self._satellites]
        self._start_jd = max(epochs) if law.epoch is None else _julian_day(law.epoch)
        off_days = [abs(day - self._start_jd) for day in epochs]
        days = max(off_days)
        if law.stale == "error" and days > FRESH_DAYS:
            where = self._where[off_days.index(days)]
            how = f"get elements of that time (at most {FRESH_DAYS:g} days off), or set stale: allow"
            raise DataError(where, f"is of another time, {days:.1f} days from the epoch of the run", how)
        motions_m_s = [GRAVITY_M3_S2 ** (1 / 3) * (its.no_kozai / 60) ** (1 / 3) for its in self._satellites]
        self.speed_m_s = sum(motions_m_s) / len(motions_m_s)

    def places_m(self, satellites: IntArray, time_s: Array) -> Array:
        """Return positions propagated by SGP4; raise a `DataError` if a satellite has decayed or invalid elements."""
        time_s = np.broadcast_to(time_s, (len(satellites), np.shape(time_s)[-1]))
        day, part = math.floor(self._start_jd), self._start_jd % 1.0
        km = np.empty((*time_s.shape, 3))
        for row, satellite in enumerate(satellites.tolist()):
            parts = part + time_s[row] / 86_400.0
            wrong, km[row], _ = self._satellites[satellite].sgp4_array(np.full(len(parts), float(day)), parts)
            if wrong.any():
                at_s = time_s[row][np.argmax(wrong != 0)]
                what = _sgp4().SGP4_ERRORS.get(int(wrong[wrong != 0][0]), "SGP4 fails")
                raise DataError(
                    self._where[satellite], f"cannot be followed to {at_s:g} s ({what})", "give newer elements"
                )
        return turned(1e3 * km, sidereal_rad(self._start_jd, time_s))


def _julian_day(utc: str) -> float:
    try:
        moment = datetime.fromisoformat(utc)
    except ValueError as error:
        raise ValueError(f"is no time, got {utc!r}; write UTC, such as 2026-03-01T12:00:00Z") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return 2_440_587.5 + moment.timestamp() / 86_400.0


def _satellite(elements: Elements) -> Any:
    satrec = _sgp4().Satrec
    if isinstance(elements.content, tuple):
        return satrec.twoline2rv(*elements.content)
    satellite = satrec()
    _sgp4("omm").initialize(satellite, elements.content)
    return satellite


def _sgp4(part: str = "api") -> Any:
    try:
        return importlib.import_module(f"sgp4.{part}")
    except ImportError as error:
        raise FednetError("devices.mobility: sgp4 is not installed; pip install 'fednet-emu[orbits]'") from error
