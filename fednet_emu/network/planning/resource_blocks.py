"""One resource block per device, assigned so that successful uploads represent as many samples as possible.

Chen, Yang, Saad, Yin, Poor, Cui: "A Joint Learning and Communications Framework for Federated Learning Over Wireless
Networks", IEEE Transactions on Wireless Communications 20(1), 2021, https://arxiv.org/abs/1909.07972, Section III.

An upload of device k in block n is lost with probability q_kn = 1 - exp(-m (I_n + B N0) / (P h_k)), where m is the
waterfall threshold, I_n the interference in the block, B N0 the noise, P the transmit power, and h_k the path gain. The
Hungarian method minimises the sum of K_k (q_kn - 1) over all assigned pairs, where K_k is the number of samples of
device k. Pairs in which a device needs more time than gamma_T or more energy than gamma_E are excluded. Section VI has
three baselines: random blocks for the same devices, random blocks for random devices, and the blocks with the minimum
sum of error probabilities.

Differences from the paper: h_k is the mean gain, so that q is the probability of Rayleigh fading below a threshold. All
blocks have the same gain and width, and differ only in their interference. Devices send at full power and compute at
full clock frequency. A device whose random block violates a limit is left out of the round, and its block stays empty.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import scipy
from pydantic import Field

from fednet_emu.arrays import Array, IntArray, Mask, exp10, expm1
from fednet_emu.network.air.transfer import Grant
from fednet_emu.network.planning.base import Planner, Round
from fednet_emu.units import db_to_linear


class ResourceBlocks(Planner):
    """One resource block for each device; devices that get no block are left out of the round."""

    loses: ClassVar[bool] = True
    blocks: int = Field(12, gt=0, le=10_000)
    """Number of resource blocks; 12 in the paper."""
    block_hz: float | None = Field(None, gt=0)
    """Width of an uplink block in Hz, if the blocks do not fill the band; null to divide the band into equal blocks."""
    inr_db: tuple[float, ...] = ()
    """Interference power relative to the noise power in each block, in dB; empty for no interference."""
    waterfall_db: float = 0.023
    """Waterfall threshold m in dB; an upload at the SINR x is lost with probability 1 - exp(-m / x)."""
    max_upload_s: float | None = Field(None, gt=0)
    """Maximum airtime of an upload in s; null for no limit."""
    max_delay_s: float | None = Field(None, gt=0)
    """Maximum total time of download and upload in s (gamma_T); null for no limit."""
    max_energy_j: float | None = Field(None, gt=0)
    """Maximum energy in J of a device for computing and sending in a round (gamma_E); null for no limit."""
    assignment: Literal["most-samples", "random-blocks", "random", "least-error"] = "most-samples"
    """Assignment of blocks. most-samples: the method of the paper. The other values are baselines of the paper.
    random-blocks: random blocks for the devices that `most-samples` selects. random: random devices in random blocks.
    least-error: the blocks with the minimum sum of error probabilities."""

    def _check(self) -> None:
        if self.inr_db and len(self.inr_db) != self.blocks:
            raise ValueError(f"inr_db is not one for each block, got {len(self.inr_db)} for {self.blocks} blocks")

    def plan(self, round_: Round) -> Grant[Array]:
        noise = 1.0 + exp10(np.array(self.inr_db) / 10.0) if self.inr_db else np.ones(self.blocks)
        part = self._part(round_)
        sinr = round_.snr[:, None] / (part * noise)
        air_s = self.air_s(round_, sinr)
        error = -expm1(-db_to_linear(self.waterfall_db) / sinr)
        block = self._blocks(round_, error, self._allowed(round_, air_s))
        who, full = np.arange(len(block)), np.ones(len(block))
        ends_s = round_.ready_s + round_.compute_s + air_s[who, block]
        return Grant(np.where(block >= 0, part, 0.0), full, full, ends_s, noise[block], error[who, block])

    @property
    def draws(self) -> bool:
        return self.assignment.startswith("random")

    def _blocks(self, round_: Round, error: Array, allowed: Mask) -> IntArray:
        if self.assignment == "least-error":  # as many blocks as possible, then the minimum sum of error probabilities
            return assign(len(error) + 1.0 - error, allowed)
        block = assign(round_.weight[:, None] * (1.0 - error), allowed)
        if not self.draws:
            return block
        assert round_.rng is not None, "rounds of random plans have a generator"
        if self.assignment == "random":
            who = round_.rng.permutation(len(block))[: self.blocks]
        else:
            who = np.flatnonzero(block >= 0)
        block = np.full(len(block), -1)
        block[who] = round_.rng.permutation(self.blocks)[: len(who)]
        return np.where(allowed[np.arange(len(block)), block], block, -1)

    def air_s(self, round_: Round, sinr: Array) -> Array:
        """Return airtimes [n, blocks] in s of uploads at the SINRs `sinr` [n, blocks]; infinite if the rate is 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(round_.size_bit / round_.law.rates_bps(sinr, round_.bandwidth_hz * self._part(round_)))

    def _part(self, round_: Round) -> float:
        """Return the share of the band for each block.

        Blocks are `block_hz` wide. They are equal parts of the band if `block_hz` is null or too large for the band.
        """
        return min(1.0 / self.blocks, (self.block_hz or round_.bandwidth_hz) / round_.bandwidth_hz)

    def _allowed(self, round_: Round, air_s: Array) -> Mask:
        drawn_w = round_.power_w / round_.amplifier_efficiency + round_.circuit_w
        allowed: Mask = np.isfinite(air_s)
        if self.max_upload_s is not None:
            allowed &= air_s <= self.max_upload_s
        if self.max_delay_s is not None:
            allowed &= round_.ready_s[:, None] + air_s <= self.max_delay_s
        if self.max_energy_j is not None:
            allowed &= round_.compute_j[:, None] + drawn_w[:, None] * air_s + round_.bits_j <= self.max_energy_j
        return allowed


def assign(worth: Array, allowed: Mask) -> IntArray:
    """Assign at most one block to each device and one device to each block such that the sum of `worth` is maximal.

    Args:
        worth: [n, blocks] value of each pair of device and block, above 0.
        allowed: [n, blocks] mask of the pairs that may be assigned.

    Returns:
        The index of the block of each device [n]; -1 for a device without a block.
    """
    device, block = scipy.optimize.linear_sum_assignment(np.where(allowed, worth, 0.0), maximize=True)
    given = np.full(len(worth), -1)
    granted = allowed[device, block]
    given[device[granted]] = block[granted]
    return given
