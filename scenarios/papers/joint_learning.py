"""Joint learning and communication of Chen et al. (IEEE TWC 20(1), 2021): resource blocks for the most samples.

The settings are read from the authors' simplified script mzchen0/Wireless-FL at 71ff082: nine users at 500 U(0, 1) m
and six blocks. The planner `resource-blocks` contains the scheme and its three baselines; a pair of user and block that
breaks a limit delivers nothing. The initial weights are drawn from the seed. In each of 130 iterations, each user whose
upload arrives takes one gradient step of size 0.5 on all its samples. The model has 50 tanh units; pixels are in
[0, 1]. The script, in contrast, has one epoch of scaled conjugate gradients.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from fednet_emu.arrays import Array
from fednet_emu.learning.data.datasets.mnist import Mnist
from fednet_emu.network.planning import ResourceBlocks
from fednet_emu.network.planning.base import Round
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.results.published import Sources

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
SAMPLES = (100, 200, 300, 400, 500, 400, 300, 200, 100)
INTERFERENCE_W = (1e-8, 3e-8, 5e-8, 7e-8, 9e-8, 1.1e-7)
NOISE_W, DOWNLINK_W, BLOCK_HZ, BAND_HZ = 1e-14, 1.8e-7, 1e6, 20e6
SIZE_MBIT, POWER_W, DELAY_S, ENERGY_J, STEP_J = 39_760 * 16 / 2**20, 0.01, 0.5, 0.003, 4e-8
THRESHOLD = 1.08
HIDDEN, ITERATIONS, LR = 50, 130, 0.5
SCHEMES = {
    "proposed": "most-samples",
    "random_blocks": "random-blocks",
    "random": "random",
    "min_error": "least-error",
}
SEEDS, DRAWS = range(30), 500

Weights = NDArray[np.float32]


def instance(distance_m: Array, rng: np.random.Generator | None = None) -> Round:
    """Return a round of users at the given distances [n]."""
    n, gain = len(distance_m), distance_m**-2.0
    return Round(
        ready_s=SIZE_MBIT * 1e6 / (BAND_HZ * np.log2(1 + gain / DOWNLINK_W)),
        compute_s=np.zeros(n),
        compute_j=np.full(n, STEP_J * SIZE_MBIT),
        min_clock=np.ones(n),
        size_bit=SIZE_MBIT * 1e6,
        snr=POWER_W * gain / (NOISE_W * BAND_HZ / BLOCK_HZ),
        power_w=np.full(n, POWER_W),
        amplifier_efficiency=1.0,
        circuit_w=0.0,
        weight=np.array(SAMPLES[:n], np.float64),
        bandwidth_hz=BAND_HZ,
        law=CAPACITY,
        rng=rng,
    )


def planner(assignment: Any) -> ResourceBlocks:
    """Return the planner of the paper or of a baseline, with six blocks."""
    return ResourceBlocks(
        blocks=len(INTERFERENCE_W),
        block_hz=BLOCK_HZ,
        inr_db=tuple(10 * np.log10(np.array(INTERFERENCE_W) / NOISE_W)),
        waterfall_db=10 * float(np.log10(THRESHOLD)),
        max_delay_s=DELAY_S,
        max_energy_j=ENERGY_J,
        assignment=assignment,
    )


def arrival(assignment: str, distance_m: Array, rng: np.random.Generator) -> Array:
    """Return the probability [n] that each user's upload arrives."""
    grants = planner(assignment).plan(instance(distance_m, rng))
    return np.where(grants.share > 0, 1 - grants.error, 0.0)


class Images(NamedTuple):
    """Pixels [n, 784] and classes [n] for training and testing."""

    x: Weights
    y: NDArray[np.int64]
    test_x: Weights
    test_y: NDArray[np.int64]

    @classmethod
    def mnist(cls, data_dir: Path | None) -> Images:
        """Return the first training images of MNIST, for the samples of all users, and all test images."""
        s = Mnist(normalise=False).load(data_dir, np.random.Generator(np.random.PCG64(0)))
        n = sum(SAMPLES)
        x, test_x = (part.numpy().reshape(len(part), -1) for part in (s.train_x[:n], s.test_x))
        return cls(x, s.train_y[:n].numpy(), test_x, s.test_y.numpy())


def accuracy(images: Images, arrives: Array, rng: np.random.Generator) -> float:
    """Return the test accuracy in percent after training; uploads arrive with the probabilities `arrives` [n]."""
    w = [rng.normal(0, 0.05, (784, HIDDEN)), np.zeros(HIDDEN), rng.normal(0, 0.1, (HIDDEN, 10)), np.zeros(10)]
    w = [part.astype(np.float32) for part in w]
    here = rng.random((ITERATIONS, len(arrives))) < arrives
    for row in here:
        rows = np.flatnonzero(np.repeat(row, SAMPLES))
        if len(rows):  # the mean of the users' steps, weighted by samples, is one step on all their samples
            x = images.x[rows]
            h = np.tanh(x @ w[0] + w[1])
            d = scipy.special.softmax(h @ w[2] + w[3], axis=1)
            d[np.arange(len(rows)), images.y[rows]] -= 1
            d /= np.float32(len(rows))
            e = (d @ w[2].T) * (1 - h * h)
            w = [part - np.float32(LR) * g for part, g in zip(w, (x.T @ e, e.sum(0), h.T @ d, d.sum(0)), strict=True)]
    scores = np.tanh(images.test_x @ w[0] + w[1]) @ w[2] + w[3]
    return 100 * float(np.mean(scores.argmax(1) == images.test_y))


def _seed(*numbers: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([2021, *numbers]))


def ours(sources: Sources) -> dict[str, float]:
    """Return expected samples of each scheme, and accuracy gains in points, paired by seed, with 95 % lower bounds."""
    values: dict[str, float] = {}
    for scheme, assignment in SCHEMES.items():
        rng = _seed(0)
        sums = [np.dot(SAMPLES, arrival(assignment, rng.uniform(0, 500, 9), rng)) for _ in range(DRAWS)]
        values[f"samples_{scheme}"] = float(np.mean(sums))
    images, found = Images.mnist(sources.data_dir), dict[str, Array]()
    for scheme, assignment in SCHEMES.items():
        distances = {seed: _seed(1, seed).uniform(0, 500, 9) for seed in SEEDS}
        found[scheme] = np.array(
            [accuracy(images, arrival(assignment, distances[s], _seed(2, s)), _seed(3, s)) for s in SEEDS]
        )
    for scheme in list(SCHEMES)[1:]:
        gain = found["proposed"] - found[scheme]
        half = float(scipy.stats.t.ppf(0.975, len(gain) - 1)) * float(gain.std(ddof=1)) / np.sqrt(len(gain))
        values |= {f"gain_{scheme}": float(gain.mean()), f"low_{scheme}": float(gain.mean() - half)}
    return values
