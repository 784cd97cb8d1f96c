"""The access schemes by their names in scenario files."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.network.access.base import Access
from fednet_emu.network.access.contention import Noma, Shared, SlottedAloha
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.access.spatial_reuse import SpatialReuse
from fednet_emu.network.access.switch import Switch
from fednet_emu.network.lora.access import Lora
from fednet_emu.network.nr.grants import NrGrants
from fednet_emu.network.over_the_air import OverTheAir
from fednet_emu.network.planning.access import Planned
from fednet_emu.network.wifi.dcf import Dcf

ACCESSES: dict[str, type[Access]] = kinds(
    *(Tdma, Ofdma, Noma, Shared, SlottedAloha, SpatialReuse, OverTheAir, Planned),
    *(NrGrants, Dcf, Switch, Lora),
)

AnyAccess = Annotated[Access, Slot("access", ACCESSES)]
