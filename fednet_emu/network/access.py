"""Access schemes: what simultaneous transmitters of one band do to each other."""

from __future__ import annotations

from typing import Annotated

from fednet_emu.component import Slot
from fednet_emu.network.contention import Noma, Shared, SlottedAloha
from fednet_emu.network.orthogonal import Ofdma, Tdma
from fednet_emu.network.reuse import SpatialReuse
from fednet_emu.network.sharing import Access

ACCESSES: dict[str, type[Access]] = {
    "tdma": Tdma,
    "ofdma": Ofdma,
    "noma": Noma,
    "shared": Shared,
    "slotted-aloha": SlottedAloha,
    "spatial-reuse": SpatialReuse,
}

AnyAccess = Annotated[Access, Slot("access", ACCESSES)]

__all__ = ["ACCESSES", "Access", "AnyAccess", "Noma", "Ofdma", "Shared", "SlottedAloha", "SpatialReuse", "Tdma"]
