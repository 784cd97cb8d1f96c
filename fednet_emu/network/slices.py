"""Network slices, which divide a band between the federation and other users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, final

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array
from fednet_emu.component.component import Component
from fednet_emu.errors import did_you_mean
from fednet_emu.network.access.base import RatedAccess
from fednet_emu.network.access.orthogonal import Ofdma, Tdma, on_parts
from fednet_emu.network.air.sharing import Active, Allocation, RateInputs, Sharing
from fednet_emu.network.air.transfer import FileTransfer, Transfer

FEDERATION, OTHERS = "fl", "others"
"""Names of the federation's slice, and of the slice for other traffic that names no slice."""
_NOISE = 1e-12


class Slice(Component):
    """A share of the uplink and of the downlink, with the attributes of RRMPolicyRatio (3GPP TS 28.541, 4.3.36).

    Shares are fractions of the band, not of the data rate. Simultaneous transmissions in a slice divide its share
    equally.
    Ignored here: admission control, and shares that are given as rates in bit/s.
    """

    priority: int = Field(0, ge=0, le=100)
    """Priority of the slice in the division of the band that remains after all guaranteed shares; 0 is the highest
    priority. If `access` is `tdma`, transmissions take turns in order of priority."""
    weight: float = Field(1.0, gt=0, le=1e6)
    """Weight of the slice. Slices of the same priority get shares in proportion to their weights; each share is at
    least the guaranteed share and at most `max`."""
    dedicated: float = Field(0.0, ge=0, le=1)
    """Share of the band that is reserved for the slice, even while the slice sends nothing."""
    min: float = Field(0.0, ge=0, le=1)
    """Share of the band that is guaranteed to the slice while it sends. Other slices may use this share at other times.
    The guaranteed share is at least `dedicated`."""
    max: float = Field(1.0, gt=0, le=1)
    """Maximum share of the band, even while other parts of the band are free."""

    def _check(self) -> None:
        if self.max < self.guaranteed:
            raise ValueError(f"max is below min, got {self.max:g} and {self.guaranteed:g}")

    @property
    def guaranteed(self) -> float:
        """Guaranteed share of the band while the slice sends: the larger of `min` and `dedicated`."""
        return max(self.min, self.dedicated)


@final
class Slices:
    """The network slices of a run, in the order of the scenario.

    Attributes:
        names: names of the slices. `others` and `fl` have default settings if the scenario does not define them.
    """

    def __init__(self, given: Mapping[str, Slice]) -> None:
        every = {**given, **{name: Slice() for name in (OTHERS, FEDERATION) if name not in given}}
        self.names, self._all = list(every), list(every.values())
        self._own = self.names.index(FEDERATION)
        self.given = bool(given)

    def of(self, transfer: Transfer) -> int:
        """Return the index of the network slice that carries a transfer."""
        return transfer.slice if type(transfer) is FileTransfer else self._own

    def level(self, transfer: Transfer) -> int:
        """Return the priority of the network slice that carries a transfer; 0 is the highest priority."""
        return self._all[self.of(transfer)].priority

    def parts(self, active: Sequence[bool]) -> list[float]:
        """Return the band share of each slice; `active` is True for slices that have transmissions on the air.

        Each active slice has its guaranteed share. The remaining band, without the dedicated shares of inactive slices,
        is divided in order of priority. Slices of the same priority have shares in proportion to their weights, but at
        least the guaranteed and at most the maximum share.
        """
        own = [(number, its) for number, its in enumerate(self._all) if active[number]]
        part = [0.0] * len(self._all)
        left = 1.0 - sum(its.dedicated for its, sends in zip(self._all, active, strict=True) if not sends)
        for number, its in own:
            part[number] = its.guaranteed
            left -= its.guaranteed
        for priority in sorted({its.priority for _, its in own}):
            level = [(number, its) for number, its in own if its.priority == priority]
            before = sum(its.guaranteed for _, its in level)
            for (number, _), new in zip(level, _shared([its for _, its in level], before + left), strict=True):
                part[number] = new
            left -= sum(part[number] for number, _ in level) - before
        return part

    def capacity(self, name: str, loads: Mapping[str, float], *, divides: bool) -> float:
        """Return the maximum long-run band share of the slice `name` if other slices carry the given loads.

        `loads` contains the load of each other slice as a fraction of the band. If `divides` is True, simultaneous
        bursts divide the band. If it is False, bursts take turns, and slices of the same or a higher priority carry
        their loads first.
        """
        every, active = {name: self._all[self.names.index(name)]}, {name, *loads}
        for other, its in zip(self.names, self._all, strict=True):
            load = loads.get(other, 0.0)
            if other == name:
                continue
            if other in active:
                first = 1.0 if not divides and its.priority <= every[name].priority else its.guaranteed
                limits = {"min": min(first, load), "max": min(its.max, load), "dedicated": 0.0}
                every[other] = its.model_copy(update=limits)
            every[f"{other}, idle"] = Slice(dedicated=max(its.dedicated - load, 0.0))
        probe = Slices(every)
        return probe.parts([other in active for other in probe.names])[0]

    def taken(self, own: int, files: Mapping[int, int], *, divides: bool) -> float:
        """Return the fraction of the federation's band share that is lost to files of other users.

        `own` is the number of the federation's bursts on the air. `files` is the number of files of other users on the
        air in each slice. If `divides` is True, bursts divide the band; otherwise they take turns, and slices only
        determine their order.
        """
        if not (self.given and divides):
            others = sum(files.values())
            return others / (own + others) if others else 0.0
        if not own or not any(files.values()):
            return 0.0
        active = [number == self._own or files.get(number, 0) > 0 for number in range(len(self._all))]
        alone = [number == self._own for number in range(len(self._all))]
        share = self.parts(active)[self._own] * own / (own + files.get(self._own, 0))
        return 1.0 - share / self.parts(alone)[self._own]


def _shared(level: Sequence[Slice], room: float) -> list[float]:
    """Return the band shares of slices of the same priority, which sum to at most `room`.

    The share of a slice is its weight times a common factor, but at least its guaranteed and at most its maximum share.
    The factor is chosen such that the shares sum to `room`. If the sum of the maximum shares is below `room`, each
    slice has its maximum share.
    """
    for edge in sorted({edge / its.weight for its in level for edge in (its.guaranteed, its.max)}):
        if sum(min(max(its.weight * edge, its.guaranteed), its.max) for its in level) >= room - _NOISE:
            free = [its for its in level if its.guaranteed / its.weight < edge <= its.max / its.weight]
            kept = [
                its.guaranteed if edge <= its.guaranteed / its.weight else its.max for its in level if its not in free
            ]
            t = (room - sum(kept)) / sum(its.weight for its in free) if free else 0.0
            return [min(max(its.weight * t, its.guaranteed), its.max) for its in level]
    return [its.max for its in level]


@final
class Sliced(Sharing):
    """Division of a band among network slices, and of each slice's share among its bursts (transmissions).

    Args:
        access: the access scheme, which would divide the band equally if there were no slices.
    """

    overlapping: ClassVar[bool] = False

    def __init__(self, access: RatedAccess, slices: Slices) -> None:
        self._access, self._slices = access, slices

    def _part(self, active: Active) -> Array:
        """Return the band share of each burst (transmission) [bursts]."""
        of = active.slice_of
        assert of is not None, "an air with slices knows them"
        counts = np.bincount(of, minlength=len(self._slices.names))
        part: Array = np.array(self._slices.parts((counts > 0).tolist()))[of] / counts[of]
        return part

    def power(self, inputs: RateInputs) -> Array:
        """Return the power fraction of each burst [bursts, blocks or 1]; 0 if the band share of the burst is 0."""
        own = self._access.power(inputs)
        return (inputs.active.part[:, None] if own is None else own) * (self._part(inputs.active) > 0)[:, None]

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """Divide the share of each slice equally among its transmissions.

        A transmission with the share 0 stays on the air but carries no bits.
        """
        active, part = inputs.active, self._part(inputs.active)
        share = np.where(part > 0, part, 1.0 / len(part))[active.burst]  # a share of 0 would have an infinite SINR
        carries = np.broadcast_to((part > 0)[active.burst][:, None], inputs.own.shape)
        if self._access.wired:
            return Allocation(inputs.own, share[:, None], inputs.own, carries)
        return on_parts(inputs, share)._replace(carries=carries)


def problems(slices: Mapping[str, Slice], scenario: Any) -> Iterator[tuple[str, str]]:
    """Yield the key and the error message of each slice setting that is invalid or contradicts the scenario."""
    classes = scenario.traffic
    for place, its in enumerate(classes):
        if its.slice is not None and its.slice not in {*slices, OTHERS, FEDERATION}:
            yield f"traffic.{place}.slice", f"there is no such slice, got {its.slice}{did_you_mean(its.slice, slices)}"
    if not slices:
        return
    if not classes:
        yield "network.slices", "divide a band among the federation and others, got no traffic; leave them out"
    if (total := sum(its.guaranteed for its in slices.values())) > 1 + _NOISE:
        yield "network.slices", f"guarantees add up to {total:g}, must be at most 1"
    used = {its.slice or OTHERS for its in classes} | {FEDERATION}
    for name in slices.keys() - used if classes else ():
        yield f"network.slices.{name}", "has no traffic; name it in traffic, or leave it out"
    for direction in sorted({its.direction for its in classes}):
        access = getattr(scenario.network, direction).access
        in_parts = (
            isinstance(access, Ofdma) and access.subchannels is None and access.scheduler == "equal"
        ) or access.wired
        given = sorted({key for its in slices.values() for key in its.model_dump(exclude_defaults=True)} - {"priority"})
        if isinstance(access, Tdma) and given:
            what = f"turns cannot be weighed, got {given[0]} with network.{direction}.access tdma"
            yield "network.slices", f"{what}; leave it out, or choose ofdma"
        elif not in_parts and not isinstance(access, Tdma):
            what = f"are parts of a band that is divided equally, got network.{direction}.access {access.kind}"
            yield "network.slices", f"{what}; choose ofdma without subchannels, or tdma for priorities alone"
