"""5G NR in time-division duplex: slots that senders share, and the delays before and after a transmission."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, Self, final

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from fednet_emu.arrays import Array
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.network.access.base import RatedAccess, Use
from fednet_emu.network.access.schedulers import best_of_each_block
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.sharing import Allocation, RateInputs
from fednet_emu.network.air.transfer import Transfer
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.network.nr.grant_rates import InSlots, in_whole_blocks
from fednet_emu.network.nr.outer_loop import ClimbingAir
from fednet_emu.network.nr.slots import TddPattern, UplinkAccess
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.nr.numerology import SUBCARRIERS_PER_BLOCK
from fednet_emu.radio.nr.outer_loop import WINDOW_NS

_MOST_REPEATS = 3


class NrGrants(RatedAccess):
    """5G NR in time-division duplex: senders take turns in the uplink or downlink slots of a pattern.

    An uplink starts with a scheduling request, a grant for the buffer status report, and a grant for the first data
    (TS 38.321 clauses 5.4.4 and 5.4.5); this takes 10.5 to 30.5 ms with the defaults. Each device may send requests in
    periodic uplink slots, which are drawn once. A downlink waits for the next downlink slot. A transfer ends with the
    time to decode its last block. Each transmission of the last block fails with probability `target_bler`, and each
    repetition takes one more round trip. In its slots, a sender has the whole band at full power; only these slots
    count for energy. Rates are averaged over slots, with an error of at most one slot per device and turn. The slots of
    all cells are synchronous.
    Ignored here: data in special slots, lost requests, requests that current transfers make unnecessary, contention
    for grants, and RLC segmentation.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})

    pattern: str = "DDDSU"
    """Slots of a period, one letter each: D is a downlink slot, U an uplink slot, and S a special slot between them,
    which carries no data. A whole number of periods must fit into 10 ms."""

    subcarrier_spacing_khz: Literal[15, 30, 60, 120] = 30
    """Subcarrier spacing in kHz; a slot lasts 1, 0.5, 0.25 or 0.125 ms. Must equal the key of the same name in
    `channel`, if that key is set."""

    sr_period_s: float = Field(default=0.02, gt=0)
    """Time in s between two occasions at which a device may send a scheduling request; a whole number of slots."""

    k2_slots: int = Field(default=4, ge=1, le=32)
    """Minimum number of slots from a grant to the granted slot."""

    decode_slots: int = Field(default=2, ge=0)
    """Number of slots that a receiver needs to decode a block."""

    target_bler: float = Field(default=0.1, ge=0, lt=0.5)
    """Fraction of block transmissions that fail. Each failed transmission of a transfer's last block adds one round
    trip."""

    scheduler: Literal["round-robin", "proportional-fair"] = "round-robin"
    """Assignment of slots. round-robin: senders take turns, with equal shares of the slots. proportional-fair: the link
    with the highest ratio of gain to mean gain gets all slots of a fading block, as in proportional-fair scheduling if
    fading is slow; without fading, all senders have equal shares."""

    @model_validator(mode="after")
    def _frame_fits(self) -> Self:
        period = self.sr_period_s * NS_PER_S / self.frame.slot_ns
        if round(period) < 1 or abs(period - round(period)) > 1e-6:
            raise ValueError(
                f"sr_period_s is a whole number of slots of {self.frame.slot_ns / NS_PER_S:g} s, at least one, got "
                f"{self.sr_period_s:g}; 0.005 to 0.04 are usual"
            )
        return self

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        key, spacing_khz = "subcarrier_spacing_khz", scenario.channel.subcarrier_spacing_khz
        if spacing_khz not in {None, self.subcarrier_spacing_khz}:
            what = f"the channel has another subcarrier spacing, got {self.subcarrier_spacing_khz} and channel.{key}"
            yield key, f"{what}: {spacing_khz}; set both alike"

    @cached_property
    def frame(self) -> TddPattern:
        return TddPattern(self.pattern, self.subcarrier_spacing_khz)

    def duty(self, *, down: bool) -> float:
        """Return the share of all slots that belong to the downlink if `down` is True, otherwise to the uplink."""
        return self.frame.share("D" if down else "U")

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        granted = in_whole_blocks(
            band.law, band.bandwidth_hz, SUBCARRIERS_PER_BLOCK * self.subcarrier_spacing_khz * 1e3
        )
        law = InSlots(law=granted, whole_hz=band.bandwidth_hz, share=self.duty(down=band.down))
        climbs = isinstance(granted, NrBlocks) and granted.climbs
        own = replace(band, law=law, coherence_ns=WINDOW_NS if climbs else band.coherence_ns)
        use, delays = super().use(own, links, cells, devices), SlotDelays(self, band)
        if isinstance(granted, NrBlocks) and climbs:
            use = use._replace(air=ClimbingAir(self, use.band, granted, links))
        return use._replace(before=delays.before_ns, after=delays.after_ns)

    @property
    @override
    def plain_duty(self) -> float | None:
        return self.duty(down=False) if self.scheduler == "round-robin" else None

    def power(self, inputs: RateInputs) -> Array:
        """Return the share of time for which each burst is on the air [bursts, blocks or 1]."""
        active, duty = inputs.active, self.duty(down=inputs.band.down)
        senders = len(active.sender)
        if self.scheduler == "round-robin" or inputs.band.constant:
            return np.full((senders, 1), duty / senders)
        winner = best_of_each_block(inputs.own, active.of_legs(active.mean), active.first_leg)
        won = np.zeros((senders, inputs.heard.shape[2]))
        won[winner, np.arange(len(winner))] = duty
        return won

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """Return each leg's SINR at full power in its slots.

        All interference from other cells falls into the slots of this direction.
        """
        assert power is not None, "slots always say who sends"
        active, duty = inputs.active, self.duty(down=inputs.band.down)
        noise = 1.0 + (inputs.noise[active.receiver] - 1.0) / duty
        if power.shape[1] == 1:
            share = self.share(len(active.sender))
            return Allocation(inputs.own / noise / share, share, inputs.own / share)
        return Allocation(inputs.own / noise, 1.0, inputs.own, power[active.burst] > 0)


@final
class SlotDelays:
    """Delays in one direction, before the first slot with data and after the first transmission of the last block."""

    def __init__(self, access: NrGrants, band: Band) -> None:
        self._frame, self._key, self._numbers, down = access.frame, band.access_key, band.numbers, band.down
        self._down = down
        self._decode, self._loss, self._slot_ns = access.decode_slots, access.target_bler, access.frame.slot_ns
        self._sr_period = round(access.sr_period_s * NS_PER_S / self._slot_ns)
        uplink = UplinkAccess(self._frame, self._sr_period, access.k2_slots, access.decode_slots)
        first = self._frame.next(0, "D" if down else "U")
        again = self._frame.repeated(first, access.decode_slots) if down else uplink.after(first)
        self._repeat = again - first  # number of slots from one attempt of a block to the next attempt
        downlink = [self._frame.next(slot, "D") for slot in range(len(self._frame.slots))]
        self._data_slots = downlink if down else uplink.bulk_slots
        self._of_device = lru_cache(maxsize=1 << 16)(self._draw)

    def _draw(self, device: int) -> tuple[int, int]:
        """Return the key of a device's random draws, and the offset of its request occasions in ns."""
        number = device if self._numbers is None else int(self._numbers[device])
        key, length = mix(self._key, number), len(self._frame.slots)
        own = int(uniform(key, 0) * max(self._sr_period // length, 1)) * length
        return key, 0 if self._down else own * self._slot_ns

    def before_ns(self, transfer: Transfer, now_ns: int) -> int:
        """Return the time in ns until the next downlink slot, or until an uplink's first slot with data."""
        sender, receiver, data_slots = transfer.sender, transfer.receiver, self._data_slots
        at_ns = now_ns + self._of_device(receiver if sender < receiver else sender)[1]
        periods, slot = divmod(-(-at_ns // self._slot_ns), len(data_slots))
        return (periods * len(data_slots) + data_slots[slot]) * self._slot_ns - at_ns

    def after_ns(self, transfer: Transfer, now_ns: int) -> int:
        """Time in ns for decoding the last block, and for its repetitions."""
        repeats = 0
        if self._loss:
            sender, receiver = transfer.sender, transfer.receiver
            key = self._of_device(receiver if sender < receiver else sender)[0]
            draw = uniform(key, 1 + transfer.requested_ns)
            repeats = min(int(math.log(draw) / math.log(self._loss)), _MOST_REPEATS)
        return (self._decode + repeats * self._repeat) * self._slot_ns
