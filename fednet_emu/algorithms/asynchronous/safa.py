"""Semi-asynchronous federated averaging.

Wu, He, Lin, Mao, Maple, Jarvis: "SAFA: A Semi-Asynchronous Protocol for Fast Federated Learning with Low Overhead",
IEEE Transactions on Computers, 2021, https://arxiv.org/abs/1910.01355. In round t, the version v of a device is the
round in which the server last received a model of the device in time (0 at the start). The steps of a round:

- lag-tolerant distribution: devices that are up to date (v = t - 1) or deprecated (v < t - tau) receive W(t-1) and
  start from it; tolerable devices (t - tau <= v < t - 1) continue with their own models: `_distribute`;
- compensatory first-come-first-merge selection: the first ceil(C M) models to arrive are picked. Models of devices that
  were picked in the previous round are picked only if the other models do not fill the quota by the end of the round.
  All other models that arrive are called undrafted: `_select`;
- discriminative aggregation in three steps: the cache, which has one entry per device, stores the picked models, and
  W(t-1) for the deprecated devices; W(t) is the mean of the cache, weighted by samples; finally the cache stores the
  undrafted models (bypass): `run`.

Differences from the paper:

- The lag is counted as on the authors' page (v < t - tau); their code tolerates one more round.
- A device that is still training when the round ends continues, and its model counts in the round in which it arrives.
  In the authors' code every device that does not crash finishes in the round.
- A device whose upload was lost keeps its trained model, and trains that model further while the device is tolerable. A
  device whose download was lost continues in the next round from its own model.
- Devices that are absent when a round begins are not invited. If such a device is deprecated, its cache entry is
  replaced, and a model that it still sends is refused until the device has received a new one.
- A deprecated device that is still busy is cancelled. Cache entries start as the initial model.
- A round also ends when no device is busy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field
from simpy.events import Process as Started
from torch import Tensor

from fednet_emu.algorithms.base import LocalTraining
from fednet_emu.federation import Deferred, Delivery, Device, Federation, Inbox, Process


@dataclass(slots=True)
class Client:
    """State of one device, partly on the device (its model) and partly at the server (its entry in the cache)."""

    device: Device
    w: Deferred  # the model on the device
    entry: Deferred  # the device's entry in the cache of the server
    version: int = 0  # round of its latest model that arrived in time, or of its latest synchronisation
    base: int = 0  # version of the latest model that the device received
    was_picked: bool = False  # True if the device's model was picked in the previous round
    trips: int = 0  # number of times that the device has trained
    at_work: Started | None = None  # the device's running process


Came = tuple[Client, Delivery]
"""A device whose model arrived in time, and the delivery of that model."""


class Safa(LocalTraining):
    """A round ends when a quota of models has arrived; slow devices continue in later rounds, up to a maximum lag."""

    deadline_s: float | None = Field(None, gt=0)
    """Maximum duration of a round in simulated seconds (the paper's T_lim). A late device continues, and counts in a
    later round. Null waits until the quota is met or no device is busy."""
    selected_fraction: float = Field(0.5, gt=0, le=1)
    """Share of the devices with samples whose models are picked in a round (the paper's C), rounded up to whole
    devices. The round ends when this number is reached."""
    lag_tolerance: int = Field(5, gt=0)
    """Maximum lag in rounds (the paper's tau). A device whose latest model that arrived in time is older than this lag
    restarts from the global model. If the lag is 1, no device continues across rounds."""

    def run(self, fed: Federation) -> Process:
        w, inbox = fed.initial_model(), fed.inbox()
        clients = [Client(k, w, w) for k in fed.devices() if k.n_samples]
        n = sum(client.device.n_samples for client in clients)
        shares = [client.device.n_samples / n for client in clients]
        for t in (ended + 1 for ended in fed.rounds()):
            present = yield fed.cohort(len(clients), t)
            deprecated = self._distribute(fed, clients, present, w, t, inbox)
            invited = sum(client.at_work is not None for client in clients)
            picked, undrafted = yield from self._select(fed, clients, inbox, t)
            for client in deprecated:
                client.entry = w
            for client, answer in picked:
                client.entry = answer.payload
            w = fed.defer(mean, w, [client.entry for client in clients], shares)
            for client, answer in undrafted:
                client.entry = answer.payload
            self._record(fed, t, picked, undrafted, len(deprecated))
            fed.end_of_round(w, invited=invited, arrived=len(picked) + len(undrafted))

    def _distribute(
        self, fed: Federation, clients: Sequence[Client], present: Sequence[Device], w: Deferred, t: int, inbox: Inbox
    ) -> list[Client]:
        there, deprecated = {k.index for k in present}, []
        for client in clients:
            is_deprecated = client.version < t - self.lag_tolerance
            if is_deprecated:
                deprecated.append(client)
            if client.device.index not in there:
                continue
            if is_deprecated and client.at_work is not None:
                fed.cancel(client.at_work)
                client.at_work = None
            if client.at_work is None:
                synchronises = is_deprecated or client.version == t - 1
                client.at_work = fed.start(self.client(fed, client, w if synchronises else None, t, inbox))
        return deprecated

    def client(self, fed: Federation, client: Client, w: Deferred | None, t: int, inbox: Inbox) -> Process:
        """Process of a device: receive the model `w` if it is not None, train the device's model, and send it."""
        k, answer = client.device, None
        if w is not None:
            answer = yield fed.downlink(k, w)
            if not answer.lost:
                client.w, client.version, client.base = answer.payload, t - 1, t - 1
        if answer is None or not answer.lost:
            number, client.trips = client.trips, client.trips + 1
            trained = yield k.train(client.w, self.plan, number)
            client.w = trained.params
            answer = yield fed.uplink(k, client.w)
        client.at_work = None
        inbox.put(k.index, (client, answer))

    def _select(self, fed: Federation, clients: Sequence[Client], inbox: Inbox, t: int) -> Process:
        """Wait until the quota is met or the round ends; return the picked models and the undrafted models."""
        quota = math.ceil(round(self.selected_fraction * len(clients), 9))
        picked: list[Came] = []
        others: list[Came] = []
        started_s = fed.now_s
        while len(picked) < quota and any(client.at_work is not None for client in clients):
            left_s = None if self.deadline_s is None else round(started_s + self.deadline_s - fed.now_s, 9)
            ended = yield inbox.collect(deadline_s=left_s)
            if not ended:
                break
            for client, answer in ended:
                if not answer.lost and client.version >= t - self.lag_tolerance:
                    first = not client.was_picked and len(picked) < quota
                    (picked if first else others).append((client, answer))
        missing = quota - len(picked)
        picked, undrafted = picked + others[:missing], others[missing:]
        for client in clients:
            client.was_picked = False
        for client, _ in picked:
            client.was_picked = True
        for client, _ in picked + undrafted:
            client.version = t
        return picked, undrafted

    def _record(
        self, fed: Federation, t: int, picked: Sequence[Came], undrafted: Sequence[Came], deprecated: int
    ) -> None:
        """Record a row of the series `safa` for the round, and a row of `activations` for each model that arrived."""
        counts = {"picked": len(picked), "undrafted": len(undrafted), "deprecated": deprecated}
        fed.ledger.record("safa", step=t, simulated_s=fed.now_s, **counts)
        for client, answer in [*picked, *undrafted]:
            k, staleness = client.device.index, t - 1 - client.base
            fed.ledger.record("activations", step=t, device=k, arrived_s=answer.ended_s, staleness=staleness)


def mean(w: Tensor, entries: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """Return the mean of the cache `entries`, each [P], weighted by `shares`.

    The mean is `w` [P] plus the weighted differences from `w`, so it is bit-identical to `w` if all entries are.
    """
    update = w.new_zeros(w.shape)
    for entry, share in zip(entries, shares, strict=True):
        update.add_(entry - w, alpha=share)
    return w + update
