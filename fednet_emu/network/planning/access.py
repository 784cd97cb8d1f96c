"""Access scheme for planned rounds, in which a planner grants band shares, transmit powers and clock frequencies."""

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
    """Each device of a round has its own share of the band, or its own turn, at a planned power and clock frequency.

    A planner assigns band shares, transmit powers and clock frequencies at the start of each round, from mean SNRs,
    nominal computing times, and sizes of messages. Messages without a grant get an equal share of the band. If the sum
    of all shares exceeds the band, all shares are reduced by the same factor. The planner plans each cell separately,
    and each cell has the whole band.
    Ignored here: frequency selectivity, and the signalling bits of grants. Plans also ignore fading beyond the
    planner's `margin_db`, movement, stragglers, queues on the downlink, and interference from other cells.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink"})

    planner: AnyPlanner = LeastTime()
    """Rule that assigns band shares, transmit powers and clock frequencies to the devices of a round."""

    unused_bandwidth: Literal["idle", "used"] = "idle"
    """Use of band shares whose devices are not sending. idle: these shares stay unused, as in the papers, so that each
    upload takes its planned time. used: the devices that send divide these shares in proportion to their own shares, so
    that the planned times become upper bounds; a device gets no more bandwidth than the rate law can use at its mean
    SNR."""

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
        return 1 if self.planner.IN_TURNS else None

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        use = super().use(band, links, cells, devices)
        if self.planner.IN_TURNS:
            return use
        return use._replace(air=SharedAir(self, use.band, links, cells, planned=True), patience=None)

    def share(self, active: int) -> float:
        return 1.0 if self.planner.IN_TURNS else 1.0 / active

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        active = inputs.active
        if active.grants is None:  # devices send one at a time, without grants
            return on_parts(inputs, 1.0)
        share, noise = active.grants[active.burst].T
        whole = float(active.grants[:, 0].sum())
        if self.unused_bandwidth == "used" and whole < 1.0:
            lowest = inputs.band.law.min_sinr * noise
            snr = active.of_legs(active.mean) * active.part[active.burst]
            widest = np.divide(snr, lowest, out=np.ones(len(snr)), where=lowest > 0)
            share = np.maximum(share, np.minimum(share / whole, widest))
        else:
            share = share / max(1.0, whole)
        clear = inputs.own * (active.part[active.burst] / (share * noise))[:, None]
        return Allocation(clear / inputs.noise[active.receiver], share[:, None], clear)
