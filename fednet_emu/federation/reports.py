"""What devices tell of their training beside what they upload, if the server asks for it."""

from __future__ import annotations

from typing import Literal, final

from fednet_emu.federation.payload import BIT_PER_SCALAR
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.graph import Measured, Trained

Told = Literal["loss", "square", "samples"]
"""One number that a device can tell of its training.

loss: the mean loss of its steps; square: the mean of the squared losses of all samples of all steps, each before its
step; samples: how many of its samples, each counted once, these were.
"""


@final
class Reports:
    """The numbers that every upload carries beside its payload, about the sender's latest training.

    Attributes:
        asked: what the server asks for; each is one number in single precision. Nothing from the start.
    """

    def __init__(self) -> None:
        self.asked: tuple[Told, ...] = ()
        self._latest: dict[int, dict[Told, Deferred | int]] = {}

    def ask(self, *asked: Told) -> None:
        """From now on ask for this; what devices had to tell before is forgotten."""
        self.asked = asked
        self._latest.clear()

    def note(self, device: int, trained: Trained | Measured, samples: int) -> None:
        """A device has something to tell from now on: the result of its training on so many of its samples."""
        self._latest[device] = {name: samples if name == "samples" else getattr(trained, name) for name in self.asked}

    def bit(self, device: int) -> int:
        """Size of what a device would tell now, in bits."""
        return BIT_PER_SCALAR * len(self._latest.get(device, ()))

    def of(self, device: int) -> dict[Told, Deferred | int]:
        """What a device has told with its latest upload; the caller knows whether that has arrived."""
        return self._latest.get(device, {})
