"""Sending again: when, how often, what of many, and how it is cancelled; and what links are expected to carry."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fednet_emu.devices.availability import Presence, Windows
from fednet_emu.federation import Delivery, Federation, Process
from fednet_emu.federation.exchange import retrying
from fednet_emu.kernel.clock import Clock
from fednet_emu.records.laws import verify
from fednet_emu.testing import small_federation, small_scenario
from tests.federation.flows import play

MODEL_S = 320e-6
LOSSY = "network.uplink.message_loss={kind: random, probability: 0.999999}"


class Foreseen(Windows):
    """Windows whose returns everybody knows, as those of satellites."""

    FORESEEN = True


def requested_s(fed: Federation) -> list[float]:
    times: list[float] = fed.ledger.frame("transfers")["requested_s"].tolist()
    return times


def test_the_pause_between_attempts_doubles() -> None:
    """Four attempts, each of 320 us, with pauses of 1, 2 and 4 ms; the last loss is the value."""

    def flow(fed: Federation) -> Process:
        w = fed.initial_model()
        return (yield from fed.retry(lambda: fed.uplink(fed.device(0), w), attempts=4, pause_s=1e-3))

    sent, fed = play(flow, LOSSY)

    assert sent.lost == "erased"
    assert requested_s(fed) == pytest.approx([0, 1.32e-3, 3.64e-3, 7.96e-3], abs=1e-12)


def test_of_many_sends_only_the_lost_ones_are_sent_again() -> None:
    """They are sent again together when all have ended, without a pause if it is 0; values are in the order given."""
    calls: list[int] = []

    def flow(fed: Federation) -> Process:
        w = fed.initial_model()

        def send(place: int) -> Any:
            calls.append(place)
            return fed.uplink(fed.device(place), w) if place != 1 or calls.count(1) == 3 else lost()

        def lost() -> Any:
            return fed.start(fails(fed))

        return (yield from fed.retry([lambda place=place: send(place) for place in range(3)], attempts=5, pause_s=0))

    def fails(fed: Federation) -> Process:
        yield fed.sleep(1.0)
        return (yield fed.uplink(fed.device(1), None, 1))._replace(lost="dropped")

    values, fed = play(flow)

    assert calls == [0, 1, 2, 1, 1]
    assert [value.sender for value in values] == [0, 1, 2]
    assert not any(value.lost for value in values)
    assert fed.now_s == pytest.approx(2 * (1 + 1e-6) + MODEL_S)


def test_a_deadline_stops_the_attempts() -> None:
    """Once cancelled, on the air or in a pause, nothing is sent again, and the ledger accounts for all of it."""

    def device(fed: Federation, k: int, pause_s: float) -> Process:
        w = fed.initial_model()
        return (yield from fed.retry(lambda: fed.uplink(fed.device(k), w, 500_000), pause_s=pause_s))

    def flow(fed: Federation) -> Process:
        values = yield fed.gather((device(fed, 0, 0.0), device(fed, 1, 60.0)), deadline_s=2.1)
        yield fed.sleep(1000)
        return values

    values, fed = play(flow, LOSSY)

    assert [value.lost for value in values] == ["deadline", "deadline"]
    assert max(requested_s(fed)) < 2.1
    assert len(requested_s(fed)) == 5  # 0.5 s each: four of the one device take turns with one of the other
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())


@pytest.mark.parametrize(("to_the_gone", "attempts"), [(True, 4), (False, 1)])
def test_who_is_gone_may_be_given_up(to_the_gone: bool, attempts: int) -> None:
    """A device that is away is tried again, or given up at once."""

    def flow(fed: Federation) -> Process:
        yield fed.sleep(1.0)
        w = fed.initial_model()
        send = lambda: fed.uplink(fed.device(0), w)  # noqa: E731
        return (yield from fed.retry(send, attempts=4, pause_s=1.0, to_the_gone=to_the_gone))

    sent, fed = play(flow, "devices.availability={kind: windows, devices: {0: [[0, 0.5]]}}")

    assert sent.lost == "away"
    assert len(requested_s(fed)) == attempts


def test_the_failure_of_an_attempt_is_that_of_the_whole() -> None:
    """A mistake in what is sent is raised where it is waited for."""

    def wrong(_fed: Federation) -> Process:
        raise RuntimeError("no such thing")
        yield

    def flow(fed: Federation) -> Process:
        return (yield from fed.retry(lambda: fed.start(wrong(fed))))

    with pytest.raises(RuntimeError, match="no such thing"):
        play(flow)


def test_expected_rates_are_those_of_the_mean_snr() -> None:
    """Shannon's law at the mean SNR of the link: that of a transfer without fading, whatever the fading is."""
    law = "{kind: shannon, gap_db: 0, max_efficiency_bps_hz: null, min_efficiency_bps_hz: 0}"
    radio = f"channel={{include: urban-micro, fading: none, rate: {law}}}"
    still, fading = small_federation(radio), small_federation(radio, "channel.fading=rayleigh")

    def flow(fed: Federation) -> Process:
        up = yield fed.uplink(fed.device(2), None, 10**6)
        down = yield fed.downlink(fed.device(2), None, 10**6)
        return up, down

    (up, down), _ = play(flow, radio)
    k = still.device(2)
    rate_bps = still.network.uplink.band.bandwidth_hz * math.log2(1 + still.network.up_links.snr(2, -1))

    assert k.expected_rate_bps == pytest.approx(rate_bps)
    assert k.expected_rate_bps == pytest.approx(1e6 / up.latency_s, rel=1e-6)
    assert k.expected_downlink_rate_bps == pytest.approx(1e6 / down.latency_s, rel=1e-6)
    assert fading.device(2).expected_rate_bps == k.expected_rate_bps


CELLS = "network.cells={kind: hexagonal, rings: 1, inter_site_distance_m: 300}"


@pytest.mark.parametrize("network", ["network.uplink.access=tdma", CELLS, "network.uplink.access=noma"])
def test_expected_rates_are_those_at_the_station_that_serves(network: str) -> None:
    """In either direction a message that is alone takes its bits over the rate, whichever base station serves."""
    fed = small_federation("channel={include: urban-micro, fading: none}", "devices.count=6", network)
    numbers = np.array([3, 0, 5, 2])
    up_bps, down_bps = (fed.network.expected_bps(numbers, down=down) for down in (False, True))

    def alone():
        took_s = []
        for number in numbers.tolist():
            up = yield fed.uplink(fed.device(number), None, size_bit=10**7)
            down = yield fed.downlink(fed.device(number), None, size_bit=10**7)
            took_s.append((up.latency_s, down.latency_s))
        return np.array(took_s)

    took_s = fed.clock.run_process(alone())
    assert np.stack([up_bps, down_bps], axis=1) == pytest.approx(1e7 / took_s, rel=1e-6)
    assert up_bps.tolist() == [fed.device(number).expected_rate_bps for number in numbers]


def test_the_expected_rate_of_a_fixed_link_is_its_rate() -> None:
    """1 Mbit/s in the small federation, both ways."""
    k = small_federation().device(0)

    assert k.expected_rate_bps == k.expected_downlink_rate_bps == 1e6


def test_an_attempt_may_begin_when_patience_ends() -> None:
    """No later than that, but then."""

    def flow(fed: Federation) -> Process:
        w = fed.initial_model()
        return (yield from fed.retry(lambda: fed.uplink(fed.device(0), w), pause_s=0.5, patience_s=MODEL_S + 0.5))

    _, fed = play(flow, LOSSY)

    assert requested_s(fed) == pytest.approx([0, 0.5 + MODEL_S], abs=1e-12)


def test_a_wait_for_the_next_pass_is_no_attempt() -> None:
    """A satellite sets at 0.5 s amid the first of two attempts: after its return at 7 s two attempts are left."""
    reasons, clock = iter(["left", "erased", ""]), Clock()
    presence = Presence(Foreseen(devices={0: ((0.0, 0.5), (7.0, 99.0))}), 0, 1)

    def attempt() -> Process:
        now_s = clock.now_s
        yield clock.sleep(1.0)
        return Delivery(0, -1, "payload", 8, now_s, now_s, now_s + 1.0, next(reasons))

    send = lambda: clock.process(attempt())  # noqa: E731
    found = clock.run_process(retrying(clock, send, 2, 0.0, 100.0, to_the_gone=False, moving=True, presence=presence))

    assert (found.lost, found.requested_s, clock.now_s) == ("", 8.0, 9.0)


# ---- out of reach ----------------------------------------------------------------------------------------------------

FAR = (
    "channel={include: urban-micro, path_loss: {kind: log-distance, exponent: 3.76, reference_loss_db: 35.3}, "
    "shadowing: none}",
    "devices.placement={kind: list, xy_m: [[50000, 0], [30, 0], [0, 30], [-30, 0]]}",
    "devices.region={kind: disc, radius_m: 60000}",
)


def far_upload(fed: Federation) -> Process:
    """Send from the device that is 50 km away, for two minutes at most."""
    w = fed.initial_model()
    return (yield from fed.retry(lambda: fed.uplink(fed.device(0), w), patience_s=120.0))


def test_where_nobody_moves_a_device_out_of_reach_is_sent_to_once() -> None:
    """Its link never changes: a second later it is given up, whatever the patience."""
    delivery, fed = play(far_upload, *FAR)

    assert (delivery.lost, fed.clock.now_s, requested_s(fed)) == ("unreachable", 1.0, [0.0])


def test_who_moves_may_come_back_and_is_sent_to_again() -> None:
    """Each attempt takes a second, and pauses double from 1 ms: no two begin in one instant, and patience ends."""
    moving = "devices.mobility={kind: gauss-markov, mean_speed_m_s: 0.001, speed_sigma_m_s: 0}"
    delivery, fed = play(far_upload, *FAR, moving)

    begun_s = np.array(requested_s(fed))
    assert delivery.lost == "unreachable"
    assert np.diff(begun_s) == pytest.approx(1.0 + 1e-3 * 2.0 ** np.arange(len(begun_s) - 1))
    assert begun_s[-1] <= 120.0


def test_a_path_that_is_too_long_to_connect_is_tried_once() -> None:
    """It stays so: after the 20 s of the first attempt the message is given up, and the scenario says so before."""
    long = ("network.transport={kind: tcp, rtt_s: 10}", "network.session=grpc", "network.downlink.mode=unicast")
    delivery, fed = play(far_upload, *long)

    assert (delivery.lost, fed.clock.now_s, requested_s(fed)) == ("connect", 20.0, [0.0])
    assert small_scenario(*long).losses() == ["network.session: grpc that never connects"]
