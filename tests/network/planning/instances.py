"""Random rounds for planners, and the same problems for a generic solver."""

import numpy as np
from scipy.optimize import minimize

from fednet_emu.network.planning.base import Round
from fednet_emu.radio.rates.shannon import Shannon
from tests.network.media import CAPACITY

PRACTICAL = Shannon()


def random_round(seed: int, n: int, law: Shannon = CAPACITY, circuit_w: float = 0.0, efficiency: float = 1.0) -> Round:
    """A round of n devices with SNRs from 0 to 30 dB at full power on the whole band of 1 MHz, and various clocks."""
    rng = np.random.default_rng(seed)
    return Round(
        ready_s=rng.uniform(0, 0.2, n),
        compute_s=rng.uniform(0.1, 1.0, n),
        compute_j=rng.uniform(0.01, 0.5, n),
        min_clock=np.full(n, 0.2),
        size_bit=float(rng.uniform(1e5, 1e6)),
        snr=10 ** rng.uniform(0, 3, n),
        power_w=rng.uniform(0.05, 0.5, n),
        amplifier_efficiency=efficiency,
        circuit_w=circuit_w,
        weight=rng.integers(1, 100, n).astype(float),
        bandwidth_hz=1e6,
        law=law,
    )


def rate_bps(round_: Round, share, power_part):
    """Shannon's rate on a part of the band at a part of the power, from the definition."""
    gamma = round_.snr / 10 ** (round_.law.gap_db / 10)
    return round_.bandwidth_hz * share * np.log2(1 + power_part * gamma / share)


def energy_j(round_: Round, share, power_part, clock):
    """What a round takes of all devices, from the definitions."""
    air_s = round_.size_bit / rate_bps(round_, share, power_part)
    drawn_w = power_part * round_.power_w / round_.amplifier_efficiency + round_.circuit_w
    return float(np.sum(round_.compute_j * clock**2 + drawn_w * air_s))


def end_s(round_: Round, share, power_part, clock):
    return round_.ready_s + round_.compute_s / clock + round_.size_bit / rate_bps(round_, share, power_part)


def solved_least_time(round_: Round) -> float:
    """The end of the shortest round, by SLSQP over the end and the parts of the band."""
    n, starts_s = len(round_.snr), round_.ready_s + round_.compute_s
    share = np.full(n, 1 / n)
    x0 = np.append(share, (starts_s + round_.size_bit / rate_bps(round_, share, 1.0)).max())
    constraints = [
        {"type": "ineq", "fun": lambda x: 1 - x[:-1].sum()},
        {"type": "ineq", "fun": lambda x: (x[-1] - starts_s) * rate_bps(round_, x[:-1], 1.0) / round_.size_bit - 1},
    ]
    bounds = [(1e-6, 1)] * n + [(starts_s.max(), None)]
    return minimize(lambda x: x[-1], x0, constraints=constraints, bounds=bounds, **_EXACT).x[-1]


def solved_least_energy(round_: Round, within_s: float, starts) -> float:
    """The least energy of a round, by SLSQP over bandwidths, powers and clocks from feasible starts.

    SLSQP loses its way from about one start in a hundred and then ends far outside the constraints; such ends do not
    count, and the best of the others does.
    """
    n = len(round_.snr)
    lowest, highest = round_.law.min_efficiency_bps_hz, round_.law.max_efficiency_bps_hz

    def parts(x):
        return x[:n], x[n : 2 * n], x[2 * n :]

    def slack(x):
        share, power, _ = parts(x)
        efficiency = rate_bps(round_, share, power) / (round_.bandwidth_hz * share)
        practical = [] if highest is None else [highest - efficiency, efficiency - lowest]
        return np.concatenate([[1 - share.sum()], 1 - end_s(round_, *parts(x)) / within_s, *practical])

    bounds = [(1e-6, 1)] * n + [(1e-6, 1)] * n + [(round_.min_clock[0], 1)] * n
    scale = energy_j(round_, *starts[0])
    ends = [
        minimize(
            lambda x: energy_j(round_, *parts(x)) / scale,
            np.concatenate(start),
            constraints=[{"type": "ineq", "fun": slack}],
            bounds=bounds,
            **_EXACT,
        )
        for start in starts
    ]
    return min(end.fun for end in ends if slack(end.x).min() > -_INSIDE) * scale


_INSIDE = 1e-9
_EXACT = {"method": "SLSQP", "options": {"ftol": 1e-14, "maxiter": 2000}}
