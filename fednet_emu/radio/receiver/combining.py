"""Reception: how a base station combines the signals received by its antennas.

For each method of combining, SINRs assume the optimal receiver with perfect channel knowledge, and fading that is
independent between antennas. Sources: Tse and Viswanath, Fundamentals of Wireless Communication, sections 3.3.1, 8.3.1
and 8.3.2; Winters, Salz and Gitlin, IEEE Trans. Commun. 42, 1994.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds


class Reception(Component):
    """Base class of methods by which a base station combines the uplink signals of its antennas.

    The power of a signal is its mean power at one antenna times the sum of the fading gains of `branches` antennas. An
    interfering signal that is not nulled counts with its power at a single antenna and its own fading gain. This is
    exact under Rayleigh fading, where the projection of the channel g of one signal on the channel h of another has the
    distribution |h* g|^2 / |h|^2 ~ Exp(1).
    Ignored here: correlation between antennas, errors and cost of channel estimation, and the common projection by
    which two signals interfere with each other (the SINRs of both signals have the right distribution, but are
    independent here).
    """

    NULLS: ClassVar[bool] = False
    """True if the receiver nulls the interference between signals of one cell in the same part of the band."""

    if TYPE_CHECKING:  # for the type checker only, because a pydantic field cannot implement an abstract property

        @property
        def antennas(self) -> int:
            """Number of antennas of each base station."""

    def branches(self, senders: int) -> int:
        """Return the number of antennas whose gains add up in a signal if `senders` devices send simultaneously."""
        return self.antennas

    def of_pairs(self, snr: Array, receiver: IntArray, senders: int) -> Array:
        """Return the mean SNR [i, j] of sender j at sender i's receiver if `senders` send simultaneously per cell.

        `receiver` [n] is the index of each sender's receiver. `snr` [n, n] is the SNR if the gains of all antennas add
        up; the result is the SNR after combining.
        """
        single = snr / self.antennas
        nulled = (receiver[:, None] == receiver[None, :]) & self.NULLS
        own = np.eye(len(snr), dtype=np.bool_)
        return np.where(own, single * self.branches(senders), np.where(nulled, 0.0, single))


class SingleAntenna(Reception):
    """A base station with one antenna."""

    kind = "single"
    antennas: ClassVar[int] = 1


ONE_ANTENNA = SingleAntenna()


class MaximumRatio(Reception):
    """Maximum-ratio combining: antennas are weighted by their channels, so their gains |h|^2 add up.

    The SNR of a lone signal is the sum of the SNRs of all antennas. Under Rayleigh fading, the gain is Gamma(N, 1)
    distributed with mean N. Other signals in the same band count as noise, without an array gain.
    """

    kind = "mrc"
    antennas: int = Field(4, gt=0, le=1000)
    """Number of antennas of each base station (N)."""


class ZeroForcing(Reception):
    """Zero forcing: the antennas are weighted so that all other signals of the cell cancel.

    With K simultaneous senders, nulling takes K - 1 of the N antennas. Under Rayleigh fading, the gain of a signal is
    Gamma(N - K + 1, 1) distributed. A lone signal is combined as by `mrc`. Signals of other cells count as noise,
    without an array gain.
    """

    NULLS: ClassVar[bool] = True

    kind = "zf"
    antennas: int = Field(4, gt=0, le=1000)
    """Number of antennas of each base station (N), and maximum number of simultaneous senders in a part of the band."""

    def branches(self, senders: int) -> int:
        return self.antennas - senders + 1


RECEPTIONS: dict[str, type[Reception]] = kinds(SingleAntenna, MaximumRatio, ZeroForcing)

AnyReception = Annotated[Reception, Slot("reception", RECEPTIONS)]
