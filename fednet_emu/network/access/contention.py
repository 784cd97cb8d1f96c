"""Access schemes whose transmitters use the same band at the same time and interfere with each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from fednet_emu.arrays import Array, Mask
from fednet_emu.kernel.clock import FOREVER_NS, to_ns
from fednet_emu.kernel.streams import mixes, uniforms
from fednet_emu.network.access.base import RatedAccess, Use
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.air.queue import TurnQueue
from fednet_emu.network.air.separate import BandAir
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.sharing import Allocation, RateInputs
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.radio.receiver.combining import Reception
from fednet_emu.radio.receiver.interference import successive_cancellation, sum_of_others
from fednet_emu.units import db_to_linear, linear_to_db


class WholeBand(RatedAccess):
    """All transmissions use the whole band simultaneously."""

    overlapping: ClassVar[bool] = True

    sinr_threshold_db: float | None = None
    """Minimum SINR in dB at which a transmission carries bits in a fading block; the rate law may require a higher
    SINR. null for no threshold."""

    @property
    @override
    def threshold(self) -> float:
        return 0.0 if self.sinr_threshold_db is None else db_to_linear(self.sinr_threshold_db)

    @override
    def share(self, active: int) -> float:
        return 1.0

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        active = inputs.active
        own = inputs.own
        others = sum_of_others(inputs.heard[0], 0) if active.plain else active.of_legs(sum_of_others(inputs.heard, 1))
        sinr = own / (inputs.noise_of_legs() + others)
        carries: Mask | None = None
        if active.deaf is not None:
            carries = np.broadcast_to(~np.any(active.deaf, axis=1)[active.receiver, None], sinr.shape)
        return Allocation(sinr, _own_parts(inputs), own, carries)


class FullReuse(WholeBand):
    """All senders of a cell use the whole band simultaneously; receivers treat the signals of other senders as noise.

    Simultaneous transmissions of one sender split the band and its power equally and do not interfere with each other.
    A device cannot receive while it sends (half duplex), so two devices that send to each other make no progress until
    one transmission reaches its timeout.
    Ignored here: spreading gain, and any interference cancellation other than `network.reception`.
    """

    max_senders: int | None = Field(default=None, gt=0)
    """Maximum number of simultaneous transmissions in one cell; further transmissions wait. null for no limit."""

    @property
    @override
    def capacity(self) -> int | None:
        return self.max_senders

    @property
    @override
    def residual_share(self) -> float | None:
        return 1.0

    @override
    def plain_rule(self) -> Callable[[Array], Allocation] | None:
        return _with_others_as_noise

    @override
    def uplink_conflict(self, scenario: Any) -> str:
        network = scenario.network
        several = network.cells.count > 1 or network.reception.antennas > 1 or scenario.devices.count == 1
        threshold = max(scenario.channel.rate.min_sinr, self.threshold)
        if several or self.max_senders == 1 or threshold < 1:
            return ""
        what = "one receiver without cancellation can never decode two at once, since their SINRs cannot both reach"
        got = f"0 dB, got full-reuse with a threshold of {linear_to_db(threshold):.1f} dB"
        remedy = "lower the threshold below 0 dB, set max_senders: 1, or choose noma, slotted-aloha, ofdma or tdma"
        return f"{what} {got}; {remedy}"


class Noma(FullReuse):
    """Non-orthogonal uplink with successive interference cancellation: the strongest signal is decoded first.

    A signal is disturbed by all weaker signals, and by the residual power of the stronger signals that are cancelled.
    With `residual: 0` and no threshold the ideal Shannon rates add up to log2(1 + sum of all SNRs) bit/s/Hz. A signal
    that cannot be decoded in a fading block carries no bits in this block, and interferes with all weaker signals at
    full power.
    Ignored here: errors in the decoding order, and the decoding time, which may exceed the duration of a block.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink"})

    residual: float = Field(default=0.0, ge=0, le=1)
    """Share of a decoded signal's power that remains as interference after cancellation: 0 is perfect cancellation."""

    @override
    def uplink_conflict(self, scenario: Any) -> str:
        return ""

    @override
    def conflict_with_antennas(self, reception: Reception) -> str:
        return f"successive cancellation is for one antenna, got {reception.kind} with {self.kind}; choose full-reuse"

    @property
    @override
    def residual_share(self) -> float | None:
        return self.residual

    @override
    def plain_rule(self) -> Callable[[Array], Allocation] | None:
        return self._one_after_the_other

    def _one_after_the_other(self, snr: Array) -> Allocation:
        turn = successive_cancellation(snr, 1.0, self.threshold, self.residual)
        return Allocation(turn.sinr, 1.0, snr, None if self.sinr_threshold_db is None else turn.decoded)

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        active = inputs.active
        turn = successive_cancellation(inputs.heard[0].T, inputs.noise[0][:, None], self.threshold, self.residual)
        sender = slice(None) if active.plain else active.sender[active.burst]
        carries = None if self.sinr_threshold_db is None else turn.decoded.T[sender]
        return Allocation(turn.sinr.T[sender], _own_parts(inputs), inputs.own, carries)


class SlottedAloha(RatedAccess):
    """Each sender transmits in a slot with some probability; signals above the capture threshold are decoded.

    If the SINR of a signal reaches the capture threshold, the slot carries bits at the rate that the rate law gives for
    this SINR; otherwise the bits wait for a later slot. The outcome of a slot is determined at its start. A sender that
    becomes ready within a slot waits for the next slot, and a sender that finishes within a slot leaves the remainder
    unused. A sender uses energy only in slots in which it transmits. A device cannot receive in a slot in which it
    transmits (half duplex).
    Ignored here: feedback and its errors, guard times, and changes of fading within a slot.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "sidelink"})
    overlapping: ClassVar[bool] = True

    slot_s: float = Field(gt=0)
    """Duration of a slot in s."""

    probability: float | None = Field(default=None, gt=0, le=1)
    """Probability that a sender transmits in a slot; null for 1 / (number of senders that have data to send)."""

    capture_db: float = 10.0
    """Lowest SINR in dB at which a receiver decodes a signal, with or without other transmissions in the slot."""

    @override
    def conflict_with_antennas(self, reception: Reception) -> str:
        what = "the senders of a slot are unknown, so none can be nulled"
        return f"{what}, got {reception.kind} with {self.kind}; choose mrc, or full-reuse" if reception.NULLS else ""

    @override
    def share(self, active: int) -> float:
        return 1.0

    @property
    @override
    def threshold(self) -> float:
        return db_to_linear(self.capture_db)

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        return super().use(replace(band, slot_ns=to_ns(self.slot_s)), links, cells, devices)

    def power(self, inputs: RateInputs) -> Array:
        """Return fractions [bursts, slots] that sum to 1 for a sender that transmits in a slot (at random), else 0."""
        active = inputs.active
        probability = self.probability or 1.0 / len(active.radio)
        number = active.radio if inputs.band.numbers is None else inputs.band.numbers[active.radio]
        draws = uniforms(mixes(inputs.band.access_key, number)[:, None], inputs.numbers[None, :])
        on: Array = (draws < probability)[active.sender] * active.part[:, None]
        return on

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        assert power is not None, "slotted ALOHA always says who transmits"
        active = inputs.active
        on = active.radiated(power)
        own = inputs.own
        carries = on[active.sender[active.burst]] > 0
        others = active.of_legs(sum_of_others(inputs.heard * on, axis=1))
        sinr = np.where(carries, own / (inputs.noise_of_legs() + others), 0.0)
        if active.deaf is not None:
            carries &= (active.deaf @ on == 0)[active.receiver]
        return Allocation(sinr, _own_parts(inputs), own, carries)


class SpatialReuse(WholeBand):
    """All clusters use the whole band simultaneously, and the devices of a cluster take turns to send.

    Receivers treat the signals of other senders as noise. With `turns: cluster` one device of a cluster sends at a
    time, in the order of requests. With `turns: coloured` transmissions of a cluster run simultaneously if no device
    sends or receives in two of them; for transmissions of equal duration, this rule is a greedy distance-2 colouring of
    the cluster's graph in the order of requests. In either case no device sends or receives in two transmissions
    simultaneously, even if it belongs to two clusters (half duplex).
    Ignored here: how devices agree on turns, several antennas, and any interference cancellation.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"sidelink"})

    turns: Literal["cluster", "coloured"] = "cluster"
    """Which transmissions of a cluster may run at the same time: only one (`cluster`), or all that have no device in
    common (`coloured`)."""

    interference: bool = True
    """Whether simultaneous transmissions interfere; if false, signals do not reach receivers of other transmissions."""

    @property
    def capacity(self) -> int | None:
        return 1 if self.turns == "cluster" else None

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        own = replace(band, threshold=self.threshold)
        alone = not self.interference and links.until_ns() == FOREVER_NS
        air = BandAir(own) if alone else SharedAir(self, own, links, cells)
        return Use(own, TurnQueue(self.capacity, None), air, patience=Patience(own, disturbed=self.interference))

    @override
    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        return super().allocate(inputs, power) if self.interference else Allocation(inputs.own, 1.0, inputs.own)


def _with_others_as_noise(snr: Array) -> Allocation:
    return Allocation(snr / (1.0 + sum_of_others(snr)), 1.0, snr)


def _own_parts(inputs: RateInputs) -> Array | float:
    """Return the band share of each leg (transfer to one receiver) [legs, 1]; a sender's bursts share the band equally.

    The result is the number 1.0 if every sender has only one burst.
    """
    active = inputs.active
    return 1.0 if len(active.sender) == len(active.radio) else active.part_of_legs()[:, None]
