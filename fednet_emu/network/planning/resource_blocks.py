"""Resource blocks, one to a device, so that most samples arrive.

Chen, Yang, Saad, Yin, Poor, Cui: "A Joint Learning and Communications Framework for Federated Learning Over Wireless
Networks", IEEE Transactions on Wireless Communications 20(1), 2021, https://arxiv.org/abs/1909.07972, Section III.

Line by line: an upload of device k in block n is lost with the probability q = 1 - exp(-m (I_n + B N0) / (P h_k)); the
sum of K_k (q_kn - 1) over all pairs is as small as possible, K_k being the samples of the device, by the Hungarian
method; pairs that take longer than gamma_T or more energy than gamma_E are left out. Section VI has three baselines:
the same devices in random blocks, random devices in random blocks, and the least sum of error probabilities.

Differences from the paper: h_k is the mean gain, with which q is the probability that Rayleigh fading is below m; all
blocks have the same gain and width, and differ by their interference. Devices send at full power and compute at their
full clocks. A device whose random block breaks a limit is left out of the round, and its block stays empty.
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
import scipy
from pydantic import Field, model_validator

from fednet_emu.arrays import Array, IntArray, Mask, exp10, expm1
from fednet_emu.network.air.transfer import Grant
from fednet_emu.network.planning.base import Planner, Round
from fednet_emu.units import db_to_linear


class ResourceBlocks(Planner):
    """One block for each device, or none where there are too few: those are not asked in this round."""

    blocks: int = Field(12, gt=0, le=10_000)
    """Number of resource blocks; 12 in the paper."""
    block_hz: float | None = Field(None, gt=0)
    """Width of a block of the uplink in Hz, so that the downlink can have a wider band; null for equal parts."""
    interference_db: tuple[float, ...] = ()
    """Power of the interference over noise in each block, in dB; none if empty."""
    waterfall_db: float = 0.023
    """Waterfall threshold m in dB: an upload at the SINR x is lost with the probability 1 - exp(-m / x)."""
    upload_s: float | None = Field(None, gt=0)
    """Longest time of an upload in s; null for no limit."""
    delay_s: float | None = Field(None, gt=0)
    """Longest time of download and upload together in s (gamma_T); null for no limit."""
    energy_j: float | None = Field(None, gt=0)
    """Largest energy in J that a device may spend on computing and sending (gamma_E); null for no limit."""
    assignment: Literal["most-samples", "random-blocks", "random", "least-error"] = "most-samples"
    """How blocks are assigned: `most-samples` as in the paper; or one of its baselines: `random-blocks` for the devices
    that the paper's assignment chooses, `random` devices in random blocks, or the `least-error` probabilities."""

    @model_validator(mode="after")
    def _one_for_each_block(self) -> Self:
        if self.interference_db and len(self.interference_db) != self.blocks:
            raise ValueError(
                f"interference_db is not one for each block, got {len(self.interference_db)} for {self.blocks} blocks"
            )
        return self

    @property
    def loses(self) -> bool:
        """Always, if seldom."""
        return True

    def plan(self, round_: Round) -> Grant[Array]:
        """The assignment with the most expected samples."""
        noise = 1.0 + exp10(np.array(self.interference_db) / 10.0) if self.interference_db else np.ones(self.blocks)
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
        """Whether blocks are random."""
        return self.assignment.startswith("random")

    def _blocks(self, round_: Round, error: Array, allowed: Mask) -> IntArray:
        """The block of each device [n]; -1 for none."""
        if self.assignment == "least-error":  # as many blocks as possible, then the least sum of errors
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
        """Times on the air [n, blocks] of an upload at these SINRs; infinite without a rate."""
        with np.errstate(divide="ignore"):
            return np.asarray(round_.size_bit / round_.law.rates_bps(sinr, round_.bandwidth_hz * self._part(round_)))

    def _part(self, round_: Round) -> float:
        """Part of the band of each block; equal parts if blocks of `block_hz` do not fit."""
        return min(1.0 / self.blocks, (self.block_hz or round_.bandwidth_hz) / round_.bandwidth_hz)

    def _allowed(self, round_: Round, air_s: Array) -> Mask:
        drawn_w = round_.power_w / round_.amplifier_efficiency + round_.circuit_w
        allowed: Mask = np.isfinite(air_s)
        if self.upload_s is not None:
            allowed &= air_s <= self.upload_s
        if self.delay_s is not None:
            allowed &= round_.ready_s[:, None] + air_s <= self.delay_s
        if self.energy_j is not None:
            allowed &= round_.compute_j[:, None] + drawn_w[:, None] * air_s + round_.bits_j <= self.energy_j
        return allowed


def assign(worth: Array, allowed: Mask) -> IntArray:
    """Give at most one block to each device and one device to each block, so that the sum of `worth` is largest.

    Args:
        worth: value of a device in a block [n, blocks], above 0.
        allowed: which pairs may be [n, blocks].

    Returns:
        The block of each device [n]; -1 for none.
    """
    device, block = scipy.optimize.linear_sum_assignment(np.where(allowed, worth, 0.0), maximize=True)
    given = np.full(len(worth), -1)
    granted = allowed[device, block]
    given[device[granted]] = block[granted]
    return given
