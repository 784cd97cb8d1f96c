"""A rule that asks the devices with most energy in their batteries.

The power term of EAFL alone: A. Arouj, A. M. Abdelmoniem, "Towards Energy-Aware Federated Learning on Battery-Powered
Clients", FedEdge at MobiCom 2022, https://arxiv.org/abs/2208.04505.
"""

from __future__ import annotations

from collections.abc import Sequence

from fednet_emu.algorithms.selection.base import Seen, Selection, highest


class MostCharged(Selection):
    """Those with most energy in their batteries now; ties at random, so without batteries it is a uniform draw."""

    def choose(self, seen: Seen) -> Sequence[int]:
        """The highest charges."""
        return highest(seen.charge_j, seen)
