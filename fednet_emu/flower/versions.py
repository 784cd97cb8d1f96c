"""Code that differs between versions of Flower (1.26 and later), or uses non-public parts of Flower."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from flwr.app import Message

from fednet_emu.flower.host import host_time_s

RUN_ID = 1
SERVER_NODE = 1
"""Flower's node ID of the server; device k has the node ID k + 2."""
FIRST_NODE = 2
LOST_MESSAGE, LOST_REPLY = 3, 4
"""Codes of Flower's `Error` for a lost message and for a lost reply."""

OURS = logging.getLogger("fednet_emu")


def stamp(message: Message, number: int) -> None:
    """Set the message ID, the run ID and the source node of a message, as Flower's server does."""
    message.metadata.__dict__.update(_message_id=str(number), _run_id=RUN_ID, _src_node_id=SERVER_NODE)


@contextmanager
def identity(node: int) -> Iterator[None]:
    """Make `node` the source of messages that are created inside the `with` block.

    Since Flower 1.37, the source of a message is an attribute of a class.
    """
    known = getattr(sys.modules.get("flwr.supercore.task_identity"), "TaskIdentity", None)
    if known is None:
        yield
        return
    names = ("_task_id", "_run_id", "_node_id")
    before: dict[str, Any] = {name: getattr(known, name, None) for name in names}
    for name, value in zip(names, (1, RUN_ID, node), strict=True):
        setattr(known, name, value)
    try:
        yield
    finally:
        for name, its in before.items():
            setattr(known, name, its)


def empty_run() -> Any:
    """Return Flower's description of a run with the ID `RUN_ID`, as an app would read it."""
    for place in ("flwr.supercore.run", "flwr.common.typing"):
        try:
            return import_module(place).Run.create_empty(RUN_ID)
        except (ImportError, AttributeError):
            continue
    raise RuntimeError("flwr: no class of runs is known, got a version that is not supported; install flwr<2")


@contextmanager
def logged() -> Iterator[None]:
    """Redirect Flower's log to the log of the run inside the `with` block."""
    theirs = logging.getLogger("flwr")
    before = list(theirs.handlers), theirs.propagate
    theirs.handlers, theirs.propagate = [_Forward()], False
    try:
        yield
    finally:
        theirs.handlers, theirs.propagate = before


class _Forward(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.INFO and OURS.isEnabledFor(record.levelno):
            record.created = host_time_s()
            OURS.handle(record)
