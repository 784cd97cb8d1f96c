"""The choice of alpha: the largest value at which every client's own gradient still (nearly) vanishes.

Too large an alpha couples clients of different groups, whose gradients then stay as large as at the start. The test is
the ratio r(alpha) = max_i ||grad f_i(x_i)|| at the end / max_i ||grad f_i(x_i)|| at the start, which should be small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from torch import Tensor

from fednet_emu.algorithms.clustered.frank_wolfe.updates import differences


def starting_alpha(local_optima: Tensor) -> float:
    """A first guess of alpha from the shared parameters [n, d] that each client finds by training alone.

    A tenth of the alpha that would couple two clients at the median distance: 0.1 median ||x_i - x_j||^2 / (2 n^2).
    """
    squared = differences(local_optima).double().square().sum(1)
    return 0.1 * float(squared.quantile(0.5)) / (2 * len(local_optima) ** 2)


def choose_alpha(ratios: Mapping[float, float], threshold: float) -> float:
    """The largest alpha of a grid whose ratio is at most the threshold.

    Raises:
        ValueError: all ratios are above the threshold.
    """
    fine = [alpha for alpha, ratio in ratios.items() if ratio <= threshold]
    if not fine:
        shown = ", ".join(f"{ratio:.3g} at alpha={alpha:g}" for alpha, ratio in ratios.items())
        raise ValueError(f"ratios: none is at most {threshold:g}, got {shown}; try a smaller alpha or longer runs")
    return max(fine)


def largest_alpha(
    ratio_of: Callable[[float], float], start: float, threshold: float, *, factor: float = 10.0, halvings: int = 3
) -> float:
    """The largest alpha with a ratio of at most the threshold, by geometric bisection.

    From `start`, alpha is multiplied (or divided) by `factor` until the ratio crosses the threshold, at most twelve
    times; then the bracket is halved on a logarithmic scale `halvings` times. Each call of `ratio_of` is a whole run.

    Raises:
        ValueError: no crossing was found.
    """
    good, bad = 0.0, math.inf
    alpha = start
    for _ in range(12):
        if ratio_of(alpha) <= threshold:
            good, alpha = alpha, alpha * factor
        else:
            bad, alpha = alpha, alpha / factor
        if good and math.isfinite(bad):
            break
    else:
        raise ValueError(f"alpha: the ratio does not cross {threshold:g}, got {start:g} as the start; give another one")
    for _ in range(halvings):
        middle = math.sqrt(good * bad)
        good, bad = (middle, bad) if ratio_of(middle) <= threshold else (good, middle)
    return good
