"""What simultaneous transmitters of one band do to each other."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field

from fednet_emu.component import Component, Slot
from fednet_emu.units import Array


class Access(Component):
    """How a band is shared. SNRs are those that each link would have alone, with the whole band."""

    @property
    @abstractmethod
    def capacity(self) -> int | None:
        """How many transmissions may be on the air at once; None for no limit. The others wait their turn."""

    @abstractmethod
    def share(self, active: int) -> float:
        """Fraction of the band that one of `active` simultaneous transmissions has, at full transmit power."""

    def sinr(self, snr: Array, active: int) -> Array:
        """SINRs [links, blocks] at SNRs [links, blocks]: orthogonal shares; noise shrinks with them, power does not."""
        return snr / self.share(active)


class Tdma(Access):
    """One after the other in the order of requests, each with the whole band."""

    kind: Literal["tdma"] = "tdma"

    @property
    def capacity(self) -> int:
        """One at a time."""
        return 1

    def share(self, active: int) -> float:
        """The whole band."""
        return 1.0


class Ofdma(Access):
    """Side by side on equal parts of the band.

    With `subchannels`, the band is cut into so many fixed parts, one for each transmission, and further ones wait.
    Without, all who transmit share the band equally, and shares change as transmissions start and end.
    """

    kind: Literal["ofdma"] = "ofdma"
    subchannels: int | None = Field(None, gt=0)

    @property
    def capacity(self) -> int | None:
        """As many as there are subchannels."""
        return self.subchannels

    def share(self, active: int) -> float:
        """One subchannel, or an equal part."""
        return 1.0 / (self.subchannels or active)


ACCESSES = {"tdma": Tdma, "ofdma": Ofdma}
AnyAccess = Annotated[Access, Slot("access", ACCESSES)]
