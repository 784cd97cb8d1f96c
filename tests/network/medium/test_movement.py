"""Movement and handovers during transfers."""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from fednet_emu.kernel.clock import NS_PER_S, Clock
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.kernel.work import BIT, work_per_ns
from fednet_emu.network.access.contention import FullReuse, Noma, SpatialReuse
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.cells import ListedCells
from fednet_emu.network.medium.loads import Radios
from fednet_emu.network.planning.access import Planned
from fednet_emu.network.transport import Session, Tcp
from fednet_emu.network.transport.transports import Connections
from fednet_emu.radio.channel import Channel, Terminal
from fednet_emu.radio.fading import FadingByLineOfSight, Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate
from fednet_emu.records.laws import verify
from fednet_emu.records.ledger import SERVER
from fednet_emu.testing import run_small, small_scenario
from tests.network.media import FADING_KEY, HandMadeLinks, medium_of
from tests.network.medium.moving import (
    ASIDE_M,
    CAPACITY,
    CLEAR,
    HERTZ,
    PACKET_BPS,
    SIZE_BIT,
    SPEED_M_S,
    START_M,
    TURNS,
    Bus,
    RecordedBus,
    bps_at,
    end_s,
    network_of,
    played,
    snr_at,
)
from tests.quick import crossed


@pytest.mark.parametrize(
    ("paths", "period_s", "access"),
    crossed(
        [Bus, RecordedBus],
        [1.0, 0.3],
        [Tdma(), Ofdma(), Ofdma(scheduler="equal-finish"), FullReuse(), Noma(), Planned()],
    ),
)
def test_an_upload_on_the_way_past_a_station_is_the_sum_over_periods(access: Any, period_s: float, paths: Any) -> None:
    """To two nanoseconds, by the rate of each place from its definition; drawn power times airtime is the energy."""
    network = network_of(paths(), position_update_s=period_s, uplink={"access": access})
    delivery = played(network.uplink, 0, SERVER)

    assert delivery.ended_s == pytest.approx(end_s(SIZE_BIT, period_s), rel=0, abs=2e-9)
    assert 25.0 < delivery.ended_s < 60.0
    row = network.uplink.ledger.frame("transfers").iloc[0]
    assert row["energy_j"] == pytest.approx(0.1 * delivery.ended_s)


def test_shorter_periods_converge_to_the_integral() -> None:
    """Half the period has half the error against the continuous drive, here the sum over 20,000 steps."""
    exact_s = end_s(SIZE_BIT, 0.0005)
    ends_s = [
        played(network_of(Bus(), position_update_s=each).uplink, 0, SERVER).ended_s for each in (2.0, 1.0, 0.5, 0.25)
    ]
    errors_s = [abs(each - exact_s) for each in ends_s]

    halves = [late / early for early, late in pairwise(errors_s)]
    assert halves == pytest.approx([0.5] * 3, rel=0.1)


@pytest.mark.parametrize("access", [Tdma(), Ofdma()])
def test_a_broadcast_is_as_slow_as_its_worst_receiver_is_now(access: Any) -> None:
    """Bus and a walker at rest 200 m away: each leg has its own sum, the broadcast ends with the later one."""
    network = network_of(Bus([(0.0, 200.0)]), 2, downlink={"access": access, "mode": "broadcast"})
    medium = network.downlink

    def broadcast() -> Any:
        sent = [medium.send(SERVER, device, Message("x", SIZE_BIT, 0, 7)) for device in (0, 1)]
        yield medium.clock.all_of(sent)

    medium.clock.run_process(broadcast())
    medium.close()
    still_bps = HERTZ * math.log2(1.0 + snr_at(math.sqrt(200.0**2 - ASIDE_M**2)))
    (row,) = medium.ledger.frame("transfers").to_dict("records")
    assert row["receivers"] == 2
    assert row["ended_s"] == pytest.approx(max(end_s(SIZE_BIT, 1.0), SIZE_BIT / still_bps), rel=0, abs=2e-9)


@pytest.mark.parametrize("way", ["uplink", "downlink"])
@pytest.mark.parametrize("access", [Tdma(), Ofdma(), FullReuse()])
def test_who_stays_has_the_same_row_beside_moving_devices(access: Any, way: str) -> None:
    """Device 1 sends while device 0 drives, or as if nobody could ever move: same times and bits, same energy."""
    rows, energies_j = [], []
    for driving in (True, False):
        paths = Bus([(100.0, 80.0)], driving=driving)
        if not driving:
            paths.speed_m_s = 0.0
        channel, down = CLEAR | {"fading": Rayleigh(coherence_s=0.37)}, {"access": access, "mode": "unicast"}
        network = network_of(paths, 2, channel, uplink={"access": access}, downlink=down)
        medium = getattr(network, way)
        played(medium, *((1, SERVER) if way == "uplink" else (SERVER, 1)), 50_000_000)
        table = medium.ledger.frame("transfers")
        rows.append(table.drop(columns="energy_j").to_dict("records"))
        energies_j.append(float(table["energy_j"].iloc[0]))

    assert rows[0] == rows[1]
    assert energies_j[0] == pytest.approx(energies_j[1], rel=1e-12)


class Meeting(Bus):
    """Two devices drive towards each other, and past."""

    def positions_m(self, devices: Any, time_s: float) -> Any:
        x_m = START_M + SPEED_M_S * time_s
        return np.array([(x_m, ASIDE_M), (-x_m, 0.0)])[devices]


@pytest.mark.parametrize(
    "access",
    [Tdma(), Ofdma(), *(SpatialReuse(turns=turns, interference=loud) for turns in TURNS for loud in (False, True))],
    ids=str,
)
def test_both_ends_of_a_sidelink_move(access: Any) -> None:
    """The rate of each period is that of the distance between both, whether clusters disturb each other or not."""
    network = network_of(Meeting(), 2, sidelink={"access": access, "channel": Channel.model_validate(CLEAR)})
    assert network.sidelink is not None
    delivery = played(network.sidelink, 0, 1)

    def bps(time_s: float) -> float:
        return HERTZ * math.log2(1.0 + snr_at(2.0 * (START_M + SPEED_M_S * time_s)))

    assert delivery.ended_s == pytest.approx(end_s(SIZE_BIT, 1.0, bps), rel=0, abs=2e-9)


class Table(HandMadeLinks):
    """SNR of device 0 in each period of a second, then the last; whether it is in sight, and its power, if given."""

    def __init__(
        self, clock: Clock, snr: Sequence[float], powers_w: Sequence[float] | None = None, sight: Sequence[int] = (0,)
    ) -> None:
        super().__init__([0.0])
        self._clock, self._table, self._powers_w, self._sight = clock, snr, powers_w, sight

    def _at(self, values: Sequence[float]) -> float:
        return values[min(self._clock.now // NS_PER_S, len(values) - 1)]

    @override
    def link(self, sender: int, receiver: int) -> tuple[float, int]:
        return self._at(self._table), super().link(sender, receiver)[1] & ~1 | int(self._at(self._sight))

    @override
    def snrs(self, sender: Any, receiver: Any) -> Any:
        return np.full(np.broadcast_shapes(np.shape(sender), np.shape(receiver)), self._at(self._table))

    @override
    def fading_keys(self, sender: Any, receiver: Any) -> Any:
        return super().fading_keys(sender, receiver) & ~np.uint64(1) | np.uint64(self._at(self._sight))

    @override
    def power_w(self, sender: int) -> float | None:
        return None if self._powers_w is None else self._at(self._powers_w)

    @override
    def until_ns(self) -> int:
        return (self._clock.now // NS_PER_S + 1) * NS_PER_S


def medium_on(snr: Sequence[float], access: Any, law: Any = CAPACITY, **more: Any) -> Any:
    """A medium with one device on a table of links."""
    clock = Clock()
    return medium_of(
        access, law, Table(clock, snr, more.pop("powers_w", None), more.pop("sight", (0,))), 1, clock=clock, **more
    )


@pytest.mark.parametrize("block_ns", [NS_PER_S // 4, NS_PER_S])
@pytest.mark.parametrize("access", [Tdma(), Ofdma(), FullReuse()])
def test_fading_goes_on_across_periods_and_edges_may_meet(access: Any, block_ns: int) -> None:
    """Blocks of 250 ms or 1 s and periods of 1 s, by a slow sum in units of work: a block has its own gain.

    In sight, as in the second and the third, the law of the gain is Rician.
    """
    snr, sight, fading = (
        [3.0, 0.5, 40.0, 7.0],
        [0, 1, 1, 0],
        FadingByLineOfSight(k_db=9, coherence_s=block_ns / NS_PER_S),
    )
    medium = medium_on(snr, access, fading=fading, sight=sight)
    size_bit = 9_000_000
    left, now_ns = size_bit * BIT, 0
    while True:
        period = min(now_ns // NS_PER_S, 3)
        draw = uniform(mix(FADING_KEY, 0) & ~1 | sight[period], now_ns // block_ns)
        gain = fading.gain(draw, sight[period] == 1)
        per_ns = work_per_ns(HERTZ * math.log2(1.0 + snr[period] * gain))
        if left <= per_ns * block_ns:
            now_ns += math.ceil(Fraction(left, per_ns))
            break
        left, now_ns = left - per_ns * block_ns, now_ns + block_ns

    assert 2.0 < now_ns / NS_PER_S < 10.0
    assert played(medium, 0, SERVER, size_bit).ended_s == pytest.approx(now_ns / NS_PER_S, rel=0, abs=2e-9)


@pytest.mark.parametrize("access", [Tdma(), Ofdma(), FullReuse()])
@pytest.mark.parametrize("first", [1.0, 0.0], ids=["lost on the way", "out of reach at the start"])
def test_a_link_that_carries_nothing_for_a_while_waits(access: Any, first: float) -> None:
    """3 Mbit at 1 Mbit/s, and nothing for four seconds in which the device is out of reach."""
    snr = [first, 0.0, 0.0, 0.0, 1.0]
    delivery = played(medium_on(snr, access, timeout_s=100.0), 0, SERVER, 3_000_000)

    assert (delivery.lost, delivery.ended_s) == ("", 7.0 if first == 0.0 else 6.0)


def test_who_does_not_come_back_has_the_timeout() -> None:
    """Lost after its 5 s, not as out of reach; bits are those of the first second."""
    medium = medium_on([1.0, 0.0], Ofdma(), timeout_s=5.0)
    delivery = played(medium, 0, SERVER, 3_000_000)

    assert (delivery.lost, delivery.ended_s) == ("timeout", 5.0)
    assert medium.ledger.frame("transfers")["transmitted_bit"].tolist() == [1_000_000]


def test_a_timeout_that_is_left_open_judges_the_place_of_the_start() -> None:
    """Out of reach there: not tried, and known in a second. In reach: 60 s at least, whatever comes."""
    for snr, lost, ended_s in (([0.0, 1.0], "unreachable", 1.0), ([1.0, 0.0], "timeout", 60.0)):
        delivery = played(medium_on(snr, Tdma(), timeout_s=None), 0, SERVER, 3_000_000)
        assert (delivery.lost, delivery.ended_s) == (lost, ended_s)


RADIO = Terminal(tx_power_dbm=30, noise_figure_db=0, height_m=1, amplifier_efficiency=0.5, circuit_w=0.25)


def test_energy_follows_the_power_of_each_period() -> None:
    """3 Mbit at a fixed 1 Mbit/s with 0.1, 0.2 and 0.4 W on an amplifier of 50 %, beside 0.25 W of circuits."""
    law, radios = FixedRate(bit_rate_bps=1e6), Radios(RADIO, controlled=True)
    medium = medium_on([1.0], Ofdma(), law, powers_w=[0.1, 0.2, 0.4], radios=radios)
    played(medium, 0, SERVER, 3_000_000)

    assert medium.ledger.frame("transfers")["energy_j"].tolist() == pytest.approx([0.2 + 0.4 + 0.8 + 3 * 0.25])
    assert medium.ledger.energy_j == pytest.approx(2.15)


def test_energy_follows_the_power_where_bits_are_released_in_bursts() -> None:
    """1, 2, 4 packets of 0.1 s a second apart: 0.1 s at 0.1 W, 0.2 s at 0.2 W, 0.4 s at 0.4 W on the amplifier."""
    connections = Connections(Tcp(rtt_s=1.0, initial_window=1), Session())
    medium = medium_on(
        [1.0], Ofdma(), FixedRate(bit_rate_bps=PACKET_BPS), powers_w=[9.0, 0.1, 0.2, 0.4],
        radios=Radios(RADIO, controlled=True), connections=connections,
    )  # fmt: skip
    played(medium, 0, SERVER, 7 * 8 * 1448)

    (row,) = medium.ledger.frame("transfers").to_dict("records")
    assert row["started_s"] == 1.0
    assert row["energy_j"] == pytest.approx(0.1 * 0.2 + 0.2 * 0.4 + 0.4 * 0.8 + 0.7 * 0.25)


STATIONS_M = (-400.0, 400.0)
CELLS = ListedCells(xy_m=tuple((each, 0.0) for each in STATIONS_M))


@pytest.mark.parametrize("way", ["uplink", "downlink"])
@pytest.mark.parametrize("access", [Ofdma(), FullReuse()])
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
        {"direction": way, "device": 0, "simulated_s": 31.0, "value_id": 0, "from_cell": 0, "to_cell": 1}
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
    "network.position_update_s=0.1",
)
TWO_CELLS = (*TRAVEL, "network.cells={kind: list, xy_m: [[-60, 0], [60, 0]]}", "network.downlink.access=ofdma")


@pytest.mark.parametrize("access", ["tdma", "ofdma", "noma", "nr-grants"])
def test_batteries_are_charged_for_the_power_of_each_period(access: str) -> None:
    """With power control: what batteries give is what transfers draw, and every other law holds, too."""
    control = ("network.power_control={kind: open-loop, target_dbm: -90}", "devices.battery={capacity_j: 10}")
    fed = run_small(*TRAVEL, *control, f"network.uplink.access={access}", "channel.device.idle_w=0.01")

    frames = fed.ledger.frames()
    sent_j = frames["batteries"].groupby("device")["sending_j"].last().sum()
    uplinks = frames["transfers"].query("direction == 'uplink'")
    assert (uplinks["ended_s"] - uplinks["started_s"]).max() > 0.5
    assert sent_j == pytest.approx(uplinks["energy_j"].sum(), rel=1e-9)
    assert {law: text for law, text in verify(fed.ledger, frozenset()).items() if text} == {}


def test_a_run_with_handovers_says_so() -> None:
    """Its table has them, and all laws hold."""
    fed = run_small(*TWO_CELLS, "network.handover=during", "network.uplink.access=ofdma")

    handovers = fed.ledger.frame("handovers")
    assert len(handovers) > 0
    assert (handovers["from_cell"] != handovers["to_cell"]).all()
    assert {law: text for law, text in verify(fed.ledger, frozenset()).items() if text} == {}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (("network.uplink.access=tdma",), "access tdma; choose ofdma without subchannels there, or set handover"),
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
