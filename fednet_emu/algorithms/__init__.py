"""Algorithms, one paper per file, and the table that scenario files look them up in."""

from typing import Annotated

from fednet_emu.algorithms.base import Algorithm
from fednet_emu.algorithms.cyclic_fedavg import CyclicFedAvg
from fednet_emu.algorithms.fedavg import FedAvg
from fednet_emu.algorithms.fedul import FedUL
from fednet_emu.component import Slot

ALGORITHMS: dict[str, type[Algorithm]] = {"fedavg": FedAvg, "cyclic-fedavg": CyclicFedAvg, "fedul": FedUL}
AnyAlgorithm = Annotated[Algorithm, Slot("algorithm", ALGORITHMS)]
