"""Transport and session in scenario files: what cannot work is said before the run, and the laws hold with what can."""

import pytest

import fednet_emu as fe
from fednet_emu.testing import small_scenario

TCP = "network.transport={kind: tcp, rtt_s: 0.1, initial_window: 1}"
UNICAST = "network.downlink.mode=unicast"


@pytest.mark.parametrize(
    "changes",
    [
        ("network.uplink.access=tdma", "network.downlink.access=ofdma"),
        ("network.uplink.access=noma", "network.session={kind: grpc, tls: true, per_message_s: 0.01}"),
        ("network.uplink.access=ofdma", "network.cells={kind: list, xy_m: [[0, 0], [400, 0]]}"),
        (
            "network.uplink.access=ofdma",
            "devices.battery={capacity_j: 0.2, restart_share: 0.5}",
            "algorithm.deadline_s=5",
        ),
    ],
)
def test_every_law_holds_with_gaps(changes: tuple[str, ...]) -> None:
    """Turns, parts of the band, interference, several cells, batteries: bits, phases and energies add up."""
    run = fe.run(
        small_scenario(TCP, UNICAST, "model={kind: mlp, hidden: [256]}", *changes), timing_only=True, progress=False
    )
    assert run.summary["broken_laws"] == {}
    assert run.transfers["gap_s"].sum() > 0


def test_nothing_is_written_without_a_transport() -> None:
    """The columns of phases are there only where transfers have some."""
    assert "gap_s" not in fe.run(small_scenario("stop.rounds=1"), timing_only=True, progress=False).transfers
