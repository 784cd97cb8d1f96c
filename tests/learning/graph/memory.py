"""What is known of learning programs, in memory."""

from __future__ import annotations

from typing import Any

from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.program import Program


class Memory:
    """A `Memo` without files.

    Attributes:
        found: keys that were asked for and known.
        ended: what ended the shared part.
    """

    def __init__(self) -> None:
        self.passed: set[bytes] = set()
        self.snapshots: dict[bytes, dict[bytes, Any]] = {}
        self.entries: dict[bytes, Any] = {}
        self.noted: set[bytes] = set()
        self.found: list[bytes] = []
        self.ended = ""

    def program(self, head: bytes = b"head") -> Program:
        """A program that begins with this head."""
        return Program(head, self, b"own")

    def again(self) -> Memory:
        """What the next run finds."""
        after = Memory()
        after.passed = self.passed | self.noted
        after.snapshots, after.entries = dict(self.snapshots), dict(self.entries)
        return after

    def keep(self, graph: Graph) -> dict[bytes, Any]:
        """Keep a snapshot of a graph that computes, and return it."""
        assert graph.program is not None
        values = graph.snapshot()
        if graph.at_rest():
            self.snapshots[graph.program.passed] = values
        return values

    def get(self, key: bytes) -> Any:
        """What was read under this key."""
        value = self.entries[key]
        self.found.append(key)
        return value

    def put(self, key: bytes, value: Any) -> None:
        """Keep what was read."""
        self.entries[key] = value

    def note(self, rolling: bytes) -> None:
        """Note that the run has gone on."""
        self.noted.add(rolling)

    def load(self, rolling: bytes) -> dict[bytes, Any]:
        """A snapshot."""
        return self.snapshots[rolling]

    def part_ways(self, name: str) -> None:
        """Note what has ended the shared part."""
        self.ended = name
