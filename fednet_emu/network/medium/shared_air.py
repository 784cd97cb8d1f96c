"""Many bursts on the air at a time, at rates that depend on each other.

Rates are planned over the next blocks; every change of who is on the air, and the end of a plan, lets the bits flow up
to that instant and plans anew. Bits are conserved: the sum over segments of rate x duration is the payload.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, to_ns
from fednet_emu.network.links.links import Links
from fednet_emu.network.medium.active_set import DEAD, OUTAGE, Roster
from fednet_emu.network.medium.air import DUST
from fednet_emu.network.medium.band import Band, Pace, needed_s, spans_s
from fednet_emu.network.medium.rates import Rated, rate_cells
from fednet_emu.network.medium.transfer import Burst

_BLOCKS = 8
_MOST_BLOCKS = 2048
_MOST_GAINS = 1 << 21
_FAR_S = FOREVER_NS / NS_PER_S


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What is to happen over the next blocks if nothing changes.

    Attributes:
        pace: rates and SINRs of the legs.
        needed_s: [legs] how long each leg still takes; meaningless where it has nothing left.
        carries: [legs, blocks] whether a block carries bits, so that a low SINR in it is an outage; None for always.
        power: [bursts, blocks or 1] part of its sender's power that each burst has.
        next_ns: the next end of a burst or of a leg's patience, or the end of the plan.
    """

    pace: Pace
    needed_s: Array
    carries: Mask | None
    power: Array
    next_ns: int


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
        self._patience_ns = FOREVER_NS  # the first leg that is not through loses patience then
        self._some_are_over = False  # patience of some legs is over, but not of all of their burst

    def start(self, burst: Burst, now_ns: int) -> None:
        """Add a burst at an instant to which the bits have flowed; everything on the air is re-rated."""
        self._since_ns = now_ns
        self._new.append(burst)

    def stop(self, burst: Burst, now_ns: int) -> None:
        """Take a burst off with what it has carried so far."""
        self._flow(now_ns)
        self._admit()
        self._take_off(np.array([place for place, other in enumerate(self._roster.bursts) if other[0] is burst[0]]))

    def advance(self, now_ns: int) -> list[Burst]:
        """Let the bits flow; a burst has ended when each of its legs is through, or has no hope or patience left."""
        self._flow(now_ns)
        if not len(self._roster):
            return []
        (ended,) = self._roster.of_bursts(np.logical_and, self._done()).nonzero()
        return self._take_off(ended) if len(ended) else []

    @property
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
        return self._plan.next_ns

    # ---- changes -----------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        if self._new:
            self._patience_ns = min(self._patience_ns, *(leg.until_ns for burst in self._new for leg in burst))
            self._roster.add(self._new)
            self._new, self._changed = [], True

    def _take_off(self, gone: IntArray) -> list[Burst]:
        """Write what has become of the legs of the bursts at these places into them, and forget them."""
        roster = self._roster
        places = roster.legs_of(gone)
        left_bit, fates = roster.left_bit[places].tolist(), roster.fate[places].tolist()
        for place, short_bit, fate in zip(places.tolist(), left_bit, fates, strict=True):
            leg = roster.legs[place]
            leg.air_bit = leg.size_bit - short_bit
            leg.lost = _LOST[fate] or (leg.until_reason if short_bit > DUST * leg.size_bit else "")
        for place, power_s in zip(gone.tolist(), roster.spent[0, gone].tolist(), strict=True):
            roster.bursts[place][0].power_s = power_s
        self._changed = True
        return roster.remove(gone)

    # ---- the flow of bits --------------------------------------------------------------------------------------------

    def _flow(self, now_ns: int) -> None:
        """Take off the bits since the last flow, at the rates planned then; no leg carries more than it has."""
        plan, roster = self._plan, self._roster
        if plan is not None and now_ns > self._since_ns:
            edges_ns, left_bit = plan.pace.edges_ns, roster.left_bit
            since_s = (now_ns - self._since_ns) / NS_PER_S
            if now_ns <= edges_ns[1]:
                left_bit -= plan.pace.rate_bps[:, 0] * since_s
            else:
                left_bit -= plan.pace.rate_bps @ spans_s(edges_ns, now_ns)
            np.maximum(left_bit, 0.0, out=left_bit)
            if self._band.law.outage_sinr > 0:
                roster.fate[_in_outage(plan, since_s, self._band.law.outage_sinr)] = OUTAGE
            if plan.power.shape[1] == 1:
                roster.spent[0] += plan.power[:, 0] * since_s
            else:
                roster.spent[0] += plan.power @ spans_s(edges_ns, now_ns)
            if self._band.slotted:
                self._hold_slot(plan, now_ns)
            self._adapt(edges_ns, now_ns)
            self._plan = None
        self._since_ns = now_ns

    def _hold_slot(self, plan: Plan, now_ns: int) -> None:
        """What a slot does is settled at its start: keep it for the rest of the slot that is under way."""
        if now_ns % self._band.slot_ns == 0:
            return
        block = int(np.searchsorted(plan.pace.edges_ns, now_ns, side="right")) - 1
        carries = True if plan.carries is None else plan.carries[:, block]
        self._roster.held[:] = plan.pace.rate_bps[:, block], plan.pace.sinr[:, block], carries
        self._roster.spent[1] = plan.power[:, min(block, plan.power.shape[1] - 1)]

    def _adapt(self, edges_ns: IntArray, now_ns: int) -> None:
        """Plan further ahead when the last plan ran out, less far when a change came in its first quarter."""
        count = len(edges_ns) - 1
        if now_ns >= edges_ns[-1]:
            self._blocks = min(4 * count, _MOST_BLOCKS)
        elif now_ns <= edges_ns[1 + (count - 1) // 4]:
            self._blocks = max(1, count // 2)

    # ---- the plan ----------------------------------------------------------------------------------------------------

    def _make_plan(self) -> Plan:
        """Rates from now on, and with them when something ends."""
        roster, band, since_ns = self._roster, self._band, self._since_ns
        room = _MOST_GAINS // roster.hearing.mean.size
        edges_ns, numbers = band.blocks(since_ns, max(1, min(self._blocks, room)))
        rated = rate_cells(roster, band, roster.hearing.heard(numbers), numbers)
        if band.slotted and since_ns % band.slot_ns:
            rated = self._resume_slot(rated)
        left_bit = roster.left_bit
        pace = Pace(edges_ns, rated.sinr, rated.rate_bps)
        lasts_s = needed_s(pace, left_bit)
        if rated.dead is not None:
            fate, dead = roster.fate, rated.dead & (left_bit > 0)
            fate[(fate == DEAD) & ~dead] = 0
            fate[dead & (fate == 0)] = DEAD
        if since_ns >= self._patience_ns:
            self._look_for_patience()
        if self._some_are_over:
            over = roster.until_ns <= since_ns
            pace.rate_bps[over], pace.sinr[over] = 0.0, np.inf
        lasts_s[self._done()] = 0.0
        soonest_s = float(roster.of_bursts(np.maximum, lasts_s).min())
        end_ns = since_ns + to_ns(soonest_s) if soonest_s < _FAR_S else FOREVER_NS
        next_ns = min(end_ns, self._patience_ns, int(edges_ns[-1]))
        return Plan(pace, lasts_s, rated.carries, rated.power, next_ns)

    def _done(self) -> Mask:
        """Which legs are through, or have no hope or patience left."""
        roster = self._roster
        done: Mask = roster.left_bit <= roster.dust_bit
        if self._band.constant:
            done |= roster.fate == DEAD
        if self._some_are_over or self._since_ns >= self._patience_ns:
            done |= roster.until_ns <= self._since_ns
        return done

    def _look_for_patience(self) -> None:
        over = self._roster.until_ns <= self._since_ns
        self._some_are_over = bool(over.any())
        self._patience_ns = int(self._roster.until_ns[~over].min(initial=FOREVER_NS))

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


def _in_outage(plan: Plan, since_s: float, outage_sinr: float) -> Mask:
    """Which legs have been below the lowest SINR in a block that they span, after some time of a plan."""
    edges_ns = plan.pace.edges_ns
    starts_s = (edges_ns[:-1] - edges_ns[0]) / NS_PER_S
    low = (plan.pace.sinr < outage_sinr) & (starts_s < np.minimum(plan.needed_s, since_s)[:, None])
    if plan.carries is not None:
        low &= plan.carries
    met: Mask = low.any(axis=1)
    return met
