"""The clock frequency of the devices' processors, as a part of the one that `devices.speed` states (DVFS)."""

from __future__ import annotations

from pydantic import Field

from fednet_emu.component.component import Component


class Frequency(Component):
    """The range of clocks, and the rule by which a device computes more slowly than it could.

    At the part x of its clock a computation takes 1/x of the time and x^2 of the dynamic energy kappa C D f^2. Energy
    that was measured (`compute_energy: measured`) is a power times the time, at whatever clock.
    Ignored here: the steps in which a clock can be set, and the time that takes.
    """

    part: float = Field(1.0, gt=0, le=100)
    """The clock of every device, relative to that at which it has its nominal speed: its highest where a plan or
    `within_s` decides."""
    least_part: float = Field(0.1, gt=0, le=100)
    """The lowest clock that a plan or `within_s` may choose, relative to that of `devices.speed`; no more than `part`
    counts."""
    within_s: float | None = Field(None, gt=0)
    """Time in s within which a computation should end: it runs at the lowest clock that does it, f = C D / T. Null runs
    at `part`. What is planned for a round goes first."""

    @property
    def least(self) -> float:
        """The lowest clock over the highest."""
        return min(1.0, self.least_part / self.part)

    def chosen(self, duration_s: float) -> float:
        """The clock, over the highest, of a computation that takes this time at the highest."""
        return 1.0 if self.within_s is None else min(1.0, max(self.least, duration_s / self.within_s))
