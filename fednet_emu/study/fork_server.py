"""Imports of the fork server before the first run, so that all runs share the memory of the imported modules.

The late imports of a run, such as PyTorch's compiler, take longer than a short run. So does the search for the versions
of code and packages. Frozen objects are left out of garbage collection in the runs, which would otherwise copy the
memory pages of these objects (see `gc.freeze` in Python's manual).
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
