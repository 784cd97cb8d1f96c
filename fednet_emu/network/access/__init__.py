"""Access schemes: how simultaneous transmitters share one band."""

from __future__ import annotations

from typing import Annotated

from fednet_emu.component.slot import Slot
from fednet_emu.network.access.base import Access
from fednet_emu.network.access.contention import Noma, Shared, SlottedAloha
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.access.over_the_air import OverTheAir
from fednet_emu.network.access.planned import Planned
from fednet_emu.network.access.spatial_reuse import SpatialReuse

ACCESSES: dict[str, type[Access]] = {
    "tdma": Tdma,
    "ofdma": Ofdma,
    "noma": Noma,
    "shared": Shared,
    "slotted-aloha": SlottedAloha,
    "spatial-reuse": SpatialReuse,
    "over-the-air": OverTheAir,
    "planned": Planned,
}

AnyAccess = Annotated[Access, Slot("access", ACCESSES)]

__all__ = [
    "ACCESSES",
    "Access",
    "AnyAccess",
    "Noma",
    "Ofdma",
    "OverTheAir",
    "Planned",
    "Shared",
    "SlottedAloha",
    "SpatialReuse",
    "Tdma",
]
