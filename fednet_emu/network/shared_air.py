"""Many bursts on the air at a time, at rates that depend on each other.

Rates are planned over the next blocks; every change of who is on the air, and the end of a plan, lets the bits flow up
to that instant and plans anew. Bits are conserved: the sum over segments of rate x duration is the payload.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.network.air import DUST
from fednet_emu.network.band import Band, Pace, carried, through
from fednet_emu.network.interplay import Rated, rate_cells
from fednet_emu.network.links import Links
from fednet_emu.network.roster import DEAD, OUTAGE, Roster
from fednet_emu.network.sharing import IntArray, Mask
from fednet_emu.network.transfer import Burst
from fednet_emu.units import Array

_BLOCKS = 8
_MOST_BLOCKS = 2048
_MOST_GAINS = 1 << 21


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What is to happen over the next blocks if nothing changes.

    Attributes:
        pace: rates and SINRs of the legs.
        carries: [legs, blocks] whether a block carries bits, so that a low SINR in it is an outage; None for always.
        power: [bursts, blocks or 1] part of its sender's power that each burst has.
    """

    pace: Pace
    carries: Mask | None
    power: Array


class SharedAir:
    """The transmissions of one band, in one cell or in several that disturb each other."""

    def __init__(self, band: Band, links: Links, cells: int = 1) -> None:
        self._band = band
        self._roster = Roster(band, links, cells)
        self._new: list[Burst] = []
        self._changed = False
        self._plan: Plan | None = None
        self._blocks = _BLOCKS
        self._since_ns = 0

    def __len__(self) -> int:
        return len(self._roster) + len(self._new)

    def start(self, burst: Burst, now_ns: int) -> None:
        """Add a burst at an instant to which the bits have flowed; everything on the air is re-rated."""
        self._since_ns = now_ns
        self._new.append(burst)

    def stop(self, burst: Burst, now_ns: int) -> None:
        """Take a burst off with what it has carried so far."""
        self._flow(now_ns)
        self._admit()
        self._take_off(np.array([other[0] is burst[0] for other in self._roster.bursts]))

    def advance(self, now_ns: int) -> list[Burst]:
        """Let the bits flow; a burst has ended when its planned end has come."""
        self._flow(now_ns)
        ended = self._roster.burst_ends_ns() <= now_ns
        return self._take_off(ended) if ended.any() else []

    def next_end_ns(self) -> int:
        """Plan the rates from now on; the next end, or how far the plan goes."""
        self._admit()
        if not len(self._roster):
            return FOREVER_NS
        if self._changed:
            self._roster.gather()
            self._changed, self._plan = False, None
        if self._plan is None:
            self._plan = self._make_plan()
        return min(int(self._roster.burst_ends_ns().min()), int(self._plan.pace.edges_ns[-1]))

    # ---- changes -----------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        if self._new:
            self._roster.add(self._new)
            self._new, self._changed = [], True

    def _take_off(self, gone: Mask) -> list[Burst]:
        """Write what has become of them into the legs of bursts [bursts] that end, and forget them."""
        roster = self._roster
        legs = np.flatnonzero(gone if roster.plain else gone[roster.burst])
        air_bit = (roster.size_bit[legs] - roster.left_bit[legs]).tolist()
        for place, sent_bit, fate in zip(legs.tolist(), air_bit, roster.fate[legs].tolist(), strict=True):
            leg = roster.legs[place]
            leg.air_bit = sent_bit
            short = sent_bit < leg.size_bit and roster.left_bit[place] > 0
            leg.lost = _LOST[fate] or (leg.until_reason if short else "")
        spent_s = roster.spent[0, gone].tolist()
        ended = roster.remove(gone)
        for burst, power_s in zip(ended, spent_s, strict=True):
            burst[0].power_s = power_s
        self._changed = True
        return ended

    # ---- the flow of bits --------------------------------------------------------------------------------------------

    def _flow(self, now_ns: int) -> None:
        """Take off the bits since the last flow, at the rates planned then; each leg flows until its own end."""
        plan, roster = self._plan, self._roster
        if plan is not None and now_ns > self._since_ns:
            until_ns, left_bit = np.minimum(roster.end_ns, now_ns), roster.left_bit
            left_bit -= carried(plan.pace, until_ns)
            np.copyto(left_bit, 0.0, where=left_bit <= DUST * roster.size_bit)
            if self._band.law.outage_sinr > 0:
                roster.fate[_in_outage(plan, until_ns, self._band.law.outage_sinr)] = OUTAGE
            roster.spent[0] += _spent_s(plan, self._since_ns, now_ns)
            self._hold_slot(plan, now_ns)
            self._adapt(plan.pace.edges_ns, now_ns)
            self._plan = None
        self._since_ns = now_ns

    def _hold_slot(self, plan: Plan, now_ns: int) -> None:
        """What a slot does is settled at its start: keep it for the rest of the slot that is under way."""
        if not self._band.slotted or now_ns % self._band.slot_ns == 0:
            return
        block = int(np.searchsorted(plan.pace.edges_ns, now_ns, side="right")) - 1
        carries = True if plan.carries is None else plan.carries[:, block]
        self._roster.held[:] = plan.pace.rate_bps[:, block], plan.pace.sinr[:, block], carries
        self._roster.spent[1] = plan.power[:, min(block, plan.power.shape[1] - 1)]

    def _adapt(self, edges_ns: IntArray, now_ns: int) -> None:
        """Plan further ahead when the last plan ran out, less far when a change came in its first quarter."""
        count = len(edges_ns) - 1
        if now_ns >= edges_ns[-1]:
            room = _MOST_GAINS // max(self._roster.hearing.mean.size, 1)
            self._blocks = max(1, min(4 * count, _MOST_BLOCKS, room))
        elif now_ns <= edges_ns[1 + (count - 1) // 4]:
            self._blocks = max(1, count // 2)

    # ---- the plan ----------------------------------------------------------------------------------------------------

    def _make_plan(self) -> Plan:
        """Rates from now on, and with them when each leg ends."""
        roster, band, since_ns = self._roster, self._band, self._since_ns
        edges_ns, numbers = band.blocks(since_ns, self._blocks)
        rated = rate_cells(roster, band, roster.hearing.heard(numbers), numbers)
        if band.slotted and since_ns % band.slot_ns:
            rated = self._resume_slot(rated)
        pace = Pace(edges_ns, rated.sinr, rated.rate_bps)
        natural_ns = through(pace, roster.left_bit)
        if band.constant:
            dead = rated.dead & (roster.left_bit > 0)
            roster.fate[(roster.fate == DEAD) & ~dead] = 0
            roster.fate[dead & (roster.fate == 0)] = DEAD
            natural_ns[dead] = since_ns
        np.maximum(np.minimum(natural_ns, roster.until_ns), since_ns, out=roster.end_ns)
        return Plan(pace, rated.carries, rated.power)

    def _resume_slot(self, rated: Rated) -> Rated:
        """The first block is the rest of a slot whose outcome is settled."""
        rate_bps, sinr, carries = self._roster.held
        rated.rate_bps[:, 0], rated.sinr[:, 0] = rate_bps, sinr
        if rated.carries is not None:
            rated.carries[:, 0] = carries > 0
        power = np.array(np.broadcast_to(rated.power, (len(self._roster), rated.sinr.shape[1])))
        power[:, 0] = self._roster.spent[1]
        return rated._replace(power=power)


_LOST = ("", "outage", "unreachable")


def _in_outage(plan: Plan, until_ns: IntArray, outage_sinr: float) -> Mask:
    """Which legs have been below the lowest SINR in a block that they span."""
    low = (plan.pace.sinr < outage_sinr) & (plan.pace.edges_ns[:-1] < until_ns[:, None])
    if plan.carries is not None:
        low &= plan.carries
    met: Mask = low.any(axis=1)
    return met


def _spent_s(plan: Plan, since_ns: int, now_ns: int) -> Array:
    """Time on the air [bursts] since the plan was made, times the part of the sender's power."""
    if plan.power.shape[1] == 1:
        return plan.power[:, 0] * ((now_ns - since_ns) / NS_PER_S)
    edges_ns = plan.pace.edges_ns
    inside_ns = np.maximum(np.minimum(edges_ns[1:], now_ns) - edges_ns[:-1], 0)
    return np.asarray(plan.power @ (inside_ns / NS_PER_S))
