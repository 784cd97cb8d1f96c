"""How transmitters share a band: who radiates in each block, and each leg's SINR and share of the band.

A *leg* is one transfer to one receiver, a *burst* the legs of one broadcast (one leg as a rule), a *sender* the radio
of one or more bursts. SNRs and received powers (`heard`) are linear, relative to the receiver's own noise in the whole
band.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.network.air.band import Band


class Active(NamedTuple):
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
            None unless the scheme is `planned`.
        slice_of: [bursts] number of the slice of each burst; None without slices.
        plain: whether every sender has one burst with one leg, in the same order, and all have the same receiver.
            Then bursts and senders have the indices of legs, and every part is 1.
        legs, bursts, rows, columns: indices of its legs, bursts, receivers and senders in the active set of all cells.
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
        """The first leg of each burst [bursts]."""
        return np.flatnonzero(np.diff(self.burst, prepend=-1))

    def of_legs(self, heard: Array) -> Array:
        """Select from [receivers, senders, ...] the entry of each leg's own receiver and sender: [legs, ...]."""
        own: Array = heard[0] if self.plain else heard[self.receiver, self.sender[self.burst]]
        return own

    def part_of_legs(self) -> Array:
        """`part` of the burst of each leg [legs]."""
        return self.part if self.plain else self.part[self.burst]

    def radiated(self, power: Array) -> Array:
        """Share of its power that each sender radiates [senders, blocks]: the sum over its bursts [bursts, blocks]."""
        total: Array = np.zeros((len(self.radio), power.shape[1]))
        np.add.at(total, self.sender, power)
        return total


class RateInputs(NamedTuple):
    """Inputs of the rates of an access scheme over consecutive blocks.

    Attributes:
        active: the transmissions on the air.
        own: [legs, blocks] SNR of each leg's sender at full power, fading included, all antennas combined.
        heard: [receivers, senders, blocks] power of each sender at full power, relative to the noise.
        noise: [receivers, blocks] noise plus interference from other cells, relative to the noise alone.
        numbers: [blocks] numbers of the blocks.
    """

    active: Active
    own: Array
    heard: Array
    noise: Array
    numbers: IntArray
    band: Band

    def noise_of_legs(self) -> Array:
        """`noise` of the receiver of each leg, in a shape that broadcasts against [legs, blocks]."""
        return self.noise if self.active.plain else self.noise[self.active.receiver]


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


class Sharing(ABC):
    """How bursts that are on the air together share a band.

    Attributes:
        overlapping: whether they use the same part of the band.
    """

    overlapping: ClassVar[bool]

    def power(self, inputs: RateInputs) -> Array | None:
        """Share of its sender's power that each burst has in each block [bursts, blocks].

        None if every sender sends all the time and its bursts share its power equally.
        """
        return None

    def plain_rule(self) -> Callable[[Array], Allocation] | None:
        """The rule by which senders of one burst each share the band at one antenna.

        Returns:
            The result of `allocate` as a function of the SNRs of the senders [blocks, senders], fading included, in
            arrays of that shape; None if it depends on more than these.
        """
        return None

    @property
    def plain_duty(self) -> float | None:
        """Share of the time in which senders take turns under the plain rule; None if all send all the time."""
        return None

    @abstractmethod
    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """SINR and share of the band of each leg; `power` is the result of the method `power`."""
