"""Rates of all transmissions on the air, computed from the access scheme and the interference between cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask, least
from fednet_emu.network.air.active_set import ActiveSet
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.sharing import Active, RateInputs, Sharing


class Rated(NamedTuple):
    """SINRs, rates and powers in a band over consecutive fading blocks.

    A burst is one transmission, and a leg is the transfer of a burst to one receiver.

    Attributes:
        sinr: [legs, blocks] SINR (linear).
        rate_bps: [legs, blocks] rate in bit/s.
        carries: [legs, blocks] True if a block may carry bits; None if every block may.
        power: [bursts, blocks or 1] fraction of its sender's power that each burst uses.
        dead: [legs] True if a leg never carries bits with its share of the band, even without interference and in the
            best of 10^8 fading blocks; None if there is no such leg.
    """

    sinr: Array
    rate_bps: Array
    carries: Mask | None
    power: Array
    dead: Mask | None


_QUIET = np.ones((1, 1))


def rate_cells(on_air: ActiveSet, sharing: Sharing, band: Band, numbers: IntArray) -> Rated:
    """Compute the rates of all bursts on the air in the blocks with the numbers `numbers` [blocks].

    Signals from other cells count as noise, which is spread evenly over the band. The power of this noise follows from
    the power that senders radiate in each block.
    """
    heard = on_air.gains.heard(numbers)
    quiet, antennas = _QUIET if len(heard) == 1 else np.ones((len(heard), 1)), band.reception.antennas

    def inputs(cell: Active) -> RateInputs:
        here = heard[cell.rows][:, cell.columns]
        own = cell.of_legs(here)
        if antennas > 1 and (branches := _branches(sharing, band, cell)) > 1:
            own = on_air.gains.combined(*_pairs(on_air, cell), numbers, branches)
        others = np.zeros_like(here) if band.reception.NULLS else here
        return RateInputs(cell, own, others, quiet[cell.rows], numbers, band)

    cells = on_air.cells
    if len(cells) == 1:
        its = inputs(cells[0])
        power = sharing.power(its)
        return _rated(sharing, its, power, _dead(on_air, sharing, cells[0], its, power))
    alone = [inputs(cell) for cell in cells]
    powers = [sharing.power(each) for each in alone]
    dead = [_dead(on_air, sharing, *of_cell) for of_cell in zip(cells, alone, powers, strict=True)]
    noise = _noise_and_other_cells(cells, powers, heard)
    parts = [
        _rated(sharing, each._replace(noise=noise[cell.rows]), power, its_dead)
        for cell, each, power, its_dead in zip(cells, alone, powers, dead, strict=True)
    ]
    return _together(on_air, parts, heard.shape[2])


def _branches(sharing: Sharing, band: Band, cell: Active) -> int:
    return band.reception.branches(len(cell.radio) if sharing.overlapping else 1)


def _pairs(on_air: ActiveSet, cell: Active) -> tuple[IntArray, IntArray]:
    columns = on_air.burst["column"][on_air.burst_of_leg]
    return on_air.leg["row"][cell.legs], columns[cell.legs]


def _dead(on_air: ActiveSet, sharing: Sharing, cell: Active, inputs: RateInputs, power: Array | None) -> Mask | None:
    """Return the mask [legs] of legs (transfers to one receiver) that never carry bits; None if there are none."""
    active, band = cell, inputs.band
    if (
        active.plain
        and active.grants is None
        and band.reception.antennas == 1
        and on_air.gains.lowest > band.doubtful_snr
    ):
        return None
    branches = _branches(sharing, band, cell)
    mean = active.of_legs(active.mean)
    if branches != band.reception.antennas:
        mean = mean * (branches / band.reception.antennas)
    if active.grants is None and least(mean * active.part_of_legs()) > band.doubtful_snr:
        return None
    fading = band.fading.combined(branches)
    best = mean * np.where(on_air.gains.in_sight(*_pairs(on_air, cell)), fading.peak(True), fading.peak(False))
    heard, noise, numbers = inputs.heard[:, :, :1], inputs.noise[:, :1], inputs.numbers[:1]
    at_best = inputs._replace(own=best[:, None], heard=heard, noise=noise, numbers=numbers)
    allocation = sharing.allocate(at_best, None if power is None else power[:, :1])
    dead: Mask = band.rates_bps(allocation.clear, allocation.share)[:, 0] == 0
    return dead if dead.any() else None


def _rated(sharing: Sharing, inputs: RateInputs, power: Array | None, dead: Mask | None) -> Rated:
    allocation, band = sharing.allocate(inputs, power), inputs.band
    rate_bps, carries = band.rates_bps(allocation.sinr, allocation.share), allocation.carries
    if carries is not None:
        rate_bps = np.where(carries, rate_bps, 0.0)
    if band.threshold > 0:
        reaches = allocation.sinr >= band.threshold
        carries = reaches if carries is None else carries & reaches
    if power is None:
        power = inputs.active.part[:, None]
    return Rated(allocation.sinr, rate_bps, carries, power, dead)


def _noise_and_other_cells(cells: list[Active], powers: list[Array | None], heard: Array) -> Array:
    """Return noise plus interference from other cells at each receiver [receivers, blocks], relative to the noise."""
    receivers, senders, blocks = heard.shape
    foreign, radiated = np.ones((receivers, senders), np.bool_), np.zeros((senders, blocks))
    for cell, power in zip(cells, powers, strict=True):
        foreign[np.ix_(cell.rows, cell.columns)] = False
        radiated[cell.columns] += 1.0 if power is None else cell.radiated(power)
    noise: Array = 1.0 + np.einsum("ejb,jb->eb", heard * foreign[:, :, None], np.minimum(radiated, 1.0))
    return noise


def _together(on_air: ActiveSet, parts: list[Rated], blocks: int) -> Rated:
    legs = (len(on_air.legs), blocks)
    sinr, rate_bps, power = np.empty(legs), np.empty(legs), np.empty((len(on_air), blocks))
    carries = None if all(part.carries is None for part in parts) else np.ones(legs, np.bool_)
    dead = None if all(part.dead is None for part in parts) else np.zeros(len(on_air.legs), np.bool_)
    for cell, part in zip(on_air.cells, parts, strict=True):
        sinr[cell.legs], rate_bps[cell.legs], power[cell.bursts] = part.sinr, part.rate_bps, part.power
        if dead is not None and part.dead is not None:
            dead[cell.legs] = part.dead
        if carries is not None and part.carries is not None:
            carries[cell.legs] = part.carries
    return Rated(sinr, rate_bps, carries, power, dead)
