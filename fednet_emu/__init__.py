"""fednet_emu: a discrete-event network emulator for wireless federated learning.

    import fednet_emu as fe

    run = fe.run("quickstart", seed=1, settings={"algorithm.lr": 0.05})
    study = fe.sweep("quickstart", grid={"network.uplink.access": ["tdma", "ofdma"]}, seeds=5)

Names are imported when they are first used, so that the import itself costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fednet_emu.algorithms.base import Algorithm
    from fednet_emu.component import Component
    from fednet_emu.errors import DataError, Deadlock, FednetError, ScenarioError
    from fednet_emu.federation.device import Device
    from fednet_emu.federation.federation import Federation
    from fednet_emu.kernel.clock import Process
    from fednet_emu.learning.data.datasets.base import Samples
    from fednet_emu.learning.graph.jobs import SgdPlan
    from fednet_emu.network.medium.delivery import Delivery
    from fednet_emu.scenario.model import Scenario

__version__ = "0.1.0"

_HOMES = {
    "Algorithm": "algorithms.base",
    "Component": "component",
    "DataError": "errors",
    "Deadlock": "errors",
    "Delivery": "network.medium.delivery",
    "Device": "federation.device",
    "Federation": "federation.federation",
    "FednetError": "errors",
    "Process": "kernel.clock",
    "Samples": "learning.data.datasets.base",
    "Scenario": "scenario.model",
    "ScenarioError": "errors",
    "SgdPlan": "learning.graph.jobs",
}
"""Where each public name lives."""

__all__ = [  # noqa: RUF022  (what a user meets first)
    "Algorithm",
    "Component",
    "Delivery",
    "Device",
    "Federation",
    "Process",
    "Samples",
    "Scenario",
    "SgdPlan",
    "DataError",
    "Deadlock",
    "FednetError",
    "ScenarioError",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fednet_emu' has no attribute '{name}'")
    return getattr(import_module(f"fednet_emu.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
