"""The power that the radios at both ends of a medium's transfers draw."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fednet_emu.devices.powers import PerDevice
from fednet_emu.radio.channel import Terminal


@dataclass(frozen=True)
class Radios:
    """The senders and receivers of one medium.

    Attributes:
        sender: the radio of every sender.
        circuit_w: power in W that each sending device draws beside its amplifier; None where that of the radio holds.
        receive_w: power in W that each receiving device draws while it receives, beside its idle power; None for none.
        transmit_j_per_bit: energy in J of each bit that a sending device sends, beside its power.
        receive_j_per_bit: energy in J of each bit that a device receives, beside its power.
        controlled: whether each link has its own transmit power.
    """

    sender: Terminal
    circuit_w: PerDevice | None = None
    receive_w: PerDevice | None = None
    transmit_j_per_bit: float = 0.0
    receive_j_per_bit: float = 0.0
    controlled: bool = False

    @cached_property
    def full_w(self) -> float:
        """Power in W that a sender draws at full power, where all draw the same."""
        return self.sender.drawn_w(self.sender.tx_power_w, self.circuit_w[0] if self.circuit_w else None)

    @property
    def differ(self) -> bool:
        """Whether senders may draw different powers at full power."""
        return self.controlled or (self.circuit_w is not None and self.circuit_w.differ)

    def drawn_w(self, device: int, power_w: float | None, part: float) -> float:
        """Power in W that a sender draws at a part of its transmit power in W; None is full power."""
        radiated_w = (self.sender.tx_power_w if power_w is None else power_w) * part
        return self.sender.drawn_w(radiated_w, None if self.circuit_w is None else self.circuit_w[device])
