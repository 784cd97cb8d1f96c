"""The rates of all who are on the air together: the access scheme within each cell, interference between cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.network.access.base import Scene, Split
from fednet_emu.network.medium.active_set import Cell, Roster
from fednet_emu.network.medium.band import Band


class Rated(NamedTuple):
    """What all legs of a band do over some blocks.

    Attributes:
        sinr: [legs, blocks] signal over noise and interference.
        rate_bps: [legs, blocks].
        carries: [legs, blocks] whether a block carries bits at all; None where every one does.
        power: [bursts, blocks or 1] part of its sender's power that each burst has.
        dead: [legs] whether a leg would carry nothing in the first block even if nobody disturbed it; None with fading,
            where the next block may be better.
    """

    sinr: Array
    rate_bps: Array
    carries: Mask | None
    power: Array
    dead: Mask | None


_QUIET = np.ones((1, 1))


def rate_cells(roster: Roster, band: Band, heard: Array, numbers: IntArray) -> Rated:
    """Rates of everything on the air.

    Senders of other cells are noise, at the power that they radiate in each block, spread evenly over the band.

    Args:
        roster: who is on the air.
        band: what every cell uses (reuse 1).
        heard: [ears, senders, blocks] what each receiver hears of each sender, over its noise.
        numbers: [blocks] numbers of the blocks.
    """
    quiet = _QUIET if len(heard) == 1 else np.ones((len(heard), 1))
    if len(roster.cells) == 1:
        (cell,) = roster.cells
        scene = Scene(cell.crew, heard[cell.ears][:, cell.columns], quiet[cell.ears], numbers, band)
        return _rated(scene, band.access.power(scene))
    scenes = [
        Scene(cell.crew, heard[cell.ears][:, cell.columns], quiet[cell.ears], numbers, band) for cell in roster.cells
    ]
    powers = [band.access.power(scene) for scene in scenes]
    noise = _noise_and_other_cells(roster.cells, powers, heard)
    parts = [
        _rated(Scene(cell.crew, scene.heard, noise[cell.ears], numbers, band), power)
        for cell, scene, power in zip(roster.cells, scenes, powers, strict=True)
    ]
    return _together(roster, parts, heard.shape[2])


def _rated(scene: Scene, power: Array | None) -> Rated:
    """The rates of one cell."""
    band = scene.band
    split = band.access.split(scene, power)
    rate_bps = band.law.rates_bps(split.sinr, band.bandwidth_hz * split.share)
    if split.carries is not None:
        rate_bps = np.where(split.carries, rate_bps, 0.0)
    if power is None:
        power = scene.crew.part[:, None]
    return Rated(split.sinr, rate_bps, split.carries, power, _dead(split, rate_bps, band))


def _dead(split: Split, rate_bps: Array, band: Band) -> Mask | None:
    if not band.constant:
        return None
    silent: Mask = rate_bps[:, 0] == 0
    if silent.any():
        silent &= band.law.rates_bps(split.clear, band.bandwidth_hz * split.share)[:, 0] == 0
    return silent


def _noise_and_other_cells(cells: list[Cell], powers: list[Array | None], heard: Array) -> Array:
    """Noise and what other cells radiate [ears, blocks], over the noise."""
    ears, senders, blocks = heard.shape
    cell_of_ear, cell_of_sender = np.full(ears, -1), np.full(senders, -1)
    radiated = np.zeros((senders, blocks))
    for number, (cell, power) in enumerate(zip(cells, powers, strict=True)):
        cell_of_ear[cell.ears] = number
        cell_of_sender[cell.columns] = number
        radiated[cell.columns] = 1.0 if power is None else cell.crew.radiated(power)
    foreign = cell_of_ear[:, None] != cell_of_sender[None, :]
    noise: Array = 1.0 + np.einsum("ejb,jb->eb", heard * foreign[:, :, None], radiated)
    return noise


def _together(roster: Roster, parts: list[Rated], blocks: int) -> Rated:
    """The parts of all cells in the order of the roster."""
    legs = (len(roster.legs), blocks)
    sinr, rate_bps, power = np.empty(legs), np.empty(legs), np.empty((len(roster), blocks))
    carries = None if all(part.carries is None for part in parts) else np.ones(legs, np.bool_)
    dead = None if parts[0].dead is None else np.empty(len(roster.legs), np.bool_)
    for cell, part in zip(roster.cells, parts, strict=True):
        sinr[cell.legs], rate_bps[cell.legs], power[cell.bursts] = part.sinr, part.rate_bps, part.power
        if dead is not None:
            dead[cell.legs] = part.dead
        if carries is not None and part.carries is not None:
            carries[cell.legs] = part.carries
    return Rated(sinr, rate_bps, carries, power, dead)
