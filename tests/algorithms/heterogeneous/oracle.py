"""The four methods once more: loops over NumPy arrays in double precision, written from the papers, on ideal links.

Softmax regression with its gradient by hand; the only things taken from a run are its samples, its initial model, who
was invited in each round, and the streams by which batches are drawn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.streams import Streams
from fednet_emu.testing import small_federation, small_scenario

Vector = NDArray[np.float64]

SKEWED = (
    "devices.count=6",
    "data={kind: synthetic, n_samples: 200, n_test: 20, features: 9, classes: 3}",
    "partition={kind: dirichlet, alpha: 0.5}",
    "model=softmax",
    "stop.rounds=6",
)
"""Six devices with unequal numbers of samples of unequal classes."""

LR = 0.2


def algorithm(kind: str, **more: object) -> str:
    """The setting of an algorithm that draws three devices, each for two epochs of batches of ten, unless changed."""
    settings = {"cohort": 3, "lr": LR, "batch_size": 10, "local_epochs": 2, **more}
    return f"algorithm={{kind: {kind}, {', '.join(f'{key}: {value}' for key, value in settings.items())}}}"


def played(*settings: str) -> tuple[Federation, Vector]:
    """The federation after a run, and its final model."""
    fed = small_federation(*settings)
    final = fed.run(small_scenario(*settings).algorithm)
    return fed, fed.read(final).double().numpy()  # type: ignore[arg-type, no-any-return]


class Loop:
    """Samples, batches and cohorts of a run that was played."""

    def __init__(self, fed: Federation) -> None:
        task = fed.task
        self.devices = fed.n_devices
        self.x = [task.data.x[task.slice_of(k)].reshape(-1, 9).double().numpy() for k in range(self.devices)]
        self.y = [task.data.y[task.slice_of(k)].numpy() for k in range(self.devices)]
        self.n = [len(y) for y in self.y]
        self.w = task.model.initial().double().numpy()
        receptions = fed.ledger.frame("receptions")
        self.cohorts = [group["receiver"].tolist() for _, group in receptions.groupby("transfer")]

    def loss_and_gradient(
        self, w: Vector, k: int, rows: NDArray[np.int64] | slice = slice(None)
    ) -> tuple[float, Vector]:
        """Mean cross-entropy of device k on some of its rows, and its gradient [27 + 3]."""
        x, y = self.x[k][rows], self.y[k][rows]
        scores = x @ w[:27].reshape(3, 9).T + w[27:]
        p = np.exp(scores - scores.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        loss = float(-np.log(p[np.arange(len(y)), y]).mean())
        p[np.arange(len(y)), y] -= 1
        return loss, np.concatenate([(p.T @ x).ravel(), p.sum(0)]) / len(y)

    def trained(
        self, w: Vector, k: int, t: int, added: Callable[[Vector], Vector] = lambda v: np.zeros(30)
    ) -> tuple[Vector, int]:
        """The model after two epochs of steps along the gradient and what is added to it, and the number of steps."""
        rng, v, steps = Streams(0)("batch", k, t), w, 0
        for _ in range(2):
            order = rng.permutation(self.n[k]) if self.n[k] > 10 else np.arange(self.n[k])
            for start in range(0, self.n[k], 10):
                v = v - LR * (self.loss_and_gradient(v, k, order[start : start + 10])[1] + added(v))
                steps += 1
        return v, steps


def scaffold(loop: Loop, option: str = "II", server_lr: float = 1.0) -> Vector:
    """SCAFFOLD, Algorithm 1."""
    x, c = loop.w, np.zeros(30)
    c_of = [np.zeros(30) for _ in range(loop.devices)]
    for t, cohort in enumerate(loop.cohorts):
        dx, dc = [], []
        for i in cohort:
            correction = c - c_of[i]
            y, steps = loop.trained(x, i, t, lambda v, correction=correction: correction)
            new = loop.loss_and_gradient(x, i)[1] if option == "I" else c_of[i] - c + (x - y) / (steps * LR)
            dx.append(y - x)
            dc.append(new - c_of[i])
            c_of[i] = new
        x = x + server_lr * np.mean(dx, axis=0)
        c = c + len(cohort) / loop.devices * np.mean(dc, axis=0)
    return x


def scaffold_of_niid_bench(
    loop: Loop,
    option: str = "II",
    beta: float = 0.0,
    nesterov: bool = False,
    decay: float = 0.0,
    gamma: float = 1.0,
    by_samples: bool = False,
) -> Vector:
    """SCAFFOLD as NIID-Bench has it: steps with momentum and decay, each followed by one of -lr (c - c_i).

    The step size of round t is LR gamma^t. Models may be weighted by samples.
    """
    x, c = loop.w, np.zeros(30)
    c_of = [np.zeros(30) for _ in range(loop.devices)]
    for t, cohort in enumerate(loop.cohorts):
        lr, ys, changes = LR * gamma**t, [], []
        for i in cohort:
            y, velocity, steps, rng = x, np.zeros(30), 0, Streams(0)("batch", i, t)
            for _ in range(2):
                order = rng.permutation(loop.n[i]) if loop.n[i] > 10 else np.arange(loop.n[i])
                for start in range(0, loop.n[i], 10):
                    g = loop.loss_and_gradient(y, i, order[start : start + 10])[1] + decay * y
                    velocity = beta * velocity + g
                    y = y - lr * (g + beta * velocity if nesterov else velocity)
                    y = y - lr * (c - c_of[i])
                    steps += 1
            at_x = loop.loss_and_gradient(x, i)[1] + decay * x
            new = at_x if option == "I" else c_of[i] - c + (x - y) / (steps * lr)
            ys.append(y)
            changes.append(new - c_of[i])
            c_of[i] = new
        weights = [loop.n[i] for i in cohort] if by_samples else None
        x, c = np.average(ys, axis=0, weights=weights), c + np.sum(changes, axis=0) / loop.devices
    return x


def fednova(loop: Loop, prox: float = 0.0) -> Vector:
    """FedNova with local SGD, or proximal SGD, whose weights a_i are (1 - lr prox)^(tau - 1 - s) for step s."""
    x = loop.w
    for t, cohort in enumerate(loop.cohorts):
        p = np.array([loop.n[i] for i in cohort]) / sum(loop.n[i] for i in cohort)
        d, taus = [], []
        for i in cohort:
            y, tau = loop.trained(x, i, t, lambda v, x=x: prox * (v - x))
            a = np.array([(1 - LR * prox) ** (tau - 1 - s) for s in range(tau)])
            d.append((x - y) / (LR * a.sum()))
            taus.append(tau)
        x = x - LR * (p @ taus) * (p @ np.array(d))
    return x


def feddyn(loop: Loop, alpha: float, evaluated: str = "mean") -> Vector:
    """FedDyn, Algorithm 1, with steps instead of the minimum."""
    theta = mean = loop.w
    h, g = np.zeros(30), [np.zeros(30) for _ in range(loop.devices)]
    for t, cohort in enumerate(loop.cohorts):
        models = []
        for k in cohort:
            v, _ = loop.trained(theta, k, t, lambda v, g_k=g[k], theta=theta: -g_k + alpha * (v - theta))
            g[k] = g[k] - alpha * (v - theta)
            models.append(v)
        h = h - alpha / loop.devices * sum(v - theta for v in models)
        mean = np.mean(models, axis=0)
        theta = mean - h / alpha
    return mean if evaluated == "mean" else theta


def q_ffl(loop: Loop, q: float) -> Vector:
    """q-FedAvg, Algorithm 2, with L = 1 / lr."""
    w = loop.w
    for t, cohort in enumerate(loop.cohorts):
        deltas, hs = [], []
        for k in cohort:
            loss, _ = loop.loss_and_gradient(w, k)
            dw = (w - loop.trained(w, k, t)[0]) / LR
            deltas.append(loss**q * dw)
            hs.append(q * loss ** (q - 1) * (dw @ dw) + loss**q / LR)
        w = w - sum(deltas) / sum(hs)
    return w
