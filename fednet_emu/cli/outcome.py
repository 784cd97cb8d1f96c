"""Exit codes of commands: 0 for success, 1 for a bug, failed app or failed runs, 2 for a user error, 130 for Ctrl-C."""

from __future__ import annotations

import errno
import logging
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

import click
import typer

from fednet_emu.emulation.guard import undisturbed
from fednet_emu.errors import AppFailed, FednetError, ScenarioWarning
from fednet_emu.screen.console import PlainConsole

ERRORS = PlainConsole(stderr=True)

NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.EROFS, errno.EDQUOT}
"""Error numbers of the operating system for a full or read-only disk, which the user can resolve."""

MISTAKE, INTERRUPTED, BUG, FAILED = 2, 130, 1, 1


@contextmanager
def outcome(interrupted: Callable[[], str] = lambda: "interrupted") -> Iterator[None]:
    """Context manager that converts an exception of a command to a printed message and an exit code.

    Warnings and log messages are also printed. `interrupted` is a function that returns the message after Ctrl-C.
    """
    try:
        with _log_printed(), _warnings_printed():
            yield
    except AppFailed as error:
        ERRORS.print(str(error))
        raise typer.Exit(FAILED) from None
    except FednetError as error:
        ERRORS.print(_with_option(error))
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


PARAMETERS = {"formats": "picture", "labels": "label"}
"""Names of command parameters that differ from the Python argument with the same meaning, by the argument's name."""


def _with_option(error: FednetError) -> str:
    """Return the text of an error. A Python argument at its beginning is replaced by the option of the command."""
    text, context = str(error), click.get_current_context(silent=True)
    argument, colon, rest = text.partition(": ")
    if context is None or not colon or type(error) is not FednetError:  # other errors start with a setting or file
        return text
    name = PARAMETERS.get(argument, argument)
    options = (its.opts[0] for its in context.command.params if its.name == name and its.opts[0].startswith("--"))
    return f"{next(options, argument)}: {rest}"


def _bug() -> NoReturn:
    ERRORS.print(traceback.format_exc())
    ERRORS.print(f"this is a bug in fednet_emu; replay: {shlex.join(['fednet', *sys.argv[1:]])}")
    raise typer.Exit(BUG) from None


LOGGERS = ("fednet_emu.plugins", "fednet_emu.settings")
"""Loggers whose messages a command prints. `fednet_emu.plugins` reports each plug-in module before its import, because
the module runs with the user's permissions. `fednet_emu.settings` reports settings of a component that do not exist for
the component's new kind."""


@contextmanager
def _log_printed() -> Iterator[None]:
    """Context manager that prints the log messages of `LOGGERS`; repeated lines are printed once."""
    loggers, handler = [logging.getLogger(name) for name in LOGGERS], _LogPrinter()
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
            logger.removeHandler(handler)


@contextmanager
def _warnings_printed() -> Iterator[None]:
    """Context manager that prints each warning about a scenario once, on a separate line."""
    tell, before = cache(ERRORS.print), warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, ScenarioWarning):
            before(message, category, *where, **more)
        else:
            tell(f"warning: {message}")

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


class _LogPrinter(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._tell = cache(ERRORS.print)  # prints each line once

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())
