"""Links at recorded rates, which do not depend on other devices' transmissions."""

from __future__ import annotations

from typing import final

from fednet_emu.kernel.clock import FOREVER_NS
from fednet_emu.network.air.transfer import Burst, Transfer
from fednet_emu.network.traces.assign import DeviceRates


@final
class TraceWalker:
    """Links at recorded rates.

    Simultaneous transfers of one device each get its full recorded rate. Ignored here: everything but the recorded
    rate, which already contains the interference and fading of the recording.
    """

    ahead_ns = FOREVER_NS

    def __init__(self, rates: DeviceRates) -> None:
        self._rates = rates

    def walk(self, burst: Burst, start_ns: int, horizon_ns: int) -> int:
        """Compute each leg's end from its recorded rate, whatever the horizon; return the end of the slowest in ns."""
        return max([self._walk_leg(leg, start_ns) for leg in burst])

    def _walk_leg(self, leg: Transfer, start_ns: int) -> int:
        device = _device(leg)
        end_ns = start_ns + self._rates.needed_ns(device, leg.size_bit, start_ns)
        if end_ns <= leg.until_ns:
            leg.air_bit = float(leg.size_bit)
            return end_ns
        leg.lost = leg.until_reason
        leg.air_bit = min(self._rates.bits_between(device, start_ns, leg.until_ns), float(leg.size_bit))
        return leg.until_ns


def _device(leg: Transfer) -> int:
    return leg.sender if leg.receiver < 0 else leg.receiver
