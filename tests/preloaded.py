"""What the fork server imports for tests, beside what it imports for sweeps: the programs of tests import it late."""

from __future__ import annotations

import os
from importlib import import_module

from fednet_emu.host import rare_garbage_collection

with rare_garbage_collection():
    for _name in (
        "fednet_emu.study.fork_server",
        "fednet_emu.draw.figures.run_figures",
        "fednet_emu.draw.page.study_page",
        "fednet_emu.results.running",
        "fednet_emu.results.study",
        "sklearn.datasets",
        "tests.commands",
    ):
        import_module(_name)
os.fsync = lambda _file: None
