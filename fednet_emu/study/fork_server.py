"""Imports of the fork server before it forks the first run: all runs share the memory, and none repeats the imports.

The late imports of runs, such as PyTorch's compiler, take longer than a short run, as does the search for versions of
code and packages. Frozen objects are excluded from the garbage collections of the runs, which would otherwise copy
their pages (see `gc.freeze` in Python's manual).
"""

from __future__ import annotations

import gc
from importlib import import_module

from fednet_emu.host import rare_garbage_collection

with rare_garbage_collection():
    from fednet_emu.emulation.provenance import commit, source_hash
    from fednet_emu.records.folder.manifest import versions

    for _name in (
        "fednet_emu.study.attempt",
        "pandas",
        "pyarrow.parquet",
        "scipy.special",
        "threadpoolctl",
        "torch._dynamo",
    ):
        import_module(_name)
    for _look_up in (commit, source_hash, versions):
        _look_up()
gc.freeze()
