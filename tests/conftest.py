"""What all tests share: hypothesis without time limits, and with the same examples every time where CI says so.

It draws the examples of the profile `quick`, unless the command says `--hypothesis-profile thorough`.

Python's cyclic garbage collector runs rarely, as it does in a run, and never looks through the modules and tests that
are there before the first test: some tests collect often, and look through all objects.
Nothing that tests write has to outlive a power cut: files are not forced to the disk, which may be busy. The server
that processes are forked from imports once what commands import late. The second of the workers of `make test` imports
the tests from the last one on: in a new clone each worker then finds the assertions of half of them rewritten.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from multiprocessing import forkserver

import pytest
from hypothesis import settings

pytest_plugins = ["tests.run_folders"]

for profile, max_examples in {"thorough": 100, "quick": 10}.items():
    settings.register_profile(profile, deadline=None, derandomize="CI" in os.environ, max_examples=max_examples)
settings.load_profile("quick")

gc.set_threshold(200_000, 50, 100)
os.fsync = lambda _file: None
os.environ["FEDNET_CACHE"] = ""  # tests share no learning, unless they say so


def pytest_collection(session: pytest.Session) -> None:
    """Import all tests from the last one on, in one of several workers; what fails is told when it is collected."""
    config = session.config
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw1" and config.args_source is config.ArgsSource.TESTPATHS:
        for path in sorted(config.rootpath.glob("tests/**/test_*.py"), reverse=True):
            with suppress(Exception, pytest.skip.Exception):
                import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Leave modules and tests out of garbage collections."""
    gc.freeze()


_preload = forkserver.set_forkserver_preload
forkserver.set_forkserver_preload = lambda names: _preload([*names, "tests.preloaded"])


@pytest.fixture(scope="module")
def cells_here() -> Iterator[None]:
    """Sweeps and searches of this module run their cells in this process: where they run is not what it claims."""
    from fednet_emu.study import runners  # imports what many tests do not need

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runners, "run_locally", lambda jobs, _workers: runners.run_here(jobs))
        yield
