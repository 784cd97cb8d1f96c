"""Claims about LoRa on the air: silence after each frame, collisions of pure ALOHA, and who is out of reach."""

import math

import pytest

from fednet_emu.devices.availability import Windows
from fednet_emu.network.lora.access import Lora
from fednet_emu.records.laws.verify import verify
from fednet_emu.testing import run_small, small_scenario

FRAME_S, PERIOD_S = 0.348416, 34.8416
"""222 bytes with spreading factor 7, and that over a duty cycle of 1 %."""
NET_BIT = 209 * 8
STRONG = 10.0


def db(value):
    """A ratio of so many decibels."""
    return 10 ** (value / 10)


@pytest.fixture
def lora(cell):
    """Makes a cell with one LoRa channel of 125 kHz."""

    def make(access=None, **given):
        return cell(access or Lora(), **{"bandwidth_hz": 125e3, "timeout_s": 1e6, "snr": [STRONG] * 3, **given})

    return make


def test_each_frame_is_followed_by_silence(lora):
    """Three full frames: the third ends two periods after the first; the next message waits for 99 frames more."""
    world = lora()
    first, second = world.play((0.0, 0, 3 * NET_BIT), (80.0, 0, NET_BIT))

    assert first.ended_s == pytest.approx(2 * PERIOD_S + FRAME_S, abs=1e-8)
    assert second.ended_s == pytest.approx(3 * PERIOD_S + FRAME_S, abs=1e-8)
    assert world.rows["energy_j"].tolist() == pytest.approx([0.2 * 3 * FRAME_S, 0.2 * FRAME_S], rel=1e-6)


def test_ten_kilobytes_take_half_an_hour(lora):
    """48 frames, the last of 190 bytes: 47 periods and the last frame (28 minutes in round numbers)."""
    (found,) = lora().play((0.0, 0, 80_000))

    assert found.ended_s == pytest.approx(47 * PERIOD_S + 0.302336, abs=1e-7)


def test_frames_of_one_factor_collide_and_others_do_not(lora):
    """Two with factor 7, one with 10: e^-0.02 of the frames of the two arrive, all of the third."""
    world = lora(snr=[STRONG, STRONG, db(-4.4)])
    found = world.play(*((0.0, device, 10 * NET_BIT) for device in range(3)))

    attempts = 10 * math.exp(0.02)
    assert [each.ended_s for each in found[:2]] == pytest.approx([(attempts - 1) * PERIOD_S + FRAME_S] * 2, rel=1e-8)
    assert found[2].ended_s == pytest.approx(54 * 61.6448 + 0.616448, abs=1e-6)  # 55 frames of 51 bytes


def test_who_stays_is_no_longer_disturbed(lora):
    """With a duty cycle of a half, e^-1 arrive until the other has ended, then all."""
    one, other = lora(Lora(duty_cycle=0.5)).play((0.0, 0, 10 * NET_BIT), (0.0, 1, 40 * NET_BIT))

    period_s, arrives = 2 * FRAME_S, math.exp(-1)
    first_s = (10 / arrives - 1) * period_s + FRAME_S
    left = 40 - first_s / period_s * arrives
    assert one.ended_s == pytest.approx(first_s, rel=1e-8)
    assert other.ended_s == pytest.approx(first_s + (left - 1) * period_s + FRAME_S, rel=1e-8)


def test_a_message_of_one_frame_takes_that_frame(lora):
    """An empty one has a header: 13 bytes in 46.3 ms at factor 7, 82.4 + 10.2 ms at 8."""
    (seven,) = lora(Lora(spreading=7)).play((0.0, 0, 0))
    (eight,) = lora(Lora(spreading=8)).play((0.0, 0, 0))

    assert [seven.ended_s, eight.ended_s] == pytest.approx([0.046336, 0.082432], abs=1e-9)


@pytest.mark.parametrize(("snr_db", "access", "lost"), [
    (-19.9, Lora(), ""), (-20.1, Lora(), "unreachable"),
    (-12.4, Lora(spreading=9), ""), (-12.6, Lora(spreading=9), "unreachable"),
])  # fmt: skip
def test_below_what_a_factor_needs_nothing_arrives(lora, snr_db, access, lost):
    """Factor 12 needs -20 dB, 9 needs -12.5 dB."""
    (found,) = lora(access, snr=[db(snr_db)]).play((0.0, 0, NET_BIT))

    assert found.lost == lost


def test_a_broadcast_has_the_factor_of_the_weakest_that_it_reaches(lora):
    """0 dB has factor 9: two frames of 115 bytes for 204; who is out of reach does not count."""
    world = lora(multicast=True, snr=[STRONG, db(0.0), db(-30.0)])
    found = world.play(*((0.0, device, 2 * 102 * 8) for device in range(3)))

    assert [each.lost for each in found] == ["", "", "unreachable"]
    assert found[0].ended_s == found[1].ended_s == pytest.approx(61.5424 + 0.615424, abs=1e-7)


def test_what_takes_too_long_is_lost_with_what_it_has_carried(lora):
    """A timeout after four and a half periods: 4.5 of 10 frames."""
    world = lora(timeout_s=4.5 * PERIOD_S)
    (found,) = world.play((0.0, 0, 10 * NET_BIT))

    assert (found.lost, found.ended_s) == ("timeout", pytest.approx(4.5 * PERIOD_S))
    assert world.rows["air_bit"].tolist() == pytest.approx([4.5 * NET_BIT], rel=1e-6)


def test_messages_of_one_sender_share_its_time(lora):
    """Two at once by one device: each is sent every other time, and they do not collide."""
    found = lora().play((0.0, 0, 3 * NET_BIT), (0.0, 0, 3 * NET_BIT))

    assert [each.ended_s for each in found] == pytest.approx([4 * PERIOD_S + FRAME_S] * 2, abs=1e-7)


def test_rounds_over_lora_need_a_narrow_band_and_patience():
    """A model of 320 bit is one frame each way; in the next round the server is still silent after the first."""
    ways = ("network.uplink.access=lora", "network.downlink.access=lora")
    ((path, what), _) = small_scenario(*ways).contradictions()
    assert path == ("network", "uplink", "access")
    assert "got channel.bandwidth_hz 2e+07 with lora; set channel.bandwidth_hz: 125e3" in what

    fed = run_small(*ways, "channel.bandwidth_hz=125e3", "stop.rounds=2", timing_only=True)
    fed.close()
    found = fed.ledger.frames()["transfers"]
    down = found.query("kind == 'downlink'")

    assert not any(verify(fed.ledger, frozenset()).values())
    assert set(found["lost"]) == {""}
    assert down["ended_s"].tolist()[-1] == pytest.approx(100 * 0.102656 + 0.102656, abs=1e-3)  # 53 bytes


def test_who_leaves_during_a_broadcast_has_not_got_it(lora):
    """The second frame ends after 62 s, one receiver leaves after 30 s: it is lost there only."""
    away = Windows(devices={1: ((0.0, 30.0),)})
    found = lora(multicast=True, snr=[db(0.0)] * 2, availability=away).play(
        *((0.0, device, 2 * 102 * 8) for device in range(2))
    )

    assert [each.lost for each in found] == ["", "left"]
    assert found[0].ended_s == pytest.approx(61.5424 + 0.615424, abs=1e-7)
