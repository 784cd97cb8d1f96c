"""Algorithms, one paper per file, and the table that scenario files look them up in."""

from typing import Annotated

from fednet_emu.algorithms.afl import Afl
from fednet_emu.algorithms.aspire.algorithm import Aspire
from fednet_emu.algorithms.base import Algorithm
from fednet_emu.algorithms.colrel import Colrel
from fednet_emu.algorithms.connectivity_aware import ConnectivityAware
from fednet_emu.algorithms.drfa import Drfa
from fednet_emu.algorithms.fedavg import FedAvg
from fednet_emu.algorithms.fedul import FedUL
from fednet_emu.algorithms.individual import Individual
from fednet_emu.algorithms.uncertainty import worst_case_weights
from fednet_emu.component import Slot

ALGORITHMS: dict[str, type[Algorithm]] = {
    "colrel": Colrel,
    "connectivity-aware": ConnectivityAware,
    "fedavg": FedAvg,
    "fedul": FedUL,
    "afl": Afl,
    "aspire": Aspire,
    "drfa": Drfa,
    "individual": Individual,
}
AnyAlgorithm = Annotated[Algorithm, Slot("algorithm", ALGORITHMS)]

__all__ = ["ALGORITHMS", "AnyAlgorithm", "worst_case_weights"]
