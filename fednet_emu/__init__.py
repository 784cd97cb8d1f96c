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
    from fednet_emu.analysis.comparison import Comparison
    from fednet_emu.analysis.explanation import Explanation
    from fednet_emu.component.component import Component
    from fednet_emu.errors import DataError, Deadlock, FednetError, ScenarioError
    from fednet_emu.federation.device import Device
    from fednet_emu.federation.federation import Federation
    from fednet_emu.kernel.clock import Process
    from fednet_emu.learning.data.datasets.base import Samples
    from fednet_emu.learning.graph.jobs import SgdPlan
    from fednet_emu.network.air.transfer import Delivery
    from fednet_emu.results.library import channels, check, kinds, profiles, scenarios, schema
    from fednet_emu.results.ranking import Ranking
    from fednet_emu.results.run import Run, plot
    from fednet_emu.results.running import run
    from fednet_emu.results.search import Search, search
    from fednet_emu.results.study import Study
    from fednet_emu.results.study import compared as compare
    from fednet_emu.results.study import opened as open
    from fednet_emu.results.sweeping import sweep
    from fednet_emu.scenario.model import Scenario

__version__ = "0.1.0"

_HOMES = {
    "run": "results.running",
    "sweep": "results.sweeping",
    "search": "results.search",
    "open": "results.study:opened",
    "compare": "results.study:compared",
    "plot": "results.run",
    "check": "results.library",
    "channels": "results.library",
    "profiles": "results.library",
    "scenarios": "results.library",
    "kinds": "results.library",
    "schema": "results.library",
    "Run": "results.run",
    "Study": "results.study",
    "Comparison": "analysis.comparison",
    "Ranking": "results.ranking",
    "Search": "results.search",
    "Explanation": "analysis.explanation",
    "Scenario": "scenario.model",
    "Samples": "learning.data.datasets.base",
    "Algorithm": "algorithms.base",
    "Federation": "federation.federation",
    "Device": "federation.device",
    "Delivery": "network.air.transfer",
    "SgdPlan": "learning.graph.jobs",
    "Process": "kernel.clock",
    "Flower": "algorithms.flower.algorithm:flower",
    "Component": "component.component",
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
