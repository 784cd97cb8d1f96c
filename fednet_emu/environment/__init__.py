"""Environments for reinforcement learning whose episodes are runs; all names but `Trained` need the extra `gymnasium`.

Names are imported on first use. `gymnasium.make("fednet_emu.environment:fednet_emu/Rounds-v0", scenario=...)` imports
this module, which registers the environment ID.
"""

import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fednet_emu.errors import FednetError

with open(f"{__path__[0]}/__init__.pyi", encoding="ascii") as _stub:
    _HOMES = {name: home for home, name in re.findall(r"^from (\S+) import (\w+)", _stub.read(), re.M)}

__all__ = list(_HOMES)

if find_spec("gymnasium") is not None:
    import gymnasium

    gymnasium.register("fednet_emu/Rounds-v0", "fednet_emu.environment.environment:Environment")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fednet_emu.environment' has no attribute '{name}'")
    library = {"Trained": "", "parallel": "PettingZoo"}.get(name, "Gymnasium")
    if library and find_spec(library.lower()) is None:
        what = f"needs {library}, which is not installed"
        raise FednetError(f"{name}: {what}; pip install 'fednet-emu[{library.lower()}]'")
    return getattr(import_module(_HOMES[name]), name)
