"""A bus that drives past stations, and when its transfers end: sums over periods of movement in closed form."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from fednet_emu.devices.availability import Always, Presence
from fednet_emu.devices.mobility.base import Polylines
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.air.transfer import Delivery, Message
from fednet_emu.network.network import Network
from fednet_emu.network.settings import NetworkSettings
from fednet_emu.radio.channel import Channel
from fednet_emu.records.ledger import Ledger
from tests.network.media import CAPACITY

TERMINAL = {"tx_power_dbm": 20, "noise_figure_db": 5, "height_m": 0}
CLEAR = {
    "carrier_hz": 2e9,
    "bandwidth_hz": 1e6,
    "path_loss": {"kind": "log-distance", "exponent": 2.0, "reference_loss_db": 40.0},
    "rate": CAPACITY,
    "device": TERMINAL,
    "base_station": TERMINAL,
}
HERTZ, KT_DBM = 1e6, -174.0
START_M, SPEED_M_S, ASIDE_M = -600.0, 20.0, 50.0
SIZE_BIT, PACKET_BPS = 500_000_000, 120_000.0
TURNS: tuple[Literal["cluster", "coloured"], ...] = ("cluster", "coloured")


class Bus:
    """Device 0 drives east past the station; the others stay where they are."""

    speed_m_s = SPEED_M_S

    def __init__(self, others_m: Sequence[tuple[float, float]] = (), *, driving: bool = True) -> None:
        self._start_m = np.array([(START_M, ASIDE_M), *others_m])
        self._velocity_m_s = np.zeros_like(self._start_m)
        if driving:
            self._velocity_m_s[0, 0] = SPEED_M_S

    def positions_m(self, devices: Any, time_s: float) -> Any:
        return self._start_m[devices] + self._velocity_m_s[devices] * time_s


class RecordedBus:
    speed_m_s = SPEED_M_S

    def __init__(self) -> None:
        end_m = START_M + 100.0 * SPEED_M_S
        self._line = Polylines([np.array([(0.0, START_M, ASIDE_M), (100.0, end_m, ASIDE_M)])])

    def positions_m(self, devices: Any, time_s: float) -> Any:
        return self._line.at_m(np.zeros(len(devices), np.int64), np.full(len(devices), time_s))


def network_of(paths: Any, count: int = 1, channel: Any = CLEAR, **settings: Any) -> Network:
    parts = (Clock(), Ledger(), Streams(1), Presence(Always(), 0, count), Channel.model_validate(channel))
    return Network(*parts, paths, NetworkSettings(**settings))


def snr_at(x_m: float, station_m: float = 0.0) -> float:
    """From the definition: 20 dBm, 40 dB at a metre, exponent 2, a noise figure of 5 dB on 1 MHz."""
    loss_db = 40.0 + 10.0 * math.log10((x_m - station_m) ** 2 + ASIDE_M**2)
    return 10.0 ** ((20.0 - loss_db - (KT_DBM + 60.0 + 5.0)) / 10.0)


def bps_at(time_s: float, stations_m: Sequence[float] = (0.0,)) -> float:
    """Shannon's rate of the bus with its best station."""
    return HERTZ * math.log2(1.0 + max(snr_at(START_M + SPEED_M_S * time_s, each) for each in stations_m))


def end_s(size_bit: int, period_s: float, bps: Callable[[float], float] = bps_at) -> float:
    """When the sum over periods of the rate at their starts is the message."""
    left_bit, period = float(size_bit), 0
    while left_bit > (flow_bit := bps(period * period_s) * period_s):
        left_bit, period = left_bit - flow_bit, period + 1
    return period * period_s + left_bit / bps(period * period_s)


def played(medium: Any, sender: int, receiver: int, size_bit: int = SIZE_BIT) -> Delivery:
    delivery: Delivery = medium.clock.run_process(_sent(medium, sender, receiver, size_bit))
    medium.close()
    return delivery


def _sent(medium: Any, sender: int, receiver: int, size_bit: int) -> Any:
    return (yield medium.send(sender, receiver, Message("x", size_bit, 0)))
