"""Uploads of real programs: the instants at which their packets leave, and the ends of their messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from fednet_emu.emulation.build import build
from fednet_emu.emulation.given import scenario_of
from fednet_emu.kernel.clock import to_ns
from fednet_emu.realtime.air import CONTROL_BYTE, TURN_NS, Departure, LiveAir
from fednet_emu.realtime.options import LiveOptions
from fednet_emu.realtime.pace import RatedPace
from tests.live.conftest import UPLOAD, cell, table, unspoilt
from tests.live.test_air import played
from tests.live.test_live import live

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("machine")]


class Recorded(LiveAir):
    """An air that notes what comes (time, link, bytes), and what leaves."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.came: list[tuple[int, int, int]] = []
        self.left: list[Departure] = []

    def put(self, link: int, packet: bytes, now_ns: int) -> bool:
        self.came.append((now_ns, link, len(packet)))
        return super().put(link, packet, now_ns)

    def departures(self, until_ns: int) -> list[Departure]:
        gone = super().departures(until_ns)
        self.left += gone
        return gone

    def turns_lost(self) -> int:
        """How often a link's next data packet came so late after its last one that it had to ask for a new turn."""
        ended_ns: dict[int, int] = {}
        lost = 0
        for one in self.left:
            if len(one.packet) > CONTROL_BYTE:
                lost += one.link in ended_ns and one.arrived_ns >= ended_ns[one.link] + TURN_NS
                ended_ns[one.link] = one.ended_ns
        return lost


@pytest.mark.parametrize(("access", "devices"), [("tdma", 2), ("ofdma", 3)])
def test_uploads_end_when_they_are_predicted_to(tmp_path: Path, access: str, devices: int) -> None:
    """Packets leave in the nanosecond in which they do without hub and host; messages end when simulated ones do.

    The first holds however late the host is. The ends may differ by 3 % and by twice the time for which queues were
    empty, because then others sent, and fading has gone on. With links in turns nothing is said of them where the host
    left a queue dry for `TURN_NS`: its device has lost its turn, and waits for the whole upload of the other.
    """
    size, airs = 2_000_000, []
    command = [*UPLOAD, "{role}", "{server}", str(size)]

    def noted(*args: Any, **options: Any) -> Recorded:
        airs.append(Recorded(*args, **options))
        return airs[-1]

    out, scenario = tmp_path / "run", cell(devices, access)
    with patch("fednet_emu.realtime.play.LiveAir", noted):
        summary = live(scenario, out, command)
    assert (summary["status"], summary["verified"], summary["kind"]) == ("done", True, "live")
    transfers, messages = table(out, "transfers"), table(out, "live_messages")
    assert sorted(transfers["sender"]) == [*range(devices)]
    assert set(transfers["direction"]) == {"uplink"}
    assert (messages["payload_byte"] - size).between(100, 300).all(), "the bytes, and the header of the request"
    sent = 8 * (messages["payload_byte"] + messages["repeated_byte"] + 52 * messages["packets"])
    assert (transfers["size_bit"] == sent).all()
    for device in range(devices):
        assert (out / f"dev-{device}.txt").read_text() == f"the server has received {size} bytes\n"
    _, plan = scenario_of(scenario)
    fed, options = build(plan.scenario, learning=False), LiveOptions()
    places, hold_ns = fed.network.uplink.settings.access.capacity, to_ns(options.hold_s)
    again = LiveAir(
        RatedPace(fed.network.uplink, fed.clock), places=places, queue_byte=options.queue_byte, hold_ns=hold_ns
    )
    left, _ = played(again, airs[0].came)
    found = [(one.link, len(one.packet), one.started_ns, one.ended_ns) for one in airs[0].left]
    assert found == left[: len(found)]
    if access == "tdma" and airs[0].turns_lost():
        return
    foreseen_s = messages["predicted_s"] - transfers["requested_s"]
    allowed_s = 0.03 * foreseen_s + 2.0 * messages["starved_s"].sum()
    assert ((messages["error"] * foreseen_s).abs() <= allowed_s).all(), messages


def test_tcp_starts_as_slowly_as_the_transport_says(tmp_path: Path) -> None:
    """Reno on a path of 100 ms at 10 Mbit/s, which takes a tenth longer than its bits do at that rate."""
    size, tcp = 2_500_000, {"kind": "tcp", "rtt_s": 0.1, "reuse": False}
    scenario = cell(channel={"include": "ideal", "rate": {"kind": "fixed", "bit_rate_bps": 1e7}})
    scenario["network"]["transport"] = tcp

    def play(out: Path) -> Any:
        return live(scenario, out, [*UPLOAD, "{role}", "{server}", str(size)], tcp="reno", queue_byte=4_000_000)

    summary, out = unspoilt(play, tmp_path)
    assert summary["live"]["latency_s"] == 0.05, "half of the round trip"
    messages = table(out, "live_messages")
    (error,) = messages["error"]
    assert abs(error) < 0.03 or summary["doubtful"], messages
    assert messages["starved_s"].sum() > 0.1, "the gaps of slow start"
