"""Imports of the fork server, which happen once before the first run, so that all runs share the imported modules.

Without the fork server, each run would itself import modules such as PyTorch's compiler, and look up the versions of
code and packages. Each of these tasks takes longer than a short run. The imported objects are frozen (see `gc.freeze`
in Python's manual): garbage collection in a run ignores them, so that their memory pages are not copied.
"""

from __future__ import annotations

import gc
from importlib import import_module

from fednet_emu.host import rare_garbage_collection

with rare_garbage_collection():
    from fednet_emu.emulation.provenance import commit, source_hash
    from fednet_emu.records.folder import versions

    for _name in (
        "fednet_emu.study.runners",
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
