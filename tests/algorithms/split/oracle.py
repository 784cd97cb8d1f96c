"""The four variants once more: real networks that detach at the cut, in double precision, driven by what has arrived.

From a run are taken its samples, its initial model, the streams of its batches, and its table of transfers: what was
served, and in which order, is read off the arrivals at the server.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.streams import Streams
from fednet_emu.testing import run_small

BATCH, EPOCHS, LR = 8, 2, 0.3
HIDDEN = (7, 5)
UNEVEN = (
    "devices.count=5",
    "data={kind: synthetic, features: 9, classes: 3, n_samples: 150, n_test: 20}",
    "partition={kind: dirichlet, alpha: 1.0}",
    f"model={{kind: mlp, hidden: {list(HIDDEN)}}}",
    "server.flop_per_s=2e6",
    "devices.speed={kind: log-normal, median_flop_per_s: 1e6, sigma: 0.5}",
    "stop.rounds=5",
)
"""Five devices of unequal speeds and numbers of samples, and a server that is no faster than two of them."""
LOSSY = (
    "network.uplink.message_loss={kind: random, probability: 0.08}",
    "network.downlink.message_loss={kind: random, probability: 0.08}",
)


def splitfed(variant: str, **more: object) -> str:
    """The setting of a variant, three devices at a time unless changed."""
    own = {"cohort": 3, "lr": LR, "batch_size": BATCH, "local_epochs": EPOCHS, "retries": 1, **more}
    return f"algorithm={{kind: splitfed, variant: {variant}, {', '.join(f'{key}: {own[key]}' for key in own)}}}"


def timed(*settings: str) -> Federation:
    return run_small(*settings, timing_only=True)


class Message(NamedTuple):
    """A message that has arrived at the server."""

    device: int
    bit: int


class Oracle:
    """A run that was played, and what its messages make of the model [P].

    Args:
        fed: the federation after the run.
        cut: number of linear layers on the device.
    """

    def __init__(self, fed: Federation, cut: int = 1) -> None:
        self.fed, frames = fed, fed.ledger.frames()
        layers = list(copy.deepcopy(nn.Sequential(*fed.task.model.layers)).double())
        linear = [place for place, layer in enumerate(layers) if isinstance(layer, nn.Linear)]
        self.front, self.back = nn.Sequential(*layers[: linear[cut]]), nn.Sequential(*layers[linear[cut] :])
        self.size = sum(p.numel() for p in self.front.parameters())
        self.w = fed.task.model.initial().double()
        self.cohorts: list[list[int]] = []
        self.arrived: list[list[Message]] = []
        for t, (start, end) in enumerate(zip(frames["rounds"]["started_s"], frames["rounds"]["ended_s"], strict=True)):
            sent = frames["transfers"]
            now = sent[(sent["ended_s"] > start) & (sent["ended_s"] <= end) & (sent["receiver"] == -1)]
            there = now[now["loss_reason"] == ""].sort_values("ended_s", kind="stable")
            self.arrived.append([Message(*row) for row in zip(there["sender"], there["size_bit"], strict=True)])
            able, rng = np.flatnonzero(fed.task.n_samples), fed.streams("cohort", t)
            self.cohorts.append(sorted(rng.choice(able, min(3, len(able)), replace=False).tolist()))

    def batches(self, k: int, t: int) -> list[Tensor]:
        """The rows of each step of a device in a round."""
        own = self.fed.task.slice_of(k)
        rows, rng, found = np.arange(own.start, own.stop), Streams(0)("batch", k, t), []
        for _ in range(EPOCHS):
            order = rng.permutation(rows) if len(rows) > BATCH else rows
            found += list(torch.from_numpy(order).split(BATCH))
        return found

    def gradients(self, front: Tensor, back: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of both parts, of which the device's is made of nothing but that of the activations."""
        torch.nn.utils.vector_to_parameters(front, self.front.parameters())
        torch.nn.utils.vector_to_parameters(back, self.back.parameters())
        activations = self.front(self.fed.task.data.x[rows].double())
        received = activations.detach().requires_grad_()
        loss = cross_entropy(self.back(received), self.fed.task.data.y[rows])
        *theirs, sent_back = torch.autograd.grad(loss, [*self.back.parameters(), received])
        ours = torch.autograd.grad(activations, list(self.front.parameters()), sent_back)
        return torch.cat([g.reshape(-1) for g in ours]), torch.cat([g.reshape(-1) for g in theirs])

    def whole_parts(self, t: int) -> list[int]:
        """The devices whose part of the model has arrived in a round, one entry for each time."""
        return [message.device for message in self.arrived[t] if message.bit == 32 * self.size]

    def alone(self, w: Tensor, k: int, t: int) -> Tensor:
        """What one device and a server part for it make of w [P] in a round."""
        front, back = w[: self.size].clone(), w[self.size :].clone()
        for rows in self.batches(k, t):
            ours, theirs = self.gradients(front, back, rows)
            front, back = front - LR * ours, back - LR * theirs
        return torch.cat([front, back])

    def mean(self, models: dict[int, Tensor]) -> Tensor:
        """The mean of models, weighted by the samples of their devices."""
        n = {k: int(self.fed.task.n_samples[k]) for k in models}
        return sum(n[k] * w for k, w in models.items()) / sum(n.values())  # type: ignore[return-value]

    def sl(self) -> Tensor:
        w = self.w
        for t in range(len(self.arrived)):
            for k in self.whole_parts(t):
                w = self.alone(w, k, t)
        return w

    def v1(self) -> Tensor:
        w = self.w
        for t in range(len(self.arrived)):
            models = {k: self.alone(w, k, t) for k in self.whole_parts(t)}
            w = self.mean(models) if models else w
        return w

    def v2(self, *, reverse: bool = False) -> Tensor:
        """One part of the server, which steps in the order of arrivals."""
        front, back = self.w[: self.size], self.w[self.size :]
        for t, messages in enumerate(self.arrived):
            own, steps = {k: front.clone() for k in self.cohorts[t]}, Counter[int]()
            batches = {k: self.batches(k, t) for k in own}
            for k, bit in reversed(messages) if reverse else messages:
                if bit != 32 * self.size:
                    ours, theirs = self.gradients(own[k], back, batches[k][steps[k]])
                    own[k], back, steps[k] = own[k] - LR * ours, back - LR * theirs, steps[k] + 1
            kept = self.whole_parts(t)
            front = self.mean({k: own[k] for k in kept}) if kept else front
        return torch.cat([front, back])

    def psl(self) -> Tensor:
        """One step on all activations at a time; the device's parts that arrive are averaged after it."""
        front, back = self.w[: self.size], self.w[self.size :]
        for t, messages in enumerate(self.arrived):
            batches, steps = {k: self.batches(k, t) for k in self.cohorts[t]}, Counter[int]()
            served: list[dict[int, Tensor]] = []
            kept: list[list[int]] = []
            for k, bit in messages:
                if bit != 32 * self.size:
                    if kept and not kept[-1] and k not in served[-1]:
                        served[-1][k] = batches[k][steps[k]]
                    else:
                        served.append({k: batches[k][steps[k]]})
                        kept.append([])
                    steps[k] += 1
                else:
                    kept[-1].append(k)
            for rows, there in zip(served, kept, strict=True):
                # each device from the mean gradient of its own samples, weighted by them; the server from all samples
                own = {k: self.gradients(front, back, mine) for k, mine in rows.items()}
                n, n_there = sum(map(len, rows.values())), sum(len(rows[k]) for k in there)
                back = back - LR * sum(len(rows[k]) / n * theirs for k, (_, theirs) in own.items())
                if there:
                    front = sum(len(rows[k]) / n_there * (front - LR * own[k][0]) for k in there)  # type: ignore[assignment]
        return torch.cat([front, back])
