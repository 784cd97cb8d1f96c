# The public names, each once: `fednet_emu/__init__.py` reads them from here. What a user meets first comes first.
# ruff: noqa: I001
from fednet_emu.results.running import run as run
from fednet_emu.results.running import sweep as sweep
from fednet_emu.results.running import search as search
from fednet_emu.results.live import live as live
from fednet_emu.results.study import opened as open
from fednet_emu.results.study import compared as compare
from fednet_emu.results.run import plot as plot
from fednet_emu.results.library import check as check
from fednet_emu.results.library import channels as channels
from fednet_emu.results.library import profiles as profiles
from fednet_emu.results.library import scenarios as scenarios
from fednet_emu.results.library import kinds as kinds
from fednet_emu.algorithms.accountant import noise_multiplier_for as noise_multiplier_for
from fednet_emu.learning.models.adapters import add_lora_adapters as add_lora_adapters
from fednet_emu.results.library import schema as schema
from fednet_emu.results.run import Run as Run
from fednet_emu.results.study import Study as Study
from fednet_emu.analysis.comparison import Comparison as Comparison
from fednet_emu.results.study import Ranking as Ranking
from fednet_emu.results.study import Search as Search
from fednet_emu.analysis.critical_path import Explanation as Explanation
from fednet_emu.scenario.model import Scenario as Scenario
from fednet_emu.environment import Environment as Environment
from fednet_emu.learning.data.datasets.base import Samples as Samples
from fednet_emu.algorithms.base import Algorithm as Algorithm
from fednet_emu.federation.federation import Federation as Federation
from fednet_emu.federation.device import Device as Device
from fednet_emu.network.air.transfer import Delivery as Delivery
from fednet_emu.learning.graph.jobs import SgdPlan as SgdPlan
from fednet_emu.kernel.clock import Process as Process
from fednet_emu.flower.algorithm import flower as Flower  # noqa: N812
from fednet_emu.component.component import Component as Component
from fednet_emu.errors import FednetError as FednetError
from fednet_emu.errors import ScenarioError as ScenarioError
from fednet_emu.errors import DataError as DataError
from fednet_emu.errors import Deadlock as Deadlock

__version__: str
__all__ = ["Flower", "compare", "open"]  # for type checkers, to which another name is no public one by itself
