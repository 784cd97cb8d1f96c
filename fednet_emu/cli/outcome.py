"""How a command ends: 0 done, 2 the user's mistake, 130 interrupted, 1 a bug with its traceback and a replay line."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from fednet_emu.errors import FednetError

ERRORS = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

MISTAKE, INTERRUPTED, BUG = 2, 130, 1


@contextmanager
def outcome(interrupted: Callable[[], str] = lambda: "interrupted") -> Iterator[None]:
    """Turn exceptions of a command into a message and an exit code.

    Args:
        interrupted: what to say after Ctrl-C.
    """
    try:
        yield
    except FednetError as error:
        ERRORS.print(str(_original(error)))
        raise typer.Exit(MISTAKE) from None
    except KeyboardInterrupt:
        ERRORS.print(interrupted())
        raise typer.Exit(INTERRUPTED) from None
    except typer.Exit:
        raise
    except BrokenPipeError:
        raise typer.Exit(BUG) from None
    except Exception:
        ERRORS.print(traceback.format_exc())
        ERRORS.print(f"this is a bug in fednet_emu; replay: {shlex.join(['fednet', *sys.argv[1:]])}")
        raise typer.Exit(BUG) from None


def _original(error: BaseException) -> BaseException:
    """The innermost exception: SimPy copies one at each process boundary and chains the copies."""
    while isinstance(error.__cause__, FednetError):
        error = error.__cause__
    return error
