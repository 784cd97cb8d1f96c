"""Reception: what a base station makes of the signals of its antennas.

SINRs are those of the receiver that is best for the purpose and knows all channels, under fading that is independent
between antennas (Tse and Viswanath, Fundamentals of Wireless Communication, sections 3.3.1, 8.3.1 and 8.3.2; Winters,
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
    """What a base station makes of the signals of its antennas, on the uplink.

    The power of a signal is its mean at one antenna times a sum of fading gains, one for each of `branches` antennas.
    A signal that is not nulled adds to the noise of another what it does at a single antenna, with its own fading gain:
    the projection of one channel on another has that law under Rayleigh fading, |h* g|^2 / |h|^2 ~ Exp(1).
    Ignored here: correlation between antennas, errors and cost of learning the channels, and that two signals disturb
    each other by the same projection (each SINR has its own law, but theirs are independent of each other).
    """

    NULLS: ClassVar[bool] = False
    """Whether signals of one cell in the same part of the band do not disturb each other."""

    if TYPE_CHECKING:  # pydantic lets no field implement an abstract property: only the type checker sees this one

        @property
        def antennas(self) -> int:
            """Antennas of each base station."""

    def branches(self, senders: int) -> int:
        """How many antennas' gains add up in a signal, of so many that are in the same part of the band at once."""
        return self.antennas

    def of_pairs(self, snr: Array, receiver: IntArray, senders: int) -> Array:
        """Mean SNR of sender j at the receiver of sender i, [n, n], after combining, with so many senders in a cell.

        Ignored here: fading.

        Args:
            snr: [n, n] the same with all antennas' gains added up.
            receiver: [n] receiver of each sender.
            senders: how many send at once in a cell.
        """
        single = snr / self.antennas
        nulled = (receiver[:, None] == receiver[None, :]) & self.NULLS
        own = np.eye(len(snr), dtype=np.bool_)
        return np.where(own, single * self.branches(senders), np.where(nulled, 0.0, single))


class SingleAntenna(Reception):
    """One antenna."""

    kind = "single"

    @property
    def antennas(self) -> int:
        """One."""
        return 1


ONE_ANTENNA = SingleAntenna()


class MaximumRatio(Reception):
    """Maximum-ratio combining: antennas weighted by their channels, so that their gains |h|^2 add up.

    A lone signal has the SNR of all antennas together: under Rayleigh fading a gain with the law Gamma(N, 1), of mean
    N. Others in the same band are noise, without a gain of the array.
    """

    kind = "mrc"

    antennas: int = Field(4, gt=0, le=1000)
    """Antennas of each base station (N)."""


class ZeroForcing(Reception):
    """Zero forcing: the antennas are weighted so that the other signals of the cell vanish.

    With K senders at once that takes K - 1 of the N antennas: under Rayleigh fading a signal's gain has the law
    Gamma(N - K + 1, 1). A lone signal is combined as by `mrc`. Other cells are noise, without a gain of the array.
    """

    NULLS: ClassVar[bool] = True

    kind = "zf"

    antennas: int = Field(4, gt=0, le=1000)
    """Antennas of each base station (N), the most that may send in the same part of the band at once."""

    def branches(self, senders: int) -> int:
        """N - K + 1."""
        return self.antennas - senders + 1


RECEPTIONS: dict[str, type[Reception]] = kinds(SingleAntenna, MaximumRatio, ZeroForcing)

AnyReception = Annotated[Reception, Slot("reception", RECEPTIONS)]
