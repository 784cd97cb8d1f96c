"""Exceptions of an app's own code, told apart from those of the emulator."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from greenlet import GreenletExit

from fednet_emu.errors import AppFailed, FednetError

_HERE = str(Path(__file__).parent)


@contextmanager
def app_code(where: str) -> Iterator[None]:
    """Run code of the app in this block.

    Raises:
        AppFailed: it raises, or leaves by `sys.exit`; the text is its traceback.
    """
    try:
        yield
    except (FednetError, GreenletExit, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # Flower has some of its own that are no Exception
        steps = traceback.extract_tb(error.__traceback__)
        theirs = traceback.StackSummary.from_list([step for step in steps if not step.filename.startswith(_HERE)])
        text = "".join([*theirs.format(), *traceback.format_exception_only(error)])
        raise AppFailed(where, f"Traceback (most recent call last):\n{text}") from error
