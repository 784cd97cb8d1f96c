"""Carbon: grams of CO2 that the energy of a run causes, from the carbon intensity of a power grid."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from fednet_emu.component.component import Component, exactly_one
from fednet_emu.errors import did_you_mean

J_PER_KWH = 3.6e6
_HOURS, _HOUR_S = 24, 3600.0


@cache
def intensities() -> dict[str, float]:
    """Return the mean carbon intensity in g/kWh by place; `carbon.csv` gives the year and the source of each value."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as rows:
        return {row["place"]: float(row["g_per_kwh"]) for row in csv.DictReader(rows)}


class Carbon(Component):
    """The power grid that supplies devices and base stations.

    Ignored here: emissions of hardware production. For hourly intensities, the energy of a run is assumed to be spread
    evenly over the duration of the run.
    """

    _one = exactly_one("place", "g_per_kwh")

    place: str | None = None
    """Country whose mean carbon intensity in one year is used; `carbon.csv` gives the year and the source."""
    g_per_kwh: Annotated[float, Field(ge=0, le=5000)] | tuple[Annotated[float, Field(ge=0, le=5000)], ...] | None = None
    """Carbon intensity in g/kWh, instead of `place`: one number, or one number for each of the 24 hours of a day."""
    start_hour: float = Field(0.0, ge=0, lt=24)
    """Hour of the day at which the run starts; used for hourly intensities."""
    host_w: float | None = Field(None, gt=0, le=1e6)
    """Power in W of the computer that runs the simulation, during the wall-clock time of the run; null leaves this
    computer out. The energy of this computer is counted separately from the energy of the run."""

    @field_validator("place")
    @classmethod
    def _is_known(cls, place: str | None) -> str | None:
        if place is not None and place not in intensities():
            near = did_you_mean(place, intensities()) or f"; known: {', '.join(intensities())}"
            raise ValueError(f"no such place, got {place}{near}, or give g_per_kwh")
        return place

    @field_validator("g_per_kwh")
    @classmethod
    def _is_a_day(cls, given: float | tuple[float, ...] | None) -> float | tuple[float, ...] | None:
        if isinstance(given, tuple) and len(given) != _HOURS:
            raise ValueError(f"hourly intensities are {_HOURS} numbers, got {len(given)}")
        return given

    def mean_g_per_kwh(self, lasts_s: float) -> float:
        """Return the mean carbon intensity in g/kWh over a run of `lasts_s` seconds of simulated time."""
        if self.place is not None:
            return intensities()[self.place]
        if not isinstance(self.g_per_kwh, tuple):
            return float(self.g_per_kwh or 0.0)
        day_g_s = sum(self.g_per_kwh) * _HOUR_S

        def until(time_s: float) -> float:
            days, rest_s = divmod(time_s, _HOURS * _HOUR_S)
            hour, part_s = divmod(rest_s, _HOUR_S)
            assert isinstance(self.g_per_kwh, tuple), "hourly"
            return days * day_g_s + sum(self.g_per_kwh[: int(hour)]) * _HOUR_S + self.g_per_kwh[int(hour)] * part_s

        start_s = self.start_hour * _HOUR_S
        if lasts_s <= 0:
            return self.g_per_kwh[int(self.start_hour)]
        return (until(start_s + lasts_s) - until(start_s)) / lasts_s

    def grams(self, energy_j: float, lasts_s: float, host_s: float) -> dict[str, float]:
        """Return the grams of CO2 of a run (`carbon_g`) and, if `host_w` is set, of the computer (`host_carbon_g`)."""
        per_j = self.mean_g_per_kwh(lasts_s) / J_PER_KWH
        found = {"carbon_g": energy_j * per_j}
        return found if self.host_w is None else {**found, "host_carbon_g": self.host_w * host_s * per_j}
