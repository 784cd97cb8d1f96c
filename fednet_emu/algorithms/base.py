"""What an algorithm is to a scenario file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from pydantic import Field

from fednet_emu.component import Component
from fednet_emu.federation import Federation, Process


class Algorithm(Component):
    """One paper's algorithm: its hyper-parameters are the fields, its pseudo-code is `run`."""

    @abstractmethod
    def run(self, fed: Federation) -> Process:
        """The server's process; it ends when the algorithm has ended."""

    @property
    def events_depend_on_learning(self) -> bool:
        """Whether what is sent, to whom or how long can follow from numbers that are learnt.

        A timing-only run, which learns nothing, is then an approximation: nominal numbers stand for the learnt ones.
        """
        return False

    def demands(self) -> Iterable[tuple[str, str, int]]:
        """Settings that need so many devices, as (key, what it asks for, number of devices)."""
        return ()

    def contradictions(self, count: int) -> Iterable[tuple[str, str]]:
        """Settings that cannot be with so many devices, as (key, what is wrong)."""
        return ()

    def conflicts_with_losses(self, losses: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Settings that cannot be where these settings (`key: value`) may lose messages, as (key, what is wrong)."""
        return ()


class RoundBased(Algorithm):
    """An algorithm whose server waits in each round for the devices that it has invited."""

    deadline_s: float | None = Field(None, gt=0)
    """How long the server waits for the devices of a round at the most; whoever is late is cancelled and left out. Null
    waits for all."""
