"""Rules by which transmitters share a band: powers in each fading block, SINRs, and shares of the band.

A *leg* is one transfer to one receiver. A *burst* is one transmission: one leg, or all legs of a broadcast. A *sender*
is a radio that sends one or more bursts. SNRs and received powers (`heard`) are linear, relative to the noise of the
receiver in the whole band.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.network.air.band import Band


class Active(NamedTuple):
    """The transmissions on the air in one cell; constant until a burst (transmission) starts or ends.

    Attributes:
        burst: [legs] index of each leg's burst, where a leg is a transfer to one receiver; the legs of a burst have
            consecutive indices.
        receiver: [legs] index of each leg's receiver, a row of `mean`.
        sender: [bursts] index of each burst's sender, a column of `mean`.
        radio: [senders] numbers of the sending radios, used as keys of their random draws.
        part: [bursts] share of the sender's power for each burst if the sender transmits all its bursts simultaneously.
        left_bit: [legs] remaining bits at the last change.
        mean: [receivers, senders] SNR of each sender at its transmit power, averaged over fading.
        deaf: [receivers, senders] True if receiver and sender are the same radio, which cannot receive while it sends;
            None if there is no such pair.
        grants: [bursts, 2] planned share of the band for each burst, and its noise plus interference relative to the
            noise alone; None if resources are not planned.
        slice_of: [bursts] index of each burst's network slice; None if there are no slices.
        plain: True if every sender has one burst with one leg, all legs have the same receiver, and legs, bursts and
            senders have equal indices. Every `part` is then 1.
        legs, bursts, rows, columns: indices of the cell's legs, bursts, receivers and senders in the `ActiveSet`.
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
    slice_of: IntArray | None = None
    legs: Any = slice(None)
    bursts: Any = slice(None)
    rows: Any = slice(None)
    columns: Any = slice(None)

    @property
    def first_leg(self) -> IntArray:
        """Indices [bursts] of the first leg of each burst."""
        return np.flatnonzero(np.diff(self.burst, prepend=-1))

    def of_legs(self, heard: Array) -> Array:
        """Return the entries [legs, ...] of `heard` [receivers, senders, ...] for each leg's receiver and sender."""
        own: Array = heard[0] if self.plain else heard[self.receiver, self.sender[self.burst]]
        return own

    def part_of_legs(self) -> Array:
        """Return the share [legs] of its sender's power that each leg (transfer to one receiver) has."""
        return self.part if self.plain else self.part[self.burst]

    def radiated(self, power: Array) -> Array:
        """Return the power fraction that each sender radiates [senders, blocks], the sum over its bursts."""
        total: Array = np.zeros((len(self.radio), power.shape[1]))
        np.add.at(total, self.sender, power)
        return total


class RateInputs(NamedTuple):
    """Inputs from which an access scheme computes rates over consecutive blocks.

    Attributes:
        active: the transmissions on the air.
        own: [legs, blocks] SNR (linear) of each leg (transfer to one receiver) at its sender's full power, with fading
            and all antennas combined.
        heard: [receivers, senders, blocks] received power of each sender at full power, relative to the noise.
        noise: [receivers, blocks] noise plus interference from other cells, relative to the noise alone.
        numbers: [blocks] numbers of the blocks, which are keys of random draws.
        band: the band.
    """

    active: Active
    own: Array
    heard: Array
    noise: Array
    numbers: IntArray
    band: Band

    def noise_of_legs(self) -> Array:
        """Return noise plus interference at each leg's receiver, in a shape that broadcasts against [legs, blocks]."""
        return self.noise if self.active.plain else self.noise[self.active.receiver]


class Allocation(NamedTuple):
    """Division of the band among the legs (transfers to one receiver) of a cell by an access scheme.

    Attributes:
        sinr: [legs, blocks] SINR (linear).
        share: fraction of the band for each leg, in a shape that broadcasts against [legs, blocks].
        clear: [legs, blocks] SNR (linear) on the share of the band, without interference.
        carries: [legs, blocks] True if the leg may carry bits in the block; None if all legs may carry bits. A leg with
            an SINR below the scheme's threshold carries no bits in any case.
    """

    sinr: Array
    share: Array | float
    clear: Array
    carries: Mask | None = None


class Sharing(ABC):
    """Rule by which simultaneous bursts (transmissions) share a band.

    Attributes:
        overlapping: True if simultaneous bursts use the same part of the band.
    """

    overlapping: ClassVar[bool]

    def power(self, inputs: RateInputs) -> Array | None:
        """Return the fraction of its sender's power that each burst uses in each block [bursts, blocks].

        None means that every sender transmits all the time and splits its power equally among its bursts.
        """
        return None

    def plain_rule(self) -> Callable[[Array], Allocation] | None:
        """Return a faster form of `allocate`, for one antenna and senders with one burst each.

        Returns:
            A function of the senders' SNRs [blocks, senders], with fading, that returns an `Allocation` with arrays
            [blocks, senders]; None if the allocation depends on more than these SNRs.
        """
        return None

    @property
    def plain_duty(self) -> float | None:
        """Fraction of the time in which one of the senders radiates power, if senders take turns.

        None if all senders transmit all the time.
        """
        return None

    @abstractmethod
    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """Return the SINR and the band share of each leg (transfer to one receiver), given the powers from `power`."""
