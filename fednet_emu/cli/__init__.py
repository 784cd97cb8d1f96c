"""The command line `fednet`."""

import atexit
import gc
import os

from fednet_emu.cli.app import app
from fednet_emu.garbage import rare_garbage_collection


def main() -> None:
    """Entry point of the command `fednet`; processes that it starts do not import from the current folder either."""
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    atexit.register(gc.freeze)  # what is left goes with the process; a last look through it would take half a second
    with rare_garbage_collection():
        app()
