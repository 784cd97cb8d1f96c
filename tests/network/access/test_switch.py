"""Claims about a switch: a port is shared equally, both ways at once, and nothing is radiated."""

import pytest

from fednet_emu.errors import ScenarioError
from fednet_emu.network.ethernet import Switch
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate
from fednet_emu.records.laws.verify import verify
from fednet_emu.testing import run_small, small_scenario

MBIT = 1_000_000
PORT = "{kind: switch, port_bps: 1.0e+8}"
BOTH = (f"network.uplink.access={PORT}", f"network.downlink.access={PORT}")
OUTAGE = "channel.rate={kind: fixed, bit_rate_bps: 1e6, threshold_db: 100}"


def test_transfers_share_the_port_equally_whatever_the_radio_says(cell):
    """10, 20 and 30 Mbit at 10 Mbit/s: thirds of the port until 3 s, halves until 5 s, the whole of it until 6 s."""
    world = cell(Switch(port_bps=10e6), FixedRate(bit_rate_bps=1), Rayleigh(coherence_s=0.1), snr=[1e-9, 1.0, 1e9])
    found = world.play(*((0.0, device, 10 * MBIT * (device + 1)) for device in range(3)))

    assert [each.ended_s for each in found] == pytest.approx([3.0, 5.0, 6.0], abs=2e-9)
    assert [each.lost for each in found] == ["", "", ""]
    assert world.rows["energy_j"].tolist() == [0.0, 0.0, 0.0]


def test_a_broadcast_passes_the_port_once(cell):
    """Three receivers in 1 s."""
    world = cell(Switch(port_bps=10e6), multicast=True, receive_w=0.5)
    found = world.play(*((0.0, device, 10 * MBIT) for device in range(3)))

    assert [each.ended_s for each in found] == [1.0, 1.0, 1.0]
    assert world.rows["receive_j"].tolist() == [1.5]


def test_rounds_over_a_wire_take_the_bits_over_the_speed_of_the_port():
    """Four devices, 320 bit: 3.2 us down, 720 us of training, 12.8 us up; bits have their energy, power has none."""
    bits = "channel.device.transmit_j_per_bit=1e-6"
    fed = run_small(*BOTH, bits, OUTAGE, "channel.device.circuit_w=5", "stop.rounds=2", timing_only=True)
    fed.close()
    found = fed.ledger.frames()["transfers"]

    assert not any(verify(fed.ledger, frozenset()).values())
    assert found["ended_s"].max() == pytest.approx(2 * 736e-6, abs=1e-9)
    assert found.query("kind == 'uplink'")["energy_j"].tolist() == pytest.approx([320e-6] * 8)


def test_a_wire_loses_nothing_in_an_outage_of_the_radio():
    """The rate law of the channel does not act; with one direction on the radio it does."""
    wired, half = small_scenario(*BOTH, OUTAGE), small_scenario(BOTH[0], OUTAGE)

    assert list(wired.network.losses(wired.channel)) == []
    assert list(half.network.losses(half.channel)) == ["channel.rate: fixed that loses in outage"]


def test_a_wire_has_no_antennas():
    """Several antennas of the base station are refused."""
    ((path, what),) = small_scenario(*BOTH, "network.reception={kind: mrc, antennas: 2}").contradictions()

    assert path == ("network", "reception")
    assert "a wire has no antennas, got mrc with switch" in what
    with pytest.raises(ScenarioError, match=r"access.*is not for a sidelink, got switch"):
        small_scenario(f"network.sidelink={{channel: ideal, access: {PORT}}}")
