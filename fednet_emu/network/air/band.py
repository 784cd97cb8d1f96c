"""A frequency band, and the rates of its links; a transfer over many fading blocks needs no event for each block."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from operator import mul

import numpy as np

from fednet_emu.arrays import Array, IntArray, Keys, Mask, least
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, to_ns
from fednet_emu.kernel.streams import uniform, uniforms
from fednet_emu.kernel.work import BIT, SCALE, work_per_ns
from fednet_emu.radio.fading import Fading
from fednet_emu.radio.rates.base import RateLaw
from fednet_emu.radio.receiver.combining import ONE_ANTENNA, Reception

ROUGHLY = 1e-9
"""Relative tolerance for comparisons, larger than the rounding differences between scalar and array calculations."""

MOST_BLOCKS = 1 << 24
"""Maximum number of fading blocks or slots in one transfer; a longer transfer is an error. A transfer over more blocks
would take minutes to compute, and fading averages out over far fewer blocks."""

_FEW_BLOCKS = 16
_MANY_BLOCKS = 4096
_FEW_GAINS = 8


Walk = tuple[int, float, float]
"""Result of a transfer that is alone in the band. It consists of the end time in ns (the start time if the transfer can
never end), the number of carried bits, and the lowest SINR (linear) among the blocks whose SINR reached the
threshold."""


QuickEnds = tuple[Array, Mask, Array]
"""Results of transfers, each on its own link. They consist of the end times [links] in ns, a mask [links] of the
transfers that end within the computed blocks, and the lowest SINR (linear) of each transfer [links]."""

ForOne = tuple[float, float, float, Callable[[float, bool], float], Callable[[float, float], float], int, bool]
"""Parameters of a link that is alone in the band: the share of the band that the link uses, the width of this share in
Hz, the SINR threshold, functions for the fading gain and the rate, the coherence time in ns, and whether the link never
fades."""


@dataclass(frozen=True)
class Band:
    """A frequency band with its rate law and block fading.

    Fading block k lasts from k to k + 1 times the coherence time. The SNR of a link combines all antennas of the
    receiver.

    Attributes:
        bandwidth_hz: width of the band in Hz.
        law: the rate law, which maps SINR and bandwidth in Hz to bit/s.
        fading: the fading at one antenna.
        coherence_ns: length of a fading block in ns.
        access_key: key of the random draws of random access.
        reception: how the receiver combines the signals of its antennas.
        share: fraction of the band that a transmission uses if no other transmission is on the air.
        threshold: minimum SINR (linear) at which a block carries bits; the rate law may require a higher SINR.
        slot_ns: length in ns of the access scheme's slots; `FOREVER_NS` for a scheme without slots.
        down: True if base stations send in the band, and devices receive.
        numbers: [devices] numbers used as keys of random draws; None for the device numbers.
    """

    bandwidth_hz: float
    law: RateLaw
    fading: Fading
    coherence_ns: int
    access_key: int = 0
    reception: Reception = ONE_ANTENNA
    share: float = 1.0
    threshold: float = 0.0
    slot_ns: int = FOREVER_NS
    down: bool = False
    numbers: IntArray | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        bandwidth_hz: float,
        law: RateLaw,
        fading: Fading,
        key: int = 0,
        reception: Reception = ONE_ANTENNA,
        *,
        down: bool = False,
    ) -> Band:
        """Create a band whose fading blocks have the coherence time of `fading` as their length.

        A link that is alone in the band uses the whole band.
        """
        coherence_ns = FOREVER_NS if np.isinf(fading.coherence_s) else to_ns(fading.coherence_s)
        return cls(bandwidth_hz, law, fading, coherence_ns, key, reception, down=down)

    @cached_property
    def constant(self) -> bool:
        return self.coherence_ns == FOREVER_NS

    @cached_property
    def outage_sinr(self) -> float:
        """SINR (linear) below which a transmission is lost."""
        return self.law.outage_sinr

    @cached_property
    def slotted(self) -> bool:
        """True if the access scheme has its own slots, which replace the fading blocks."""
        return self.slot_ns < FOREVER_NS

    @cached_property
    def doubtful_snr(self) -> float:
        """Mean SNR (linear) above which a link that is alone in the band certainly carries bits at some time.

        Above this SNR, `carries` need not be called. If the rate law has outages, a link sends at any SINR, and the
        transmission is lost if an outage occurs.
        """
        fading, share = self.fading.combined(self.reception.branches(1)), self.share
        needed = max(0.0 if self.outage_sinr > 0 else self.law.min_sinr, self.threshold)
        return needed * share / min(fading.peak(los) for los in (False, True)) * (1 + ROUGHLY)

    def carries(self, snr: float, *, los: bool) -> bool:
        """Return True if a link alone in the band, with this mean SNR, carries bits in at least 1 of 10^8 blocks."""
        share, bandwidth_hz, threshold, _, rate_of, _, _ = self.for_one
        sinr = snr * self.fading.combined(self.reception.branches(1)).peak(los) / share
        return sinr >= threshold and work_per_ns(rate_of(sinr, bandwidth_hz)) > 0

    # ---- one link alone ----------------------------------------------------------------------------------------------

    @cached_property
    def for_one(self) -> ForOne:
        laws = self.fading.combined(self.reception.branches(1)).gain, self.law.rate_bps
        return self.share, self.bandwidth_hz * self.share, self.threshold, *laws, self.coherence_ns, self.constant

    def alone(self, snr: float, fading_key: int, size_bit: int, start_ns: int, until_ns: int = FOREVER_NS) -> Walk:
        """Return the result of a transfer that is alone in the band; the transfer ends at `until_ns` at the latest.

        The rates are equal to those of `pace` for one link. They are computed with scalars for speed, because this
        method is called for each transmission if transmissions take turns.

        Raises:
            ScenarioError: the transfer spans more than `MOST_BLOCKS` fading blocks.
        """
        if size_bit <= 0:
            return start_ns, 0.0, math.inf
        share, bandwidth_hz, threshold, gain, rate_of, coherence_ns, constant = self.for_one
        in_sight, work, now_ns, lowest = fading_key & 1 == 1, size_bit * BIT, start_ns, math.inf
        block = start_ns // coherence_ns
        few = block + _FEW_BLOCKS
        while block < few:
            sinr = snr * gain(0.5 if constant else uniform(fading_key, block), in_sight) / share
            block += 1
            block_end_ns = block * coherence_ns
            if block_end_ns > until_ns:
                block_end_ns = until_ns
            if sinr >= threshold:
                if sinr < lowest:
                    lowest = sinr
                per_ns = int(rate_of(sinr, bandwidth_hz) * SCALE)
                if per_ns:
                    end_ns = now_ns - -work // per_ns
                    if end_ns <= block_end_ns:
                        return end_ns, float(size_bit), lowest
                    work -= per_ns * (block_end_ns - now_ns)
                elif constant:
                    return start_ns, 0.0, lowest
            elif constant:
                return start_ns, 0.0, lowest
            now_ns = block_end_ns
            if now_ns >= until_ns:
                return until_ns, size_bit - work / BIT, lowest
        return self._long_walk(snr, fading_key, size_bit, start_ns, (now_ns, lowest), work, until_ns)

    def _long_walk(
        self,
        snr: float,
        fading_key: int,
        size_bit: int,
        start_ns: int,
        so_far: tuple[int, float],
        work: int,
        until_ns: int,
    ) -> Walk:
        """Continue the computation of `alone` with arrays, each of which covers many fading blocks."""
        now_ns, lowest = so_far
        links, blocks = (np.array([snr]), np.array([fading_key], np.uint64)), 4 * _FEW_BLOCKS
        while True:
            self.check_blocks(start_ns, now_ns)
            blocks = min(blocks, -(-until_ns // self.coherence_ns) - now_ns // self.coherence_ns)
            edges_ns, sinr, rate_bps = self.pace(*links, now_ns, blocks)
            edges_ns = np.minimum(edges_ns, until_ns)
            per_ns = list(map(work_per_ns, rate_bps[0].tolist()))
            done = list(accumulate(map(mul, per_ns, np.diff(edges_ns).tolist())))
            last = bisect_left(done, work)  # the block in which the last bit is carried, if any
            heard = sinr[0, : last + 1]
            lowest = min(lowest, float(heard[heard >= self.threshold].min(initial=math.inf)))
            if last < len(done):
                rest = work - done[last] + per_ns[last] * int(edges_ns[last + 1] - edges_ns[last])
                return int(edges_ns[last]) - -rest // per_ns[last], float(size_bit), lowest
            work, now_ns = work - done[-1], int(edges_ns[-1])
            if now_ns == until_ns:
                return until_ns, size_bit - work / BIT, lowest
            blocks = min(2 * blocks, _MANY_BLOCKS)

    def soon_through(self, snr: Array, fading_key: Keys, size_bit: float, start_ns: int) -> QuickEnds:
        """Compute transfers on many links [links], each alone in the band, over a few fading blocks only.

        Unlike the exact results of `alone`, the results have rounding errors.
        """
        edges_ns, sinr, rate_bps = self.pace(snr, fading_key, start_ns, 1 if self.constant else _FEW_BLOCKS // 4)
        needed = needed_ns(edges_ns, rate_bps, np.full(len(snr), size_bit * NS_PER_S))
        after_ns = edges_ns[1:] - float(start_ns)
        sinr = np.where(sinr >= self.threshold, sinr, math.inf)
        sinr[:, 1:][needed[:, None] * (1 + ROUGHLY) < after_ns[:-1]] = math.inf  # blocks after the end of the transfer
        return start_ns + needed, needed <= after_ns[-1], sinr.min(axis=1)

    def pace(self, snr: Array, fading_key: Keys, from_ns: int, blocks: int) -> tuple[IntArray, Array, Array]:
        """Return block edges [blocks + 1] in ns, SINRs (linear) [links, blocks], and rates [links, blocks] in bit/s.

        Each link is alone in the band.
        """
        edges_ns, numbers = self.blocks(from_ns, blocks)
        gain = self.gains(fading_key[:, None], numbers[None, :], self.reception.branches(1))
        sinr = snr[:, None] * gain / self.share
        return edges_ns, sinr, self.rates_bps(sinr, self.share)

    # ---- shared by all -----------------------------------------------------------------------------------------------

    def mean_bps(self, snr: Array) -> Array:
        """Return the rates in bit/s of links at their mean SNRs; each link is alone in the band."""
        return np.asarray(self.rates_bps(snr / self.share, self.share), np.float64)

    def rates_bps(self, sinr: Array, share: Array | float) -> Array:
        """Return the rates in bit/s on the shares `share` of the band; 0 at SINRs below `threshold`."""
        rate_bps = self.law.rates_bps(sinr, self.bandwidth_hz * share)
        return rate_bps if self.threshold <= 0 else np.where(sinr >= self.threshold, rate_bps, 0.0)

    def check_blocks(self, start_ns: int, now_ns: int) -> None:
        """Check that a transfer does not span more than `MOST_BLOCKS` blocks.

        Raises:
            ScenarioError: more than `MOST_BLOCKS` blocks lie between `start_ns` and `now_ns`.
        """
        length_ns = self.slot_ns if self.slotted else self.coherence_ns
        if now_ns - start_ns > MOST_BLOCKS * length_ns:
            key = "network.*.access.slot_s" if self.slotted else "channel.fading.coherence_s"
            raise ScenarioError(
                f"{key}: a transfer spans more than {MOST_BLOCKS} blocks, got {length_ns / NS_PER_S:g} s for one; "
                "give longer blocks, a faster link, or no fading"
            )

    def blocks(self, from_ns: int, count: int) -> tuple[IntArray, IntArray]:
        """Return the edges [blocks + 1] in ns and the numbers [blocks] of the next slots or fading blocks.

        If the fading gains never change, the result is a single block without end.
        """
        length_ns = self.slot_ns if self.slotted else self.coherence_ns
        first = from_ns // length_ns
        if length_ns == FOREVER_NS:
            return np.array([from_ns, FOREVER_NS]), np.array([0])
        if count == 1:
            return np.array([from_ns, (first + 1) * length_ns]), np.array([first])
        numbers = np.arange(first, first + count + 1)
        last = FOREVER_NS // length_ns
        edges_ns = np.minimum(numbers, last) * length_ns
        if first + count > last:
            edges_ns[numbers > last] = FOREVER_NS
        edges_ns[0] = from_ns
        return edges_ns, numbers[:-1]

    def gains(self, fading_key: Keys, numbers: IntArray, branches: int = 1) -> Array:
        """Return the fading gains (power, linear) of links, averaged over `branches` antennas.

        The result has the shape to which `fading_key` and the block `numbers` broadcast.
        """
        if self.constant:
            return np.full(np.broadcast_shapes(fading_key.shape, numbers.shape), self.fading.gain(0.5))
        if self.slotted:
            numbers = numbers * self.slot_ns // self.coherence_ns
        fading = self.fading.combined(branches)
        if fading_key.size == 1 and numbers.size <= _FEW_GAINS:
            key = int(fading_key.item())
            few = [fading.gain(uniform(key, number), key & 1 == 1) for number in numbers.ravel().tolist()]
            return np.array(few).reshape(np.broadcast(fading_key, numbers).shape)
        return fading.gains(uniforms(fading_key, numbers), (fading_key & np.uint64(1)).astype(np.bool_))


def needed_ns(edges_ns: IntArray, rate_bps: Array, left: Array) -> Array:
    """Estimate the time in ns that each link needs for its remaining bits, counted from the first block edge [links].

    The last block is assumed to be endless. The result is infinity if a link has rate 0 in the last block and bits
    remain, and NaN if a link has rate 0 and no bits remain.

    Args:
        edges_ns: [blocks + 1] edges of the blocks in ns.
        rate_bps: [links, blocks] rates in bit/s.
        left: [links] remaining bits, times 1e9.
    """
    if len(edges_ns) == 2 and least(rate_bps[:, 0], initial=math.inf) > 0:
        return np.asarray(left / rate_bps[:, 0])
    with np.errstate(divide="ignore", invalid="ignore"):
        if len(edges_ns) == 2:
            return np.asarray(left / rate_bps[:, 0])
        spans_ns = np.diff(edges_ns).astype(np.float64)
        done = np.cumsum(rate_bps * spans_ns, axis=1)
        block = np.minimum(np.sum(done < left[:, None], axis=1), done.shape[1] - 1)
        link = np.arange(len(left))
        short = left - np.where(block > 0, done[link, block - 1], 0.0)
        return np.asarray((edges_ns[block] - edges_ns[0]) + short / rate_bps[link, block])


def passed(edges_ns: list[int], until_ns: int) -> Iterator[tuple[int, int]]:
    """Yield the index and the length in ns of each block that begins before `until_ns`.

    The last of these blocks counts only up to `until_ns`.
    """
    start_ns = edges_ns[0]
    for block, edge_ns in enumerate(edges_ns[1:]):
        if start_ns >= until_ns:
            return
        yield block, min(edge_ns, until_ns) - start_ns
        start_ns = edge_ns
