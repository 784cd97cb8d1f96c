"""The access scheme of planned rounds: a planner grants parts of the band, powers and clocks when a round starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
from typing_extensions import override

from fednet_emu.arrays import Array
from fednet_emu.network.access.base import RatedAccess, Use
from fednet_emu.network.access.orthogonal import on_parts
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.sharing import Allocation, RateInputs
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.network.planning import AnyPlanner, LeastTime
from fednet_emu.radio.rates.shannon import Shannon


class Planned(RatedAccess):
    """Each device of a round has its own part of the band, or its turn, at the power and the clock that were planned.

    A planner divides them at the start of each round, from the knowledge of the server: mean SNRs, nominal computing
    times, sizes. Messages without a grant have an equal part; where all parts together are more than the
    band, all are narrowed alike. Several cells are planned one by one, each with the whole band.
    Ignored here: frequency selectivity, the bits that tell devices of their grants, and in plans fading beyond the
    planner's `margin_db`, movement, stragglers, queues on the downlink, and interference from other cells.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink"})

    planner: AnyPlanner = LeastTime()
    """How the band, the powers and the clocks of a round are divided."""

    spare: Literal["idle", "used"] = "idle"
    """Use of parts of the band whose devices do not send: they stay `idle`, as in the papers, so that each
    upload takes the time that was planned; or they are `used` by those that do, in proportion to their parts and as far
    as the rate law allows at their mean SNR, so that plans become bounds."""

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        algorithm, law = scenario.algorithm, scenario.channel.rate
        if "plans" not in algorithm.uses:
            what = f"the algorithm {algorithm.kind} does not choose its devices at the start of a round, got planned"
            yield "", f"{what}; choose another access, or one of {scenario.users('plans')}"
        if not isinstance(law, Shannon):
            what = f"plans are closed forms of channel.rate shannon, got planned with {law.kind}"
            yield "", f"{what}; choose another access, or that rate law"

    @property
    def capacity(self) -> int | None:
        """One if the planner makes devices send in turns, else no limit."""
        return 1 if self.planner.IN_TURNS else None

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        use = super().use(band, links, cells, devices)
        if self.planner.IN_TURNS:
            return use
        return use._replace(air=SharedAir(self, use.band, links, cells, planned=True), patience=None)

    def share(self, active: int) -> float:
        """The whole band in turns, else an equal part."""
        return 1.0 if self.planner.IN_TURNS else 1.0 / active

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """SINR and share of each leg on its own part of the band, or in its turn on the whole of it."""
        active = inputs.active
        if active.grants is None:  # in turns
            return on_parts(inputs, 1.0)
        share, noise = active.grants[active.burst].T
        whole = float(active.grants[:, 0].sum())
        if self.spare == "used" and whole < 1.0:
            lowest = inputs.band.law.min_sinr * noise
            snr = active.of_legs(active.mean) * active.part[active.burst]
            widest = np.divide(snr, lowest, out=np.ones(len(snr)), where=lowest > 0)
            share = np.maximum(share, np.minimum(share / whole, widest))
        else:
            share = share / max(1.0, whole)
        clear = inputs.own * (active.part[active.burst] / (share * noise))[:, None]
        return Allocation(clear / inputs.noise[active.receiver], share[:, None], clear)
