"""What the transfers of one medium draw from the batteries of their ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from fednet_emu.devices.batteries import Batteries
from fednet_emu.devices.battery import RECEIVING, SENDING, Load
from fednet_emu.devices.powers import PerDevice
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.air.separate import Power
from fednet_emu.network.air.transfer import Burst, Transfer
from fednet_emu.records.ledger import SERVER


class Drain:
    """The loads of all bursts that are on the air.

    Args:
        batteries: the batteries of all devices.
        receive_w: power in W that each receiving device draws while it receives, beside its idle power; None for none.
        lose: loses these legs of one burst now, because the battery of an end is empty.
    """

    def __init__(self, batteries: Batteries, receive_w: PerDevice | None, lose: Callable[[Burst], None]) -> None:
        self._batteries, self._receive_w, self._lose = batteries, receive_w, lose
        self._sending: dict[Transfer, Load] = {}  # by the first leg of the burst
        self._receiving: dict[Transfer, Load] = {}

    def start(self, burst: Burst) -> None:
        """Draw for a burst that starts: its sender's power, and that of each device that receives it."""
        first, load = burst[0], self._batteries.load
        if first.sender != SERVER:
            self._sending[first] = load(first.sender, SENDING, first.drawn_w, partial(self._lose, burst))
        for leg in burst:
            if leg.receiver != SERVER:
                self._receiving[leg] = load(leg.receiver, RECEIVING, self._power_w(leg), partial(self._lose, [leg]))

    def follow(self, powers: Iterable[Power]) -> None:
        """Let senders draw from now on what is planned for the next blocks."""
        for first, from_ns, shares in powers:
            if first in self._sending:
                self._batteries.change(self._sending[first], from_ns, [first.drawn_w * share for share in shares])

    def end(self, burst: Burst, energy_j: float, now_ns: int) -> float:
        """End the loads of a burst, which has taken its sender `energy_j`; return what it has taken its receivers."""
        sender = self._sending.pop(burst[0], None)
        if sender is not None:
            self._batteries.unload(sender, energy_j)
        receive_j = 0.0
        for leg in burst:
            load = self._receiving.pop(leg, None)
            if load is not None:
                own_j = self._power_w(leg) * ((min(now_ns, load.cut_ns) - leg.started_ns) / NS_PER_S)
                self._batteries.unload(load, own_j)
                receive_j += own_j
        return receive_j

    def _power_w(self, leg: Transfer) -> float:
        """Power in W that the receiver of a leg draws for it."""
        return 0.0 if self._receive_w is None else self._receive_w[leg.receiver]
