"""Profiles of real radios and base stations: their powers, and the quality of the source of each number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from fednet_emu.component.component import Component

Mark = Literal["measured", "derived", "table", "recalled", "assumed"]
MARKS: tuple[Mark, ...] = ("measured", "derived", "table", "recalled", "assumed")
"""Quality of the source of a number, best first: measured (on a device of this type), derived (calculated from
measurements), table (given by the manufacturer), recalled (from memory or a secondary source), or assumed (no source).
"""


def check_marks(numbers: Mapping[str, float | None], marks: Mapping[str, Mark | None]) -> None:
    """Raise a `ValueError` if a number that is not None has no quality in `marks`, or a quality has no number."""
    for name in dict.fromkeys((*numbers, *marks)):
        number, mark = numbers.get(name), marks.get(name)
        if number is not None and mark is None:
            raise ValueError(f"evidence.{name}: is required, got {number:g} without it; give {', '.join(MARKS)}")
        if number is None and mark is not None:
            raise ValueError(f"evidence.{name}: there is no number to judge, got {mark}; leave it out")


Kind = Literal["device", "radio", "station"]
_PLACE = {"device": "devices", "radio": "channel.device", "station": "channel.base_station"}


def kind_of(given: Mapping[str, Any]) -> Kind | None:
    """Return the kind of profile (device, radio or station) of the settings `given`; None if they do not show it."""
    if "compute" in given:
        return "device"
    if "rx_consumption_w" in given:
        return "radio"
    return "station" if {"max_dbm", "idle_w"} <= given.keys() else None


def refuse_another(kind: Kind, given: Any) -> Any:
    """Return `given`, the settings of a profile; raise a `ValueError` if they belong to another kind than `kind`."""
    other = kind_of(given) if isinstance(given, Mapping) else None
    if other not in (None, kind):
        got = given.get("title") or "one without a title"
        raise ValueError(f"is the profile of a {other}, got {got}; give it as {_PLACE[other]}.profile")
    return given


class TransmitterProfile(Component):
    """A real transmitter. Each numeric field has a value, or null if no source gives a value."""

    NUMBERS: ClassVar[tuple[str, ...]] = ("max_dbm", "amplifier_efficiency")
    """Names of the numeric fields whose source quality is given in `evidence`."""
    title: str = ""
    """A readable name."""
    use: str = ""
    """Description of the transmitter."""
    source: str
    """Source of the transmitter's numbers."""
    year: int = Field(ge=1970, le=2100)
    """Year in which the transmitter was first sold, or measured."""
    max_dbm: float | None
    """Maximum radiated power in dBm, at which the powers of the profile hold; null if no source gives it. The radiated
    power in a run is `tx_power_dbm` of the radio."""
    amplifier_efficiency: float | None = Field(gt=0, le=1)
    """Efficiency of the amplifier (radiated / consumed power); null if no source gives it."""
    evidence: dict[str, Mark | None]
    """Quality of the source of each numeric field that is not null, by the name of the field."""

    @property
    def numbers(self) -> dict[str, float | None]:
        """The values of the numeric fields `NUMBERS` by name; None for a value that no source gives."""
        return {name: getattr(self, name) for name in self.NUMBERS}

    @property
    def marks(self) -> dict[str, Mark | None]:
        """The source quality of each numeric field, by name; None for a value that no source gives."""
        return {name: self.evidence.get(name) for name in self.NUMBERS}

    def _check(self) -> None:
        check_marks(self.numbers, self.evidence)


class RadioProfile(TransmitterProfile):
    """The radio of a device. Its powers are in addition to the idle power of the device.

    The power P in W may grow with the rate R in bit/s as P = a + b R, where a is `tx_consumption_w` or
    `rx_consumption_w`, and b is `tx_j_per_bit` or `rx_j_per_bit`.
    Ignored here: tail energy after a transfer, and the maximum rate at which the powers were measured.
    """

    NUMBERS = (
        *TransmitterProfile.NUMBERS,
        *("circuit_w", "tx_consumption_w", "rx_consumption_w", "tx_j_per_bit", "rx_j_per_bit"),
    )
    circuit_w: float | None = Field(ge=0, le=1e6)
    """Power in W of the transmitter without its amplifier; null if `tx_consumption_w` includes it, or no source gives
    it."""
    tx_consumption_w: float | None = Field(ge=0, le=1e6)
    """Power in W while sending at `max_dbm`, including the amplifier; null if no source gives it. If
    `amplifier_efficiency` is null, the radio draws this power at any radiated power."""
    rx_consumption_w: float | None = Field(ge=0, le=1e6)
    """Power in W while receiving; null if no source gives it."""
    tx_j_per_bit: float | None = Field(ge=0, le=1)
    """Energy in J per sent bit, in addition to the power while sending; null if no source gives it."""
    rx_j_per_bit: float | None = Field(ge=0, le=1)
    """Energy in J per received bit, in addition to the power while receiving; null if no source gives it."""

    @model_validator(mode="before")
    @classmethod
    def _is_of_a_radio(cls, given: Any) -> Any:
        return refuse_another("radio", given)

    def _check(self) -> None:
        super()._check()
        if self.circuit_w is not None and self.tx_consumption_w is not None:
            raise ValueError(
                f"tx_consumption_w: holds the amplifier and what circuit_w is, got {self.tx_consumption_w:g} and "
                f"{self.circuit_w:g} W; give one of them"
            )


class StationProfile(TransmitterProfile):
    """A base station with the power `idle_w` + radiated power / `amplifier_efficiency`, as in the EARTH project.

    Ignored here: sleep modes without load, and additional power while receiving.
    """

    NUMBERS = (*TransmitterProfile.NUMBERS, "idle_w")
    idle_w: float | None = Field(ge=0, le=1e6)
    """Power in W of the whole base station without load; null if no source gives it."""

    @model_validator(mode="before")
    @classmethod
    def _is_of_a_station(cls, given: Any) -> Any:
        return refuse_another("station", given)
