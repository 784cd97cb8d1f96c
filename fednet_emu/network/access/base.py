"""What an access scheme is asked: who radiates in each block, and each leg's SINR and share of the band.

A *leg* is one transfer to one receiver, a *burst* the legs of one broadcast (one leg as a rule), a *sender* the radio
of one or more bursts, an *ear* the radio of one or more legs' receiver. SNRs and everything heard are power over the
receiver's own noise in the whole band.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.component import Component

if TYPE_CHECKING:
    from fednet_emu.network.medium.band import Band


@dataclass(frozen=True, slots=True, eq=False)
class Crew:
    """Who is on the air of one cell, until somebody starts or ends.

    Attributes:
        burst: [legs] the burst of each leg; the legs of a burst stand together.
        ear: [legs] the receiver of each leg, a row of `mean`.
        sender: [bursts] the radio of each burst, a column of `mean`.
        radio: [senders] numbers of the senders, which key their draws.
        part: [bursts] part of its sender's power that each burst has when all of the sender's are on the air.
        left_bit: [legs] bits that were left when the crew came together.
        mean: [ears, senders] what each ear hears of each sender at the sender's power, averaged over fading.
        deaf: [ears, senders] whether the two are one radio, which hears nobody while it sends; None when none is.
        plain: whether leg k is burst k is sender k, all of them to one receiver.
    """

    burst: IntArray
    ear: IntArray
    sender: IntArray
    radio: IntArray
    part: Array
    left_bit: Array
    mean: Array
    deaf: Mask | None
    plain: bool

    @property
    def first_leg(self) -> IntArray:
        """The first leg of each burst [bursts]."""
        return np.flatnonzero(np.diff(self.burst, prepend=-1))

    def own(self, heard: Array) -> Array:
        """What the receiver of each leg hears of its own sender [legs, ...], out of [ears, senders, ...]."""
        signal: Array = heard[0] if self.plain else heard[self.ear, self.sender[self.burst]]
        return signal

    def radiated(self, power: Array) -> Array:
        """How much of its power each sender radiates [senders, blocks], from the parts of its bursts."""
        total: Array = np.zeros((len(self.radio), power.shape[1]))
        np.add.at(total, self.sender, power)
        return total


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A crew over some blocks in a row.

    Attributes:
        crew: who is on the air.
        heard: [ears, senders, blocks] what each ear hears of each sender at full power, fading included.
        noise: [ears, blocks] noise together with what other cells radiate, over the noise alone.
        numbers: [blocks] numbers of the blocks.
        band: what they share.
    """

    crew: Crew
    heard: Array
    noise: Array
    numbers: IntArray
    band: Band


class Split(NamedTuple):
    """How a scheme lets the legs of a cell share its band.

    Attributes:
        sinr: [legs, blocks] signal over noise and interference.
        share: fraction of the band, in a shape that broadcasts against [legs, blocks].
        clear: [legs, blocks] SINR without any interference.
        carries: [legs, blocks] whether the leg's block carries bits at all; None where every one does.
    """

    sinr: Array
    share: Array | float
    clear: Array
    carries: Mask | None = None


class Reuse(NamedTuple):
    """How clusters of devices use a band side by side.

    Attributes:
        coloured: whether a burst waits only for those that one of its own ends takes part in.
        interference: whether bursts on the air together are noise to each other.
    """

    coloured: bool
    interference: bool


class Access(Component):
    """How the transmitters of one cell share a band."""

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink", "sidelink"})
    """Where the scheme makes sense."""

    @property
    @abstractmethod
    def capacity(self) -> int | None:
        """How many bursts of a cell may be on the air at once; None for no limit. The others wait their turn."""

    @property
    def reuse(self) -> Reuse | None:
        """How clusters use the band side by side, each with turns of its own; None where all take turns together."""
        return None

    @property
    def one_at_a_time(self) -> bool:
        """Whether one burst at a time is on the air of the whole band (of a cell)."""
        return self.capacity == 1 and self.reuse is None

    @abstractmethod
    def share(self, active: int) -> float:
        """Fraction of the band that one of `active` simultaneous bursts has, as long as all are treated alike."""

    @property
    def turn_s(self) -> float:
        """Duration of the slots that the scheme deals out; infinity for a scheme without slots."""
        return math.inf

    def power(self, scene: Scene) -> Array | None:
        """The part [bursts, blocks] of its sender's power that each burst has in each block.

        None where every sender is on the air all the time and its bursts share its power equally.
        """
        return None

    @abstractmethod
    def split(self, scene: Scene, power: Array | None) -> Split:
        """SINR and share of each leg, given what `power` has answered."""
