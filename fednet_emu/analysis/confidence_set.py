"""Find the settings of a study that may be the best: a model confidence set from permutations within seeds.

Hansen, Lunde, Nason, "The Model Confidence Set", Econometrica 79(2), 2011: as long as the remaining settings differ by
more than chance explains, the most expensive setting is dropped. The remaining set contains the best setting with a
probability of 95 %. A setting that is as good as the best is dropped with a probability of at most 5 %. The number of
settings does not increase this probability, because a test is only made if all previous tests have found a difference.

Differences from the paper: the test is not a block bootstrap for long series, but a permutation test that is exact for
few seeds. All settings of a seed have the same channel, data and stragglers. If settings do not differ, their costs
within the seed are exchangeable (Pitman, "Significance Tests Which May be Applied to Samples from any Populations
III", Biometrika 29, 1938). The test statistic is the range of the settings' means. With k settings and n seeds the
smallest p-value is (k (k - 1))^(1 - n), for two settings 2^(1 - n). With fewer than six seeds the last two settings
therefore always remain.

A run that ended before it reached the target is compared with every other run of its seed, but only up to the cost at
which it ended. The score of a run is its mean cost difference from the other runs of its seed, restricted in this way.
Scores replace costs in the permutations. If no run ended early, these scores give the same test as the costs. A setting
is not dropped in favour of a setting that reached the target in fewer runs, because the costs of ended runs are
unknown.

Limitations: settings with equal means but different variances are not exchangeable. If one of six settings has five
times the standard deviation of the other five, a setting is dropped in 16 % of all cases with three or five seeds, and
in 11 % with ten seeds. Settings whose runs end early for reasons other than chance are not exchangeable either.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import scipy

from fednet_emu.analysis.statistics import ALPHA, DRAWS, EXACT, ROUNDING, fewest_seeds, gaps, sign_test
from fednet_emu.arrays import Array, Mask

POWER, MOST_SEEDS = 0.8, 1000
"""Statistical power for which the number of seeds is recommended, and maximum recommended number of seeds. The power is
the probability with which the worse of two settings is found to be worse."""


def confidence_set(costs: Array, ended: Mask | None = None, reached: Mask | None = None) -> tuple[Mask, Array]:
    """Return a mask [settings] of the settings that may be the best, and the p-value of each setting [settings].

    The p-value of a setting is the smallest significance level at which the setting is excluded from the set of
    settings that may be the best. It is 1 for the cheapest setting. It is NaN for a setting that is in the set only
    because it reached the target in more runs than cheaper settings.

    Args:
        costs: the cost of each setting on each seed [seeds, settings]; lower is better.
        ended: mask [seeds, settings] of runs that ended without reaching the target; by default no run.
        reached: mask [seeds, settings] of runs that reached the target; by default all runs that have not ended.
    """
    seeds, settings = costs.shape
    ended = np.zeros(costs.shape, np.bool_) if ended is None else ended
    shares = (~ended if reached is None else reached).sum(axis=0)
    p, left, more_often, largest = np.ones(settings), list(range(settings)), list[int](), 0.0
    while len(left) > 1 and seeds:
        apart = restricted(costs[:, left], ended[:, left])
        means = apart.mean(axis=(0, 2))
        largest = max(largest, chance_of_range(apart.mean(axis=2)))
        if largest > ALPHA:
            p[left] = largest
            p[left[int(means.argmin())]] = 1.0
            break
        place = int(means.argmax())
        worst = left.pop(place)
        beaten = np.delete(apart[:, place].mean(axis=0) > 0, place) & (shares[left] >= shares[worst])
        p[worst] = largest if beaten.any() else math.nan
        if not beaten.any():
            more_often.append(worst)
    mask = np.zeros(settings, np.bool_)
    mask[left + more_often] = True
    return mask, p


def restricted(costs: Array, ended: Mask) -> Array:
    """Return the cost differences between all pairs of runs with the same seed, [seeds, settings, settings].

    Element [s, i, j] is the cost of setting i minus the cost of setting j with seed s. If one of these runs ended
    without reaching the target (mask `ended` [seeds, settings]), both costs are limited to the cost at which it ended.
    """
    most = horizons(costs, ended)
    return gaps(np.minimum(costs[:, None, :], most), np.minimum(costs[:, :, None], most))


def horizons(costs: Array, ended: Mask) -> Array:
    """Return for each pair of runs with the same seed the cost up to which both were observed (censoring limit).

    The result has the shape [seeds, settings, settings]. A value is infinite if neither run ended early, which means
    that each run reached the target or is known never to reach it. The arguments are those of `restricted`.
    """
    ends = np.where(ended, costs, np.inf)
    return np.minimum(ends[:, :, None], ends[:, None, :])


def chance_of_range(costs: Array) -> float:
    """Return the p-value of a permutation test of the hypothesis that all settings have equal costs.

    The test statistic is the range of the settings' means over seeds: the largest minus the smallest mean. Costs, an
    array [seeds, settings], are permuted within each seed. If there are at most 20 000 permutations, all are evaluated.
    Otherwise the observed order and 10 000 random permutations are evaluated (Phipson, Smyth, "Permutation P-values
    Should Never Be Zero", Statistical Applications in Genetics and Molecular Biology 9(1), 2010).
    """
    seeds, settings = costs.shape
    if settings == 2:
        return sign_test(gaps(*costs.T)).p
    centred = costs - costs.mean(axis=1, keepdims=True)
    seen = np.ptp(centred.mean(axis=0)) - ROUNDING * float(np.abs(costs).max(initial=0.0))
    if seen <= 0 or seeds == 1:  # the order of the first seed is fixed, so one seed has one permutation
        return 1.0
    if math.factorial(settings) ** (seeds - 1) <= EXACT:
        found = _all_ranges(centred)
        return float((found >= seen).mean())
    found = _random_ranges(centred)
    return float((1 + (found >= seen).sum()) / (1 + len(found)))


def seeds_needed(differences: Array) -> float:
    """Return the number of seeds with which a test finds the better one of two settings with a probability of 80 %.

    The mean and the standard deviation of the true difference are assumed to equal the observed values.

    The number follows Guenther, "Sample Size Formulas for Normal Theory t Tests", The American Statistician 35(4),
    1981, but it is at least the minimum for a significant result. It is infinite if the mean of the observed cost
    differences [seeds] is zero or if more than 1000 seeds are needed. It is NaN for a single seed, because the standard
    deviation is then unknown.
    """
    if len(differences) < 2:
        return math.nan
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    if abs(mean) <= ROUNDING * float(np.abs(differences).max()):
        return math.inf
    tail = -float(scipy.special.ndtri(ALPHA / 2))
    needed = ((tail + float(scipy.special.ndtri(POWER))) * spread / mean) ** 2 + tail**2 / 2
    return math.inf if needed > MOST_SEEDS else float(max(math.ceil(needed), fewest_seeds()))


def _all_ranges(centred: Array) -> Array:
    """Return the range of the settings' means [permutations] for each permutation of costs within seeds.

    `centred` [seeds, settings] are costs minus the mean of each seed. The order of the first seed is fixed.
    """
    seeds, settings = centred.shape
    ways = np.array(list(itertools.permutations(range(settings))))
    sums = centred[:1]
    for seed in range(1, seeds):
        sums = (sums[:, None] + centred[seed][ways]).reshape(-1, settings)
    ranges: Array = np.ptp(sums, axis=1) / seeds
    return ranges


def _random_ranges(centred: Array) -> Array:
    generator = np.random.Generator(np.random.PCG64(0))
    sums = np.zeros((DRAWS, centred.shape[1]))
    for row in centred:
        sums += generator.permuted(np.broadcast_to(row, sums.shape), axis=1)
    ranges: Array = np.ptp(sums, axis=1) / len(centred)
    return ranges
