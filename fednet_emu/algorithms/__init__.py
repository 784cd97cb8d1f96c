"""Algorithms, one paper per file, and the table that scenario files look them up in."""

from typing import Annotated

from fednet_emu.algorithms.base import Algorithm
from fednet_emu.algorithms.cfl import Cfl
from fednet_emu.algorithms.ditto import Ditto
from fednet_emu.algorithms.fedavg import FedAvg
from fednet_emu.algorithms.fedper import FedPer
from fednet_emu.algorithms.fedrep import FedRep
from fednet_emu.algorithms.fedul import FedUL
from fednet_emu.algorithms.frank_wolfe.algorithm import FrankWolfeClustering
from fednet_emu.algorithms.ifca import Ifca
from fednet_emu.algorithms.local_only import LocalOnly
from fednet_emu.component import Slot

ALGORITHMS: dict[str, type[Algorithm]] = {
    "cfl": Cfl,
    "ditto": Ditto,
    "fedavg": FedAvg,
    "fedper": FedPer,
    "fedrep": FedRep,
    "fedul": FedUL,
    "frank-wolfe-clustering": FrankWolfeClustering,
    "ifca": Ifca,
    "local": LocalOnly,
}
AnyAlgorithm = Annotated[Algorithm, Slot("algorithm", ALGORITHMS)]
