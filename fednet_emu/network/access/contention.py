"""Access schemes whose transmitters are on the air in the same band at the same time, and hear of it."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, Mask
from fednet_emu.kernel.streams import mixes, uniforms
from fednet_emu.network.access.base import Access, Allocation, RateInputs
from fednet_emu.radio.interference import successive_cancellation, sum_of_others
from fednet_emu.units import db_to_linear


class Shared(Access):
    """Everybody at once with the whole band: the others are noise to each receiver.

    Bursts of one sender share its band and power equally and do not disturb each other. A device that sends hears
    nothing in the meantime (half duplex), so two that send to each other wait until one gives up.
    Ignored here: spreading gain, several antennas, any cancellation.
    """

    kind: Literal["shared"] = "shared"

    max_senders: int | None = Field(default=None, gt=0)
    """How many may be on the air at once (in a cell), or null for all; the others wait their turn."""

    threshold_db: float | None = None
    """SINR below which a block carries nothing, beside what the rate law says; null for no such threshold."""

    @property
    def capacity(self) -> int | None:
        """As many as may send at once."""
        return self.max_senders

    @property
    def threshold(self) -> float:
        """The threshold as a ratio."""
        return _ratio(self.threshold_db)

    def share(self, active: int) -> float:
        """The whole band."""
        return 1.0

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """Signal over noise and everybody else."""
        active = inputs.active
        own = active.of_legs(inputs.heard)
        sinr = own / (inputs.noise[active.receiver] + active.of_legs(sum_of_others(inputs.heard, axis=1)))
        carries: Mask | None = None
        if active.deaf is not None:
            carries = np.broadcast_to(~np.any(active.deaf, axis=1)[active.receiver, None], sinr.shape)
        return Allocation(sinr, _own_parts(inputs), own, carries)


class Noma(Access):
    """Uplink non-orthogonal access with successive interference cancellation: the strongest is decoded first.

    Each hears only the weaker ones and, of the stronger ones, what cancellation leaves; with `residual: 0` and no
    threshold the rates of ideal Shannon add up to log2(1 + sum of all SNRs). Who is not decoded carries nothing in that
    block, and stays in the way of the weaker ones.
    Ignored here: errors of the decoding order, and that a block may be too short to decode before the next.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink"})

    kind: Literal["noma"] = "noma"

    threshold_db: float | None = None
    """SINR below which a transmission cannot be decoded; null when every one can."""

    residual: float = Field(default=0.0, ge=0, le=1)
    """Share of a decoded signal's power that cancellation leaves behind."""

    max_senders: int | None = Field(default=None, gt=0)
    """How many may be on the air at once (in a cell), or null for all; the others wait their turn."""

    @property
    def capacity(self) -> int | None:
        """As many as may send at once."""
        return self.max_senders

    @property
    def threshold(self) -> float:
        """The threshold as a ratio."""
        return _ratio(self.threshold_db)

    def share(self, active: int) -> float:
        """The whole band."""
        return 1.0

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """SINRs at the turn of each sender, at the one receiver of the cell."""
        active = inputs.active
        if len(inputs.heard) == 1:
            return self._at_one_row(inputs, inputs.heard[0], inputs.noise[0])
        # one radio, whose links were looked up in several periods of movement
        rows = [self._at_one_row(inputs, heard, noise) for heard, noise in zip(inputs.heard, inputs.noise, strict=True)]
        legs = np.arange(len(active.receiver))
        sinr = np.stack([row.sinr for row in rows])[active.receiver, legs]
        carries = (
            None
            if self.threshold_db is None
            else np.stack([np.asarray(row.carries) for row in rows])[active.receiver, legs]
        )
        return Allocation(sinr, _own_parts(inputs), active.of_legs(inputs.heard), carries)

    def _at_one_row(self, inputs: RateInputs, heard: Array, noise: Array) -> Allocation:
        """What the receiver makes of everybody, heard [senders, blocks]."""
        active = inputs.active
        turn = successive_cancellation(heard.T, noise[:, None], self.threshold, self.residual)
        sender = active.sender[active.burst]
        carries = None if self.threshold_db is None else turn.decoded.T[sender]
        return Allocation(turn.sinr.T[sender], _own_parts(inputs), heard[sender], carries)


class SlottedAloha(Access):
    """Each sender transmits in a slot with a probability; a receiver captures whom it hears well enough over the rest.

    A slot carries bits, at the rate of the law for its SINR, when that SINR reaches the capture threshold; otherwise it
    is lost and the bits wait for a later slot. What a slot does is settled at its start: who comes in the middle waits
    for the next one, and who ends in the middle leaves the rest of it unused. Energy is drawn in slots in which one
    transmits. A device hears nothing in a slot in which it transmits (half duplex).
    Ignored here: feedback and its errors, guard times. Fading is that of the start of the slot.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "sidelink"})

    kind: Literal["slotted-aloha"] = "slotted-aloha"

    slot_s: float = Field(gt=0)
    """Duration of a slot."""

    probability: float | None = Field(default=None, gt=0, le=1)
    """Probability to transmit in a slot, or null for one over the number of senders that have something to send."""

    capture_db: float = 10.0
    """SINR from which on a receiver captures a transmission in spite of the others."""

    @property
    def capacity(self) -> int | None:
        """Everybody tries."""
        return None

    @property
    def threshold(self) -> float:
        """The SINR of capture as a ratio."""
        return db_to_linear(self.capture_db)

    @property
    def turn_s(self) -> float:
        """A slot."""
        return self.slot_s

    def share(self, active: int) -> float:
        """The whole band."""
        return 1.0

    def power(self, inputs: RateInputs) -> Array:
        """Whoever draws a number below the probability transmits; draws are keyed by sender and slot."""
        active = inputs.active
        probability = self.probability or 1.0 / len(active.radio)
        draws = uniforms(mixes(inputs.key, active.radio)[:, None], inputs.numbers[None, :])
        on: Array = (draws < probability)[active.sender] * active.part[:, None]
        return on

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """Signal over noise and those of the slot; whoever is below the capture threshold carries nothing."""
        assert power is not None, "slotted ALOHA always says who transmits"
        active = inputs.active
        on = active.radiated(power)
        own = active.of_legs(inputs.heard)
        carries = on[active.sender[active.burst]] > 0
        others = active.of_legs(sum_of_others(inputs.heard * on, axis=1))
        sinr = np.where(carries, own / (inputs.noise[active.receiver] + others), 0.0)
        if active.deaf is not None:
            carries &= (active.deaf @ on == 0)[active.receiver]
        return Allocation(sinr, _own_parts(inputs), own, carries)


def _ratio(threshold_db: float | None) -> float:
    return 0.0 if threshold_db is None else db_to_linear(threshold_db)


def _own_parts(inputs: RateInputs) -> Array | float:
    """The band, which the bursts of one sender share equally: a column of [legs], or 1 when each sender has one."""
    active = inputs.active
    return 1.0 if len(active.sender) == len(active.radio) else active.part[active.burst][:, None]
