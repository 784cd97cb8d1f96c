"""An access scheme with a flow of bits of its own: one file, and one line among the entry points."""

from pydantic import Field

from fednet_emu.kernel.clock import to_ns
from fednet_emu.network.access.orthogonal import Tdma
from fednet_emu.network.air.separate import SeparateAir


class Polling(Tdma):
    """Turns, each of which begins when the server has polled the sender."""

    poll_s: float = Field(gt=0)

    def use(self, band, links, cells, devices):
        """As in turns, but later."""
        use = super().use(band, links, cells, devices)
        poll_ns, walk = to_ns(self.poll_s), use.air.walk
        air = SeparateAir(lambda burst, start_ns, horizon_ns: walk(burst, start_ns + poll_ns, horizon_ns))
        return use._replace(air=air)
