"""Base classes of the algorithms that a scenario file can choose."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from pydantic import Field

from fednet_emu.component.component import Component
from fednet_emu.federation import Federation, Process


class Algorithm(Component):
    """One paper's algorithm: its hyper-parameters are the fields, its pseudo-code is `run`."""

    moves: ClassVar[frozenset[str]] = frozenset()
    """The links, of `uplink` and `downlink`, on which it sends models that can be compressed: it says `since` where it
    sends on the uplink, and `fed.published` for what it sends on the downlink."""
    uses: ClassVar[frozenset[str]] = frozenset()
    """What it may use that most algorithms do not: `edges`, edge servers and their backhaul; `sidelink`, sending from
    device to device; `server`, the server's samples and its speed. A scenario that gives another of them is refused."""
    single_uploads: ClassVar[str] = "reads every upload by itself"
    """What its server does with the upload of one device; empty if the mean of all does, asked by `fed.uplink_sum`."""
    plans_rounds: ClassVar[bool] = False
    """Whether it says at the start of a round who takes part, so that the uplink can be planned."""
    own_learning: ClassVar[bool] = False
    """Whether it brings its own data and model, so that a scenario gives none."""

    @abstractmethod
    def run(self, fed: Federation) -> Process:
        """The server's SimPy process; the algorithm is over when it returns."""

    @property
    def events_depend_on_learning(self) -> bool:
        """Whether learnt numbers can decide what is sent, to whom, or how long the run lasts.

        If so, a timing-only run, which trains nothing, is an approximation: it uses nominal values in their place.
        """
        return False

    def participants(self, count: int) -> int:
        """The largest number of devices, out of `count`, that take part in a round: the cohort, if there is one."""
        cohort = getattr(self, "cohort", None)
        return count if cohort is None else min(cohort, count)

    def answers(self, count: int) -> int:
        """The number of answers that end a round without losses, out of `count` devices: one of each participant."""
        return self.participants(count)

    def demands(self) -> Iterable[tuple[str, str, int]]:
        """Settings that need a minimum number of devices, as (key, what is wrong with fewer, that minimum)."""
        return ()

    def contradictions(self, count: int) -> Iterable[tuple[str, str]]:
        """Settings that contradict each other with `count` devices, as (key, what is wrong)."""
        return ()

    def conflicts_with_sums(self) -> Iterable[tuple[str, str]]:
        """Settings that are invalid when the server receives nothing but sums of uploads, as (key, what is wrong)."""
        if self.single_uploads:
            yield "kind", f"its server {self.single_uploads}"

    def conflicts_with_losses(self, losses: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Settings that are invalid when messages can be lost, as (key, what is wrong).

        Args:
            losses: the scenario's settings that can lose messages, as `key: value`.
        """
        return ()


class RoundBased(Algorithm):
    """An algorithm in rounds: in each one the server invites devices and waits for their answers."""

    deadline_s: float | None = Field(None, gt=0)
    """Longest time that the server waits for the devices of a round (simulated s); late devices are cancelled and left
    out of the round. Null waits for all devices."""
