"""fednet_emu: a discrete-event network emulator for wireless federated learning.

    import fednet_emu as fe

    run = fe.run("quickstart", seed=1, settings={"algorithm.lr": 0.05})
    study = fe.sweep("quickstart", grid={"network.uplink.access": ["tdma", "ofdma"]}, seeds=5)

Names are imported on first use, so `import fednet_emu` itself is fast.
"""

import os
import sys

# `python -m fednet_emu` puts the current folder first, where any file may be called as a module that is imported below;
# it stays there only if the package itself was found in it
_IS_MAIN = sys.argv[:1] == ["-m"] and not {"fednet_emu", "-mfednet_emu"}.isdisjoint(sys.orig_argv)
if _IS_MAIN and not sys.flags.safe_path and os.path.dirname(__path__[0]) != os.path.abspath(sys.path[0]):
    del sys.path[0]

from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from fednet_emu.algorithms.base import Algorithm
    from fednet_emu.algorithms.flower.algorithm import flower as Flower  # noqa: N812
    from fednet_emu.api.comparing import Comparison
    from fednet_emu.api.explaining import Explanation
    from fednet_emu.api.library import channels, check, kinds, profiles, scenarios, schema
    from fednet_emu.api.ranking import Ranking
    from fednet_emu.api.run import Run, plot
    from fednet_emu.api.running import run
    from fednet_emu.api.searching import Search, search
    from fednet_emu.api.study import Study
    from fednet_emu.api.study import compared as compare
    from fednet_emu.api.study import opened as open
    from fednet_emu.api.sweeping import sweep
    from fednet_emu.component import Component
    from fednet_emu.errors import DataError, Deadlock, FednetError, ScenarioError
    from fednet_emu.federation.device import Device
    from fednet_emu.federation.federation import Federation
    from fednet_emu.kernel.clock import Process
    from fednet_emu.learning.data.datasets.base import Samples
    from fednet_emu.learning.graph.jobs import SgdPlan
    from fednet_emu.network.medium.transfer import Delivery
    from fednet_emu.scenario.model import Scenario

__version__ = "0.1.0"

_HOMES = {
    "run": "api.running",
    "sweep": "api.sweeping",
    "search": "api.searching",
    "open": "api.study:opened",
    "compare": "api.study:compared",
    "plot": "api.run",
    "check": "api.library",
    "channels": "api.library",
    "profiles": "api.library",
    "scenarios": "api.library",
    "kinds": "api.library",
    "schema": "api.library",
    "Run": "api.run",
    "Study": "api.study",
    "Comparison": "api.comparing",
    "Ranking": "api.ranking",
    "Search": "api.searching",
    "Explanation": "api.explaining",
    "Scenario": "scenario.model",
    "Samples": "learning.data.datasets.base",
    "Algorithm": "algorithms.base",
    "Federation": "federation.federation",
    "Device": "federation.device",
    "Delivery": "network.medium.transfer",
    "SgdPlan": "learning.graph.jobs",
    "Process": "kernel.clock",
    "Flower": "algorithms.flower.algorithm:flower",
    "Component": "component",
    "FednetError": "errors",
    "ScenarioError": "errors",
    "DataError": "errors",
    "Deadlock": "errors",
}
"""The module that defines each public name, followed by `:name` where the name differs there."""

__all__ = [  # noqa: RUF022  (what a user meets first comes first)
    "run",
    "sweep",
    "search",
    "open",
    "compare",
    "plot",
    "check",
    "channels",
    "profiles",
    "scenarios",
    "kinds",
    "schema",
    "Run",
    "Study",
    "Comparison",
    "Ranking",
    "Search",
    "Explanation",
    "Scenario",
    "Samples",
    "Algorithm",
    "Federation",
    "Device",
    "Delivery",
    "SgdPlan",
    "Process",
    "Flower",
    "Component",
    "FednetError",
    "ScenarioError",
    "DataError",
    "Deadlock",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fednet_emu' has no attribute '{name}'")
    module, _, other = _HOMES[name].partition(":")
    return getattr(import_module(f"fednet_emu.{module}"), other or name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
