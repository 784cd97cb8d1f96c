"""What a server may know, made up: every number of it can be given."""

from __future__ import annotations

from typing import Any

import numpy as np

from fednet_emu.algorithms.selection import ServerView


class GivenWork:
    """Given times [N] and rates [N], in place of those of a network."""

    def __init__(
        self, n: int, compute_s: Any = None, rate_bps: Any = None, downlink_rate_bps: Any = None, charges_j: Any = None
    ) -> None:
        ones = np.ones(n)
        self.compute_s = ones if compute_s is None else np.asarray(compute_s, float)
        self._up = ones if rate_bps is None else np.asarray(rate_bps, float)
        self._down = ones if downlink_rate_bps is None else np.asarray(downlink_rate_bps, float)
        self._charges_j = np.full(n, np.nan) if charges_j is None else np.asarray(charges_j, float)
        self.up = self.down = 1
        self.up_bit = 32

    def rates_bps(self, numbers: Any, *, down: bool) -> np.ndarray:
        """The rates of these devices, nan for the others."""
        rates, own = np.full(len(self._up), np.nan), list(numbers)
        rates[own] = (self._down if down else self._up)[own]
        return rates

    def charges_j(self, numbers: Any) -> np.ndarray:
        """The charges of these devices, nan for the others."""
        return np.where(np.isin(np.arange(len(self._charges_j)), numbers), self._charges_j, np.nan)


def known(n: int, size: int, t: int = 0, seed: int = 0, **given: Any) -> ServerView:
    """What is known of n devices before round t: nothing but what is given, and of the work what `GivenWork` has."""
    work = {
        name: given.pop(name) for name in ("compute_s", "rate_bps", "downlink_rate_bps", "charges_j") if name in given
    }
    never, nothing = np.full(n, -1), np.full(n, np.nan)
    values: dict[str, Any] = {
        "there": np.arange(n),
        "n_samples": np.full(n, 10),
        "flop_per_s": np.ones(n),
        "invited": np.zeros(n, int),
        "last_invited": never,
        "arrived": np.zeros(n, int),
        "last_arrived": never,
        "took_s": nothing,
        "told": {},
        "polled": np.array([], int),
        "polled_loss": nothing,
        "memory": None,
        "later": None,
    }
    for name, value in given.items():
        values[name] = np.asarray(value) if isinstance(values[name], np.ndarray) else value
    rng = np.random.default_rng([seed, t])
    return ServerView(t=t, now_s=float(t), size=size, rng=rng, work=GivenWork(n, **work), **values)  # type: ignore[arg-type]
