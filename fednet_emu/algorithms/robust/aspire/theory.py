"""The step sizes under which Theorem 1 of ASPIRE-EASE is proved; far smaller than those that work.

Symbols are those of https://arxiv.org/abs/2307.14364. c_1 and c_2 must be above 0, as with `regularisation: paper`.
"""

from __future__ import annotations

from typing import NamedTuple


class DualSteps(NamedTuple):
    """What the step sizes of the multipliers must not reach (rho_1) and not exceed (rho_2)."""

    rho_lam: float
    rho_phi: float


def primal_step(
    smoothness: float,
    n_workers: int,
    n_planes: int,
    rho_lam: float,
    rho_phi: float,
    c_lam: float,
    c_phi: float,
    gamma: float = 2.0,
) -> float:
    """The step size eta of w_j, z and h in Theorem 1, at one iteration.

    2 / (L + rho_1 |A| L^2 + rho_2 N L^2 + 8 (|A| gamma L^2 / (rho_1 c_1^2) + N gamma L^2 / (rho_2 c_2^2)))

    Args:
        smoothness: L, the Lipschitz constant of the gradient of the Lagrangian.
        n_workers: N.
        n_planes: |A|; with the longest list M and the least c_1 and c_2 this is the bound for all iterations.
        rho_lam: rho_1, below `dual_steps`.
        rho_phi: rho_2, up to `dual_steps`.
        c_lam: c_1^t.
        c_phi: c_2^t.
        gamma: The theorem's constant, at least 2.
    """
    by_lam, by_phi = n_planes * smoothness**2, n_workers * smoothness**2
    plain = smoothness + rho_lam * by_lam + rho_phi * by_phi
    return 2.0 / (plain + 8.0 * gamma * (by_lam / (rho_lam * c_lam**2) + by_phi / (rho_phi * c_phi**2)))


def dual_steps(smoothness: float, n_workers: int, max_delay: int, prox: float, c_lam: float, c_phi: float) -> DualSteps:
    """The bounds rho_1 < min(2 / (L + 2 c_1), 1 / (15 tau kappa_1 N L^2)) and rho_2 <= 2 / (L + 2 c_2) of Theorem 1.

    Args:
        smoothness: L.
        n_workers: N.
        max_delay: tau, in iterations.
        prox: kappa_1.
        c_lam: c_1^0, of the first iteration.
        c_phi: c_2^0.
    """
    slow = 1.0 / (15.0 * max_delay * prox * n_workers * smoothness**2)
    return DualSteps(min(2.0 / (smoothness + 2.0 * c_lam), slow), 2.0 / (smoothness + 2.0 * c_phi))
