"""Claims about transfers that climb: exact times, from sizes of transport blocks added up window by window."""

import math

import pytest
from pydantic import ValidationError

import fednet_emu as fe
from fednet_emu.errors import ScenarioError
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.nr.grants import NrGrants
from fednet_emu.radio.nr.blocks import NrBlocks, transport_block_bit
from tests.network.media import HandMadeLinks, medium_of
from tests.network.medium.moving import played
from tests.network.medium.test_movement import medium_on

SEVEN_TO_TWO = NrGrants(pattern="DDDDDDDSUU", target_bler=0)
SLOTS_PER_S = 400
SQUEEZENET_BIT = 24_120_192
"""727,626 numbers of four bytes in packets of TCP."""


def sizes_bit(blocks):
    """Bits of a transport block at MCS 0 to 28 of table 1 (TS 38.214 Table 5.1.3.1-1)."""
    qpsk = [120, 157, 193, 251, 308, 379, 449, 526, 602, 679]
    qam16 = [340, 378, 434, 490, 553, 616, 658]
    qam64 = [438, 466, 517, 567, 616, 666, 719, 772, 822, 873, 910, 948]
    rates = [(2, rate) for rate in qpsk] + [(4, rate) for rate in qam16] + [(6, rate) for rate in qam64]
    return [transport_block_bit(blocks, 13, 12, bits, rate) for bits, rate in rates]


def climbed_s(begun_s, size_bit, blocks):
    """Ends in s of transfers that share the slots in turn; each climbs at every tenth of a second after its start."""
    sizes, left, now_s = sizes_bit(blocks), [float(size_bit)] * len(begun_s), 0.0
    ends_s = [math.inf] * len(begun_s)
    while math.inf in ends_s:
        active = [n for n, at_s in enumerate(begun_s) if at_s <= now_s + 1e-9 and ends_s[n] == math.inf]
        window = round(10 * now_s + 1e-6 - 0.5)  # the one that has begun
        next_s = min([(window + 1) / 10, *(at_s for at_s in begun_s if at_s > now_s + 1e-9)])
        bps = {n: sizes[min(9 + window - int(10 * begun_s[n] + 1e-6), 28)] * SLOTS_PER_S / len(active) for n in active}
        next_s = min([next_s, *(now_s + left[n] / bps[n] for n in active)])
        for n in active:
            left[n] -= bps[n] * (next_s - now_s)
            if left[n] < 1e-3:
                ends_s[n] = next_s
        now_s = next_s
    return ends_s


def played_s(cell, begun_s, blocks=51, size_bit=SQUEEZENET_BIT, snr=1e6):
    """Ends in s of such transfers on the air."""
    law = NrBlocks(blocks=blocks, feedback="climbing")
    its = cell(SEVEN_TO_TWO, law, snr=[snr] * len(begun_s), bandwidth_hz=blocks * 360e3)
    return [d.ended_s for d in its.play(*((at_s, n, size_bit) for n, at_s in enumerate(begun_s)))]


@pytest.mark.parametrize(
    ("blocks", "devices", "published_s"), [(51, 1, 2.3), (51, 5, 8.2), (106, 1, 1.5), (106, 5, 4.4)]
)
def test_uploads_climb_from_mcs_9_to_28(cell, blocks, devices, published_s):
    """SqueezeNet alone and five times, as computed from what OpenAirInterface's code does."""
    ends_s = played_s(cell, [0.0] * devices, blocks)

    assert ends_s == pytest.approx(climbed_s([0.0] * devices, SQUEEZENET_BIT, blocks), rel=1e-6)
    assert ends_s == pytest.approx([published_s] * devices, abs=0.05)


def test_each_transfer_climbs_by_itself(cell):
    """One that begins half a second, another that begins 1.23 s after the first: begins at MCS 9 beside the faster."""
    begun_s = [0.0, 0.5, 1.23]

    ends_s = played_s(cell, begun_s, size_bit=8_000_000)

    assert ends_s == pytest.approx(climbed_s(begun_s, 8_000_000, 51), rel=1e-6)


def test_a_transfer_keeps_its_place_when_others_end(cell):
    """Ends at other times than starts, and one that starts after two have ended."""
    begun_s, sizes = [0.0, 0.1, 0.2, 2.5], 3_000_000

    assert played_s(cell, begun_s, size_bit=sizes) == pytest.approx(climbed_s(begun_s, sizes, 51), rel=1e-6)


def test_a_device_that_moves_goes_on_climbing():
    """Ten windows of a second, two seconds out of reach, and half a second at MCS 28, to which it has climbed."""
    law, sizes = NrBlocks(blocks=51, feedback="climbing"), sizes_bit(51)
    first_bit = sum(sizes[min(9 + window, 28)] * SLOTS_PER_S / 10 for window in range(10))
    size_bit = round(first_bit + sizes[28] * SLOTS_PER_S / 2)

    its = medium_on([1e6, 0.0, 0.0, 1e6], SEVEN_TO_TWO, law, timeout_s=100.0, bandwidth_hz=51 * 360e3)

    assert played(its, 0, -1, size_bit).ended_s == pytest.approx(3.5, rel=1e-6)


def test_downloads_climb_too():
    """Two at once from one base station, which has seven slots in ten."""
    law, bands = NrBlocks(blocks=51, feedback="climbing"), {"bandwidth_hz": 51 * 360e3}
    its = medium_of(SEVEN_TO_TWO, law, HandMadeLinks([1e6] * 2), 2, way="downlink", down=True, **bands)
    sent = [its.send(-1, device, Message(None, 3.5 * SQUEEZENET_BIT // 1, 0)) for device in (0, 1)]
    its.clock.run()

    expected_s = climbed_s([0.0, 0.0], SQUEEZENET_BIT, 51)
    assert [transfer.value.ended_s for transfer in sent] == pytest.approx(expected_s, rel=1e-6)


def test_a_link_too_weak_for_mcs_6_carries_nothing_below_four_attempts(cell):
    """OpenAirInterface goes no lower: 6 dB below the SNR of MCS 6 with a copy in four arriving."""
    law = NrBlocks(blocks=51, feedback="climbing", margin_db=0)

    assert law.min_sinr == pytest.approx(10**0.0172 / 4)
    assert law.rate_bps(0.99 * law.min_sinr, 1.0) == 0.0
    assert law.rate_bps(1.5 * law.min_sinr, 1.0) > 0.0


CLIMBING = {"kind": "nr-blocks", "feedback": "climbing"}
GRANTS = {"network.uplink.access": "nr-grants", "network.downlink.access": "nr-grants"}
TWO_CELLS = {"network.cells": {"kind": "list", "xy_m": [[0, 0], [400, 0]]}}


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (GRANTS, "channel: a climb is known on links that do not change, got .* fading rayleigh; set fading: none"),
        ({"channel.fading": "none"}, "channel.rate.feedback: .* network.*.access: tdma; set access nr-grants in both"),
        (GRANTS | TWO_CELLS | {"channel.fading": "none"}, "got climbing with 2 cells"),
    ],
)
def test_it_is_refused_where_it_is_not_known(settings, what):
    """With place and remedy."""
    with pytest.raises(ScenarioError, match=what):
        fe.check("quickstart", settings={"channel.rate": CLIMBING} | settings)


@pytest.mark.parametrize("more", [{"table": 2}, {"target_bler": 0.2}, {"repetitions": 2}, {"report_s": 0.1}])
def test_it_has_no_other_settings(more):
    """OpenAirInterface's numbers are those of table 1."""
    with pytest.raises(ValidationError, match=r"leave (it|them) out"):
        NrBlocks(feedback="climbing", **more)
