"""A run that is killed at a random row of its records, in a process of its own, and started again in its folder."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from numpy.typing import NDArray

from fednet_emu.emulation.play import play
from fednet_emu.errors import Deadlock
from fednet_emu.host import clean_context, end_with_parent, main_left_out
from fednet_emu.records.ledger import Ledger
from fednet_emu.records.table import Table
from fednet_emu.scenario.model import Scenario

LONGEST_S = 300
"""Time in s on the host after which a run, which takes milliseconds, is taken to hang."""


def killed_and_resumed(scenario: Scenario, rows: int) -> Ledger:
    """Kill a run (SIGKILL) as it writes its row number `rows`, give the same command again, and return its records.

    The run must end as `done`. It is forked from a server that has no threads: a fork of this process, whose
    libraries have started some, may wait for ever for a lock that one of them has held.

    Raises:
        RuntimeError: the run ended in another way than by the kill.
    """
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        child = clean_context("qa.swarm.killed").Process(target=_run_until_killed, args=(scenario, out, rows))
        with main_left_out():
            child.start()
        child.join(LONGEST_S)
        if child.exitcode != -signal.SIGKILL:
            child.kill()
            raise RuntimeError(f"the run that was to be killed ended by itself, with status {child.exitcode}")
        return play(scenario, "drawn", out).ledger


def _run_until_killed(scenario: Scenario, out: Path, rows: int) -> None:
    left, append, add, extend = rows, Table.append, Table.add, Table.extend

    def count(rows: int) -> None:
        nonlocal left
        left -= rows
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def append_counted(table: Table, row: tuple[object, ...]) -> None:
        count(1)
        append(table, row)

    def add_counted(table: Table, rows: list[tuple[object, ...]]) -> None:
        count(len(rows))
        add(table, rows)

    def extend_counted(table: Table, **columns: NDArray[Any]) -> None:
        count(len(next(iter(columns.values()))))
        extend(table, **columns)

    end_with_parent()
    import_module("tests")  # the package of drawn modules; an imported package is not refused
    torch.set_num_threads(1)
    with (
        suppress(Deadlock),
        patch.object(Table, "append", append_counted),
        patch.object(Table, "add", add_counted),
        patch.object(Table, "extend", extend_counted),
    ):
        play(scenario, "drawn", out)
