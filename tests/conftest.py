"""What all tests share: hypothesis without time limits, and with the same examples every time where CI says so.

Python's cyclic garbage collector looks through all modules and tests each time; it runs rarely, as it does in a run.
Nothing that tests write has to outlive a power cut: files are not forced to the disk, which may be busy. The server
that processes are forked from imports once what commands import late.
"""

import gc
import os
from collections.abc import Iterator
from multiprocessing import forkserver

import pytest
from hypothesis import settings

pytest_plugins = ["tests.run_folders"]

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

gc.set_threshold(200_000, 50, 100)
os.fsync = lambda _file: None

_preload = forkserver.set_forkserver_preload
forkserver.set_forkserver_preload = lambda names: _preload([*names, "tests.preloaded"])


@pytest.fixture(scope="module")
def cells_here() -> Iterator[None]:
    """Sweeps and searches of this module run their cells in this process: where they run is not what it claims."""
    from fednet_emu.study import runners  # imports what many tests do not need

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runners, "run_locally", lambda jobs, _workers: runners.run_here(jobs))
        yield
