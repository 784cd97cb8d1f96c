"""A band of the spectrum and how fast bits flow through it: rates are walked over fading blocks, not one event each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, to_ns
from fednet_emu.kernel.streams import uniform, uniforms
from fednet_emu.network.access import Access
from fednet_emu.radio.fading import Fading
from fednet_emu.radio.rate_law import RateLaw
from fednet_emu.units import Array

_FEW_BLOCKS = 16
_MANY_BLOCKS = 4096


class Walk(NamedTuple):
    """How one link carries a number of bits alone in the band."""

    end_ns: int
    air_bit: float
    lowest_sinr: float


class Pace(NamedTuple):
    """Rates [links, blocks] and SINRs [links, blocks] over blocks that start at `edges_ns` [blocks + 1]."""

    edges_ns: NDArray[np.int64]
    sinr: Array
    rate_bps: Array


@dataclass(frozen=True, slots=True)
class Band:
    """A band with its access scheme, rate law and block fading; block k lasts from k to k + 1 coherence times."""

    bandwidth_hz: float
    access: Access
    law: RateLaw
    fading: Fading
    coherence_ns: int

    @classmethod
    def of(cls, bandwidth_hz: float, access: Access, law: RateLaw, fading: Fading) -> Band:
        """A band whose blocks last for the fading's coherence time."""
        coherence_ns = FOREVER_NS if np.isinf(fading.coherence_s) else to_ns(fading.coherence_s)
        return cls(bandwidth_hz, access, law, fading, coherence_ns)

    @property
    def constant(self) -> bool:
        """Whether links never fade."""
        return self.coherence_ns == FOREVER_NS

    def alone(self, snr: float, fading_key: int, size_bit: float, start_ns: int, until_ns: int = FOREVER_NS) -> Walk:
        """Send bits over a link that is alone in the band, until they are through or until an instant.

        This is the hot path of turn-taking schemes: scalars for the first blocks, arrays for a long rest. It ends at
        the start when there is nothing to send, or when the link is constant and carries nothing.
        """
        if size_bit <= 0:
            return Walk(start_ns, 0.0, float("inf"))
        share = self.access.share(1)
        bandwidth_hz = self.bandwidth_hz * share
        block, now_ns, left_bit, lowest = start_ns // self.coherence_ns, start_ns, float(size_bit), float("inf")
        for _ in range(_FEW_BLOCKS):
            sinr = snr * self.fading.gain(uniform(fading_key, block)) / share
            rate_bps = self.law.rate_bps(sinr, bandwidth_hz)
            lowest = sinr if sinr < lowest else lowest
            block_end_ns = (block + 1) * self.coherence_ns
            block_end_ns = until_ns if until_ns < block_end_ns else block_end_ns
            if rate_bps > 0:
                end_ns = now_ns + to_ns(left_bit / rate_bps)
                if end_ns <= block_end_ns:
                    sent_bit = size_bit - left_bit + rate_bps * (end_ns - now_ns) / NS_PER_S
                    return Walk(end_ns, min(sent_bit, float(size_bit)), lowest)
                left_bit -= rate_bps * (block_end_ns - now_ns) / NS_PER_S
            elif self.constant:
                return Walk(start_ns, 0.0, lowest)
            block, now_ns = block + 1, block_end_ns
            if now_ns >= until_ns:
                return Walk(until_ns, size_bit - left_bit, lowest)
        return self._long_walk(snr, fading_key, Walk(now_ns, size_bit - left_bit, lowest), size_bit, until_ns)

    def _long_walk(self, snr: float, fading_key: int, so_far: Walk, size_bit: float, until_ns: int) -> Walk:
        links = np.array([snr]), np.array([fading_key], np.uint64)
        blocks = 4 * _FEW_BLOCKS
        while True:
            pace = self.pace(*links, active=1, from_ns=so_far.end_ns, blocks=blocks)
            end_ns = min(int(through(pace, np.array([size_bit - so_far.air_bit]))[0]), until_ns)
            ended = end_ns < FOREVER_NS and end_ns <= pace.edges_ns[-1]
            stop_ns = end_ns if ended else int(pace.edges_ns[-1])
            seen = int(np.searchsorted(pace.edges_ns, stop_ns))
            so_far = Walk(
                stop_ns,
                min(so_far.air_bit + float(carried(pace, np.array([stop_ns]))[0]), float(size_bit)),
                float(pace.sinr[0, :seen].min(initial=so_far.lowest_sinr)),
            )
            if ended:
                return so_far
            blocks = min(2 * blocks, _MANY_BLOCKS)

    def pace(self, snr: Array, fading_key: NDArray[np.uint64], active: int, from_ns: int, blocks: int) -> Pace:
        """Rates of links over the next blocks while `active` bursts are on the air."""
        first = from_ns // self.coherence_ns
        if self.constant:
            edges_ns = np.array([from_ns, FOREVER_NS])
            gains = np.ones((len(snr), 1)) * self.fading.gain(0.5)
        else:
            numbers = np.arange(first, first + blocks)
            edges_ns = np.append(numbers, first + blocks) * self.coherence_ns
            edges_ns[0] = from_ns
            gains = self.fading.gains(uniforms(fading_key[:, None], numbers[None, :]))
        sinr = self.access.sinr(snr[:, None] * gains, active)
        return Pace(edges_ns, sinr, self.law.rates_bps(sinr, self.bandwidth_hz * self.access.share(active)))


def through(pace: Pace, left_bit: Array) -> NDArray[np.int64]:
    """Instants [links] at which each link has carried its bits; `FOREVER_NS` when that is after the last block."""
    length_s = np.diff(pace.edges_ns) / NS_PER_S
    done_bit = np.cumsum(pace.rate_bps * length_s, axis=1)
    block = np.sum(done_bit < left_bit[:, None], axis=1)
    reached = block < done_bit.shape[1]
    inside = np.minimum(block, done_bit.shape[1] - 1)
    link = np.arange(len(left_bit))
    rate_bps = pace.rate_bps[link, inside]
    before_bit = np.where(inside > 0, done_bit[link, inside - 1], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        exact_ns = (left_bit - before_bit) / rate_bps * NS_PER_S
    exact_ns = np.where(reached & (left_bit > before_bit), exact_ns, 0.0)
    noise_ns = np.minimum(4 * np.spacing(exact_ns), 0.25)  # as in to_ns
    ends_ns = pace.edges_ns[inside] + np.ceil(exact_ns - noise_ns).astype(np.int64)
    return np.where(reached, ends_ns, FOREVER_NS)


def carried(pace: Pace, until_ns: NDArray[np.int64]) -> Array:
    """Bits [links] that each link carries from the first edge until its instant."""
    ends_ns = np.minimum(pace.edges_ns[1:], until_ns[:, None])
    bits: Array = np.sum(pace.rate_bps * np.maximum(ends_ns - pace.edges_ns[:-1], 0), axis=1) / NS_PER_S
    return bits
