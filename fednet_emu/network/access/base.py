"""The interface of access schemes: who radiates in each block, and each leg's SINR and share of the band.

A *leg* is one transfer to one receiver, a *burst* the legs of one broadcast (one leg as a rule), a *sender* the radio
of one or more bursts. SNRs and received powers (`heard`) are linear, relative to the receiver's own noise in the whole
band.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.component.component import Component
from fednet_emu.radio.rates.base import RateLaw


@dataclass(frozen=True, slots=True, eq=False)
class Active:
    """The transmissions of one cell on the air, constant until a burst starts or ends.

    Attributes:
        burst: [legs] index of each leg's burst; legs of one burst are adjacent.
        receiver: [legs] receiver of each leg, a row of `mean`.
        sender: [bursts] radio that sends each burst, a column of `mean`.
        radio: [senders] numbers of the sending radios, which key their random draws.
        part: [bursts] share of its sender's power that each burst has when all bursts of the sender are on the air.
        left_bit: [legs] bits left to carry at the last change.
        mean: [receivers, senders] SNR of each sender at its transmit power, averaged over fading.
        deaf: [receivers, senders] whether both are the same radio, which cannot receive while it sends; None when no
            pair is.
        grants: [bursts, 2] planned share of the band of each burst, and noise and interference over the noise in it;
        None
            unless the scheme is `planned`.
        plain: whether every sender has one burst with one leg, in the same order, and all have the same receiver.
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
    grants: Array | None = None

    @property
    def first_leg(self) -> IntArray:
        """The first leg of each burst [bursts]."""
        return np.flatnonzero(np.diff(self.burst, prepend=-1))

    def of_legs(self, heard: Array) -> Array:
        """Select from [receivers, senders, ...] the entry of each leg's own receiver and sender: [legs, ...]."""
        own: Array = heard[0] if self.plain else heard[self.receiver, self.sender[self.burst]]
        return own

    def radiated(self, power: Array) -> Array:
        """Share of its power that each sender radiates [senders, blocks]: the sum over its bursts [bursts, blocks]."""
        total: Array = np.zeros((len(self.radio), power.shape[1]))
        np.add.at(total, self.sender, power)
        return total


@dataclass(frozen=True, slots=True, eq=False)
class RateInputs:
    """What an access scheme needs to compute rates over consecutive blocks.

    Attributes:
        active: the transmissions on the air.
        own: [legs, blocks] SNR of each leg's sender at full power, fading included, all antennas combined.
        heard: [receivers, senders, blocks] what each sender at full power adds to the noise of others, relative to it.
        noise: [receivers, blocks] noise plus interference from other cells, relative to the noise alone.
        numbers: [blocks] numbers of the blocks.
        bandwidth_hz: width of the band.
        law: the rate law, from SINR and bandwidth to bit/s.
        constant: whether links never fade.
        key: key of the random draws of random access.
    """

    active: Active
    own: Array
    heard: Array
    noise: Array
    numbers: IntArray
    bandwidth_hz: float
    law: RateLaw
    constant: bool
    key: int


class Allocation(NamedTuple):
    """How an access scheme shares the band among the legs of a cell.

    Attributes:
        sinr: [legs, blocks] signal over noise and interference, linear.
        share: fraction of the band, in a shape that broadcasts against [legs, blocks].
        clear: [legs, blocks] SINR without any interference, linear.
        carries: [legs, blocks] whether the leg may carry bits in the block; None where all may. A SINR below the
            scheme's threshold carries nothing in any case.
    """

    sinr: Array
    share: Array | float
    clear: Array
    carries: Mask | None = None


class Access(Component):
    """How the transmitters of one cell share a band."""

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink", "sidelink"})
    """The directions in which the scheme can be used."""

    @property
    @abstractmethod
    def capacity(self) -> int | None:
        """Largest number of bursts of one cell on the air at once, None for no limit; further bursts wait."""

    @property
    def clustered(self) -> bool:
        """Whether clusters of devices use the band at the same time, each with its own turns."""
        return False

    @property
    def one_at_a_time(self) -> bool:
        """Whether only one burst of a cell is on the air at a time."""
        return self.capacity == 1 and not self.clustered

    @property
    def disturbed(self) -> bool:
        """Whether bursts that are on the air together change each other's rates."""
        return not self.one_at_a_time

    @property
    def overlapping(self) -> bool:
        """Whether bursts that are on the air together use the same part of the band."""
        return False

    @property
    def separate(self) -> bool:
        """Whether each sender has a part of the band to itself, so that it may send on less of it than that."""
        return not (self.overlapping or self.only_sums)

    @property
    def only_sums(self) -> bool:
        """Whether the receiver gets the sum of all signals of a burst, and no signal by itself."""
        return False

    @abstractmethod
    def share(self, active: int) -> float:
        """Fraction of the band that each of `active` simultaneous bursts has, if all get equal shares."""

    @property
    def planned(self) -> bool:
        """Whether bursts have shares of the band that were planned before they started."""
        return False

    @property
    def turn_s(self) -> float:
        """Duration in s of the scheme's slots; infinity for a scheme without slots."""
        return math.inf

    @property
    def threshold(self) -> float:
        """SINR (linear) below which a block carries nothing, in addition to the rate law's own limit."""
        return 0.0

    def power(self, inputs: RateInputs) -> Array | None:
        """Share of its sender's power that each burst has in each block [bursts, blocks].

        None if every sender sends all the time and its bursts share its power equally.
        """
        return None

    @abstractmethod
    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """SINR and share of the band of each leg; `power` is the result of the method `power`."""
