"""What an access scheme is asked: who radiates in each block, and each leg's SINR and share of the band.

A *leg* is one transfer to one receiver, a *burst* the legs of one broadcast (one leg as a rule), a *sender* the radio
of one or more bursts. SNRs and everything heard are power over the receiver's own noise in the whole band.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.component import Component
from fednet_emu.radio.rate_law import RateLaw


@dataclass(frozen=True, slots=True, eq=False)
class Active:
    """Who is on the air of one cell, until somebody starts or ends.

    Attributes:
        burst: [legs] the burst of each leg; the legs of a burst stand together.
        receiver: [legs] the receiver of each leg, a row of `mean`.
        sender: [bursts] the radio of each burst, a column of `mean`.
        radio: [senders] numbers of the senders, which key their draws.
        part: [bursts] part of its sender's power that each burst has when all of the sender's are on the air.
        left_bit: [legs] bits that were left at the last change.
        mean: [receivers, senders] what is heard of each sender at its power, averaged over fading.
        deaf: [receivers, senders] whether the two are one radio, which hears nobody while it sends; None when none is.
        plain: whether leg k is burst k is sender k, all of them to one receiver.
    """

    burst: IntArray
    receiver: IntArray
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

    def of_legs(self, heard: Array) -> Array:
        """What concerns each leg's own sender at its own receiver [legs, ...], out of [receivers, senders, ...]."""
        own: Array = heard[0] if self.plain else heard[self.receiver, self.sender[self.burst]]
        return own

    def radiated(self, power: Array) -> Array:
        """How much of its power each sender radiates [senders, blocks], from the parts of its bursts."""
        total: Array = np.zeros((len(self.radio), power.shape[1]))
        np.add.at(total, self.sender, power)
        return total


@dataclass(frozen=True, slots=True, eq=False)
class RateInputs:
    """Who is on the air over some blocks in a row, and what the band is like.

    Attributes:
        active: who is on the air.
        heard: [receivers, senders, blocks] what is heard of each sender at full power, fading included.
        noise: [receivers, blocks] noise together with what other cells radiate, over the noise alone.
        numbers: [blocks] numbers of the blocks.
        bandwidth_hz: width of the band.
        law: from SINR and bandwidth to a rate.
        constant: whether links never fade.
        key: of the draws of random access.
    """

    active: Active
    heard: Array
    noise: Array
    numbers: IntArray
    bandwidth_hz: float
    law: RateLaw
    constant: bool
    key: int


class Allocation(NamedTuple):
    """How a scheme lets the legs of a cell share its band.

    Attributes:
        sinr: [legs, blocks] signal over noise and interference.
        share: fraction of the band, in a shape that broadcasts against [legs, blocks].
        clear: [legs, blocks] SINR without any interference.
        carries: [legs, blocks] whether the leg's block may carry bits at all; None where every one may. A SINR below
            the scheme's threshold carries nothing in any case.
    """

    sinr: Array
    share: Array | float
    clear: Array
    carries: Mask | None = None


class Access(Component):
    """How the transmitters of one cell share a band."""

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink", "sidelink"})
    """Where the scheme makes sense."""

    @property
    @abstractmethod
    def capacity(self) -> int | None:
        """How many bursts of a cell may be on the air at once; None for no limit. The others wait their turn."""

    @property
    def clustered(self) -> bool:
        """Whether clusters of devices use the band side by side, each with turns of its own."""
        return False

    @property
    def one_at_a_time(self) -> bool:
        """Whether one burst at a time is on the air of the whole band (of a cell)."""
        return self.capacity == 1 and not self.clustered

    @property
    def disturbed(self) -> bool:
        """Whether bursts that are on the air together change each other's rates."""
        return not self.one_at_a_time

    @abstractmethod
    def share(self, active: int) -> float:
        """Fraction of the band that one of `active` simultaneous bursts has, as long as all are treated alike."""

    @property
    def turn_s(self) -> float:
        """Duration of the slots that the scheme deals out; infinity for a scheme without slots."""
        return math.inf

    @property
    def threshold(self) -> float:
        """SINR (linear) below which a block carries nothing, alone or among others, beside what the rate law says."""
        return 0.0

    def power(self, inputs: RateInputs) -> Array | None:
        """The part [bursts, blocks] of its sender's power that each burst has in each block.

        None where every sender is on the air all the time and its bursts share its power equally.
        """
        return None

    @abstractmethod
    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """SINR and share of each leg, given what `power` has answered."""
