"""The settings of one medium, and what follows from them: how bursts share it, take turns and are given up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fednet_emu.arrays import IntArray
from fednet_emu.devices.powers import PerDevice
from fednet_emu.network.access.over_the_air import OverTheAir
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.separate import Air, BandWalker, SeparateAir
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.sums import SlotWalker
from fednet_emu.network.air.traced import TraceWalker
from fednet_emu.network.links.links import Links
from fednet_emu.network.medium.loss import Loss
from fednet_emu.network.medium.patience import Patience
from fednet_emu.network.medium.queue import TurnQueue
from fednet_emu.network.traces.assign import DeviceRates
from fednet_emu.radio.channel import Terminal


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of one medium: how its band is shared, which transfers are lost, and the power drawn by radios."""

    band: Band
    links: Links
    loss: Loss
    loss_key: int
    drawn_w: float
    """Power in W that a sender draws from its battery while it sends at full power."""
    multicast: bool
    timeout_s: float | None
    """Longest time in s on the air; None to choose it for each transfer, see `Patience`."""
    cells: int = 1
    receive_w: PerDevice | None = None
    """Power in W that each receiving device draws while it receives, beside its idle power; None for none."""
    circuit_w: PerDevice | None = None
    """Power in W that each sending device draws beside its amplifier; None where that of the radio holds for all."""
    transmit_j_per_bit: float = 0.0
    """Energy in J of each bit that a sending device sends, beside its power."""
    receive_j_per_bit: float = 0.0
    """Energy in J of each bit that a device receives, beside its power."""
    rates: DeviceRates | None = None
    """Recorded rates of the devices, used instead of band and links; None for none."""
    radio: Terminal | None = None
    """The sender's radio, from which its draw at less than full power is calculated."""
    controlled: bool = False
    """Whether each link has its own transmit power."""
    learn: Callable[[IntArray, IntArray], None] | None = None
    """Computes the links of the given senders and receivers in one vectorised call, before each is used."""


def air_of(rules: Rules) -> tuple[Air, bool]:
    """Choose the model of simultaneous bursts, and say whether each transfer's link is looked up when it starts."""
    if rules.rates is not None:
        return SeparateAir(TraceWalker(rules.rates)), False
    access = rules.band.access
    if isinstance(access, OverTheAir):
        return SeparateAir(SlotWalker(access, rules.band.bandwidth_hz)), False
    if not access.disturbed and (rules.cells == 1 or access.clustered):
        return SeparateAir(BandWalker(rules.band)), True
    return SharedAir(rules.band, rules.links, rules.cells), False


def patience_of(rules: Rules, devices: int) -> Patience | None:
    """The timeouts of a medium whose settings leave them open; None where they are the same for all transfers."""
    access = rules.band.access
    if rules.timeout_s is not None or rules.rates is not None or access.only_sums or access.planned:
        return None
    disturbed = (access.disturbed and access.overlapping) or rules.cells > 1
    return Patience(rules.band, 1 if access.one_at_a_time else access.capacity or devices, disturbed=disturbed)


def turns_of(rules: Rules) -> TurnQueue:
    """Create the queue that decides when a burst of this medium may start."""
    if rules.rates is not None:
        return TurnQueue(None, 1)
    access = rules.band.access
    return TurnQueue(access.capacity, None if access.clustered else rules.cells, exclusive=access.clustered)
