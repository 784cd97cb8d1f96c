"""Reception: combining of the signals of a base station's antennas.

SINRs assume the optimal receiver of each kind, with perfect channel knowledge and independent fading between antennas
(Tse and Viswanath, Fundamentals of Wireless Communication, sections 3.3.1, 8.3.1 and 8.3.2; Winters,
Salz and Gitlin, IEEE Trans. Commun. 42, 1994).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds


class Reception(Component):
    """Combining of the signals of a base station's antennas, on the uplink.

    The power of a signal is its mean at one antenna times the sum of the fading gains of `branches` antennas. A signal
    that is not nulled interferes with the power that it has at a single antenna, with its own fading gain: under
    Rayleigh fading the projection of one channel on another has this distribution, |h* g|^2 / |h|^2 ~ Exp(1).
    Ignored here: correlation between antennas, errors and cost of channel estimation, and the common projection by
    which two signals interfere with each other (each SINR has the right distribution, but the two are independent
    here).
    """

    NULLS: ClassVar[bool] = False
    """Whether signals of one cell in the same part of the band do not interfere with each other."""

    if TYPE_CHECKING:  # pydantic lets no field implement an abstract property: only the type checker sees this one

        @property
        def antennas(self) -> int:
            """Antennas of each base station."""

    def branches(self, senders: int) -> int:
        """Number of antennas whose gains add up in a signal, if `senders` use the same part of the band at once."""
        return self.antennas

    def of_pairs(self, snr: Array, receiver: IntArray, senders: int) -> Array:
        """Mean SNR [n, n] of sender j at the receiver [n] of sender i, with `senders` at once in a cell.

        `snr` [n, n] is the SNR with the gains of all antennas added up; the result is the SNR after combining.
        """
        single = snr / self.antennas
        nulled = (receiver[:, None] == receiver[None, :]) & self.NULLS
        own = np.eye(len(snr), dtype=np.bool_)
        return np.where(own, single * self.branches(senders), np.where(nulled, 0.0, single))


class SingleAntenna(Reception):
    """One antenna."""

    kind = "single"
    antennas: ClassVar[int] = 1


ONE_ANTENNA = SingleAntenna()


class MaximumRatio(Reception):
    """Maximum-ratio combining: antennas are weighted by their channels, so their gains |h|^2 add up.

    A lone signal has the sum of the SNRs of all antennas: under Rayleigh fading its gain is Gamma(N, 1) distributed
    with mean N. Other signals in the same band are noise, without an array gain.
    """

    kind = "mrc"
    antennas: int = Field(4, gt=0, le=1000)
    """Antennas of each base station (N)."""


class ZeroForcing(Reception):
    """Zero forcing: the antennas are weighted so that the other signals of the cell cancel.

    With K senders at once this uses K - 1 of the N antennas: under Rayleigh fading the gain of a signal is Gamma(N - K
    + 1, 1) distributed. A lone signal is combined as by `mrc`. Signals of other cells are noise, without an array gain.
    """

    NULLS: ClassVar[bool] = True

    kind = "zf"
    antennas: int = Field(4, gt=0, le=1000)
    """Antennas of each base station (N), and the largest number of senders in the same part of the band at once."""

    def branches(self, senders: int) -> int:
        return self.antennas - senders + 1


RECEPTIONS: dict[str, type[Reception]] = kinds(SingleAntenna, MaximumRatio, ZeroForcing)

AnyReception = Annotated[Reception, Slot("reception", RECEPTIONS)]
