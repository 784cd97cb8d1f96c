"""Claims about transfers on whose way a device comes to another cell, and about whole runs of devices on the move."""

from typing import Any

import pytest

from fednet_emu.network.access.contention import Shared
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.cells import ListedCells
from fednet_emu.records.laws.verify import verify
from fednet_emu.records.ledger import SERVER
from fednet_emu.testing import run_small, small_scenario
from tests.network.medium.moving import (
    SIZE_BIT,
    Bus,
    bps_at,
    end_s,
    network_of,
    played,
)

STATIONS_M = (-400.0, 400.0)
CELLS = ListedCells(xy_m=tuple((each, 0.0) for each in STATIONS_M))


@pytest.mark.parametrize("way", ["uplink", "downlink"])
@pytest.mark.parametrize("access", [Ofdma(), Shared()])
def test_a_handover_on_the_way_goes_on_at_the_next_station(access: Any, way: str) -> None:
    """The bus is half-way after 30 s: from then on the rate is that of the other station, and the records say so."""
    ways = {"uplink": {"access": access}, "downlink": {"access": access, "mode": "unicast"}}
    network = network_of(Bus(), cells=CELLS, handover="during", **ways)
    medium, ends = getattr(network, way), (0, SERVER) if way == "uplink" else (SERVER, 0)
    delivery = played(medium, *ends)
    expected_s = end_s(SIZE_BIT, 1.0, lambda time_s: bps_at(time_s, STATIONS_M))

    assert expected_s > 32.0
    assert delivery.ended_s == pytest.approx(expected_s, rel=0, abs=2e-9)
    frames = medium.ledger.frames()
    assert frames["handovers"].to_dict("records") == [
        {"kind": way, "device": 0, "simulated_s": 31.0, "payload": 0, "from_cell": 0, "to_cell": 1}
    ]
    (row,) = frames["transfers"].to_dict("records")
    assert (row["cell"], row["receivers"], row["energy_j"]) == (1, 1, pytest.approx(0.1 * expected_s))


def test_who_hears_a_broadcast_stays_in_its_cell_until_it_is_over() -> None:
    """Two devices hear the first station's broadcast when the bus is half-way; what it gets beside it stays, too."""
    ways = {"uplink": {"access": Ofdma()}, "downlink": {"access": Ofdma(), "mode": "broadcast"}}
    network = network_of(Bus([(-400.0, 50.0)]), 2, cells=CELLS, handover="during", **ways)
    medium = network.downlink

    def everything() -> Any:
        sent = [medium.send(SERVER, device, Message("x", SIZE_BIT, 0, 7)) for device in (0, 1)]
        yield medium.send(SERVER, 0, Message("y", SIZE_BIT // 2, 1))
        yield medium.clock.all_of(sent)

    medium.clock.run_process(everything())
    frames = medium.ledger.frames()
    assert (frames["transfers"]["ended_s"] > 32.0).all()
    assert frames["transfers"]["cell"].tolist() == [0, 0]
    assert "handovers" not in frames


def test_between_transfers_a_device_stays_in_the_cell_where_it_began() -> None:
    """The rate is that of the first station to the end; the next transfer has the other one."""
    network = network_of(Bus(), cells=CELLS, uplink={"access": Ofdma()})
    clock = network.uplink.clock

    def two() -> Any:
        first = yield network.uplink.send(0, SERVER, Message("x", SIZE_BIT, 0))
        second = yield network.uplink.send(0, SERVER, Message("x", 1000, 0))
        return first, second

    first, _ = clock.run_process(two())
    assert first.ended_s == pytest.approx(end_s(SIZE_BIT, 1.0, lambda time_s: bps_at(time_s, STATIONS_M[:1])), abs=2e-9)
    frames = network.uplink.ledger.frames()
    assert frames["transfers"]["cell"].tolist() == [0, 1]
    assert "handovers" not in frames


TRAVEL = (
    "channel=urban-micro",
    "channel.bandwidth_hz=100",
    "devices.mobility={kind: random-waypoint, min_speed_m_s: 20, max_speed_m_s: 40}",
    "devices.region={kind: disc, radius_m: 150}",
    "network.movement_s=0.1",
)
TWO_CELLS = (*TRAVEL, "network.cells={kind: list, xy_m: [[-60, 0], [60, 0]]}", "network.downlink.access=ofdma")


@pytest.mark.parametrize("access", ["tdma", "ofdma", "noma", "nr-grants"])
def test_batteries_are_charged_for_the_power_of_each_period(access: str) -> None:
    """With power control: what batteries give is what transfers draw, and every other law holds, too."""
    control = ("network.power_control={kind: open-loop, target_dbm: -90}", "devices.battery={capacity_j: 10}")
    fed = run_small(*TRAVEL, *control, f"network.uplink.access={access}", "channel.device.idle_w=0.01")

    frames = fed.ledger.frames()
    sent_j = frames["batteries"].groupby("device")["sending_j"].last().sum()
    uplinks = frames["transfers"].query("kind == 'uplink'")
    assert (uplinks["ended_s"] - uplinks["started_s"]).max() > 0.5
    assert sent_j == pytest.approx(uplinks["energy_j"].sum(), rel=1e-9)
    assert {law: text for law, text in verify(fed.ledger, frozenset()).items() if text} == {}


def test_a_run_with_handovers_says_so() -> None:
    """Its table has them, and all laws hold."""
    fed = run_small(*TWO_CELLS, "network.handover=during", "network.uplink.access=ofdma")

    handovers = fed.ledger.frames()["handovers"]
    assert len(handovers) > 0
    assert (handovers["from_cell"] != handovers["to_cell"]).all()
    assert {law: text for law, text in verify(fed.ledger, frozenset()).items() if text} == {}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            ("network.uplink.access=tdma",),
            "access tdma; choose ofdma without subchannels there, or set handover",
        ),
        (("network.uplink.access={kind: ofdma, subchannels: 2}",), "network.uplink.access ofdma"),
        (("network.downlink.access=tdma", "network.uplink.access=ofdma"), "network.downlink.access tdma"),
        (("network.uplink.access=ofdma", "algorithm={kind: hier-favg, cohort: 4, lr: 0.1}"), "with hier-favg; set"),
    ],
)
def test_what_handovers_on_the_way_do_not_go_with(settings: tuple[str, ...], problem: str) -> None:
    """Turns, and uploads that belong to an edge server."""
    scenario = small_scenario(*TWO_CELLS, "network.handover=during", *settings)
    (found,) = [what for path, what in scenario.contradictions() if path == ("network", "handover")]

    assert problem in found
