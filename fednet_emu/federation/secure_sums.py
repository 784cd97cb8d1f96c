"""Secure aggregation: the server obtains sums of uploads but no single upload; all messages use the network.

Secrets are split into shares as in Shamir, "How to Share a Secret", CACM 22(11), 1979, modulo the prime 2^127 - 1. A
mask is the output of SHAKE-256 for a secret. Two devices agree on a secret by a Diffie-Hellman exchange modulo this
prime. The prime is too short for real use; messages have the sizes of the key exchange X25519, which this exchange
represents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import shake_256
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from simpy.events import Event
from torch import Tensor

from fednet_emu.devices.processors import Work
from fednet_emu.federation.device import Device, Fed
from fednet_emu.federation.sums import Sums, mean_update
from fednet_emu.kernel.all_of import AllOf
from fednet_emu.kernel.clock import NS_PER_S, Process, to_ns
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.accumulation import Accumulation
from fednet_emu.network.air.transfer import Delivery
from fednet_emu.network.secure_aggregation import Graph, SecureAggregation

PRIME = 2**127 - 1
_GENERATOR, _BYTE = 3, 16

Words = NDArray[np.uint64]
"""Array of unsigned vector entries, which are added modulo a power of two."""

TOO_FEW = "threshold"
"""Loss reason of vectors that have arrived, if too few devices remain to unmask their sum."""


def agreed(secret: int, other: int) -> int:
    """Return the common secret of two devices, computed from their secret keys; the order of the keys is irrelevant."""
    return pow(pow(_GENERATOR, other, PRIME), secret, PRIME)


def mask(secret: int, n: int, bit: int) -> Words:
    """Return the mask [n] that is generated from a secret, with `bit` (at most 64) random bits per entry."""
    drawn = np.frombuffer(shake_256(secret.to_bytes(_BYTE, "big")).digest(8 * n), np.uint64)
    return drawn & np.uint64(2**bit - 1)


def shares(secret: int, holders: Iterable[int], threshold: int) -> dict[int, int]:
    """Return the share of a secret by holder; any `threshold` shares reveal the secret, fewer reveal nothing."""
    drawn = shake_256(b"shares" + secret.to_bytes(_BYTE, "big")).digest(_BYTE * (threshold - 1))
    powers = [int.from_bytes(drawn[at : at + _BYTE], "big") for at in range(0, len(drawn), _BYTE)]
    found = {}
    for holder in holders:
        value = 0
        for coefficient in reversed([secret, *powers]):
            value = (value * (holder + 1) + coefficient) % PRIME
        found[holder] = value
    return found


def opened(known: Mapping[int, int]) -> int:
    """Return a secret, recovered from at least `threshold` shares; `known` maps the index of a holder to its share."""
    secret = 0
    for holder, share in known.items():
        above = below = 1
        for other in known:
            if other != holder:
                above, below = above * (other + 1) % PRIME, below * (other - holder) % PRIME
        secret += share * above * pow(below, -1, PRIME)
    return secret % PRIME


def sums_of(fed: Fed) -> Sums | SecureSums | None:
    """Return the object that sums uploads over the air or in secure aggregation; None if uploads are not summed."""
    air, rule = fed.network.superposition, fed.network.settings.uplink.secure_aggregation
    if air is not None:
        return Sums(fed.clock, fed.links, air, fed.streams, fed.record)
    return None if rule is None else SecureSums(fed, rule)


@dataclass(frozen=True)
class SecureMean:
    """Mean that the server computes from the masked vectors of one run of the protocol."""

    rule: SecureAggregation
    graph: dict[int, frozenset[int]]  # neighbours of each device, among devices that have sent shares of their secrets
    came: Sequence[int]  # devices whose vectors have arrived, in the order in which the server processes the models
    answers: frozenset[int]  # devices that have sent the shares with which the sum is unmasked
    threshold: int  # number of shares that reveal a secret
    streams: Streams
    attempt: int

    def __call__(self, w: Tensor, weights: Sequence[float]) -> Accumulation:
        """Return the mean [P] of the quantised differences (model - `w` [P]), as a generator that receives models."""
        rule, n, real = self.rule, len(self.came), self.rule.masks == "real"
        total = np.zeros(w.numel(), np.uint64)
        for i in self.came:
            vector = levels((yield) - w, rule)
            total += vector + self.masks_of(i, w.numel()) if real else vector
        if real:
            total -= self.left(w.numel())
        total &= np.uint64(2**self.bit - 1)
        summed = total.astype(np.int64) - n * rule.largest
        return torch.from_numpy(summed * (rule.clip / rule.largest / n)).to(w)

    @property
    def bit(self) -> int:
        return self.rule.entry_bit(len(self.graph))

    def secret(self, what: str, i: int) -> int:
        """Return the secret key of device `i` if `what` is "key", or the seed of its individual mask if "own"."""
        drawn = self.streams("secure-aggregation", what, self.attempt, i).bytes(16)
        return int.from_bytes(drawn, "big") % PRIME

    def masks_of(self, i: int, m: int) -> Words:
        """Return the sum [m] of all masks of device `i`: its individual mask and its pairwise masks."""
        own = self.secret("key", i)
        return mask(self.secret("own", i), m, self.bit) + self._pairs(i, own, self.graph[i], m)

    def _pairs(self, i: int, key: int, others: Iterable[int], m: int) -> Words:
        """Return the sum [m] of the pairwise masks of device `i` with `others`; `key` is the device's secret key."""
        total = np.zeros(m, np.uint64)
        for j in sorted(others):
            common = mask(agreed(key, self.secret("key", j)), m, self.bit)
            total = total + common if i < j else total - common
        return total

    def left(self, m: int) -> Words:
        """Return the sum [m] of the masks that do not cancel out, computed from the shares at the server."""
        total, came = np.zeros(m, np.uint64), frozenset(self.came)
        for i, others in self.graph.items():
            holders = sorted({i, *others})
            all_shares = shares(self.secret("own" if i in came else "key", i), holders, self.threshold)
            known = {j: all_shares[j] for j in holders if j in self.answers}
            secret = opened(known)
            total += mask(secret, m, self.bit) if i in came else -self._pairs(i, secret, others & came, m)
        return total


def levels(update: Tensor, rule: SecureAggregation) -> Words:
    """Return the integer levels to which a vector [P] is quantised before masking.

    Values are clipped to [-`rule.clip`, `rule.clip`], whose ends have the levels 0 and 2 `rule.largest`.
    """
    cut = update.double().clamp(-rule.clip, rule.clip) * (rule.largest / rule.clip)
    found: Words = (cut.trunc().long() + rule.largest).cpu().numpy().astype(np.uint64)
    return found


@final
class SecureSums:
    """Runs the steps of secure aggregation for the devices of a round, and sends every message over the network.

    The series `secure_aggregation` has a row per step: the number of participating devices (`asked`), the number of
    devices whose message has arrived (`arrived`), the required number (`needed`), the start time, and the arrived bits
    without headers.
    """

    def __init__(self, fed: Fed, rule: SecureAggregation) -> None:
        self._fed, self._rule, self._attempts = fed, rule, 0

    def of(self, size: int, pairs: Iterable[tuple[Device, Process]], deadline_s: float | None) -> Process:
        """Process that returns the deliveries of the vectors, and the function that computes their mean.

        Each vector has `size` entries. `pairs` has each device with the process that returns the device and its vector,
        or a lost `Delivery`. Vectors may arrive for `deadline_s` from now, or without limit.
        """
        fed, rule, pairs = self._fed, self._rule, list(pairs)
        self._attempts += 1
        if not pairs:
            return [], mean_update
        until_ns = None if deadline_s is None else fed.clock.now + to_ns(deadline_s)
        devices, clients = [k for k, _ in pairs], dict(enumerate(client for _, client in pairs))
        graph = rule.graph(len(pairs), fed.streams("secure-aggregation", "graph", self._attempts))
        _, needed = rule.sized(len(pairs))
        steps = _Steps(fed, devices, graph, needed, until_ns)
        able = yield from steps.keys(rule.key_bit)
        able = yield from steps.shares(rule.share_bit, able)
        replies = [steps.lost.get(i) or Delivery.given_up(fed.now_s) for i in range(len(pairs))]
        for i, client in clients.items():
            if i not in able:
                client.close()
        if not able:
            return replies, mean_update
        bit = size * rule.entry_bit(len(steps.shared))
        came = yield from steps.vectors({i: clients[i] for i in able}, bit, replies)
        answers = yield from steps.unmask(rule.share_bit, came)
        linked = {i: graph[i] & steps.shared for i in sorted(steps.shared)}
        if not all(len(answers & {i, *others}) >= needed for i, others in linked.items()):
            return [reply if reply.lost else reply._replace(lost=TOO_FEW) for reply in replies], mean_update
        expanded = len(came) + sum(len(others) for i, others in linked.items() if i not in came)
        if rule.prg_flop_per_entry:
            yield fed.server.compute(Work(rule.prg_flop_per_entry * size * expanded, None))
        return replies, SecureMean(rule, linked, sorted(came), answers, needed, fed.streams, self._attempts)


class _Steps:
    """The steps of one run of secure aggregation; a device is identified by its position in the cohort.

    `keyed` are the devices that have sent their public keys, and `shared` those that have sent the shares of their
    secrets. `lost` has the lost deliveries by device; these devices are excluded from further steps.
    """

    def __init__(self, fed: Fed, devices: Sequence[Device], graph: Graph, needed: int, until_ns: int | None) -> None:
        self._fed, self._devices, self._graph, self._needed, self._until_ns = fed, devices, graph, needed, until_ns
        self.keyed: frozenset[int] = frozenset()
        self.shared: frozenset[int] = frozenset()
        self.lost: dict[int, Delivery] = {}

    def keys(self, key_bit: int) -> Process:
        """Step 1: process that exchanges public keys via the server; it returns the devices that have all keys."""
        fed, everybody = self._fed, frozenset(range(len(self._devices)))
        whole, posted = len(self._graph[0]) == len(everybody) - 1, fed.shared(None)
        self.keyed = heard = yield from self._heard("keys", everybody, lambda i: 2 * key_bit)
        if whole and fed.network.downlink.settings.broadcasts:
            return (yield from self._sent_down(heard, lambda i: 2 * key_bit * len(heard), posted))
        return (yield from self._sent_down(heard, lambda i: 2 * key_bit * len(self._graph[i] & heard)))

    def shares(self, share_bit: int, able: frozenset[int]) -> Process:
        """Step 2: process that exchanges shares of secrets; it returns the devices that have received all shares."""
        self.shared = yield from self._heard("shares", able, lambda i: 2 * share_bit * len(self._graph[i] & self.keyed))
        return (yield from self._sent_down(self.shared, lambda i: 2 * share_bit * len(self._graph[i] & self.shared)))

    def vectors(self, clients: dict[int, Process], bit: int, replies: list[Delivery]) -> Process:
        """Step 3: process in which the devices train and then send their masked vectors.

        The process returns the devices whose vectors have arrived, or an empty set if fewer than required are left. The
        deliveries of the vectors are stored in `replies`.
        """
        started_ns = self._fed.clock.now
        got = yield self._fed.gather((self._vector(client, bit) for client in clients.values()), self._left_s())
        for i, delivery in zip(clients, got, strict=True):
            replies[i] = delivery
        came = frozenset(i for i in clients if not replies[i].lost)
        self._record("vectors", started_ns, len(clients), came, bit * len(came))
        return came if len(came) >= self._needed else frozenset()

    def _vector(self, client: Process, bit: int) -> Process:
        ready = yield from client
        if isinstance(ready, Delivery):
            return ready
        k, update = ready
        return (yield self._fed.uplink(k, update, bit))

    def unmask(self, share_bit: int, came: frozenset[int]) -> Process:
        self._until_ns = None
        bit = {i: share_bit * (1 + len(self._graph[i] & self.shared)) for i in came}
        return (yield from self._heard("unmask", came, bit.__getitem__))

    def _heard(self, step: str, able: frozenset[int], bit: Callable[[int], int]) -> Process:
        """Process that sends `bit(i)` bits from each i in `able`; it returns the senders, or none if too few arrive."""
        if not able:
            return frozenset()
        fed, started_ns, sizes = self._fed, self._fed.clock.now, {i: bit(i) for i in sorted(able)}
        there = yield from self._arrived({i: fed.uplink(self._devices[i], None, n) for i, n in sizes.items()})
        self._record(step, started_ns, len(able), there, sum(sizes[i] for i in there))
        return there if len(there) >= self._needed else frozenset()

    def _sent_down(self, able: frozenset[int], bit: Callable[[int], int], payload: object = None) -> Process:
        fed = self._fed
        return (yield from self._arrived({i: fed.downlink(self._devices[i], payload, bit(i)) for i in sorted(able)}))

    def _arrived(self, transfers: dict[int, Event]) -> Process:
        """Process that waits for transfers, and returns the devices whose transfers have arrived in time."""
        fed = self._fed
        got = yield AllOf(fed.clock, list(transfers.values()), self._left_s(), lambda: Delivery.given_up(fed.now_s))
        self.lost |= {i: delivery for i, delivery in zip(transfers, got, strict=True) if delivery.lost}
        return frozenset(transfers) - self.lost.keys()

    def _left_s(self) -> float | None:
        return None if self._until_ns is None else max(self._until_ns - self._fed.clock.now, 0) / NS_PER_S

    def _record(self, step: str, started_ns: int, asked: int, there: frozenset[int], bit: int) -> None:
        self._fed.record(
            "secure_aggregation",
            step=step,
            asked=asked,
            arrived=len(there),
            needed=self._needed,
            started_s=started_ns / NS_PER_S,
            arrived_bit=bit,
        )
