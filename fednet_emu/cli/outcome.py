"""Exit codes of commands: 0 done, 2 a user's mistake, 130 interrupted, 1 a bug, a failed app, or failed cells."""

from __future__ import annotations

import errno
import logging
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

from fednet_emu.api.console import PlainConsole
from fednet_emu.errors import AppFailed, FednetError, ScenarioWarning
from fednet_emu.scenario.signals import undisturbed

ERRORS = PlainConsole(stderr=True)

NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.EROFS, errno.EDQUOT}
"""Errors of the operating system that the user can mend wherever they occur."""

MISTAKE, INTERRUPTED, BUG, FAILED = 2, 130, 1, 1


@contextmanager
def outcome(interrupted: Callable[[], str] = lambda: "interrupted") -> Iterator[None]:
    """Turn exceptions of a command into a message and an exit code; print warnings, and which plug-ins are imported.

    Args:
        interrupted: returns the message to print after Ctrl-C.
    """
    try:
        with _imports_told(), _warnings_told():
            yield
    except AppFailed as error:
        ERRORS.print(str(error))
        raise typer.Exit(FAILED) from None
    except FednetError as error:
        ERRORS.print(str(error))
        raise typer.Exit(MISTAKE) from None
    except KeyboardInterrupt:
        with undisturbed():
            ERRORS.print(interrupted())
        raise typer.Exit(INTERRUPTED) from None
    except typer.Exit:
        raise
    except BrokenPipeError:
        raise typer.Exit(BUG) from None
    except OSError as error:
        if error.errno not in NO_ROOM:
            _bug()
        where = f"{error.filename}: " if error.filename else ""
        ERRORS.print(f"{where}cannot be written ({error.strerror}); make room there, or choose another place")
        raise typer.Exit(MISTAKE) from None
    except Exception:
        _bug()


def _bug() -> NoReturn:
    ERRORS.print(traceback.format_exc())
    ERRORS.print(f"this is a bug in fednet_emu; replay: {shlex.join(['fednet', *sys.argv[1:]])}")
    raise typer.Exit(BUG) from None


@contextmanager
def _imports_told() -> Iterator[None]:
    """Print the name of each plug-in module before it is imported, because its code runs with the user's rights."""
    logger, handler = logging.getLogger("fednet_emu.plugins"), _Told(logging.INFO)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


@contextmanager
def _warnings_told() -> Iterator[None]:
    """Print each warning of a scenario once, in a line of its own."""
    told, before = set[str](), warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, ScenarioWarning):
            before(message, category, *where, **more)
        elif str(message) not in told:
            told.add(str(message))
            ERRORS.print(f"warning: {message}")

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


class _Told(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        ERRORS.print(record.getMessage())
