"""The command line `fednet`."""

import atexit
import gc
import os
import sys

from fednet_emu.host import rare_garbage_collection

_INTERRUPTED = 130


def main() -> None:
    """Run the command `fednet`, and prevent child processes from importing modules from the current folder."""
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    atexit.register(gc.freeze)  # at the exit of the process, a last garbage collection would take half a second
    try:
        from fednet_emu.cli.app import app  # inside `try`: Ctrl-C may arrive during this slow import
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    with rare_garbage_collection():
        app()
