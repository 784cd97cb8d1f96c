"""A band of the spectrum and how fast bits flow through it: rates are walked over fading blocks, not one event each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray, Keys, Mask
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, to_ns
from fednet_emu.kernel.streams import uniform, uniforms
from fednet_emu.network.access.base import Access
from fednet_emu.radio.fading import Fading
from fednet_emu.radio.rate_law import RateLaw

ROUGHLY = 1e-9
"""More than the rounding noise between scalars and arrays, as a part of the whole."""

_FEW_BLOCKS = 16
_MANY_BLOCKS = 4096
_FEW_GAINS = 8
_NEVER_NS = float(FOREVER_NS)
"""Longer than any plan, and still an integer of 64 bits after it has been added to an instant."""


Walk = tuple[int, float, float]
"""How one link carries bits alone in the band: when it ends, how many bits have gone, and the lowest SINR met."""


_Lone = tuple[float, float, Callable[[float, bool], float], Callable[[float, float], float], int, bool]
"""A link alone: its share of the band, in hertz too, the laws of gain and rate, coherence time, whether constant."""


class Pace(NamedTuple):
    """Rates [links, blocks] and SINRs [links, blocks] over blocks that start at `edges_ns` [blocks + 1]."""

    edges_ns: IntArray
    sinr: Array
    rate_bps: Array


class Soon(NamedTuple):
    """When links [links] are through, whether that is so, and the lowest SINR that each meets until then."""

    end_ns: Array
    is_through: Mask
    lowest_sinr: Array


@dataclass(frozen=True)
class Band:
    """A band with its access scheme, rate law and block fading; block k lasts from k to k + 1 coherence times."""

    bandwidth_hz: float
    access: Access
    law: RateLaw
    fading: Fading
    coherence_ns: int
    slot_ns: int = FOREVER_NS
    access_key: int = 0

    @classmethod
    def of(cls, bandwidth_hz: float, access: Access, law: RateLaw, fading: Fading, access_key: int = 0) -> Band:
        """A band whose blocks last for the fading's coherence time; `access_key` keys the draws of random access."""
        coherence_ns, slot_ns = (
            FOREVER_NS if np.isinf(duration_s) else to_ns(duration_s)
            for duration_s in (fading.coherence_s, access.turn_s)
        )
        return cls(bandwidth_hz, access, law, fading, coherence_ns, slot_ns, access_key)

    @cached_property
    def constant(self) -> bool:
        """Whether links never fade."""
        return self.coherence_ns == FOREVER_NS

    @cached_property
    def outage_sinr(self) -> float:
        """The SINR below which a transmission is lost."""
        return self.law.outage_sinr

    @cached_property
    def _lone(self) -> _Lone:
        share = self.access.share(1)
        laws = self.fading.gain, self.law.rate_bps
        return share, self.bandwidth_hz * share, *laws, self.coherence_ns, self.constant

    @property
    def slotted(self) -> bool:
        """Whether the access scheme has slots of its own, which then are the blocks."""
        return self.slot_ns < FOREVER_NS

    def alone(self, snr: float, fading_key: int, size_bit: float, start_ns: int, until_ns: int = FOREVER_NS) -> Walk:
        """Send bits over a link that is alone in the band, until they are through or until an instant.

        This is the hot path of turn-taking schemes: scalars for the first blocks, arrays for a long rest. It ends at
        the start when there is nothing to send, or when the link is constant and carries nothing.
        """
        if size_bit <= 0:
            return start_ns, 0.0, math.inf
        share, bandwidth_hz, gain, rate_of, coherence_ns, constant = self._lone
        in_sight, block, now_ns = fading_key & 1 == 1, start_ns // coherence_ns, start_ns
        many, left_bit, lowest = block + _FEW_BLOCKS, float(size_bit), math.inf
        while block < many:
            draw = 0.5 if constant else uniform(fading_key, block)
            sinr = snr * gain(draw, in_sight) / share
            rate_bps = rate_of(sinr, bandwidth_hz)
            if sinr < lowest:
                lowest = sinr
            block += 1
            block_end_ns = block * coherence_ns
            if until_ns < block_end_ns:
                block_end_ns = until_ns
            if rate_bps > 0:
                end_ns = now_ns + to_ns(left_bit / rate_bps)
                if end_ns <= block_end_ns:
                    sent_bit = size_bit - left_bit + rate_bps * (end_ns - now_ns) / NS_PER_S
                    return end_ns, sent_bit if sent_bit < size_bit else float(size_bit), lowest
                left_bit -= rate_bps * (block_end_ns - now_ns) / NS_PER_S
            elif constant:
                return start_ns, 0.0, lowest
            now_ns = block_end_ns
            if now_ns >= until_ns:
                return until_ns, size_bit - left_bit, lowest
        return self._long_walk(snr, fading_key, (now_ns, size_bit - left_bit, lowest), size_bit, until_ns)

    def soon_through(self, snr: Array, fading_key: Keys, size_bit: float, start_ns: int) -> Soon:
        """What `alone` gives for many links, up to rounding, where they are through after a few blocks."""
        pace = self.pace(snr, fading_key, 1, start_ns, 1 if self.constant else _FEW_BLOCKS // 4)
        end_s = needed_s(pace, np.full(len(snr), float(size_bit)))
        after_s = (pace.edges_ns[1:] - start_ns) / NS_PER_S
        met = pace.sinr.copy()
        met[:, 1:][end_s[:, None] * (1 + ROUGHLY) < after_s[:-1]] = math.inf  # blocks after its end
        return Soon(start_ns + end_s * NS_PER_S, end_s <= after_s[-1], met.min(axis=1))

    def _long_walk(self, snr: float, fading_key: int, so_far: Walk, size_bit: float, until_ns: int) -> Walk:
        links = np.array([snr]), np.array([fading_key], np.uint64)
        blocks = 4 * _FEW_BLOCKS
        now_ns, air_bit, lowest = so_far
        while True:
            pace = self.pace(*links, active=1, from_ns=now_ns, blocks=blocks)
            end_ns = min(int(through(pace, np.array([size_bit - air_bit]))[0]), until_ns)
            ended = end_ns < FOREVER_NS and end_ns <= pace.edges_ns[-1]
            now_ns = end_ns if ended else int(pace.edges_ns[-1])
            seen = int(np.searchsorted(pace.edges_ns, now_ns))
            air_bit = min(air_bit + float(carried(pace, np.array([now_ns]))[0]), float(size_bit))
            lowest = float(pace.sinr[0, :seen].min(initial=lowest))
            if ended:
                return now_ns, air_bit, lowest
            blocks = min(2 * blocks, _MANY_BLOCKS)

    def pace(self, snr: Array, fading_key: Keys, active: int, from_ns: int, blocks: int) -> Pace:
        """Rates of links over the next blocks while `active` bursts are on the air, all treated alike."""
        edges_ns, numbers = self.blocks(from_ns, blocks)
        share = self.access.share(active)
        sinr = snr[:, None] * self.gains(fading_key[:, None], numbers[None, :]) / share
        return Pace(edges_ns, sinr, self.law.rates_bps(sinr, self.bandwidth_hz * share))

    def blocks(self, from_ns: int, count: int) -> tuple[IntArray, IntArray]:
        """Edges [blocks + 1] and numbers [blocks] of the next blocks: slots, or fading blocks, or one without end."""
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

    def gains(self, fading_key: Keys, numbers: IntArray) -> Array:
        """Fading gains of links in blocks, in the broadcast shape of keys and block numbers."""
        if self.constant:
            return np.full(np.broadcast_shapes(fading_key.shape, numbers.shape), self.fading.gain(0.5))
        if self.slotted:
            numbers = numbers * self.slot_ns // self.coherence_ns
        if fading_key.size == 1 and numbers.size <= _FEW_GAINS:
            key = int(fading_key.item())
            few = [self.fading.gain(uniform(key, number), key & 1 == 1) for number in numbers.ravel().tolist()]
            return np.array(few).reshape(np.broadcast_shapes(fading_key.shape, numbers.shape))
        return self.fading.gains(uniforms(fading_key, numbers), (fading_key & np.uint64(1)).astype(np.bool_))


def through(pace: Pace, left_bit: Array) -> IntArray:
    """Instants [links] at which each link has carried its bits; `FOREVER_NS` when that is after the last block."""
    exact_ns = np.minimum(needed_s(pace, left_bit) * NS_PER_S, _NEVER_NS)
    exact_ns[left_bit <= 0] = 0.0
    exact_ns -= np.minimum(4 * np.spacing(exact_ns), 0.25)  # as in to_ns
    ends_ns: IntArray = pace.edges_ns[0] + np.ceil(exact_ns).astype(np.int64)
    ends_ns[ends_ns > pace.edges_ns[-1]] = FOREVER_NS
    return ends_ns


def needed_s(pace: Pace, left_bit: Array) -> Array:
    """Time [links] from the first edge until each link has carried its bits, as if the last block had no end.

    Infinity where the last block carries nothing; not a number where there is nothing to carry either.
    """
    if len(pace.edges_ns) == 2:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(left_bit / pace.rate_bps[:, 0])
    start_s = (pace.edges_ns - pace.edges_ns[0]) / NS_PER_S
    done_bit = np.cumsum(pace.rate_bps * np.diff(start_s), axis=1)
    block = np.minimum(np.sum(done_bit < left_bit[:, None], axis=1), done_bit.shape[1] - 1)
    link = np.arange(len(left_bit))
    short = left_bit - np.where(block > 0, done_bit[link, block - 1], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(start_s[block] + short / pace.rate_bps[link, block])


def carried(pace: Pace, until_ns: IntArray) -> Array:
    """Bits [links] that each link carries from the first edge until its instant."""
    ends_ns = np.minimum(pace.edges_ns[1:], until_ns[:, None])
    bits: Array = np.sum(pace.rate_bps * np.maximum(ends_ns - pace.edges_ns[:-1], 0), axis=1) / NS_PER_S
    return bits


def spans_s(edges_ns: IntArray, until_ns: int) -> Array:
    """How much of each block [blocks] lies before an instant."""
    return np.asarray(np.maximum(np.minimum(edges_ns[1:], until_ns) - edges_ns[:-1], 0) / NS_PER_S)
