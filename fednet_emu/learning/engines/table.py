"""The table of all engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.rule import RuleEngine
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.graph.engine import Engine

ENGINES: Mapping[str, Callable[[], Engine]] = {
    "by-rule": RuleEngine,
    "serial": SerialEngine,
    "batched": BatchedEngine,
}
"""Constructors of the single-threaded engines, by the names that scenarios use."""
