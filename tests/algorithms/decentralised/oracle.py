"""The five methods once more: loops over NumPy arrays in double precision, written from the papers.

From a run are taken its samples, its initial model, the streams of its batches, and which messages have arrived when.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

from fednet_emu.federation.federation import Federation
from tests.algorithms.decentralised.graphs import Pairs
from tests.algorithms.heterogeneous.oracle import Loop, Vector

Edge = tuple[int, int]


class Played(Loop):
    """What a run leaves to the loops: beside samples and batches, what has arrived in each of its rounds."""

    def __init__(self, fed: Federation) -> None:
        super().__init__(fed)
        self.frames = frames = fed.ledger.frames()
        sent = frames["transfers"].set_index("transfer")
        several = frames["receptions"].set_index("transfer")
        joined = several.join(sent.drop(columns=[*several.columns.intersection(sent.columns)]), how="inner")
        self.messages = pd.concat([sent[sent["receivers"] == 1], joined])
        self.rounds = list(zip(frames["rounds"]["started_s"], frames["rounds"]["ended_s"], strict=True))

    def heard(self, t: int, *, acknowledged: bool = True) -> set[Edge]:
        """(sender, receiver) of the models that have arrived in a round, and were acknowledged if they have to be."""
        started_s, ended_s = self.rounds[t]
        now = self.messages[(self.messages["ended_s"] > started_s) & (self.messages["ended_s"] <= ended_s)]
        there = now[now["loss_reason"] == ""]
        models, told = there[there["value_id"] >= 0], there[there["value_id"] < 0]
        arrived = set(zip(models["sender"], models["receiver"], strict=True))
        return arrived & set(zip(told["receiver"], told["sender"], strict=True)) if acknowledged else arrived

    def attempted(self, t: int) -> set[Edge]:
        """(sender, receiver) of the models that were sent in a round."""
        started_s, ended_s = self.rounds[t]
        now = self.messages[(self.messages["ended_s"] > started_s) & (self.messages["ended_s"] <= ended_s)]
        models = now[now["value_id"] >= 0]
        return set(zip(models["sender"], models["receiver"], strict=True))

    def steps(self, models: Vector, t: int) -> Vector:
        """The models [devices, P] after the local steps of a round."""
        return np.array([self.trained(x, k, t)[0] for k, x in enumerate(models)])


def neighbours(n: int, pairs: Pairs) -> list[set[int]]:
    return [{b if a == k else a for a, b in pairs if k in (a, b)} for k in range(n)]


def doubly(n: int, used: set[Edge], weight: dict[Edge, float]) -> Vector:
    """W with a weight on each used edge (sender, receiver), and the rest of each row at home."""
    w = np.zeros((n, n))
    for j, i in used:
        w[i, j] = weight[j, i]
    return w + np.diag(1 - w.sum(1))


def d_psgd(loop: Played, pairs: Pairs, *, paper: bool, drop: bool) -> Vector:
    """D-PSGD, in either order, with weights of Metropolis on the edges that count."""
    n = loop.devices
    near, x = neighbours(n, pairs), np.tile(loop.w, (n, 1))
    weight = {(j, i): 1 / (1 + max(len(near[i]), len(near[j]))) for i in range(n) for j in near[i]}
    for t in range(len(loop.rounds)):
        used = loop.heard(t, acknowledged=drop)
        if drop:
            used = {(j, i) for j, i in used if (i, j) in used}
        w, y = doubly(n, used, weight), loop.steps(x, t)
        x = w @ x + (y - x) if paper else w @ y
    return x


def sgp(loop: Played, edges: Pairs) -> Vector:
    """SGP as printed, with numerators and weights; what has not arrived stays with its sender."""
    n = loop.devices
    x, omega = np.tile(loop.w, (n, 1)), np.ones(n)
    out = [sum(a == j for a, _ in edges) for j in range(n)]
    for t in range(len(loop.rounds)):
        z = x / omega[:, None]
        p = np.zeros((n, n))
        for j, i in loop.heard(t):
            p[i, j] = 1 / (1 + out[j])
        p += np.diag(1 - p.sum(0))
        x, omega = p @ (x + loop.steps(z, t) - z), p @ omega
    return x / omega[:, None]


def gossip(loop: Played) -> Vector:
    """Pairs that have met set both models to their mean."""
    x = np.tile(loop.w, (loop.devices, 1))
    for t in range(len(loop.rounds)):
        used = loop.heard(t)
        x = loop.steps(x, t)
        for i, j in used:
            if i < j and (j, i) in used:
                x[[i, j]] = x[[i, j]].mean(0)
    return x


def matcha(loop: Played, matchings: list[Pairs], budget: float) -> Vector:
    """MATCHA on equally important matchings, with the step that all draws together have as the best."""
    n = loop.devices
    laplacians = []
    for pairs in matchings:
        one = np.zeros((n, n))
        for a, b in pairs:
            one[[a, b], [a, b]] += 1
            one[[a, b], [b, a]] -= 1
        laplacians.append(one)

    def rho(alpha: float) -> float:
        mean = np.zeros((n, n))
        for drawn in product((0, 1), repeat=len(laplacians)):
            w = np.eye(n) - alpha * sum(on * one for on, one in zip(drawn, laplacians, strict=True))
            mean += np.prod([budget if on else 1 - budget for on in drawn]) * w.T @ w
        return float(np.linalg.norm(mean - 1 / n, 2))

    alpha = minimize_scalar(rho, bounds=(0, 1), method="bounded", options={"xatol": 1e-10}).x
    x = np.tile(loop.w, (n, 1))
    for t in range(len(loop.rounds)):
        used = loop.heard(t)
        used = {(j, i) for j, i in used if (i, j) in used}
        x = doubly(n, used, dict.fromkeys(used, alpha)) @ loop.steps(x, t)
    return x


def ad_psgd(loop: Played) -> Vector:
    """AD-PSGD, event by event: steps begin and end, an active device asks, a passive one answers."""
    computes, messages = loop.frames["computes"], loop.messages
    until_s = loop.rounds[-1][1]
    events: list[tuple[float, int, int, tuple[int, ...]]] = []
    for number, row in enumerate(computes.itertuples()):
        if not row.stopped:  # the end of the run stops what is not done
            events += [(row.started_s, 3, number, (row.device,)), (row.ended_s, 0, number, (row.device,))]
    for number, row in enumerate(messages.itertuples()):
        events.append((row.requested_s, 2, number, (row.sender, row.receiver)))
        if row.loss_reason == "":
            events.append((row.ended_s, 1, number, (row.sender, row.receiver)))
    x, began, tried = np.tile(loop.w, (loop.devices, 1)), dict[int, Vector](), [0] * loop.devices
    carried: dict[int, Vector] = {}
    asked: dict[tuple[int, int], Vector] = {}
    for time_s, what, number, ends in sorted(events, key=lambda event: event[:3]):
        if time_s > until_s:
            break
        if what == 3:
            began[ends[0]] = x[ends[0]].copy()
        elif what == 0:
            k = ends[0]
            x[k] += loop.trained(began[k], k, tried[k])[0] - began[k]
            tried[k] += 1
        elif what == 2:
            carried[number] = x[ends[0]].copy()
        elif ends[0] % 2 == 0:
            asked[ends] = carried[number]
        else:
            j, i = ends
            mine, theirs = asked.pop((i, j)), carried[number]
            x[i] += (theirs - mine) / 2
            x[j] += (mine - theirs) / 2
    return x
