"""Secure aggregation: messages and masks by which the server can read only the sum of the updates.

Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth: "Practical Secure Aggregation for
Privacy-Preserving Machine Learning", CCS 2017, https://eprint.iacr.org/2017/281, with honest but curious parties. The
version in which devices share masks only with some neighbours is from Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure
Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS 2020, https://eprint.iacr.org/2020/704.

Symbols: n is the number of devices, k the number of neighbours per device, t is `threshold`, m the number of entries of
a vector, B is `input_bits`, w the number of bits of a masked entry, a_K is `key_bit`, and a_S is `share_bit`.
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
"""For each device, the set of its neighbours. Devices are identified by their indices in the round's list of
devices."""

WORD_BIT = 62
"""Maximum number of bits of a masked entry."""
REVEALS, STUCK = 2.0**-40, 2.0**-30
"""Upper bounds for the probability that neighbours reveal a device's update, and for the probability that too few
neighbours remain to reconstruct a secret."""


class SecureAggregation(Component):
    """Devices mask their uploads, and the masks cancel in the sum, so that the server can read only this sum.

    A round has four steps. `keys`: each device sends two public keys, and receives the keys of its neighbours.
    `shares`: each device sends shares of its two secrets to its neighbours through the server. `vectors`: each device
    receives the model, trains, and sends its masked update. `unmask`: each device whose vector has arrived sends its
    shares of the secrets that unmask the sum. A device that is lost in one step is left out of the next steps. If fewer
    than `threshold` devices remain, the round ends without a new model. `deadline_s` covers only the first three steps.
    Satellites, which repeat messages at their next pass, are not supported.
    The update is the difference from the model that the server sent. Its entries are limited to `clip` and rounded
    towards zero, so that no entry grows.
    Ignored here: key agreement itself, signatures, and a dishonest server.
    """

    threshold: int | None = Field(None, ge=2)
    """Number of shares that are needed to reconstruct a secret (t). null means floor(2 n / 3) + 1 for n devices; for
    `secagg-plus`, null means the threshold that `neighbours` describes."""
    input_bits: int = Field(16, ge=2, le=32)
    """Bits of an entry before masking (B); a masked entry has ceil(log2(n (2^B - 1) + 1)) bits."""
    clip: float = Field(1.0, gt=0)
    """Maximum magnitude of an entry in an update; larger entries are clipped to this magnitude."""
    key_bit: int = Field(256, ge=0)
    """Size of a public key in bits (a_K)."""
    share_bit: int = Field(256, ge=0)
    """Size in bits of one share of a secret, as transmitted (a_S)."""
    prg_flop_per_entry: float = Field(0.0, ge=0)
    """Number of floating-point operations that the server needs per entry of each mask when it unmasks the sum."""
    masks: Literal["none", "real"] = "none"
    """Implementation of masks. real: devices mask their vectors, and the server combines shares to unmask the sum.
    none: vectors are only rounded and added, which is much faster and gives a bit-identical model."""

    @abstractmethod
    def sized(self, n: int) -> tuple[int, int]:
        """Return the number of neighbours per device (k) and the threshold (t) for n devices."""

    def graph(self, n: int, rng: np.random.Generator) -> Graph:
        """Return the neighbours of each of n devices.

        The k neighbours of a device are the nearest devices on a ring in random order; if k is n - 1, all other
        devices.
        """
        k, _ = self.sized(n)
        if k == n - 1:
            return [frozenset(range(n)) - {i} for i in range(n)]
        order, near = rng.permutation(n).tolist(), range(1, k // 2 + 1)
        found = {i: frozenset(order[(at + s * d) % n] for d in near for s in (1, -1)) for at, i in enumerate(order)}
        return [found[i] for i in range(n)]

    def entry_bit(self, n: int) -> int:
        return (n * ((1 << self.input_bits) - 1)).bit_length()

    def total_bit(self, n: int, m: int) -> int:
        """Return the bits that each of n devices sends and receives for a sum of m entries, if no message is lost.

        The bits of the model that devices receive are not included.
        """
        k, _ = self.sized(n)
        return 2 * (k + 1) * self.key_bit + (5 * k + 1) * self.share_bit + m * self.entry_bit(n)

    @property
    def largest(self) -> int:
        """Maximum magnitude of a rounded entry. It is added to all entries, so that no entry is negative."""
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
    """Every pair of devices has a common mask, and every device sends shares to all other devices."""

    @override
    def sized(self, n: int) -> tuple[int, int]:
        return n - 1, self.threshold or max(2, 2 * n // 3 + 1)


class SecAggPlus(SecureAggregation):
    """SecAgg+: every device has common masks with some neighbours only, and sends shares only to its neighbours."""

    kind = "secagg-plus"

    neighbours: int | None = Field(None, ge=2, multiple_of=2)
    """Number of neighbours per device (k), an even number. null means the smallest number with which colluding
    neighbours reveal a device's update with a probability below 2^-40, and dropouts prevent the server from unmasking
    the sum with a probability below 2^-30. Both probabilities are union bounds. If `threshold` is null, the threshold
    for which this number meets the bounds is used. The bounds are a sizing rule, not the proof of the paper. If no
    number meets the bounds, all other devices are neighbours."""
    corrupt: float = Field(0.05, ge=0, lt=1)
    """Share of the devices that may collude (gamma), used if `neighbours` is null."""
    dropout: float = Field(0.05, ge=0, lt=1)
    """Share of the devices that may drop out (delta), used if `neighbours` is null."""

    @override
    def sized(self, n: int) -> tuple[int, int]:
        k, t = (self.neighbours, 0) if self.neighbours else sparse(n, self.corrupt, self.dropout) or (n - 1, 0)
        k = min(k, n - 1)
        return k, self.threshold or t or max(2, 2 * (k + 1) // 3 + 1)


@lru_cache(256)
def sparse(n: int, corrupt: float, dropout: float) -> tuple[int, int] | None:
    """Return the smallest even number of neighbours that meets both probability bounds, and the threshold; or None."""
    from scipy.stats import hypergeom  # this import takes a third of the time of torch's import

    bad, good = math.floor(corrupt * n + 1e-9), math.floor((1 - dropout) * n + 1e-9) - 1
    for k in range(2, n - 1, 2):
        t = np.arange(1, k + 1)
        able = (n * hypergeom.sf(t - 1, n - 1, bad, k) < REVEALS) & (n * hypergeom.cdf(t - 1, n - 1, good, k) < STUCK)
        if able.any():
            return k, int(t[able.argmax()])
    return None


SECURE_AGGREGATIONS: dict[str, type[SecureAggregation]] = kinds(Bonawitz, SecAggPlus)
"""All built-in kinds of secure aggregation."""

AnySecureAggregation = Annotated[SecureAggregation, Slot("secure_aggregation", SECURE_AGGREGATIONS)]
"""Type of a settings field for secure aggregation."""
