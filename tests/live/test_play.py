"""What is refused before anything starts, how commands are filled in, and what becomes of messages in the tables."""

from array import array
from dataclasses import replace
from typing import Any

import pytest

from fednet_emu.cli.live import _live_rows
from fednet_emu.emulation.build import build
from fednet_emu.emulation.given import scenario_of
from fednet_emu.errors import FednetError
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.realtime.books import Ran, doubts, write_host, write_messages
from fednet_emu.realtime.messages import Message
from fednet_emu.realtime.options import Commands, LiveOptions, beneath, unfit
from fednet_emu.realtime.prediction import predicted
from fednet_emu.realtime.programs import _missing
from fednet_emu.records.ledger import SERVER, Ledger
from tests.live.test_pace import cell, world

CELL: dict[str, Any] = {
    "devices": {"count": 3, "placement": {"kind": "disc", "radius_m": 80}, "profile": "pi-4b"},
    "channel": {"include": "urban-micro", "bandwidth_hz": 2e6, "fading": "none"},
    "algorithm": "fedavg",
    "model": "softmax",
}


def refused(**settings: Any) -> list[str]:
    """The key paths of what cannot be played live."""
    return [".".join(path) for path, _ in unfit(scenario_of(CELL, settings)[1].scenario)]


def test_most_of_what_a_scenario_can_say_is_played() -> None:
    """Most of what a scenario can say is played."""
    assert refused(**{"network.uplink.access": "noma", "network.downlink.mode": "broadcast"}) == []
    assert refused(**{"devices.mobility": "random-waypoint", "devices.count": 250}) == []
    assert refused(**{"devices.availability": {"kind": "periodic", "on_s": 1, "off_s": 1}}) == []


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({"devices.count": 251}, ["devices.count"]),
        ({"network.uplink.access": {"kind": "slotted-aloha", "slot_s": 0.01}}, ["network.uplink.access"]),
        ({"network.uplink.access": {"kind": "ofdma", "scheduler": "equal-finish"}}, ["network.uplink.access"]),
        ({"network.uplink.delay": {"kind": "fixed", "time_s": 0.1}}, ["network.uplink.delay"]),
        ({"network.uplink.access": "nr-grants"}, ["network.uplink.access"]),
        ({"network.uplink.access": "lora", "channel.bandwidth_hz": 125e3}, ["network.uplink.access"]),
        ({"network.uplink.idle": "rrc"}, ["network.uplink.idle"]),
        ({"network.transport": "udp"}, ["network.transport"]),
        ({"network.downlink.loss": {"kind": "random", "probability": 0.1}}, ["network.downlink.loss"]),
        ({"channel.rate": {"kind": "fixed", "bit_rate_bps": 1e6, "threshold_db": 3}}, ["channel.rate"]),
    ],
)
def test_what_has_no_packets_is_refused_with_its_key(settings: dict[str, Any], keys: list[str]) -> None:
    """What has no packets is refused with its key."""
    assert refused(**settings) == keys


def test_commands_are_filled_in_for_each_node() -> None:
    """Commands are filled in for each node."""
    commands = Commands.of("serve --at '{server} x'", ["client", "{role}{device}/{devices}", "{other}"])
    words, more = commands.filled(4, 7)
    assert words == ["client", "client4/7", "{other}"]
    assert more == {
        "FEDNET_SERVER": "10.77.0.1", "FEDNET_DEVICE": "4", "FEDNET_DEVICES": "7", "FEDNET_ROLE": "client"
    }  # fmt: skip
    assert commands.filled(SERVER, 7)[0] == ["serve", "--at", "10.77.0.1 x"]


def test_one_command_may_be_for_all() -> None:
    """One command may be for all."""
    assert Commands.of(None, ["either", "{role}"]).filled(SERVER, 2)[0] == ["either", "server"]


def test_a_scenario_file_cannot_name_a_program() -> None:
    """A scenario file cannot name a program."""
    for key in ("live", "server.command", "devices.command"):
        with pytest.raises(FednetError, match="no such setting"):
            scenario_of(CELL, {key: "sh -c true"})


@pytest.mark.parametrize(
    ("step", "number", "begin", "remedy"),
    [
        ("namespaces", 1, "live: the host lets this user make no namespaces, got 'why'; ", "run it as root"),
        ("tun", 13, "live: no TUN device can be made, got 'why'; ", "let users open /dev/net/tun"),
        ("proc", 1, "live: /proc cannot be mounted in a namespace, got 'why'; ", "in a container"),
    ],
)
def test_what_a_machine_lacks_is_said_in_a_sentence(step: str, number: int, begin: str, remedy: str) -> None:
    """What a machine lacks is said in a sentence."""
    text = str(_missing(step, number, "Why", None))
    assert text.startswith(begin)
    assert remedy in text


def message(
    device: int,
    payload_byte: int,
    arrived_ns: int,
    ended_ns: int,
    *,
    started_ns: int | None = None,
    starved_ns: int = 0,
) -> Message:
    """A message on the uplink, whose first packet went on the air at once if nothing else is said."""
    size = payload_byte + 52 * -(-payload_byte // 1448)
    times_ns = arrived_ns, arrived_ns if started_ns is None else started_ns, ended_ns
    return Message(
        True, device, 0, payload_byte, *times_ns, 9, 0, size, starved_ns, 0, float(ended_ns - arrived_ns)
    )  # fmt: skip


def test_a_message_that_ends_when_predicted_has_no_error() -> None:
    """The prediction is the simulated transfer of the payload in packets, from the instant of the first packet."""
    fed, scenario = world("tdma"), cell("tdma")
    band, links = fed.network.uplink.band, fed.network.uplink.links.now()
    ends = []
    now_ns = NS_PER_S
    for device in (2, 0):  # the second one waits for its turn
        now_ns = band.alone(*links.link(device, SERVER), 8 * (100_000 + 52 * 70), now_ns)[0]
        ends.append(now_ns)
    late_ns = (ends[1] - NS_PER_S - 5) // 100
    messages = [
        message(0, 100_000, NS_PER_S + 5, ends[1] + late_ns, started_ns=ends[0]),
        message(2, 100_000, NS_PER_S, ends[0]),
    ]
    errors = write_messages(fed, messages, predicted(scenario, messages, None))
    assert errors == [pytest.approx(0.0, abs=1e-9), pytest.approx(0.01, rel=1e-6)]
    frames = fed.ledger.frames()
    assert frames["transfers"]["sender"].tolist() == [2, 0], "in the order of their ends"
    assert frames["transfers"]["size_bit"].tolist() == [8 * (100_000 + 52 * 70)] * 2
    assert frames["live_messages"]["payload_byte"].tolist() == [100_000] * 2
    watts = fed.network.uplink.radios.drawn_w(2, links.power_w(2), 1.0)
    assert frames["transfers"]["energy_j"].iloc[0] == pytest.approx(watts * (ends[0] - NS_PER_S) / NS_PER_S)


def test_the_energy_of_a_message_follows_the_share_of_the_power() -> None:
    """Half a second on the air at a quarter of the power draws what an eighth of a second at all of it does."""
    fed, scenario = world("tdma"), cell("tdma")
    one = replace(message(0, 1000, 0, NS_PER_S // 2), power_ns=NS_PER_S / 8)
    write_messages(fed, [one], predicted(scenario, [one], None))
    watts = fed.network.uplink.radios.drawn_w(0, fed.network.uplink.links.now().power_w(0), 1.0)
    assert fed.ledger.frames()["transfers"]["energy_j"].tolist() == [pytest.approx(watts / 8)]


def test_a_download_is_predicted_on_the_downlink() -> None:
    """From the server to its device, at the downlink's rate; the receiver's energy is that of its time on the air."""
    listens: dict[str, Any] = {"way": "downlink", "radio": {"receive_w": 0.75, "idle_w": 0.0}}
    fed, scenario = world("tdma", **listens), cell("tdma", **listens)
    band, links = fed.network.downlink.band, fed.network.downlink.links.now()
    size_bit = 8 * (100_000 + 52 * 70)
    end_ns = band.alone(*links.link(SERVER, 1), size_bit, 1000)[0]
    got = replace(message(1, 100_000, 1000, end_ns), upwards=False)
    assert write_messages(fed, [got], predicted(scenario, [got], None)) == [pytest.approx(0.0, abs=1e-9)]
    row = fed.ledger.frames()["transfers"].iloc[0]
    assert (row["kind"], row["sender"], row["receiver"]) == ("downlink", SERVER, 1)
    assert row["receive_j"] == pytest.approx(0.75 * (end_ns - 1000) / NS_PER_S)


def test_a_lost_message_delivers_nothing_and_makes_no_claim() -> None:
    """What it has sent is offered and sent all the same. Rows are in the order of ends, not of requests."""
    fed, scenario = world("tdma"), cell("tdma")
    gone = replace(message(0, 50_000, 0, NS_PER_S), lost="left")
    both = [gone, message(1, 1000, NS_PER_S // 4, NS_PER_S // 2)]
    assert len(write_messages(fed, both, predicted(scenario, both, None))) == 1
    rows = fed.ledger.frames()["transfers"]
    assert rows["sender"].tolist() == [1, 0]
    row = rows.iloc[1]
    assert (row["lost"], row["delivered_bit"], row["size_bit"]) == ("left", 0, 8 * gone.air_byte)


def test_time_away_is_that_of_the_device_while_its_message_is_under_way() -> None:
    """It is there until 1 s, from 2 to 3 s, and from 5 s on; the message goes from 0.5 to 5.5 s."""
    windows = {"kind": "windows", "devices": {"0": [[0.0, 1.0], [2.0, 3.0], [5.0, 99.0]]}}
    fed, scenario = world("tdma", availability=windows), cell("tdma", availability=windows)
    halves = [message(0, 10**8, NS_PER_S // 2, 11 * NS_PER_S // 2), message(1, 1000, 0, NS_PER_S)]
    errors = write_messages(fed, halves, predicted(scenario, halves, None))
    assert fed.ledger.frames()["live_messages"]["away_s"].tolist() == [0.0, pytest.approx(1.0 + 2.0)]
    assert len(errors) == 1, "the simulator loses the transfer of a device that leaves"


def test_a_starved_message_makes_no_claim() -> None:
    """A starved message makes no claim."""
    fed, scenario = world("tdma"), cell("tdma")
    messages = [message(0, 50_000, 0, NS_PER_S, starved_ns=NS_PER_S // 49)]
    assert write_messages(fed, messages, predicted(scenario, messages, None)) == []
    assert fed.ledger.frames()["live_messages"]["starved_s"].tolist() == [pytest.approx(1 / 49)]


def test_a_run_is_doubtful_where_packets_are_late_or_programs_starve() -> None:
    """A run is doubtful where packets are late or programs starve."""
    late = {0: array("q", [1000] * 97 + [5_000_000] + [6_000_000] * 2), 3: array("q", [2000] * 100)}
    ledger = Ledger()
    host = write_host(ledger, late, [Ran(0, 100, 5), Ran(2, 100, 20)])
    assert (host["packets"], host["late_share"]) == (200, 0.01)
    assert doubts(host, [Ran(0, 100, 10)]) == "", "as much as there may be"
    assert doubts({"late_share": 0.02}, []) == "2.0% of the packets were written more than 5 ms late"
    assert doubts(host, [Ran(0, 100, 5), Ran(2, 100, 20)]) == (
        "the program of dev-1 waited for a processor for 20% of its time"
    )
    frames = ledger.frames()
    assert frames["live_host"]["simulated_s"].tolist() == [0, 3]
    assert frames["live_host"]["late_p99_s"].tolist() == [pytest.approx(6e-3), 2e-6]
    assert frames["live_programs"]["device"].tolist() == [-1, 1]


def test_the_command_tells_what_it_has_found() -> None:
    """How late the hub was, what was dropped, how good the prediction is, and how long a process takes to start."""
    found = {"packets": 1200, "late_p50_s": 5e-5, "late_p99_s": 2e-3, "dropped": [3, 0], "starved": 1}
    rows = dict(_live_rows({**found, "errors": [0.001, -0.002, 0.03], "start_s": 1.254}))
    assert rows == {
        "packets": "1,200",
        "  written late by": "0.05 ms (half), 2 ms (99 %)",
        "  dropped": "3 up, 0 down",
        "messages compared": "3, 1 starved",
        "  measured - predicted": "-0.20% (half), +3.00% (worst)",
        "start of a process": "1.25 s (algorithm.control.start_s of this machine)",
    }
    assert [title for title, _ in _live_rows({**found, "packets": 0, "errors": []})] == ["packets", "  dropped"]


def test_a_transport_predicts_slow_start_of_a_connection_that_stands() -> None:
    """At 10 Mbit/s and 0.1 s four windows of 10 to 80 packets take a round each, the rest follows without a gap.

    Headers are counted once, the way of the last packet is not: a message ends when that has left the air.
    """
    fixed = {"include": "ideal", "rate": {"kind": "fixed", "bit_rate_bps": 1e7}}
    settings = {"channel": fixed, "network.transport": {"kind": "tcp", "rtt_s": 0.1}, "network.session": "grpc"}
    settings |= {"network.downlink.mode": "unicast"}
    scenario = scenario_of(CELL, settings)[1].scenario
    payload_byte, windows_bit = 1448 * 700, [12_000 * 10 * 2**n for n in range(4)]
    ended_s = 0.25 + 4 * 0.1 + (12_000 * 700 - sum(windows_bit)) / 1e7
    one = message(0, payload_byte, NS_PER_S // 4, round(ended_s * NS_PER_S))
    (prediction,) = predicted(scenario, [one], None, 0.05)
    assert prediction is not None
    (quick,) = predicted(scenario, [one], None, 0.0)
    assert quick is not None
    assert quick.took_s == pytest.approx(12_000 * 700 / 1e7), "without a way TCP has no gaps"
    assert prediction.ended_s == pytest.approx(ended_s, abs=2e-9)
    assert prediction.gap_s == pytest.approx(4 * 0.1 - sum(windows_bit) / 1e7, abs=1e-8)
    fed = build(beneath(scenario), learning=False)
    starved = replace(one, starved_ns=round(prediction.gap_s * NS_PER_S))
    assert write_messages(fed, [starved], [prediction]) == [pytest.approx(0.0, abs=1e-8)]
    fed = build(beneath(scenario), learning=False)
    longer = replace(starved, starved_ns=starved.starved_ns + NS_PER_S // 40)
    assert write_messages(fed, [longer], [prediction]) == [], "beyond the gaps of TCP its queue was empty"
    assert len(fed.ledger.frames()["transfers"]) == 1


def test_the_way_beside_the_air_is_that_of_the_transport() -> None:
    """Half of its round trip one way, unless another time is given; half a millisecond without a transport."""
    tcp = scenario_of(CELL, {"network.transport": {"kind": "tcp", "rtt_s": 0.2}, "network.downlink.mode": "unicast"})
    assert LiveOptions().way_s(tcp[1].scenario.network.transport) == 0.1
    assert LiveOptions(latency_s=0.02).way_s(tcp[1].scenario.network.transport) == 0.02
    assert LiveOptions().way_s(scenario_of(CELL, {})[1].scenario.network.transport) == 0.0005
