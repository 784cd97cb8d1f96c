"""What ASPIRE's messages cost, as the paper counts and as they really are."""

from __future__ import annotations

from typing import Literal

from fednet_emu.federation.payload import BIT_PER_SCALAR

Wire = Literal["paper", "reduced"]
"""paper: replies carry every multiplier, refreshes all weights of all planes; reduced: only the worker's own share."""


def refresh_bit(wire: Wire, n_workers: int, n_planes: int) -> int:
    """Bits of a plane refresh to one worker: N weights and a multiplier per plane, or the worker's share alone."""
    return BIT_PER_SCALAR * ((n_workers + 1) * n_planes if wire == "paper" else 1)


def iteration_bit(wire: Wire, heard: int, n_parameters: int, n_planes: int, refreshed: int) -> tuple[int, int]:
    """Bits of an iteration: by the paper's formula, and as sent to one worker alone each when nothing is lost.

    The paper counts S (2 P + 1 + L) scalars (its Section VI) and N^2 L for a refresh, without the loss that each upload
    carries and the multipliers in a refresh.

    Args:
        wire: Form of the messages.
        heard: S, uploads and replies.
        n_parameters: P.
        n_planes: L.
        refreshed: N when the planes were sent to all, else 0.
    """
    paper = heard * (2 * n_parameters + 1 + n_planes) + refreshed**2 * n_planes
    extra = heard + refreshed * n_planes
    actual = paper + extra if wire == "paper" else heard * (2 * n_parameters + 2) + refreshed
    return BIT_PER_SCALAR * paper, BIT_PER_SCALAR * actual
