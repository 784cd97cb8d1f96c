"""Programs that are timed leg by leg, so that several take turns, or start together, on the same machine.

A program says that it is ready and waits for a line of input; after the leg it prints how many rounds (or steps of the
server) it has made per second of wall-clock time and of its own processor time. The first leg is for warming up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peers.__main__ import environment

from fednet_emu.federation.federation import Federation

READY = "ready"


class Legs:
    """Times a run leg by leg; as an observer of an emulation, with all that was put off included."""

    def __init__(self, rounds: int, legs: int) -> None:
        self.rounds, self.legs, self.started_s = rounds, legs, (0.0, 0.0)

    def start(self) -> None:
        """Say so, wait for a line of input, and start the clock; without one, the program ends."""
        print(READY, flush=True)
        if not sys.stdin.readline():
            sys.exit("nobody asks for the next leg")
        self.started_s = (time.perf_counter(), time.process_time())

    def end(self) -> None:
        """Print the speed of the leg."""
        wall_s, processor_s = self.started_s
        per_s = self.rounds / (time.perf_counter() - wall_s), self.rounds / (time.process_time() - processor_s)
        print(*per_s, flush=True)

    def __call__(self, fed: Federation) -> None:
        """The end of a round."""
        if fed.round % self.rounds == 0:
            fed.graph.read(fed.latest)
            self.end()
            if fed.round < self.rounds * self.legs:
                self.start()


@contextmanager
def program(script: Path, *given: Any) -> Iterator[subprocess.Popen[str]]:
    """A program of this folder, which runs until it is left."""
    with subprocess.Popen(
        [sys.executable, script, *map(str, given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment() | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
    ) as process:
        yield process


def rounds_per_s(*processes: subprocess.Popen[str]) -> list[list[float]]:
    """The speed of each in a leg that all start at one signal: by the wall clock, and by processor time."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == READY
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    lines = [process.stdout.readline() for process in processes if process.stdout is not None]
    return [[float(number) for number in line.split()] for line in lines]
