"""Bursts that are on the air at the same time and whose rates depend on each other.

Rates are planned over the next fading blocks. When a burst (transmission) starts or ends, or when the planned blocks
are over, the carried bits are subtracted from each burst's remaining bits, and new rates are planned. Bits are counted
in integer units (`kernel.work`), so that the sum of rate x duration over all segments equals the payload exactly, after
any number of new plans.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from math import floor
from typing import ClassVar, NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask, least
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.kernel.work import BIT, SCALE
from fednet_emu.network.air.active_set import ActiveSet, SliceOf
from fednet_emu.network.air.band import Band, needed_ns, passed
from fednet_emu.network.air.rates import Rated, rate_cells
from fednet_emu.network.air.separate import Air, Power, Rates
from fednet_emu.network.air.sharing import Sharing
from fednet_emu.network.air.transfer import Burst, Transfer
from fednet_emu.network.links.links import LinksOverTime

BLOCKS = 8
"""Number of fading blocks over which rates are planned at first."""
_MOST_BLOCKS = 2048
MOST_GAINS = 1 << 21
"""Maximum number of fading gains that are drawn together for planned rates."""
NEAR_NS = 2.0
"""Maximum difference in ns of end times that are compared as exact integers. The rounding errors of end times in
floating point are smaller."""


class Plan(NamedTuple):
    """Rates and end times over the next blocks, valid until a burst starts or is cancelled.

    Attributes:
        edges_ns: [blocks + 1] edges of the blocks in ns.
        rated: rates, SINRs and powers in the blocks.
        needed_ns: [transfers] estimated remaining time of each transfer in ns; 0 for a transfer that has ended.
        first_ns: time in ns before which no burst ends, with a margin for rounding.
        next_ns: time in ns of the next event: the end of a burst, a timeout, or the end of the plan.
    """

    edges_ns: list[int]
    rated: Rated
    needed_ns: Array
    first_ns: int
    next_ns: int


class SharedAir(Air):
    """The transmissions of one band, in one cell or in several cells that interfere with each other.

    Attributes:
        blocks: number of fading blocks over which rates are planned next.
    """

    follows_movement: ClassVar[bool] = True

    def __init__(
        self,
        sharing: Sharing,
        band: Band,
        links: LinksOverTime,
        cells: int = 1,
        *,
        planned: bool = False,
        slice_of: SliceOf | None = None,
    ) -> None:
        self._sharing, self._band = sharing, band
        self._moving = links.until_ns() < FOREVER_NS
        self._on_air = ActiveSet(band, links, cells, planned=planned, slice_of=slice_of)
        self._changed = False
        self._plan: Plan | None = None
        self.blocks = BLOCKS
        self._since_ns = 0
        self._first_until_ns = FOREVER_NS  # earliest timeout of a leg, or departure of a device

    def __len__(self) -> int:
        return len(self._on_air)

    def go_on(
        self, bursts: list[Burst], work: list[int], power_s: Array, numbers: IntArray, gains: Array, now_ns: int
    ) -> None:
        """Continue bursts that another model has started; no other burst may be on the air.

        Each burst is one transfer, all bursts have the same receiver, and devices do not move.

        Args:
            bursts: the bursts, in the order of their starts.
            work: remaining bits of each burst, in the integer units of `kernel.work`.
            power_s: [bursts] time on the air so far in s, multiplied by the fraction of full power.
            numbers: [blocks] numbers of the blocks in the last plan.
            gains: [bursts, blocks] fading gains in the blocks.
            now_ns: present time in ns.
        """
        on_air, self._since_ns, self._changed = self._on_air, now_ns, True
        on_air.add(bursts)
        on_air.work, on_air.burst["power_s"] = work, power_s
        on_air.carry([])
        on_air.gains.know(numbers, gains[None])
        self._first_until_ns = int(least(on_air.leg["until_ns"]))

    def start(self, bursts: list[Burst], now_ns: int) -> int:
        on_air = self._on_air
        if bursts:
            self._since_ns = now_ns
            for burst in bursts:
                burst[0].power_part = on_air.power_part(burst[0])
            self._first_until_ns = min(self._first_until_ns, *(leg.until_ns for burst in bursts for leg in burst))
            on_air.add(bursts)
            self._changed = True
        if not len(on_air):
            self._first_until_ns = FOREVER_NS
            return FOREVER_NS
        if self._changed:
            on_air.gather()
            self._changed, self._plan = False, None
        if self._plan is None:
            self._plan = self._make_plan()
        return self._plan.next_ns

    def move(self) -> None:
        if len(self._on_air):
            self._on_air.move()
            self._changed = True

    def cut(self, leg: Transfer, burst: Burst, now_ns: int) -> None:
        for place, other in enumerate(self._on_air.legs):
            if other is leg:
                self._on_air.leg["until_ns"][place] = self._first_until_ns = now_ns

    def extend(self, leg: Transfer, bits: int) -> None:
        on_air = self._on_air
        for place, other in enumerate(on_air.legs):
            if other is leg:
                on_air.work[place] += bits * BIT
                on_air.leg["left_nbit"][place] = on_air.work[place] / SCALE
                leg.size_bit += bits
                self._changed = True

    def advance(self, now_ns: int) -> list[Burst]:
        on_air, ended = self._on_air, []
        some_are_through = self._plan is None or now_ns >= self._plan.first_ns
        self._flow(now_ns)
        if now_ns >= self._first_until_ns and len(on_air):
            (over,) = (on_air.leg["until_ns"] <= now_ns).nonzero()
            if len(over):
                ended, some_are_through = self._take_off(over), True
            self._first_until_ns = int(on_air.leg["until_ns"].min(initial=FOREVER_NS))
        done = self._done() if some_are_through else None
        if done is not None:
            (through,) = on_air.of_bursts(np.logical_and, done).nonzero()
            if len(through):
                ended += self._take_off(on_air.legs_of(through))
        return ended

    def powers(self) -> Iterator[Power]:
        if self._plan is not None:
            from_ns = self._plan.edges_ns[:-1]
            for burst, power in zip(self._on_air.bursts, self._plan.rated.power.tolist(), strict=True):
                yield burst[0], from_ns if len(power) > 1 else from_ns[:1], power

    def rates(self) -> Iterator[Rates]:
        if self._plan is None:
            return
        flows = np.where(self._on_air.leg["left_nbit"][:, None] > 0, self._plan.rated.rate_bps, 0.0)
        of_leg, from_ns = dict(zip(self._on_air.legs, flows, strict=True)), self._plan.edges_ns[:-1]
        silent = np.zeros(len(from_ns))
        for burst in self._on_air.bursts:
            yield burst, from_ns, np.array([of_leg.get(leg, silent) for leg in burst])

    def _done(self) -> Mask | None:
        leg = self._on_air.leg
        done: Mask = leg["dead"] | (leg["left_nbit"] == 0.0)
        return done if done.any() else None

    def _take_off(self, gone: IntArray) -> list[Burst]:
        """Set the outcomes of the transfers at the indices `gone`, remove them, and return the ended bursts."""
        on_air = self._on_air
        fates = on_air.leg.take(gone)
        for place, met_outage, dead in zip(
            gone.tolist(), fates["outage"].tolist(), fates["dead"].tolist(), strict=True
        ):
            leg, work = on_air.legs[place], on_air.work[place]
            leg.transmitted_bit = leg.size_bit - work / BIT
            leg.lost = "outage" if met_outage else "" if not work else "unreachable" if dead else leg.until_reason
        self._changed, self._plan = True, None
        return on_air.remove_legs(gone)

    # ---- the flow of bits --------------------------------------------------------------------------------------------

    def _flow(self, now_ns: int) -> None:
        """Subtract the bits that each transfer has carried since the last call from its remaining bits."""
        plan, on_air = self._plan, self._on_air
        if plan is not None and now_ns > self._since_ns:
            rates, power = plan.rated.rate_bps, plan.rated.power
            spans = list(passed(plan.edges_ns, now_ns))
            on_air.carry([(rates[:, block], span_ns) for block, span_ns in spans])
            for block, span_ns in spans:
                on_air.burst["power_s"] += power[:, min(block, power.shape[1] - 1)] * (span_ns / NS_PER_S)
            if self._band.outage_sinr > 0:
                on_air.leg["outage"] |= _in_outage(plan, now_ns - self._since_ns, self._band.outage_sinr)
            if self._band.slotted:
                self._hold_slot(plan, now_ns)
            self.blocks = blocks_after(plan.edges_ns, now_ns, self.blocks)
            self._plan = None
        self._since_ns = now_ns

    def _hold_slot(self, plan: Plan, now_ns: int) -> None:
        """Store the rates and powers of the current slot, which do not change until its end."""
        if now_ns % self._band.slot_ns == 0:
            return
        block = bisect_right(plan.edges_ns, now_ns) - 1
        leg, rated = self._on_air.leg, plan.rated
        leg["slot_rate_bps"], leg["slot_sinr"] = rated.rate_bps[:, block], rated.sinr[:, block]
        leg["slot_carries"] = True if rated.carries is None else rated.carries[:, block]
        self._on_air.burst["slot_power"] = rated.power[:, min(block, rated.power.shape[1] - 1)]

    # ---- the plan ----------------------------------------------------------------------------------------------------

    def _make_plan(self) -> Plan:
        on_air, band, since_ns = self._on_air, self._band, self._since_ns
        band.check_blocks(on_air.legs[0].started_ns, since_ns)
        room = MOST_GAINS // on_air.gains.mean.size
        edges_ns, numbers = band.blocks(since_ns, max(1, min(self.blocks, room)))
        rated = rate_cells(on_air, self._sharing, band, numbers)
        if band.slotted and since_ns % band.slot_ns:
            rated = self._resume_slot(rated)
        if self._moving:
            rated = rated._replace(dead=None)  # a moving device that is out of reach may return
        on_air.mark_dead(rated.dead)
        needed = needed_ns(edges_ns, rated.rate_bps, on_air.leg["left_nbit"])
        ends = on_air.of_bursts(np.maximum, needed)
        soonest = float(least(ends))
        if not soonest > 0.0 or rated.dead is not None or not on_air.plain:
            done = self._done()
            if done is not None:
                needed[done] = 0.0
                ends = on_air.of_bursts(np.maximum, needed)
                soonest = float(least(ends))
        edges = edges_ns.tolist()
        end_ns = self._first_end_ns(edges, rated.rate_bps, needed, ends, soonest)
        next_ns = min(self._first_until_ns, edges[-1], end_ns)
        first_ns = since_ns + floor(min(soonest - NEAR_NS, FOREVER_NS))
        return Plan(edges, rated, needed, first_ns, next_ns)

    def _first_end_ns(self, edges: list[int], rate_bps: Array, needed: Array, ends: Array, soonest: float) -> int:
        """Return the exact end time in ns of the burst that ends first, at the delivery to its last receiver.

        The result is `FOREVER_NS` if the plan ends earlier.
        """
        on_air, since_ns = self._on_air, self._since_ns
        if not since_ns + soonest < edges[-1] + NEAR_NS:
            return FOREVER_NS
        if not soonest:
            return since_ns
        work, first_ns = on_air.work, FOREVER_NS
        for burst in (ends <= soonest + NEAR_NS).nonzero()[0].tolist():
            last = [burst]
            if not on_air.plain:
                legs = on_air.legs_of(np.array(last))
                last = legs[(needed[legs] > 0.0) & (needed[legs] >= ends[burst] - NEAR_NS)].tolist()
            first_ns = min(first_ns, max([end_of(work[leg], rate_bps[leg], edges) for leg in last]))
        return first_ns

    def _resume_slot(self, rated: Rated) -> Rated:
        """Replace the first block by the remainder of the current slot, in which rates and powers are already fixed."""
        leg = self._on_air.leg
        rated.rate_bps[:, 0], rated.sinr[:, 0] = leg["slot_rate_bps"], leg["slot_sinr"]
        if rated.carries is not None:
            rated.carries[:, 0] = leg["slot_carries"]
        power = np.array(np.broadcast_to(rated.power, (len(self._on_air), rated.sinr.shape[1])))
        power[:, 0] = self._on_air.burst["slot_power"]
        return rated._replace(power=power)


def blocks_after(edges_ns: list[int], now_ns: int, blocks: int) -> int:
    """Return the number of fading blocks over which rates are planned next.

    The number grows if the last plan was used up, and shrinks if a change ended the plan within its first quarter.
    """
    count = len(edges_ns) - 1
    if now_ns >= edges_ns[-1]:
        return min(4 * count, _MOST_BLOCKS)
    return max(1, count // 2) if now_ns <= edges_ns[1 + (count - 1) // 4] else blocks


def end_of(work: int, rate_bps: Array, edges_ns: list[int]) -> int:
    """Return the time in ns at which the bits `work` (integer units) are carried at the planned rates [blocks].

    The result is `FOREVER_NS` if the plan ends earlier.
    """
    if not work:
        return edges_ns[0]
    for rate, start_ns, end_ns in zip(rate_bps.tolist(), edges_ns, edges_ns[1:], strict=False):
        per_ns = int(rate * SCALE)
        if per_ns:
            its_end_ns = start_ns - -work // per_ns
            if its_end_ns <= end_ns:
                return its_end_ns
            work -= per_ns * (end_ns - start_ns)
    return FOREVER_NS


def _in_outage(plan: Plan, since_ns: int, outage_sinr: float) -> Mask:
    """Return the mask [transfers] of transfers with an outage in the first `since_ns` ns of the planned time.

    A transfer has an outage in a block if it carries bits in this block and its SINR (linear) is below `outage_sinr`.
    """
    edges_ns = np.array(plan.edges_ns)
    starts_ns = (edges_ns[:-1] - edges_ns[0]).astype(np.float64)
    spanned = starts_ns + 1e-3 < np.minimum(plan.needed_ns, since_ns)[:, None]  # 1e-3: tolerance for rounding errors
    low = (plan.rated.sinr < outage_sinr) & spanned
    if plan.rated.carries is not None:
        low &= plan.rated.carries
    met: Mask = low.any(axis=1)
    return met
