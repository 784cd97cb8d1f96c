"""fednet_emu: a discrete-event network emulator for wireless federated learning.

    import fednet_emu as fe

    run = fe.run("quickstart", seed=1, settings={"algorithm.lr": 0.05})
    study = fe.sweep("quickstart", grid={"network.uplink.access": ["tdma", "ofdma"]}, seeds=5)

Names are imported on first use, so `import fednet_emu` itself is fast.
"""

import os
import sys

# `python -m fednet_emu` puts the current folder first in sys.path, where a file may shadow a module imported below;
# the folder stays in sys.path only if the package itself was found there
_IS_MAIN = sys.argv[:1] == ["-m"] and not {"fednet_emu", "-mfednet_emu"}.isdisjoint(sys.orig_argv)
if _IS_MAIN and not sys.flags.safe_path and os.path.dirname(__path__[0]) != os.path.abspath(sys.path[0]):
    del sys.path[0]

import re  # noqa: E402
from importlib import import_module  # noqa: E402
from typing import Any  # noqa: E402

__version__ = "1.0.0"

with open(f"{__path__[0]}/__init__.pyi", encoding="ascii") as _stub:
    _HOMES = {name: where for *where, name in re.findall(r"^from (\S+) import (\w+) as (\w+)", _stub.read(), re.M)}
"""The module that defines each public name, and the name inside that module."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fednet_emu' has no attribute '{name}'")
    module, there = _HOMES[name]
    return getattr(import_module(module), there)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
