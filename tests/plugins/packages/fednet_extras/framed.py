"""An access scheme with turns and slots: one file, and one line among the entry points."""

from pydantic import Field

from fednet_emu.kernel.clock import to_ns
from fednet_emu.network.access.orthogonal import Tdma
from fednet_emu.network.air.separate import SeparateAir


class Framed(Tdma):
    """Turns that begin with a slot and take whole slots."""

    slot_s: float = Field(gt=0)

    def use(self, band, links, cells, devices):
        """As in turns, but from the next slot on, and to the end of the last slot."""
        use = super().use(band, links, cells, devices)
        slot_ns, walk = to_ns(self.slot_s), use.air.walk

        def in_slots(burst, start_ns, horizon_ns):
            end_ns = walk(burst, -(-start_ns // slot_ns) * slot_ns, horizon_ns)
            return -(-end_ns // slot_ns) * slot_ns

        return use._replace(air=SeparateAir(in_slots))
