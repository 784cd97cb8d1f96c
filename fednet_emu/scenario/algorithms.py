"""Table of all algorithms, by their names in scenario files."""

from collections.abc import Mapping
from typing import Annotated, Any

from fednet_emu.algorithms.adapters.flexlora import FlexLora
from fednet_emu.algorithms.adapters.flora import Flora
from fednet_emu.algorithms.adapters.hetlora import HetLora
from fednet_emu.algorithms.adaptive_tau import AdaptiveTau
from fednet_emu.algorithms.asynchronous.fedasync import FedAsync
from fednet_emu.algorithms.asynchronous.fedbuff import FedBuff
from fednet_emu.algorithms.asynchronous.safa import Safa
from fednet_emu.algorithms.base import Algorithm
from fednet_emu.algorithms.baselines import Idle, Individual, LocalOnly
from fednet_emu.algorithms.clustered.cfl import Cfl
from fednet_emu.algorithms.clustered.frank_wolfe.algorithm import FrankWolfeClustering
from fednet_emu.algorithms.clustered.ifca import Ifca
from fednet_emu.algorithms.cyclic.algorithm import CyclicFedAvg
from fednet_emu.algorithms.d2d.colrel import Colrel
from fednet_emu.algorithms.d2d.connectivity_aware import ConnectivityAware
from fednet_emu.algorithms.decentralised.ad_psgd import AdPsgd
from fednet_emu.algorithms.decentralised.d_psgd import DPsgd
from fednet_emu.algorithms.decentralised.gossip import Gossip
from fednet_emu.algorithms.decentralised.matcha import Matcha
from fednet_emu.algorithms.decentralised.sgp import Sgp
from fednet_emu.algorithms.distilled.feddf import FedDF
from fednet_emu.algorithms.distilled.fedmd import FedMD
from fednet_emu.algorithms.distilled.fedproto import FedProto
from fednet_emu.algorithms.fedavg import FedAvg
from fednet_emu.algorithms.fedprox import FedProx
from fednet_emu.algorithms.heterogeneous.feddyn import FedDyn
from fednet_emu.algorithms.heterogeneous.fednova import FedNova
from fednet_emu.algorithms.heterogeneous.q_ffl import QFfl
from fednet_emu.algorithms.heterogeneous.scaffold import Scaffold
from fednet_emu.algorithms.hierarchical.hier_favg import HierFAvg
from fednet_emu.algorithms.personal.ditto import Ditto
from fednet_emu.algorithms.personal.fedper import FedPer
from fednet_emu.algorithms.personal.fedrep import FedRep
from fednet_emu.algorithms.personal.per_fedavg import PerFedAvg
from fednet_emu.algorithms.personal.pfedme import PFedMe
from fednet_emu.algorithms.robust.afl import Afl
from fednet_emu.algorithms.robust.aspire.algorithm import Aspire
from fednet_emu.algorithms.robust.drfa import Drfa
from fednet_emu.algorithms.split.splitfed import SplitFed
from fednet_emu.algorithms.unlabelled.fedul import FedUL
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.flower.algorithm import Flower

ALGORITHMS: dict[str, type[Algorithm]] = kinds(
    AdPsgd,
    AdaptiveTau,
    Afl,
    Aspire,
    Cfl,
    Colrel,
    ConnectivityAware,
    CyclicFedAvg,
    DPsgd,
    Ditto,
    Drfa,
    FedAsync,
    FedAvg,
    FedBuff,
    FedDF,
    FedDyn,
    FedMD,
    FedNova,
    FedPer,
    FedProto,
    FedProx,
    FedRep,
    FedUL,
    FlexLora,
    Flora,
    Flower,
    FrankWolfeClustering,
    Gossip,
    HetLora,
    HierFAvg,
    Idle,
    Ifca,
    Individual,
    LocalOnly,
    Matcha,
    PerFedAvg,
    PFedMe,
    QFfl,
    Safa,
    Scaffold,
    Sgp,
    SplitFed,
)
_SLOT = Slot("algorithm", ALGORITHMS)
AnyAlgorithm = Annotated[Algorithm, _SLOT]


def brings_own_learning(algorithm: Any) -> bool:
    """Return True if an algorithm uses its own data and model instead of those of the scenario.

    The algorithm is given as an object, by its kind (name), or as a mapping of settings.
    """
    kind = algorithm.get("kind") if isinstance(algorithm, Mapping) else algorithm
    found = _SLOT.get(kind) if isinstance(kind, str | type) else type(kind)
    return bool(getattr(found, "own_learning", False))
