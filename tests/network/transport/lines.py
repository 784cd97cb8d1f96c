"""Lines of a constant rate in bit/s at the IP layer, and the tables of what was measured on such."""

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.transport import Session, Transport
from fednet_emu.network.transport.transports import Connections
from fednet_emu.radio.rates.base import RateLaw
from tests.network.conftest import Cell


class Line(RateLaw):
    """One bit per second in each hertz, whatever the SINR."""

    @property
    def min_sinr(self) -> float:
        return 0.0

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        return bandwidth_hz

    def rates_bps(self, sinr: Any, bandwidth_hz: Any) -> Any:
        return np.broadcast_to(
            np.asarray(bandwidth_hz, float), np.broadcast_shapes(np.shape(sinr), np.shape(bandwidth_hz))
        )


def line(rate_bps: float, transport: Transport, session: Session | None = None, **more: Any) -> Cell:
    connections = Connections(transport, session or Session())  # type: ignore[arg-type]
    access = more.pop("access", None) or Ofdma()
    return Cell(access, Line(), bandwidth_hz=rate_bps, snr=(1.0,) * 16, connections=connections, **more)


class Spent(NamedTuple):
    """The phases of a row in ns, those before the start and those after it."""

    setup: int
    turn: int
    air: int
    gap: int
    tail: int


def spent(row: Any) -> Spent:
    names = (
        "requested_s",
        "started_s",
        "ended_s",
        "grant_delay_s",
        "connection_setup_s",
        "ack_wait_s",
        "reception_delay_s",
    )
    asked, start, end, access, setup, gap, tail = (round(row[name] * NS_PER_S) for name in names)
    return Spent(setup, start - asked - access - setup, end - start - gap - tail, gap, tail)


def table(name: str) -> list[dict[str, str]]:
    with (Path(__file__).parent / "reference" / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
