"""An access scheme with a flow of bits of its own: one file, and one line among the entry points."""

from pydantic import Field

from fednet_emu.kernel.clock import FOREVER_NS, to_ns
from fednet_emu.network.access.orthogonal import Tdma
from fednet_emu.network.air.separate import BandWalker, SeparateAir


class Polling(Tdma):
    """Turns, each of which begins when the server has polled the sender."""

    poll_s: float = Field(gt=0)

    def air(self, band, links, cells):
        """As in turns, but later."""
        return SeparateAir(Polled(BandWalker(band), to_ns(self.poll_s)), looks_up=True)


class Polled:
    """Carries bursts as another walker does, after the poll."""

    ahead_ns = FOREVER_NS

    def __init__(self, walker, poll_ns):
        self.walker, self.poll_ns = walker, poll_ns

    def walk(self, burst, start_ns, horizon_ns):
        """The end of the burst."""
        return self.walker.walk(burst, start_ns + self.poll_ns, horizon_ns)
