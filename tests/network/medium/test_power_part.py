"""Claims about transmissions at a part of their sender's power."""

from __future__ import annotations

import math

import pytest

from fednet_emu.network.access.contention import Noma, Shared
from fednet_emu.network.access.orthogonal import Tdma
from fednet_emu.network.air.transfer import Message
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.records.ledger import SERVER
from fednet_emu.testing import small_federation

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)


def ends_s(world, *requests):
    """When uplinks of (device, bits, part of its power), all asked for at 0, have ended."""
    sent = [
        world.medium.send(device, SERVER, Message("x", bits, 0), power_part=part) for device, bits, part in requests
    ]

    def everything():
        yield world.clock.all_of(sent)

    world.clock.run_process(everything())
    world.close()
    return [transfer.value.ended_s for transfer in sent]


def test_alone_the_snr_is_a_part(cell):
    """At a quarter of the power an SNR of 12 is one of 3: 1 MHz carries 2 Mbit/s."""
    world = cell(Tdma(), CAPACITY, snr=[12.0])

    assert ends_s(world, (0, 10**6, 0.25)) == pytest.approx([0.5])


def test_together_parts_count_on_both_sides(cell):
    """SNRs 10 and 10, the second at a tenth: 10 / (1 + 1) and 1 / (1 + 10), for as long as both are on the air."""
    world = cell(Shared(), CAPACITY, snr=[10.0, 10.0])
    first_bps, second_bps = 1e6 * math.log2(6), 1e6 * math.log2(12 / 11)
    first_s = 10**6 / first_bps
    second_s = first_s + (10**6 - second_bps * first_s) / 1e6  # then alone, at an SNR of 1

    assert ends_s(world, (0, 10**6, 1.0), (1, 10**6, 0.1)) == pytest.approx([first_s, second_s])


def test_parts_decide_who_is_decoded_first(cell):
    """With cancellation 3 and 12 at a twelfth are 3 and 1: log2(1 + 3 / 2) and log2(1 + 1)."""
    world = cell(Noma(), CAPACITY, snr=[3.0, 12.0])

    assert ends_s(world, (0, int(1e6 * math.log2(2.5)), 1.0), (1, 10**6, 1 / 12)) == pytest.approx([1.0, 1.0], rel=1e-6)


def test_a_sender_on_the_air_keeps_its_power(cell):
    """A second burst of a sender joins the first one at its power: each has half of a band at an SNR of 3."""
    world = cell(Shared(), CAPACITY, snr=[12.0, 12.0])

    assert ends_s(world, (0, 10**6, 0.25), (0, 10**6, 1.0)) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("access", ["tdma", "shared"])
def test_energy_is_a_part(access):
    """The amplifier draws its part, circuits draw all they need: 0.2 W / 0.5 x 0.25 + 0.1 W for 1 s."""
    fed = small_federation(
        f"network.uplink.access={access}",
        "channel.device.tx_power_dbm=23.010299956639813",
        "channel.device.amplifier_efficiency=0.5",
        "channel.device.circuit_w=0.1",
    )

    def run(fed):
        yield fed.uplink(fed.device(0), "x", 10**6, power_part=0.25)

    class Once:
        """Sends once."""

        def run(self, fed):
            """One uplink."""
            fed.initial_model()
            return run(fed)

    fed.run(Once())

    assert fed.ledger.transfers.column("energy_j").tolist() == pytest.approx([0.2])
