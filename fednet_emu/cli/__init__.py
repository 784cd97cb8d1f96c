"""The command line `fednet`."""

import atexit
import gc
import os
import sys

from fednet_emu.host import rare_garbage_collection

_INTERRUPTED = 130


def main() -> None:
    """Entry point of the command `fednet`; child processes do not import modules from the current folder."""
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    atexit.register(gc.freeze)  # the process ends; a last garbage collection would take half a second
    try:
        from fednet_emu.cli.app import app  # the import takes a while, during which Ctrl-C is handled
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    with rare_garbage_collection():
        app()
