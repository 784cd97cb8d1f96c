"""Tests in forks of a process that has everything imported and collected: what one breaks, no other sees."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NamedTuple

import pytest
from _pytest.runner import runtestprotocol

WALL_S = 120
"""What lasts longer by the clock, a test or the time before the first, is stuck, and its fork is ended."""
BROKEN = 70
"""Exit status of a fork that raises an exception."""


class End(NamedTuple):
    """How a fork has ended.

    Attributes:
        code: its exit status, or minus the signal that ended it.
        seconds: processor time that it took.
    """

    code: int
    seconds: float


def in_fork(do: Callable[[], int]) -> End:
    """Call a function that returns an exit status in a fork, silently; wait for its end."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(WALL_S)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            os._exit(do())
        except BaseException:
            os._exit(BROKEN)
    _, status, usage = os.wait4(pid, 0)
    return End(os.waitstatus_to_exitcode(status), round(usage.ru_utime + usage.ru_stime, 3))


def passes(item: pytest.Item, following: pytest.Item | None, cpu_s: float) -> bool:
    """Run a test, and say whether it passes; the process ends if that takes more processor time than this."""
    signal.alarm(WALL_S)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    reports = runtestprotocol(item, log=False, nextitem=following)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return not any(report.failed for report in reports)
