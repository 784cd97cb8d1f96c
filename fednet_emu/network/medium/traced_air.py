"""Links whose rates were recorded: each device has its own, whatever the others do."""

from __future__ import annotations

from fednet_emu.kernel.clock import NS_PER_S, to_ns
from fednet_emu.network.medium.ends import Ends
from fednet_emu.network.medium.transfer import Burst, Transfer
from fednet_emu.network.traces.assign import DeviceRates


class TracedAir:
    """Bursts at recorded rates; a burst ends with its slowest leg, and its end is known when it starts.

    Transfers of one device that are under way together each have its whole rate. Ignored here: everything but the
    recorded rate, which holds whatever interference and fading there was.
    """

    def __init__(self, rates: DeviceRates) -> None:
        self._rates = rates
        self._ends = Ends()

    @property
    def next_end_ns(self) -> int:
        """The earliest end."""
        return self._ends.next_ns()

    def start(self, burst: Burst, now_ns: int) -> None:
        """Look up when each leg will be through."""
        end_ns = max([self._end_ns(leg, now_ns) for leg in burst])
        for leg in burst:
            self._carry(leg, min(end_ns, leg.until_ns))
        burst[0].power_s = (end_ns - now_ns) / NS_PER_S
        self._ends.add(burst, end_ns)

    def _end_ns(self, leg: Transfer, now_ns: int) -> int:
        latest_s = (leg.until_ns - now_ns) / NS_PER_S
        needed_s = self._rates.time_to_carry(_device(leg), leg.size_bit, now_ns / NS_PER_S)
        if needed_s <= latest_s:
            return now_ns + to_ns(needed_s)
        leg.lost = leg.until_reason
        return leg.until_ns

    def _carry(self, leg: Transfer, until_ns: int) -> None:
        started_s, until_s = leg.started_ns / NS_PER_S, until_ns / NS_PER_S
        carried_bit = self._rates.bits_between(_device(leg), started_s, until_s)
        leg.air_bit = min(carried_bit, float(leg.size_bit)) if leg.lost else float(leg.size_bit)

    def stop(self, burst: Burst, now_ns: int) -> None:
        """Take a burst off with what it has carried so far."""
        self._ends.remove(burst)
        for leg in burst:
            leg.lost = leg.cancelled
            self._carry(leg, now_ns)
        burst[0].power_s = (now_ns - burst[0].started_ns) / NS_PER_S

    def advance(self, now_ns: int) -> list[Burst]:
        """The bursts whose end has come."""
        return self._ends.take_due(now_ns)


def _device(leg: Transfer) -> int:
    return leg.sender if leg.receiver < 0 else leg.receiver
