"""Privacy loss of rounds with Gaussian noise: (epsilon, delta) differential privacy of a single device.

Neighbouring inputs differ by adding or removing one device. Without sampling, T releases with noise multiplier z are
equivalent to one Gaussian mechanism with mu = sqrt(T) / z, whose delta is known exactly: Balle and Wang, "Improving the
Gaussian Mechanism for Differential Privacy", ICML 2018, https://arxiv.org/abs/1805.06530; Dong, Roth and Su, "Gaussian
Differential Privacy", JRSS B 84, 2022, https://arxiv.org/abs/1905.02383. With Poisson sampling, the accountant `rdp`
uses Renyi differential privacy at integer orders: Mironov, Talwar and Zhang, "Renyi Differential Privacy of the Sampled
Gaussian Mechanism", 2019, https://arxiv.org/abs/1908.10530, converted to epsilon as by Canonne, Kamath and Steinke,
"The Discrete Gaussian for Differential Privacy", NeurIPS 2020, https://arxiv.org/abs/2004.00010. This epsilon is an
upper bound; the accountant `pld` computes the smallest epsilon (`algorithms/privacy_loss.py`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import gammaln, log_ndtr

from fednet_emu.algorithms import privacy_loss
from fednet_emu.arrays import Array
from fednet_emu.errors import FednetError

_ORDERS = (*range(2, 65), 72, 80, 96, 112, 128, 160, 192, 256, 384, 512)
_LEAST, _LARGEST = 0.01, 1e6

Accountant = Literal["rdp", "pld"]
"""Method that computes epsilon for rounds with Poisson sampling. rdp: by Renyi divergences; pld: by privacy loss
distributions."""


class Privacy(NamedTuple):
    """An (epsilon, delta) guarantee of differential privacy for a single device.

    Except with probability `delta`, adding or removing the device changes the likelihood of any output by at most a
    factor e^epsilon.
    """

    epsilon: float
    delta: float


def epsilon(
    noise_multiplier: float, *, delta: float, rounds: int, rate: float = 1.0, accountant: Accountant = "rdp"
) -> float:
    """Return the privacy loss epsilon after `rounds` rounds; it is infinite if there is no noise.

    The standard deviation of the noise on the sum of updates is `noise_multiplier` times the maximum norm of an update.
    A device participates in a round with probability `rate`, independently of all other devices. `delta` is the
    additive term of (epsilon, delta)-differential privacy, with 0 < delta < 1. If `rate` is 1, both accountants are
    exact. The accountant `pld` rounds probabilities below 1e-9 to 0.
    """
    if rounds == 0 or rate == 0:
        return 0.0
    if noise_multiplier == 0:
        return math.inf
    if rate == 1:
        return _of_gaussian(math.sqrt(rounds) / noise_multiplier, delta)
    if accountant == "pld":
        return privacy_loss.epsilon(noise_multiplier, delta=delta, rounds=rounds, rate=rate)
    least: float = min(
        rounds * renyi(order, noise_multiplier, rate) + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
        for order in _ORDERS
    )
    return max(least, 0.0)


@lru_cache(4096)
def renyi(order: int, noise_multiplier: float, rate: float) -> float:
    """Return the Renyi divergence of order `order` between the outputs of a round with and without a given device."""
    k: Array = np.arange(order + 1, dtype=np.float64)
    binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    sampled = k * math.log(rate) + (order - k) * math.log1p(-rate)
    terms = binomial + sampled + (k * k - k) / (2 * noise_multiplier**2)
    return float(np.logaddexp.reduce(terms)) / (order - 1)


def _of_gaussian(mu: float, delta: float) -> float:
    from scipy.optimize import brentq

    def excess(eps: float) -> float:
        near, far = log_ndtr(mu / 2 - eps / mu), eps + log_ndtr(-mu / 2 - eps / mu)
        return float(np.exp(near) - np.exp(far)) - delta

    if excess(0.0) <= 0:
        return 0.0
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1
    return float(brentq(excess, 0.0, high, xtol=1e-12, rtol=1e-12))


def noise_multiplier_for(
    target_epsilon: float, *, delta: float, rounds: int, rate: float = 1.0, accountant: Accountant = "rdp"
) -> float:
    """Return the smallest noise multiplier for which epsilon after `rounds` rounds is at most `target_epsilon` > 0.

    The privacy is device-level; `dp_sgd` has sample-level privacy. `rate` is the probability that a device is invited
    in a round (Poisson sampling), 1 for `local-dp`; `delta` has the same meaning as in `epsilon`. The search with the
    accountant `pld` takes some seconds.

    Raises:
        FednetError: an argument is out of range, or no noise multiplier is large enough.
    """
    from scipy.optimize import brentq

    rounded = accountant == "pld" and rate < 1
    least = privacy_loss.LEAST_DELTA if rounded else 0.0
    for name, value, right, range_ in (
        ("target_epsilon", target_epsilon, 0 < target_epsilon < math.inf, "above 0"),
        ("delta", delta, 0 < delta < 1 and delta >= least, f"above 0 and below 1{f', {least:g} at least' * rounded}"),
        ("rounds", rounds, rounds >= 1, "1 or more"),
        ("rate", rate, 0 < rate <= 1, "above 0, and 1 at most"),
    ):
        if not right:
            raise FednetError(f"noise_multiplier_for: {name} is out of its range, got {value}; must be {range_}")

    def too_much(log_z: float) -> float:
        return epsilon(math.exp(log_z), delta=delta, rounds=rounds, rate=rate, accountant=accountant) - target_epsilon

    low, high = math.log(_LEAST), math.log(_LARGEST)
    if rounded:  # start near the noise multiplier of RDP, because the grid of losses is large if the noise is small
        high = math.log(noise_multiplier_for(target_epsilon, delta=delta, rounds=rounds, rate=rate))
        while high > low and too_much(high - 1) <= 0:
            high -= 1
        low = max(low, high - 1)
    if too_much(high) > 0:
        raise FednetError(
            f"noise_multiplier_for: no noise below {_LARGEST:g} times the norm suffices, got {target_epsilon}; "
            "give more"
        )
    if too_much(low) <= 0:
        return _LEAST
    return math.exp(brentq(too_much, low, high, xtol=1e-9) + 1e-9)
