"""What an app shares with the emulator's process: patched attributes, clocks, random generators, folder, exceptions.

`time.sleep`, `time.time`, `time.monotonic`, `time.perf_counter` and Flower's clock are patched: in a thread that is
inside `simulated`, they use the simulated clock, and elsewhere the host's clock. Other code may therefore keep
references to patched functions. While the standard library waits for threads, processes or coroutines, it uses the
host's clock, and simulated time does not advance.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, final

import numpy as np
import torch
from greenlet import GreenletExit

from fednet_emu.errors import AppFailed, FednetError

NS_PER_S = 1_000_000_000
DATES = ("flwr.supercore.date", "flwr.common.date")
"""Modules that define Flower's own clock, in newer and in older versions of Flower."""
_GENERATORS = threading.RLock()
"""Lock of the global random generators, because all threads of the process share the generators."""
_HERE = str(Path(__file__).parent)


# ---- attributes ------------------------------------------------------------------------------------------------------


class StandIn(NamedTuple):
    """A patch: the owner (a module or class) and the name of an attribute, and the value that replaces it."""

    owner: Any
    name: str
    its: Any


@final
class StandIns:
    """Patches of attributes, which are installed while at least one run needs them.

    Args:
        find: function that returns the patches; it is called when the first run begins.
    """

    def __init__(self, find: Callable[[], Iterable[StandIn]]) -> None:
        self._find, self._lock = find, threading.Lock()
        self._users = 0
        self._before: list[StandIn] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install the patches inside the `with` block.

        If several blocks are active at the same time, the last of them to end restores the attributes.
        """
        with self._lock:
            self._users += 1
            if self._users == 1:
                for owner, name, its in list(self._find()):
                    self._before.append(StandIn(owner, name, getattr(owner, name)))
                    setattr(owner, name, its)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                while self._before and not self._users:
                    owner, name, its = self._before.pop()
                    setattr(owner, name, its)


# ---- clocks ----------------------------------------------------------------------------------------------------------


class SimulatedTime(NamedTuple):
    """A simulated clock, which replaces the host's clock.

    Attributes:
        now_ns: function that returns the simulated time in ns.
        sleep: function that advances simulated time by a duration in s.
    """

    now_ns: Callable[[], int]
    sleep: Callable[[float], None]


class _Here(threading.local):
    clock: SimulatedTime | None = None


_here = _Here()

_host_sleep, host_time_s = time.sleep, time.time
"""The original functions of the host's clock, without patch."""


@contextmanager
def simulated(clock: SimulatedTime) -> Iterator[None]:
    """Inside the `with` block, replace the clock of this thread by the simulated clock `clock`."""
    before, _here.clock = _here.clock, clock
    try:
        yield
    finally:
        _here.clock = before


@contextmanager
def at(now_ns: int) -> Iterator[None]:
    """Inside the `with` block, stop the clock of this thread at `now_ns` (ns); code must not call `time.sleep`."""
    with simulated(SimulatedTime(lambda: now_ns, _awake)):
        yield


def _seconds(now_ns: int) -> float:
    return now_ns / NS_PER_S


def _awake(_seconds: float) -> None:
    raise RuntimeError("nothing sleeps here")


def _read(real: Callable[[], Any], by_ns: Callable[[int], Any]) -> Callable[[], Any]:
    """Return a replacement for the clock function `real`, which reads the simulated clock inside `simulated`.

    `by_ns` converts simulated time in ns to the value that `real` would return.
    """

    def stand_in() -> Any:
        clock = _here.clock
        return real() if clock is None else by_ns(clock.now_ns())

    return stand_in


def _sleep(seconds: float, /) -> None:
    clock = _here.clock
    if clock is None:
        _host_sleep(seconds)
    elif not seconds >= 0:
        raise ValueError("sleep length must be non-negative")
    else:
        clock.sleep(float(seconds))


_STAND_INS: dict[Any, Any] = {
    time.sleep: _sleep,
    **{real: _read(real, _seconds) for real in (time.time, time.monotonic, time.perf_counter)},
    **{real: _read(real, int) for real in (time.time_ns, time.monotonic_ns, time.perf_counter_ns)},
}


_WAITING = (
    "asyncio.base_events",
    "concurrent.futures._base",
    *(f"multiprocessing.{part}" for part in ("connection", "managers", "pool", "queues", "synchronize")),
)
"""Modules of the standard library that measure waiting times with the module `time`, and must keep the host's clock."""
_HOST = SimpleNamespace(**vars(time))


def _clocks() -> Iterator[StandIn]:
    for module in map(import_module, _WAITING):
        yield StandIn(module, "time", _HOST)
    theirs = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "flwr"]
    for module in (time, *theirs):
        for name, real in list(vars(module).items()):
            if getattr(real, "__module__", None) == "time" and callable(real) and real in _STAND_INS:
                yield StandIn(module, name, _STAND_INS[real])
    for module in theirs:
        for name, real in list(vars(module).items()):
            if getattr(real, "__qualname__", "") == "now" and getattr(real, "__module__", "") in DATES:
                date = _read(real, lambda now_ns: datetime.fromtimestamp(now_ns / NS_PER_S, UTC))
                yield StandIn(module, name, date)  # the source of `created_at` in Flower's messages


CLOCKS = StandIns(_clocks)


# ---- random numbers, the current folder, exceptions ------------------------------------------------------------------


@final
class Generators:
    """State of the global random generators for code inside `with` blocks, separate from the emulator's own state."""

    def __init__(self, key: int) -> None:
        self._key = key
        self._state: Any = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Inside the `with` block, use this state. The first block seeds the generators, and later blocks continue."""
        with _GENERATORS:
            host = _state()
            if self._state is None:
                _seed(self._key)
            else:
                _restore(self._state)
            try:
                yield
            finally:
                self._state = _state()
                _restore(host)


def _seed(key: int) -> None:
    random.seed(key)
    np.random.seed([key & 0xFFFFFFFF, key >> 32])
    torch.default_generator.manual_seed(key >> 1)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(key >> 1)


def _state() -> Any:
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return random.getstate(), np.random.get_state(), torch.default_generator.get_state(), gpus


def _restore(state: Any) -> None:
    python, numpy, cpu, gpus = state
    random.setstate(python)
    np.random.set_state(numpy)
    torch.default_generator.set_state(cpu)
    if gpus:
        torch.cuda.set_rng_state_all(gpus)


@final
class CurrentFolder:
    """The current folder of an app; at the start, this is the current folder of the emulator."""

    def __init__(self) -> None:
        self._own: str | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use the app's current folder inside the `with` block, and restore the emulator's folder afterwards."""
        host = _folder()
        if self._own is not None:
            os.chdir(self._own)
        try:
            yield
        finally:
            now = _folder()
            self._own = None
            if now != host:
                self._own = now
                if host is not None:
                    os.chdir(host)


def _folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


@contextmanager
def app_code(where: str) -> Iterator[None]:
    """Convert exceptions of app code inside the `with` block to `AppFailed`; `where` names the code in the error text.

    Raises:
        AppFailed: the app code raises an exception or calls `sys.exit`; the text is the traceback of the app.
    """
    try:
        yield
    except (FednetError, GreenletExit, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # some of Flower's exceptions are not subclasses of Exception
        steps = traceback.extract_tb(error.__traceback__)
        theirs = traceback.StackSummary.from_list([step for step in steps if not step.filename.startswith(_HERE)])
        text = "".join([*theirs.format(), *traceback.format_exception_only(error)])
        raise AppFailed(where, f"Traceback (most recent call last):\n{text}") from error
