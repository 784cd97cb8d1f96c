"""Carbon: grams of CO2 that the energy of a run causes, from the carbon intensity of a power grid."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, field_validator

from fednet_emu.arrays import Array
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

    Ignored here: emissions of hardware production. For hourly intensities, the energy between two evaluations is
    assumed to be spread evenly over the time between them.
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

    def mean_g_per_kwh(self, until_s: float, since_s: float = 0.0) -> float:
        """Return the mean carbon intensity in g/kWh between two times of a run, in seconds of simulated time."""
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

        start_s = self.start_hour * _HOUR_S + since_s
        lasts_s = until_s - since_s
        if lasts_s <= 0:
            return self.g_per_kwh[int(start_s / _HOUR_S) % _HOURS]
        return (until(start_s + lasts_s) - until(start_s)) / lasts_s

    def grams_until(self, times_s: Sequence[float], energies_j: Sequence[float]) -> Array:
        """Return the grams of CO2 [times] of a run from its start up to each of several ascending times.

        `energies_j` [times] is the energy of the run up to each time.
        """
        starts_s = [0.0, *times_s][:-1]
        means = [self.mean_g_per_kwh(until, since) for until, since in zip(times_s, starts_s, strict=True)]
        spent_j = np.diff(np.asarray(energies_j, np.float64), prepend=0.0)
        grams: Array = np.cumsum(spent_j * np.array(means)) / J_PER_KWH
        return grams

    def grams(self, times_s: Sequence[float], energies_j: Sequence[float], host_s: float) -> dict[str, float]:
        """Return the grams of CO2 of a run (`carbon_g`) and, if `host_w` is set, of the computer (`host_carbon_g`).

        The last element of `times_s` is the end of the run; see `grams_until` for the arguments.
        """
        found = {"carbon_g": float(self.grams_until(times_s, energies_j)[-1])}
        if self.host_w is None:
            return found
        host_j = self.host_w * host_s
        return {**found, "host_carbon_g": host_j * self.mean_g_per_kwh(times_s[-1]) / J_PER_KWH}
