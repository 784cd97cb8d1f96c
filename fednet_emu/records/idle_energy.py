"""The energy that devices draw all the time, whatever they do: the floor under the energies of the records."""

from __future__ import annotations

_NS_PER_S = 1e9


class IdleEnergy:
    """Idle power of all devices together over simulated time; it changes where batteries get empty or come back."""

    def __init__(self, power_w: float = 0.0) -> None:
        self.power_w = power_w
        self._before_j, self._since_ns = 0.0, 0

    def change(self, now_ns: int, by_w: float) -> None:
        """Draw so much more, or less, from now on."""
        self._before_j, self._since_ns = self.until_j(now_ns), now_ns
        self.power_w += by_w

    def until_j(self, now_ns: int) -> float:
        """Energy in J from the start until an instant, now or later."""
        return self._before_j + self.power_w * ((now_ns - self._since_ns) / _NS_PER_S)
