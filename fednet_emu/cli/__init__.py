"""The command line `fednet`."""

import atexit
import gc
import os
import sys

from fednet_emu.host import rare_garbage_collection

_INTERRUPTED = 130


def main() -> None:
    """Entry point of the command `fednet`; its processes do not import from the current folder either."""
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    atexit.register(gc.freeze)  # the process ends; a last garbage collection would take half a second
    try:
        from fednet_emu.cli.app import app  # takes a while, during which Ctrl-C is handled
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    with rare_garbage_collection():
        app()
