"""What an uncertainty set is: the weights of the devices that a robust model must stand."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.component.component import Component
from fednet_emu.errors import ScenarioError

PerDevice = float | tuple[float, ...]
"""One number for all devices, or one for each."""


class UncertaintySet(Component):
    """Weights p of N devices with p >= 0 and sum(p) = 1, around a prior q."""

    @abstractmethod
    def worst_case(self, losses: Array, prior: Array) -> Array:
        """The weights p [N] of the set with the largest sum(p * losses), exactly.

        Args:
            losses: Loss of each device [N].
            prior: The weights q [N] in the middle of the set; not negative, their sum is 1.

        Raises:
            ScenarioError: The set has no weights at all, or was made for another number of devices.
        """


RESOLUTION = 4.0 * float(np.finfo(np.float64).eps)
"""Losses that differ by less than this part of the largest of them are the same number, but for rounding."""


def relative(losses: Array) -> Array:
    """The losses [N] on a scale from -1, the smallest, to 0, the largest; all 0 when they are equal up to rounding.

    A solver that works on these is none the wiser about an offset or the unit of the losses, which move no worst case.
    """
    below = losses - losses.max()
    spread = -float(below.min())
    if spread <= RESOLUTION * float(np.abs(losses).max()):
        return np.zeros_like(below)
    scaled: Array = below / spread
    return scaled


def per_device(name: str, values: PerDevice, count: int) -> Array:
    """The values as an array [count].

    Raises:
        ScenarioError: There is not one for each device.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.ndim and len(given) != count:
        raise ScenarioError(
            f"uncertainty.{name}: not one for each worker, got {len(given)}; give one number or {count}"
        )
    return np.broadcast_to(given, count)
