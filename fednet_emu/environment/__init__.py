"""Environments for reinforcement learning on runs; `import fednet_emu.environment` takes the extra `gymnasium`.

The names below are imported on first use. `gymnasium.make("fednet_emu.environment:fednet_emu/Rounds-v0", scenario=...)`
imports this module, which registers the id.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fednet_emu.errors import FednetError

if TYPE_CHECKING:
    from fednet_emu.environment.agents import parallel as parallel
    from fednet_emu.environment.environment import Environment as Environment
    from fednet_emu.environment.environment import scaled as scaled
    from fednet_emu.environment.episode import Step as Step
    from fednet_emu.environment.policies import play as play
    from fednet_emu.environment.rewards import Curve as Curve
    from fednet_emu.environment.rewards import towards as towards
    from fednet_emu.environment.rewards import within as within
    from fednet_emu.environment.trained import Trained as Trained
    from fednet_emu.environment.trained import export as export
    from fednet_emu.environment.vectors import vector as vector

_HOMES = {
    **dict.fromkeys(("Environment", "scaled"), "environment"),
    "Step": "episode",
    "play": "policies",
    **dict.fromkeys(("Curve", "towards", "within"), "rewards"),
    **dict.fromkeys(("Trained", "export"), "trained"),
    "vector": "vectors",
    "parallel": "agents",
}
"""The module of each name."""

__all__ = list(_HOMES)

try:
    import gymnasium
except ImportError:
    gymnasium = None
else:
    gymnasium.register("fednet_emu/Rounds-v0", "fednet_emu.environment.environment:Environment")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fednet_emu.environment' has no attribute '{name}'")
    if gymnasium is None and name != "Trained":
        raise FednetError(f"{name}: needs Gymnasium, which is not installed; pip install 'fednet-emu[gymnasium]'")
    if name == "parallel" and find_spec("pettingzoo") is None:
        raise FednetError("parallel: needs PettingZoo, which is not installed; pip install 'fednet-emu[pettingzoo]'")
    return getattr(import_module(f"fednet_emu.environment.{_HOMES[name]}"), name)
