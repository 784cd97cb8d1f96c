"""The table of all engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.rule import RuleEngine
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.graph.engine import Engine


def serial_engine(_threads: int = 1) -> SerialEngine:
    """The reference: one job after the other, whatever the number of threads."""
    return SerialEngine()


def batched_engine(threads: int = 1) -> Engine:
    """Stacks of jobs, in parallel threads."""
    return SpreadEngine([BatchedEngine() for _ in range(threads)], together=True)


ENGINES: Mapping[str, Callable[[int], Engine]] = {
    "by-rule": RuleEngine,
    "serial": serial_engine,
    "batched": batched_engine,
}
"""Constructors of engines by their name in a scenario; the argument is the number of threads."""
