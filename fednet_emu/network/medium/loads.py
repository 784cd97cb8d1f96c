"""Battery loads: the power that the transfers of one medium draw from the batteries of senders and receivers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial

from fednet_emu.devices.batteries import RECEIVING, SENDING, Batteries, Load
from fednet_emu.devices.powers import PerDevice, Sending
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.air.separate import Power, Rates
from fednet_emu.network.air.transfer import Burst, Transfer
from fednet_emu.radio.channel import Terminal
from fednet_emu.radio.energy import Transmitter
from fednet_emu.records.ledger import SERVER


class RadioLoads:
    """The loads on the batteries of all senders and receivers in one medium.

    The energy per bit is a load in addition to the transmit and receive power. This load is computed from the planned
    rates. For a burst (transmission) whose end is computed at its start, it is computed from the mean rate; if the
    burst ends early, its energy is corrected when it ends.
    """

    def __init__(self, batteries: Batteries, radios: Radios, lose: Callable[[Burst], None]) -> None:
        self._batteries, self._radios, self._lose = batteries, radios, lose
        self._sending: dict[Transfer, Load] = {}  # keyed by the first leg of the burst
        self._receiving: dict[Transfer, Load] = {}
        self._sent_bits: dict[Transfer, Load] = {}
        self._received_bits: dict[Transfer, Load] = {}

    def start(self, burst: Burst) -> None:
        first, load, radios = burst[0], self._batteries.load, self._radios
        if first.sender != SERVER:
            self._sending[first] = load(first.sender, SENDING, first.drawn_w, partial(self._lose, burst))
            if radios.tx_j_per_bit:
                bits_w = radios.tx_j_per_bit * _mean_bps(burst, first.power_s)
                self._sent_bits[first] = load(first.sender, SENDING, bits_w, _lose_nothing)
        for leg in burst:
            if leg.receiver != SERVER:
                rx_w = radios.receiving_w(leg.receiver)
                self._receiving[leg] = load(leg.receiver, RECEIVING, rx_w, partial(self._lose, [leg]))
                if radios.rx_j_per_bit:
                    bits_w = radios.rx_j_per_bit * _mean_bps([leg], first.power_s)
                    self._received_bits[leg] = load(leg.receiver, RECEIVING, bits_w, _lose_nothing)

    def follow(self, powers: Iterable[Power]) -> None:
        """Set the loads on the senders' batteries to the planned powers in the next fading blocks."""
        for first, from_ns, shares in powers:
            if first in self._sending:
                self._batteries.change(self._sending[first], from_ns, [first.drawn_w * share for share in shares])

    def follow_bits(self, rates: Iterable[Rates]) -> None:
        """Set the loads for the energy per bit according to the planned rates in the next fading blocks."""
        if not self._sent_bits and not self._received_bits:
            return
        change, radios = self._batteries.change, self._radios
        for burst, from_ns, bps in rates:
            if burst[0] in self._sent_bits:
                powers_w = radios.tx_j_per_bit * bps.max(axis=0)
                change(self._sent_bits[burst[0]], from_ns, powers_w.tolist())
            for leg, its_bps in zip(burst, bps, strict=True):
                if leg in self._received_bits:
                    change(self._received_bits[leg], from_ns, (radios.rx_j_per_bit * its_bps).tolist())

    def end(self, burst: Burst, energy_j: float, bits_j: float, now_ns: int) -> list[float]:
        """End the loads of a burst; return the energy in J of each receiver.

        Args:
            burst: the transmission that ends.
            energy_j: energy in J that the sender has used for the transmit power.
            bits_j: energy in J that the sender has used for its energy per bit, summed over all sent bits.
            now_ns: present time in ns.
        """
        unload = self._batteries.unload
        for loads, sent_j in ((self._sending, energy_j), (self._sent_bits, bits_j)):
            if burst[0] in loads:
                unload(loads.pop(burst[0]), sent_j)
        rx_energy_j = [0.0] * len(burst)
        for place, leg in enumerate(burst):
            load = self._receiving.pop(leg, None)
            if load is not None:
                span_s = (min(now_ns, load.cut_ns) - leg.started_ns) / NS_PER_S
                rx_energy_j[place] = self._radios.receiving_w(leg.receiver) * span_s
                unload(load, rx_energy_j[place])
            if leg in self._received_bits:
                unload(self._received_bits.pop(leg), self._radios.rx_j_per_bit * leg.transmitted_bit)
        return self._radios.with_bits_j(rx_energy_j, burst)


def _mean_bps(legs: Burst, power_s: float) -> float:
    """Return the mean rate in bit/s of a burst whose end is already computed.

    The result is 0 for a burst that is planned block by block.
    """
    return max(leg.transmitted_bit for leg in legs) / power_s if power_s else 0.0


def _lose_nothing() -> None:
    """Do nothing if the battery runs empty under the load of the energy per bit.

    The load of the radio's power on the same battery cancels the transfer in this case.
    """


@dataclass(frozen=True)
class Radios:
    """Power parameters of the senders and receivers of one medium.

    Attributes:
        sender: the radio of all senders.
        sending: power of each sending device in addition to its idle power; None if senders are base stations.
        rx_consumption_w: power in W of each receiving device in addition to its idle power; None if the power is 0.
        tx_j_per_bit: energy in J per bit sent by a device, in addition to its power.
        rx_j_per_bit: energy in J per bit received by a device, in addition to its power.
        controlled: True if the transmit power is set separately for each link.
    """

    sender: Terminal
    sending: Sending | None = None
    rx_consumption_w: PerDevice | None = None
    tx_j_per_bit: float = 0.0
    rx_j_per_bit: float = 0.0
    controlled: bool = False

    @cached_property
    def full_w(self) -> float:
        """Power in W that a sender consumes at full transmit power, if all senders consume the same power."""
        return self.drawn_w(0, None, 1.0)

    @property
    def differ(self) -> bool:
        """True if senders may consume different powers at full transmit power."""
        return self.controlled or (self.sending is not None and any(its.differ for its in self.sending))

    def receiving_w(self, device: int) -> float:
        return 0.0 if self.rx_consumption_w is None else self.rx_consumption_w[device]

    def received_j(self, burst: Burst, now_ns: int) -> list[float]:
        """Return the energy in J that each receiver has used for a burst that ends now."""
        rx_w, span_ns = self.rx_consumption_w, now_ns - burst[0].started_ns
        each_j = [0.0] * len(burst) if rx_w is None else [rx_w[leg.receiver] * span_ns / NS_PER_S for leg in burst]
        return self.with_bits_j(each_j, burst)

    def with_bits_j(self, each_j: list[float], burst: Burst) -> list[float]:
        """Return the energies `each_j` in J of the receivers of a burst plus their energy for the received bits."""
        if not self.rx_j_per_bit:
            return each_j
        return [own_j + self.rx_j_per_bit * leg.transmitted_bit for own_j, leg in zip(each_j, burst, strict=True)]

    def transmitter(self, sender: int) -> Transmitter:
        if self.sending is None:
            return self.sender.transmitter()
        return Transmitter(self.sending.efficiency[sender], self.sending.circuit_w[sender])

    def drawn_w(self, device: int, power_w: float | None, part: float) -> float:
        """Return the power in W that a sender consumes if it radiates the fraction `part` of `power_w`.

        `power_w` is a radiated power in W; None means the full power of the radio.
        """
        radiated_w = (self.sender.tx_power_w if power_w is None else power_w) * part
        return self.transmitter(device).drawn_w(radiated_w)
