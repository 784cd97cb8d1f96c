"""Uploads of a cohort as arrays: when they may be asked for, and which limits they have."""

from __future__ import annotations

import numpy as np
import pytest

from fednet_emu.emulation.build import build
from fednet_emu.kernel.all_of import AllOf
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.medium.cohort import CohortBand
from fednet_emu.records.ledger import SERVER
from fednet_emu.testing import small_scenario

STREET = ("channel=urban-micro", "devices.placement={kind: disc, radius_m: 150, inner_radius_m: 10}")
ACCESS = ("tdma", "ofdma", "noma")


def uplink(*settings, count=4):
    """The uplink of a small federation on a street."""
    scenario = small_scenario(f"devices.count={count}", *STREET, *settings)
    return build(scenario, timing_only=True).network.uplink


def ask(medium, size_bit=30_000, requested_ns=None):
    """The uploads of all four devices, all at the start unless stated; None if they are not certain."""
    requested_ns = np.zeros(4, np.int64) if requested_ns is None else np.array(requested_ns)
    return CohortBand(medium).upload(np.arange(4), np.broadcast_to(np.int64(size_bit), 4), requested_ns)


def waiting(clock, events):
    yield AllOf(clock, events)


def test_a_band_with_a_request_is_not_idle():
    """One upload of a device, before and after its end."""
    medium = uplink()
    band = CohortBand(medium)
    assert band.is_idle
    sent = medium.send(0, SERVER, Message(None, 1000))
    assert not band.is_idle
    medium.clock.run_process(waiting(medium.clock, [sent]))
    assert band.is_idle


@pytest.mark.parametrize(
    "setting",
    [
        "devices.battery={capacity_j: 1000}",
        "network.transport={kind: tcp}",
        "network.uplink.access={kind: ofdma, scheduler: proportional-fair}",
        "network.uplink.access={kind: ofdma, subchannels: 2}",
    ],
)
def test_uploads_that_are_not_certain_are_no_cohort(setting):
    """Batteries, delays, planned or limited shares of the band; a plain uplink is one, and one that loses uploads."""
    assert CohortBand(uplink()).uploads
    assert CohortBand(uplink("network.uplink.message_loss={kind: random, probability: 0.1}")).uploads
    assert not CohortBand(uplink(setting)).uploads


@pytest.mark.parametrize("access", ACCESS)
@pytest.mark.parametrize("size_bit", [0, [30_000, 0, 30_000, 30_000]])
def test_an_upload_of_nothing_is_left_to_events(access, size_bit):
    """It ends when it is asked for, whatever the band is busy with."""
    medium = uplink(f"network.uplink.access={access}")
    assert ask(medium) is not None
    assert ask(medium, size_bit) is None


@pytest.mark.parametrize("access", ACCESS)
def test_a_link_that_may_never_carry_anything_is_left_to_events(access):
    """A mean SNR at which the best fading block carries the least rate is in doubt; one above it is not."""
    medium = uplink(f"network.uplink.access={access}", "network.uplink.timeout_s=3000")
    doubtful = medium.band.doubtful_snr
    band, keys = CohortBand(medium), np.array([0, 1], np.uint64)
    size_bit = np.array([100, 100])

    assert band._until_ns(np.array([1.0, doubtful]), keys, size_bit) is None
    assert band._until_ns(np.array([1.0, np.nextafter(doubtful, 1.0)]), keys, size_bit).tolist() == [3000 * 10**9] * 2


def test_limits_depend_on_size_snr_and_line_of_sight():
    """Each is that of its own transfer: a far link, one in sight, and a large upload have more time."""
    medium = uplink("channel.fading=by-line-of-sight", "channel.bandwidth_hz=2e5")
    snr = np.array([0.2, 0.2, 1.0, 100.0, 100.0, 1.0])
    keys, size_bit = np.array([2, 3, 2, 3, 2, 2], np.uint64), np.array([10**6] * 4 + [10**8, 10**5])
    limits = CohortBand(medium)._until_ns(snr, keys, size_bit)
    own = [
        medium.patience.limit_ns(size, its_snr, los=key % 2 == 1)
        for size, its_snr, key in zip(size_bit.tolist(), snr.tolist(), keys.tolist(), strict=True)
    ]

    assert limits.tolist() == own
    assert own[0] > own[1] > own[2] > own[5]
    assert own[3] == 60 * 10**9 < own[4]


def test_an_upload_that_is_not_worth_trying_is_left_to_events():
    """Its limit is zero: it would take more than an hour even at the mean rate."""
    medium = uplink()
    band, size_bit = CohortBand(medium), np.array([10**12, 1000])

    assert medium.patience.limit_ns(10**12, 1.0, los=False) == 0
    assert band._until_ns(np.array([1.0, 1.0]), np.zeros(2, np.uint64), size_bit) is None


@pytest.mark.parametrize("access", ACCESS)
@pytest.mark.parametrize("size_bit", [30_000, 300])
def test_the_limit_counts_time_on_the_air_only(access, size_bit):
    """A limit of the longest upload's time, of one fading block or several, is enough; one 1 ns shorter is not."""
    at_s = [0, 0, 0, 30 * 10**9]

    def within(timeout_s):
        settings = [] if timeout_s is None else [f"network.uplink.timeout_s={timeout_s!r}"]
        return ask(uplink(f"network.uplink.access={access}", *settings), size_bit, at_s)

    free = within(None)
    longest_ns = int((free.ended_ns - free.started_ns).max())

    assert within(longest_ns / 1e9) is not None
    assert within((longest_ns - 1) / 1e9) is None
    assert free.started_ns[-1] == 30 * 10**9
    assert free.ended_ns[-2] < 30 * 10**9


def test_the_plan_of_the_band_is_that_of_events_after_a_cohort():
    """Blocks that the next plan covers: other than at first, as after events; unchanged after a refusal."""
    medium, events = uplink("network.uplink.access=ofdma"), uplink("network.uplink.access=ofdma")
    before = medium.air.blocks
    assert ask(medium) is not None
    sent = [events.send(k, SERVER, Message(None, 30_000)) for k in range(4)]
    events.clock.run_process(waiting(events.clock, sent))

    assert medium.air.blocks == events.air.blocks != before
    late = uplink("network.uplink.access=ofdma", "network.uplink.timeout_s=0.001")
    assert ask(late) is None
    assert late.air.blocks == before
