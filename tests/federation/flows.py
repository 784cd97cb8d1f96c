"""Flows of one generator function, played in a small federation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fednet_emu.federation import Federation, Process
from fednet_emu.testing import small_federation


class Play:
    """An algorithm made of one generator function; what that returns is kept."""

    def __init__(self, flow: Callable[[Federation], Process]) -> None:
        self.flow = flow
        self.result: Any = None

    def run(self, fed: Federation) -> Process:
        self.result = yield from self.flow(fed)


def play(flow: Callable[[Federation], Process], *settings: str, timing_only: bool = False) -> tuple[Any, Federation]:
    """The result of a flow and the federation it was played in."""
    fed, algorithm = small_federation(*settings, timing_only=timing_only), Play(flow)
    fed.run(algorithm)
    return algorithm.result, fed
