"""How a command ends: 0 done, 2 the user's mistake, 130 interrupted, 1 a bug or failed cells, with replay lines."""

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

MISTAKE, INTERRUPTED, BUG, FAILED = 2, 130, 1, 1


@contextmanager
def outcome(interrupted: Callable[[], str] = lambda: "interrupted") -> Iterator[None]:
    """Turn exceptions of a command into a message and an exit code.

    Args:
        interrupted: what to say after Ctrl-C.
    """
    try:
        yield
    except FednetError as error:
        ERRORS.print(str(error))
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
