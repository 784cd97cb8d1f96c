"""Secure aggregation: messages and masks with which the server reads only the sum of the updates.

Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth: "Practical Secure Aggregation for
Privacy-Preserving Machine Learning", CCS 2017, https://eprint.iacr.org/2017/281, with honest but curious parties. On a
sparse graph: Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic
Overhead", CCS 2020, https://eprint.iacr.org/2020/704.

Symbols: n devices, k neighbours of each, t `threshold`, m entries, B `input_bits`, w bits of a masked entry, a_K
`key_bit`, a_S `share_bit`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.compression.base import NoCompression

Graph = list[frozenset[int]]
"""The neighbours of each device, by its place in the cohort."""

WORD_BIT = 62
"""Most bits of a masked entry."""
REVEALS, STUCK = 2.0**-40, 2.0**-30
"""Bounds on the probability that neighbours reveal a device, and that they are too few to open a secret."""


class SecureAggregation(Component):
    """Masks that cancel in the sum of the uploads, so that the server reads only that sum.

    A round has four steps. `keys`: each device sends two public keys, and receives the keys of its neighbours.
    `shares`: it sends shares of its two secrets to each neighbour through the server. `vectors`: it receives the model,
    trains, and sends its masked update. `unmask`: each device whose vector arrived sends its shares of the secrets that
    open the sum. A device that is lost in one step is left out of the next. With fewer than `threshold` devices left
    the attempt ends, and the model stays. `deadline_s` covers the first three steps only. Satellites, which send again
    at their next pass, are refused.
    An update, as a difference to the model that was sent, is limited to `clip` in every entry and rounded towards zero,
    so that it never grows. Ignored here: key agreement itself, signatures, and a dishonest server.
    """

    threshold: int | None = Field(None, ge=2)
    """Shares that open a secret (t). Null for floor(2 n / 3) + 1 of n devices; on a sparse graph by its rule."""
    input_bits: int = Field(16, ge=2, le=32)
    """Bits of an entry before masking (B); a masked entry has ceil(log2(n (2^B - 1) + 1))."""
    clip: float = Field(1.0, gt=0)
    """Largest magnitude of an entry of an update; larger ones are cut."""
    key_bit: int = Field(256, ge=0)
    """Size of a public key in bits (a_K)."""
    share_bit: int = Field(256, ge=0)
    """Size of a share of a secret in bits, as it is sent (a_S)."""
    prg_flop_per_entry: float = Field(0.0, ge=0)
    """Work of the server in FLOP per entry of each mask that it expands to open the sum."""
    masks: Literal["none", "real"] = "none"
    """Whether vectors are really masked, and opened with combined shares: `real` takes much longer and gives the same
    model, to the last bit."""

    @abstractmethod
    def sized(self, n: int) -> tuple[int, int]:
        """Neighbours of each of n devices (k), and the threshold (t)."""

    def graph(self, n: int, rng: np.random.Generator) -> Graph:
        """The neighbours of each of n devices: those next to it on a ring in random order, or all others."""
        k, _ = self.sized(n)
        if k == n - 1:
            return [frozenset(range(n)) - {i} for i in range(n)]
        order, near = rng.permutation(n).tolist(), range(1, k // 2 + 1)
        found = {i: frozenset(order[(at + s * d) % n] for d in near for s in (1, -1)) for at, i in enumerate(order)}
        return [found[i] for i in range(n)]

    def entry_bit(self, n: int) -> int:
        """Bits of an entry of a sum of n vectors (w)."""
        return (n * ((1 << self.input_bits) - 1)).bit_length()

    def total_bit(self, n: int, m: int) -> int:
        """Bits that each of n devices sends and receives for a sum of m entries without losses, the model aside."""
        k, _ = self.sized(n)
        return 2 * (k + 1) * self.key_bit + (5 * k + 1) * self.share_bit + m * self.entry_bit(n)

    @property
    def largest(self) -> int:
        """Largest magnitude of a rounded entry; vectors hold it plus the entry, so that none is negative."""
        return (1 << (self.input_bits - 1)) - 1

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        algorithm, uplink, count = scenario.algorithm, scenario.network.uplink, scenario.devices.count
        for key, what in algorithm.conflicts_with_sums():
            where = algorithm.kind if key == "kind" else f"algorithm.{key}"
            yield "", f"the server reads nothing but a sum, which is not enough for {where}: {what}; leave it out"
        if "sums" in algorithm.uses and not algorithm.equal_weights:
            what = f"the sum gives all devices the same weight, and {algorithm.kind} weights them by samples"
            yield "", f"{what}; set algorithm.weighting: uniform, or leave it out"
        if type(uplink.compression) is not NoCompression:
            what = f"masked vectors cannot be compressed, got {uplink.compression.kind}"
            yield "", f"{what}; leave network.uplink.compression out, and choose fewer input_bits"
        if uplink.access.only_sums or uplink.access.kind == "planned":
            yield "", f"needs several single messages of each device, got {uplink.access.kind}; choose ofdma or tdma"
        if scenario.devices.availability.FORESEEN:
            what = "its steps are not sent again at the next pass of a satellite, got devices.availability: passes"
            yield "", f"{what}; leave one out"
        most = algorithm.participants(count)
        if most < max(self.threshold or 0, 2):
            what = f"never has enough devices, got at most {most} a round"
            yield "threshold", f"{what}; must be at most that, and 2 at least"
        if self.prg_flop_per_entry > 0 and scenario.server.flop_per_s is None:
            what = f"is work of the server, which computes nothing, got {self.prg_flop_per_entry:g}"
            yield "prg_flop_per_entry", f"{what}; give server.flop_per_s, or leave it out"
        if self.entry_bit(count) > WORD_BIT:
            yield "input_bits", f"sums of {count} devices need {self.entry_bit(count)} bits; must be at most {WORD_BIT}"


class Bonawitz(SecureAggregation):
    """Every device has a mask and shares in common with every other."""

    @override
    def sized(self, n: int) -> tuple[int, int]:
        return n - 1, self.threshold or max(2, 2 * n // 3 + 1)


class SecAggPlus(SecureAggregation):
    """Every device has masks and shares in common with some neighbours only: SecAgg+."""

    kind = "secagg-plus"

    neighbours: int | None = Field(None, ge=2, multiple_of=2)
    """Neighbours of each device (k), an even number. Null for the fewest with which, by union bounds, neighbours that
    collude reveal a device with a probability below 2^-40, and those that drop out keep a sum closed with one below
    2^-30: a rule of size, not the proof of the paper. Where all others are too few, it is the complete graph."""
    corrupt: float = Field(0.05, ge=0, lt=1)
    """Share of the devices that may collude, for that rule (gamma)."""
    dropout: float = Field(0.05, ge=0, lt=1)
    """Share of the devices that may drop out, for that rule (delta)."""

    @override
    def sized(self, n: int) -> tuple[int, int]:
        k, t = (self.neighbours, 0) if self.neighbours else sparse(n, self.corrupt, self.dropout) or (n - 1, 0)
        k = min(k, n - 1)
        return k, self.threshold or t or max(2, 2 * (k + 1) // 3 + 1)


@lru_cache(256)
def sparse(n: int, corrupt: float, dropout: float) -> tuple[int, int] | None:
    """The least even number of neighbours among n devices, and the threshold; None if all others are too few."""
    from scipy.stats import hypergeom  # takes a third of what torch takes

    bad, good = math.floor(corrupt * n + 1e-9), math.floor((1 - dropout) * n + 1e-9) - 1
    for k in range(2, n - 1, 2):
        t = np.arange(1, k + 1)
        able = (n * hypergeom.sf(t - 1, n - 1, bad, k) < REVEALS) & (n * hypergeom.cdf(t - 1, n - 1, good, k) < STUCK)
        if able.any():
            return k, int(t[able.argmax()])
    return None


SECURE_AGGREGATIONS: dict[str, type[SecureAggregation]] = kinds(Bonawitz, SecAggPlus)
"""Every kind of secure aggregation that is built in."""

AnySecureAggregation = Annotated[SecureAggregation, Slot("secure_aggregation", SECURE_AGGREGATIONS)]
"""Type of a field that holds one secure aggregation."""
