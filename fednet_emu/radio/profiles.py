"""Profiles of radios and of base stations that exist: what they draw, each number with how well it is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from fednet_emu.component.component import Component

Mark = Literal["measured", "derived", "table", "recalled", "assumed"]
MARKS: tuple[Mark, ...] = ("measured", "derived", "table", "recalled", "assumed")
"""How well a number is known, the best first: a meter on such a device; worked out from measurements; stated by its
maker; quoted by others or remembered, not read where it was published; assumed."""


def check_marks(numbers: Mapping[str, float | None], marks: Mapping[str, Mark | None]) -> None:
    """Check that every number that is stated has a mark, and no other.

    Raises:
        ValueError: a number has no mark, or a mark has no number.
    """
    for name in dict.fromkeys((*numbers, *marks)):
        number, mark = numbers.get(name), marks.get(name)
        if number is not None and mark is None:
            raise ValueError(f"evidence.{name}: is required, got {number:g} without it; give {', '.join(MARKS)}")
        if number is None and mark is not None:
            raise ValueError(f"evidence.{name}: there is no number to judge, got {mark}; leave it out")


Kind = Literal["device", "radio", "station"]

_PLACE: dict[Kind, str] = {
    "device": "devices.profile",
    "radio": "channel.device.profile",
    "station": "channel.base_station.profile",
}


def kind_of(given: Mapping[str, Any]) -> Kind | None:
    """What the settings of a profile are the profile of; None if they do not tell."""
    if "compute" in given:
        return "device"
    if "receive_w" in given:
        return "radio"
    return "station" if {"most_dbm", "idle_w"} <= given.keys() else None


def refuse_another(kind: Kind, given: Any) -> Any:
    """Return the settings of a profile of this kind.

    Raises:
        ValueError: they are those of another kind.
    """
    other = kind_of(given) if isinstance(given, Mapping) else None
    if other not in (None, kind):
        got = given.get("title") or "one without a title"
        raise ValueError(f"is the profile of a {other}, got {got}; give it as {_PLACE[other]}")
    return given


class TransmitterProfile(Component):
    """A transmitter that exists. Every number is stated, or null where no source states it."""

    NUMBERS: ClassVar[tuple[str, ...]] = ("most_dbm", "amplifier_efficiency")
    """The names of the numbers, which have marks."""

    title: str = ""
    """A readable name."""
    use: str = ""
    """What it is."""
    source: str
    """Where its numbers come from."""
    year: int = Field(ge=1970, le=2100)
    """When it was first sold, or measured."""
    most_dbm: float | None
    """Largest radiated power in dBm for which the numbers hold; null where no source states it. How much is radiated
    says `tx_power_dbm` of the radio."""
    amplifier_efficiency: float | None = Field(gt=0, le=1)
    """Radiated over drawn power of the amplifier; null where no source states it."""
    evidence: dict[str, Mark | None]
    """How well each number that is stated is known, by its name."""

    @property
    def numbers(self) -> dict[str, float | None]:
        """The numbers that have a mark, by name; None where no source states one."""
        return {name: getattr(self, name) for name in self.NUMBERS}

    @property
    def marks(self) -> dict[str, Mark | None]:
        """How well each of these numbers is known; None for one that is not stated."""
        return {name: self.evidence.get(name) for name in self.NUMBERS}

    @model_validator(mode="after")
    def _numbers_have_marks(self) -> TransmitterProfile:
        check_marks(self.numbers, self.evidence)
        return self


class RadioProfile(TransmitterProfile):
    """The radio of a device, whose powers come on top of the idle power of the device.

    Power may grow with the rate: P = a + b R has a as `transmit_w` or `receive_w`, and b in joules per bit.
    Ignored here: tails after a transfer, and that a law was measured up to some rate only.
    """

    NUMBERS = (
        *TransmitterProfile.NUMBERS,
        "circuit_w",
        "transmit_w",
        "receive_w",
        "transmit_j_per_bit",
        "receive_j_per_bit",
    )

    circuit_w: float | None = Field(ge=0, le=1e6)
    """Power in W of the transmitter beside its amplifier; null where `transmit_w`, or no source, states it."""
    transmit_w: float | None = Field(ge=0, le=1e6)
    """Power in W while it sends at `most_dbm`, its amplifier included; null where no source states it. Without an
    efficiency of the amplifier it is drawn at any radiated power."""
    receive_w: float | None = Field(ge=0, le=1e6)
    """Power in W while it receives; null where no source states it."""
    transmit_j_per_bit: float | None = Field(ge=0, le=1)
    """Energy in J of each bit that it sends, beside these powers; null where no source states it."""
    receive_j_per_bit: float | None = Field(ge=0, le=1)
    """Energy in J of each bit that it receives, beside these powers; null where no source states it."""

    @model_validator(mode="before")
    @classmethod
    def _is_of_a_radio(cls, given: Any) -> Any:
        return refuse_another("radio", given)

    @model_validator(mode="after")
    def _one_power(self) -> RadioProfile:
        if self.circuit_w is not None and self.transmit_w is not None:
            raise ValueError(
                f"transmit_w: holds the amplifier and what circuit_w is, got {self.transmit_w:g} and "
                f"{self.circuit_w:g} W; give one of them"
            )
        return self


class StationProfile(TransmitterProfile):
    """A base station: P = `idle_w` + radiated power / `amplifier_efficiency`, the linear law of EARTH.

    Ignored here: that a station without load may sleep, and that it draws more while it receives.
    """

    NUMBERS = (*TransmitterProfile.NUMBERS, "idle_w")

    idle_w: float | None = Field(ge=0, le=1e6)
    """Power in W of the whole station without load; null where no source states it."""

    @model_validator(mode="before")
    @classmethod
    def _is_of_a_station(cls, given: Any) -> Any:
        return refuse_another("station", given)
