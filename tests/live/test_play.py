"""Plays of live mode, the hook that programs call, and the keeper of namespaces."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fednet_emu.realtime
from fednet_emu.cli.live import _live_rows
from fednet_emu.emulation.build import build
from fednet_emu.emulation.given import scenario_of
from fednet_emu.errors import FednetError
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.realtime.books import Ran, doubts, predicted, write_host, write_messages
from fednet_emu.realtime.messages import Message
from fednet_emu.realtime.options import Commands, LiveOptions, beneath, unfit
from fednet_emu.realtime.programs import _KEEPER, Programs, _missing
from fednet_emu.records.ledger import SERVER, Ledger
from tests.live.conftest import ROOT
from tests.live.test_air import cell, world

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
        ({"network.downlink.message_loss": {"kind": "random", "probability": 0.1}}, ["network.downlink.message_loss"]),
        ({"channel.rate": {"kind": "fixed", "bit_rate_bps": 1e6, "threshold_db": 3}}, ["channel.rate"]),
    ],
)
def test_what_has_no_packets_is_refused_with_its_key(settings: dict[str, Any], keys: list[str]) -> None:
    assert refused(**settings) == keys


def test_commands_are_filled_in_for_each_node() -> None:
    commands = Commands.of("serve --at '{server} x'", ["client", "{role}{device}/{devices}", "{other}"])
    words, more = commands.filled(4, 7)
    assert words == ["client", "client4/7", "{other}"]
    assert more == {
        "FEDNET_SERVER": "10.77.0.1", "FEDNET_DEVICE": "4", "FEDNET_DEVICES": "7", "FEDNET_ROLE": "client"
    }  # fmt: skip
    assert commands.filled(SERVER, 7)[0] == ["serve", "--at", "10.77.0.1 x"]


def test_one_command_may_be_for_all() -> None:
    assert Commands.of(None, ["either", "{role}"]).filled(SERVER, 2)[0] == ["either", "server"]


def test_a_scenario_file_cannot_name_a_program() -> None:
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
    assert fed.ledger.frame("transfers")["energy_j"].tolist() == [pytest.approx(watts / 8)]


def test_a_download_is_predicted_on_the_downlink() -> None:
    """From the server to its device, at the downlink's rate; the receiver's energy is that of its time on the air."""
    listens: dict[str, Any] = {"way": "downlink", "radio": {"rx_consumption_w": 0.75, "idle_w": 0.0}}
    fed, scenario = world("tdma", **listens), cell("tdma", **listens)
    band, links = fed.network.downlink.band, fed.network.downlink.links.now()
    size_bit = 8 * (100_000 + 52 * 70)
    end_ns = band.alone(*links.link(SERVER, 1), size_bit, 1000)[0]
    got = replace(message(1, 100_000, 1000, end_ns), upwards=False)
    assert write_messages(fed, [got], predicted(scenario, [got], None)) == [pytest.approx(0.0, abs=1e-9)]
    row = fed.ledger.frame("transfers").iloc[0]
    assert (row["direction"], row["sender"], row["receiver"]) == ("downlink", SERVER, 1)
    assert row["rx_energy_j"] == pytest.approx(0.75 * (end_ns - 1000) / NS_PER_S)


def test_a_lost_message_delivers_nothing_and_makes_no_claim() -> None:
    """What it has sent is offered and sent all the same. Rows are in the order of ends, not of requests."""
    fed, scenario = world("tdma"), cell("tdma")
    gone = replace(message(0, 50_000, 0, NS_PER_S), lost="left")
    both = [gone, message(1, 1000, NS_PER_S // 4, NS_PER_S // 2)]
    assert len(write_messages(fed, both, predicted(scenario, both, None))) == 1
    rows = fed.ledger.frame("transfers")
    assert rows["sender"].tolist() == [1, 0]
    row = rows.iloc[1]
    assert (row["loss_reason"], row["delivered_bit"], row["size_bit"]) == ("left", 0, 8 * gone.air_byte)


def test_time_away_is_that_of_the_device_while_its_message_is_under_way() -> None:
    """It is there until 1 s, from 2 to 3 s, and from 5 s on; the message goes from 0.5 to 5.5 s."""
    windows = {"kind": "windows", "devices": {"0": [[0.0, 1.0], [2.0, 3.0], [5.0, 99.0]]}}
    fed, scenario = world("tdma", availability=windows), cell("tdma", availability=windows)
    halves = [message(0, 10**8, NS_PER_S // 2, 11 * NS_PER_S // 2), message(1, 1000, 0, NS_PER_S)]
    errors = write_messages(fed, halves, predicted(scenario, halves, None))
    assert fed.ledger.frame("live_messages")["away_s"].tolist() == [0.0, pytest.approx(1.0 + 2.0)]
    assert len(errors) == 1, "the simulator loses the transfer of a device that leaves"


def test_a_starved_message_makes_no_claim() -> None:
    fed, scenario = world("tdma"), cell("tdma")
    messages = [message(0, 50_000, 0, NS_PER_S, starved_ns=NS_PER_S // 49)]
    assert write_messages(fed, messages, predicted(scenario, messages, None)) == []
    assert fed.ledger.frame("live_messages")["starved_s"].tolist() == [pytest.approx(1 / 49)]


def test_a_run_is_doubtful_where_packets_are_late_or_programs_starve() -> None:
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
    assert prediction.ack_wait_s == pytest.approx(4 * 0.1 - sum(windows_bit) / 1e7, abs=1e-8)
    fed = build(beneath(scenario), learning=False)
    starved = replace(one, starved_ns=round(prediction.ack_wait_s * NS_PER_S))
    assert write_messages(fed, [starved], [prediction]) == [pytest.approx(0.0, abs=1e-8)]
    fed = build(beneath(scenario), learning=False)
    longer = replace(starved, starved_ns=starved.starved_ns + NS_PER_S // 40)
    assert write_messages(fed, [longer], [prediction]) == [], "beyond the gaps of TCP its queue was empty"
    assert len(fed.ledger.frame("transfers")) == 1


def test_the_way_beside_the_air_is_that_of_the_transport() -> None:
    """Half of its round trip one way, unless another time is given; half a millisecond without a transport."""
    tcp = scenario_of(CELL, {"network.transport": {"kind": "tcp", "rtt_s": 0.2}, "network.downlink.mode": "unicast"})
    assert LiveOptions().way_s(tcp[1].scenario.network.transport) == 0.1
    assert LiveOptions(latency_s=0.02).way_s(tcp[1].scenario.network.transport) == 0.02
    assert LiveOptions().way_s(scenario_of(CELL, {})[1].scenario.network.transport) == 0.0005


HOOK = Path(fednet_emu.realtime.__file__).parent / "hook"
MODULES = {
    "clientapp/client_app": """
class ClientApp:
    def __call__(self, message, context):
        return message
""",
    "serverapp/server_app": """
class ServerApp:
    def __call__(self, grid, context):
        context(grid)
""",
    "superlink/grid/http_grid": """
class HttpGrid:
    def push_messages(self, messages):
        return [id(message) for message in messages]
    def pull_messages(self, ids):
        return iter(ids)
""",
    "serverapp/strategy/strategy": """
class Strategy:
    def start(self, grid, evaluate_fn=None):
        return self.aggregate_train(1), self.aggregate_evaluate(2), evaluate_fn(3)
""",
}
SAID = """
class Meta:
    def __init__(self, kind):
        self.message_type = kind
class Message:
    def __init__(self, kind, records=None):
        self.metadata, self.records = Meta(kind), records
        self.content = self
        self.metric_records = {"metrics": {"num-examples": 20}}
    def has_content(self):
        return True
"""


@pytest.fixture
def notes(tmp_path: Path) -> Any:
    """Run code in a process with the hook; its notes."""
    for name, text in MODULES.items():
        path = tmp_path / "flwr" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for folder in (path.parent, path.parent.parent, tmp_path / "flwr"):
            (folder / "__init__.py").touch()  # a package, so that it hides one that is installed
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.own = True\n")

    def run(code: str, **work: Any) -> list[dict[str, Any]]:
        file = tmp_path / "notes.jsonl"
        known = {"flop_per_example": {}, "overhead_s": 0.0, "flop_per_s": 1e9, "factors": [1.0], **work}
        more = {
            "PYTHONPATH": os.pathsep.join([str(HOOK), str(tmp_path)]),
            "FEDNET_NOTES": str(file),
            "FEDNET_WORK": json.dumps(known),
        }
        ran = subprocess.run(
            [sys.executable, "-c", SAID + code], env={**os.environ, **more}, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return [json.loads(line) for line in file.read_text().splitlines()]

    return run


def test_a_client_is_padded_to_its_device(notes: Any) -> None:
    """FLOPs of the examples over speed, and an overhead, times the factor of its message: the second has the second."""
    code = """
from flwr.clientapp.client_app import ClientApp
assert own, "the environment's own file of this name is run, too"
for kind in ("train", "train", "query"):
    ClientApp()(Message(kind), None)
"""
    found = notes(code, flop_per_example={"train": 1e6}, overhead_s=0.01, factors=[1.0, 3.0])
    assert [note["flop"] for note in found] == [20e6, 20e6, 0.0]
    assert [note["wanted_s"] for note in found] == pytest.approx([0.03, 0.09, 0.0])
    took_s = [(note["ns"] - note["began_ns"]) / 1e9 for note in found]
    assert took_s[0] >= 0.03
    assert took_s[1] >= 0.09


def test_the_server_is_watched(notes: Any) -> None:
    """What it sends and collects by type, what its strategy sums up, and how it ends."""
    code = """
from flwr.serverapp.server_app import ServerApp
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.serverapp.strategy.strategy import Strategy

class Own(Strategy):
    def aggregate_train(self, replies):
        return None, {"train_loss": 0.5, "name": "x"}
    def aggregate_evaluate(self, replies):
        return {"eval_acc": 0.75}

def main(grid):
    assert len(grid.push_messages(iter([Message("train"), Message("train.own"), Message("query")]))) == 3
    assert len(grid.pull_messages([Message("train")])) == 1
    assert grid.pull_messages([]) == []
    own = Own()
    assert own.start(grid, evaluate_fn=lambda number: {"accuracy": 0.25})[1] == {"eval_acc": 0.75}
    assert "aggregate_train" not in vars(own)
    raise ValueError("no such luck")

try:
    ServerApp()(HttpGrid(), main)
except ValueError:
    pass
"""
    found = notes(code)
    assert [note["what"] for note in found] == ["begin", "sent", "got", "metrics", "metrics", "metrics", "end"]
    assert found[1]["count"] == {"train": 2, "query": 1}
    assert found[2]["count"] == {"train": 1}
    assert [(note["source"], note["metrics"]) for note in found[3:6]] == [
        ("train", {"train_loss": 0.5}), ("evaluate", {"eval_acc": 0.75}), ("central", {"accuracy": 0.25})
    ]  # fmt: skip
    assert "no such luck" in found[-1]["error"]
    assert [note["ns"] for note in found] == sorted(note["ns"] for note in found)


PLAN = {"addresses": ["10.77.0.1"], "congestion": None, "user": os.getuid(), "group": os.getgid()}


@pytest.mark.parametrize("moment", ["nothing said", "plan said", "answer heard", "told to go on"])
def test_a_command_that_is_gone_is_no_error(moment: str) -> None:
    """Exit code 0 and no traceback; where this machine makes no namespaces the answer says so, and it ends, too."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its, mine:
        keeper = subprocess.Popen(
            [sys.executable, "-P", "-c", _KEEPER, str(its.fileno()), str(ROOT)],
            pass_fds=[its.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        its.close()
        if moment != "nothing said":
            mine.send(json.dumps(PLAN).encode())
        if moment in ("answer heard", "told to go on"):
            answer = json.loads(mine.recv(1 << 16))
            if moment == "told to go on" and "unshared" in answer:
                mine.send(b"{}")
    _, said = keeper.communicate()
    assert (keeper.returncode, said) == (0, "")


GONE = "the process that keeps the namespaces has ended, got exit code 3; start the run again"


@pytest.mark.parametrize("does", [lambda programs: programs._tell(go=True), Programs.news], ids=["tell", "news"])
def test_a_keeper_that_is_gone_is_told_in_a_sentence(does: Callable[[Programs], object]) -> None:
    """With its exit code; also to a command that would only say something."""
    programs = Programs(1)
    programs._keeper = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    programs._control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    its.close()
    with programs._control, pytest.raises(FednetError, match=GONE):
        does(programs)


def _say_much(programs: Programs) -> None:
    while True:
        programs._tell(command=["x" * 10_000])


@pytest.mark.parametrize("does", [_say_much, lambda programs: programs._hear("made")], ids=["tell", "hear"])
def test_a_keeper_that_is_silent_is_told_in_a_sentence(does: Callable[[Programs], object]) -> None:
    """The keeper reads no further commands, or sends no answer."""
    programs = Programs(1)
    programs._control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    programs._control.settimeout(0.05)
    silent = "does not respond, got no message for 30 s; start the run when this machine is less busy"
    with its, programs._control, pytest.raises(FednetError, match=silent):
        does(programs)
