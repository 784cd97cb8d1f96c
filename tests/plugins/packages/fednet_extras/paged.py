"""An access delay: one file, and one line among the entry points."""

from pydantic import Field

from fednet_emu.kernel.clock import to_ns
from fednet_emu.network.access.orthogonal import Ofdma


class Paged(Ofdma):
    """As ofdma, but a transfer waits for the next paging occasion, and ends with a fixed time to decode."""

    period_s: float = Field(gt=0)
    decode_s: float = Field(0.0, ge=0)

    def use(self, band, links, cells, devices):
        """The same use, with a wait before and a tail after."""
        period_ns, decode_ns = to_ns(self.period_s), to_ns(self.decode_s)
        return (
            super()
            .use(band, links, cells, devices)
            ._replace(before=lambda transfer, now_ns: -now_ns % period_ns, after=lambda transfer, now_ns: decode_ns)
        )
