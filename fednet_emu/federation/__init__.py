"""The interface for algorithms: devices, links, training, deferred values, evaluation and inboxes."""

# ruff: noqa: F401, the names are for algorithms

from fednet_emu.devices.processors import Computation, Work
from fednet_emu.federation.cohort import CohortSize, cohort_size
from fednet_emu.federation.device import Device, Statistic, Terms
from fednet_emu.federation.exchange import Arrived, Reply, average
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.learner import Evaluated
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.federation.links import EdgeServers
from fednet_emu.federation.local_rounds import LocalStep, computes_only
from fednet_emu.federation.sums import MeanOf, mean_update, moved_by_sum, shares_of
from fednet_emu.federation.updates import Shared
from fednet_emu.kernel.clock import Process
from fednet_emu.kernel.inbox import Inbox
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.accumulation import Accumulation, accumulated, of_means
from fednet_emu.learning.graph.augment import AnyAugmentation
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.dp_sgd import PrivateSgd
from fednet_emu.learning.graph.graph import Trained
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.graph.optimizers import Adam, AdamW, AnyOptimizer, Momentum, Sgd
from fednet_emu.learning.graph.schedules import AnySchedule, Constant
from fednet_emu.network.air.transfer import Delivery
from fednet_emu.network.topology import Digraph
