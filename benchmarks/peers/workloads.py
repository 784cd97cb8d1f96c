"""The workloads and their data: numpy only, since every contestant reads this file, whatever it is written in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CLASSES = 10
PIXELS = (28, 28)
WARM_UP = 4
"""Rounds before the clock runs: compilation, first pages, and the choice of threads."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Federated averaging with plain SGD and equal weights.

    Attributes:
        name: as in the tables.
        model: softmax, mlp (784-200-10) or cnn (of McMahan et al.).
        clients: how many there are.
        samples: of each client.
        cohort: clients per round, drawn uniformly.
        batch: samples per step.
        steps: gradient steps per client and round; a whole number of epochs where the issue counts epochs.
        lr: step size.
        rounds: rounds on the clock, after the warm-up.
    """

    name: str
    model: str
    clients: int
    samples: int
    cohort: int
    batch: int
    steps: int
    lr: float
    rounds: int

    @property
    def all_rounds(self) -> int:
        """Rounds with those of the warm-up."""
        return WARM_UP + self.rounds

    @property
    def all_steps(self) -> int:
        """Gradient steps of all clients in all rounds: what every contestant has to count."""
        return self.all_rounds * self.cohort * self.steps


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("W1", "softmax", 100, 600, cohort=100, batch=32, steps=5, lr=0.1, rounds=50),
        Workload("W2", "mlp", 100, 600, cohort=10, batch=50, steps=12, lr=0.1, rounds=50),
        Workload("W3", "cnn", 100, 600, cohort=10, batch=20, steps=5, lr=0.1, rounds=10),
        Workload("W4", "softmax", 1000, 60, cohort=1, batch=60, steps=1, lr=0.1, rounds=5000),
    )
}
"""W1 to W3 are synchronous; W4 is asynchronous with S = 1, so that a round is a step of the server."""


class Data(NamedTuple):
    """Samples x [clients, samples, 1, 28, 28], grey values from 0 to 1, and labels y [clients, samples]."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]


def make_data() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """60,000 images [n, 1, 28, 28] of MNIST's shape and brightness with labels [n], from numpy seed 0.

    A class is a coarse random pattern of 7x7 blots under pixel noise. A tenth of the labels are drawn anew, so that the
    loss has a floor, and a relative difference of two losses says something.
    """
    rng = np.random.default_rng(0)
    n_samples = 60_000
    blots = np.kron(rng.random((CLASSES, 7, 7)) < 0.2, np.ones((4, 4)))
    labels = rng.integers(CLASSES, size=n_samples)
    images = rng.standard_normal((n_samples, *PIXELS), dtype=np.float32)
    images *= 0.25
    for label in range(CLASSES):
        images[labels == label] += (0.5 * blots[label]).astype(np.float32)
    redrawn = rng.random(n_samples) < 0.1
    labels[redrawn] = rng.integers(CLASSES, size=int(redrawn.sum()))
    return np.clip(images, 0, 1, out=images)[:, None], labels


def write_data(folder: Path) -> None:
    """Leave the samples in a folder: x.npy and y.npy, and data.npz in the form that fednet_emu reads."""
    folder.mkdir(parents=True, exist_ok=True)
    x, y = make_data()
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    for name in ("W1", "W4"):  # the two ways of dealing the samples out
        workload = WORKLOADS[name]
        owner = np.repeat(np.arange(workload.clients), workload.samples)
        few = slice(0, 100)  # a test set is obligatory, and must cost nothing here
        np.savez(
            folder / f"{workload.clients}_clients.npz",
            train_x=x,
            train_y=y,
            train_group=owner,
            test_x=x[few],
            test_y=y[few],
        )


def load_data(workload: Workload, folder: Path) -> Data:
    """The samples that `write_data` left, dealt out in order."""
    shape = (workload.clients, workload.samples)
    return Data(np.load(folder / "x.npy").reshape(*shape, 1, *PIXELS), np.load(folder / "y.npy").reshape(shape))
