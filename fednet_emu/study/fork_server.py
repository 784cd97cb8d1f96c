"""What the fork server imports before it forks the first run: all runs share the memory, and none imports it again.

Importing what runs import late, PyTorch's compiler among it, would take each run longer than a short run; so would
looking up which code and packages it runs on. Frozen objects are left out of the garbage collections of the runs, which
would otherwise copy their pages (see `gc.freeze` in Python's manual).
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
