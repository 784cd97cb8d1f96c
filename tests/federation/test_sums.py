"""Claims about sums of uploads: exact by digital access, in one noisy burst over the air, at exact times."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import exp1

from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Deferred, Device, Federation, Process, accumulated, mean_update
from fednet_emu.federation.sums import NoisyMean
from fednet_emu.kernel.streams import Streams, uniform
from fednet_emu.records.laws.verify import verify
from fednet_emu.records.ledger import SERVER
from fednet_emu.testing import run_small, small_federation, small_scenario

AIR = "network.uplink.access={kind: over-the-air, slot_s: 0.001, symbols_per_slot: 4, cutoff: 0.2}"
FADING = "channel.fading={kind: rayleigh, coherence_s: 0.01}"
DIFFERENT = "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 2e5]}"
"""A model of ten entries takes three slots of four; one step takes 720 us, on the last device 3.6 ms."""
DOWN_S = 320e-6


def uplinks(fed: Federation):
    """The rows of the uplink."""
    assert not any(verify(fed.ledger, frozenset({"downlink"})).values())
    transfers = fed.ledger.frames()["transfers"]
    return transfers[transfers["kind"] == "uplink"].reset_index(drop=True)


def final(fed: Federation) -> torch.Tensor:
    """The model at the end."""
    return fed.read(fed.latest)


@pytest.mark.parametrize("timing_only", [False, True])
def test_all_send_in_one_burst_when_the_last_is_ready(timing_only) -> None:
    """Whoever is ready earlier waits; the burst takes three slots, and each device has a row of its own."""
    fed = run_small(AIR, DIFFERENT, "stop.rounds=1", timing_only=timing_only)
    rows = uplinks(fed)

    assert rows["sender"].tolist() == [0, 1, 2, 3]
    assert rows["started_s"].to_numpy() == pytest.approx(np.full(4, DOWN_S + 3.6e-3))
    assert rows["ended_s"].to_numpy() == pytest.approx(np.full(4, DOWN_S + 6.6e-3))
    assert rows["size_bit"].tolist() == rows["delivered_bit"].tolist() == [320] * 4
    assert fed.ledger.series["over_the_air"][0] | {"snr": 0, "relative_error": 0} == {
        "round": 1, "simulated_s": pytest.approx(DOWN_S + 6.6e-3),
        "ready": 4, "summed": 4, "burst_s": 0.003, "snr": 0, "relative_error": 0,
    }  # fmt: skip


def test_who_is_not_ready_at_the_last_moment_is_left_out() -> None:
    """With 5 ms for the round the burst starts at 2 ms, without the slow device, and ends with the deadline."""
    fed = run_small(AIR, DIFFERENT, "stop.rounds=1", "algorithm.deadline_s=0.005")
    rows, rounds = uplinks(fed), fed.ledger.frames()["rounds"]

    assert rows["sender"].tolist() == [0, 1, 2]
    assert rows["started_s"].to_numpy() == pytest.approx(np.full(3, 2e-3))
    assert (rounds["invited"][0], rounds["arrived"][0]) == (4, 3)
    assert rounds["ended_s"][0] == pytest.approx(5e-3)


def test_a_deadline_within_the_burst_is_refused() -> None:
    """Nobody could ever be in time."""
    with pytest.raises(ScenarioError, match=r"algorithm\.deadline_s: is over before a burst of 10 entries"):
        run_small(AIR, "algorithm.deadline_s=0.003")


def test_who_leaves_in_the_middle_of_a_burst_is_left_out() -> None:
    """Device 1 leaves in the burst, device 2 before it: they are lost for "left" and "away"."""
    windows = "{1: [[0, 0.002], [9, 10]], 2: [[0, 0.0015], [9, 10]]}"
    slow = "devices.speed={kind: list, flop_per_s: [4.5e5, 1e6, 1e6, 1e6]}"  # ready at 1.92 ms
    fed = run_small(AIR, slow, "stop.rounds=1", f"devices.availability={{kind: windows, devices: {windows}}}")
    rows = uplinks(fed)

    assert dict(zip(rows["sender"], rows["lost"], strict=True)) == {0: "", 1: "left", 2: "away", 3: ""}
    assert fed.ledger.series["over_the_air"][0]["summed"] == 2
    assert fed.ledger.rounds.column("arrived").tolist() == [2]


def test_who_leaves_has_sent_what_the_slots_until_then_carry() -> None:
    """The burst of 3 ms and 320 bit begins at 1.92 ms; a device that leaves at 2.67 ms has sent a quarter of it."""
    slow = "devices.speed={kind: list, flop_per_s: [4.5e5, 1e6, 1e6, 1e6]}"
    away = "devices.availability={kind: windows, devices: {1: [[0, 0.00267], [9, 10]]}}"
    rows = uplinks(run_small(AIR, slow, "stop.rounds=1", away))

    assert dict(zip(rows["sender"], rows["air_bit"], strict=True)) == pytest.approx(
        {0: 320, 1: 80, 2: 320, 3: 320}, abs=0.1
    )


def test_energy_is_that_of_the_inverted_channels() -> None:
    """Each row costs the power that its gain asks for, over the amplifier's efficiency, for three slots."""
    fed = run_small(AIR, FADING, "stop.rounds=20", timing_only=True)
    rows, channel, links = uplinks(fed), small_scenario(AIR, FADING).channel, fed.network.up_links
    eta = links.mean_snr.min() / exp1(0.2)
    device = channel.device
    for row in rows.itertuples():
        block = int(row.requested_s / 0.01 + 1e-9)
        gain = -math.log1p(-uniform(links.fading_key(row.sender, SERVER), block))
        radiated_w = device.tx_power_w * eta / (links.mean_snr[row.sender] * gain)
        due_j = radiated_w / (device.amplifier_efficiency or 1.0) * 0.003
        assert (row.lost == "outage") == (gain < 0.2)
        assert row.energy_j == pytest.approx(0.0 if row.lost else due_j, rel=1e-4)
    assert 0 < (rows["lost"] == "outage").sum() < 40


def test_the_mean_is_over_those_that_have_sent() -> None:
    """A round in which devices are silent, with next to no noise: the mean of the others alone, weighted, by hand."""
    quiet = ("network.uplink.access.snr_db=120", "channel.device.tx_power_dbm=120", "stop.rounds=1")

    def n_sent(seed: int) -> int:
        return int((uplinks(run_small(AIR, FADING, *quiet, f"seed={seed}", timing_only=True))["lost"] == "").sum())

    seed = next(seed for seed in range(50) if 0 < n_sent(seed) < 4)
    settings = (AIR, FADING, *quiet, f"seed={seed}")
    fed, alone = run_small(*settings), small_federation(*settings)
    arrived = uplinks(fed).query("lost == ''")["sender"].tolist()
    w = alone.initial_model()
    plan = small_scenario(*settings).algorithm.plan
    models = [alone.read(alone.device(k).training(w, plan, 0).result.params) for k in arrived]
    weights = [alone.device(k).n_samples for k in arrived]

    assert torch.allclose(final(fed), w.value + accumulated(mean_update(w.value, weights), models), atol=1e-5)


def test_the_error_of_an_entry_is_the_closed_form() -> None:
    """K vectors of unit power and equal weight: noise of variance sigma^2 / (eta K^2) in every entry of the mean."""
    k, snr, n = 10, 10.0, 100_000
    signs = [torch.from_numpy(Streams(1)("signs", j).choice([-1.0, 1.0], n)).float() for j in range(k)]
    w = torch.zeros(n)
    exact = accumulated(mean_update(w, [1] * k), signs)
    read = accumulated(NoisyMean([1.0] * k, snr, Streams(0), 1)(w, [1] * k), signs)
    error = (read - exact).double()

    assert error.square().mean().item() == pytest.approx(1 / (snr * k**2), rel=0.03)
    assert abs(error.mean().item()) < 5 * math.sqrt(1e-3 / n)


def test_noise_is_relative_to_the_strongest_signal() -> None:
    """Twice the update or twice all weights has twice the noise, or the same; no update has none, bit for bit."""
    w, moved = torch.randn(50, generator=torch.Generator().manual_seed(0)), torch.ones(50)
    mean = NoisyMean([1.0, 1.0], 4.0, Streams(0), 1)

    def noise(size: float, weights: list[float]) -> torch.Tensor:
        return accumulated(mean(w, weights), [w + size * moved, w]) - size * weights[0] / sum(weights)

    assert torch.allclose(noise(2.0, [1, 3]), 2 * noise(1.0, [1, 3]), atol=1e-5)
    assert torch.allclose(noise(1.0, [2, 6]), noise(1.0, [1, 3]), atol=1e-5)
    assert noise(1.0, [1, 3]).std() > 0.1
    assert torch.equal(w + accumulated(mean(w, [1, 3]), [w, w]), w)


@pytest.mark.parametrize("weights", [[1.0, 4.0], [4.0, 1.0], [0.5, 0.5]])
def test_the_scale_of_the_noise_is_the_strongest_weighted_signal(weights: list[float]) -> None:
    """Updates of root mean square 3 and 1: noise of deviation max(3 p_1, p_2) / (P sqrt(snr)) in every entry."""
    w, snr = torch.zeros(100_000), 25.0
    mean = accumulated(NoisyMean([1.0, 1.0], snr, Streams(0), 1)(w, weights), [w + 3, w - 1])
    noise = mean - (3 * weights[0] - weights[1]) / sum(weights)
    due = max(3 * weights[0], weights[1]) / (sum(weights) * math.sqrt(snr))

    assert noise.double().std().item() == pytest.approx(due, rel=0.01)


def test_channels_are_misjudged_anew_in_every_burst() -> None:
    """The same update in two bursts of one block: another factor, with next to no noise; again in another run."""
    wrong = "network.uplink.access={kind: over-the-air, slot_s: 1e-3, symbols_per_slot: 4, csi_error: 0.2, snr_db: 120}"

    def factors() -> list[float]:
        fed = small_federation(wrong, "channel.device.tx_power_dbm=120")
        w, read = fed.initial_model(), []

        def client(fed: Federation, _k: Device, w: Deferred) -> Process:
            return fed.defer(torch.add, w, 1)
            yield

        def bursts() -> Process:
            for _ in range(2):
                arrived = yield from fed.exchange([fed.device(0)], w, client, sums=True)
                read.append(accumulated(arrived.mean(w.value, [1]), [w.value + 1])[0].item())

        fed.clock.run_process(bursts())
        return read

    first, second = factors()
    assert abs(first - second) > 1e-3
    assert factors() == [first, second]


def test_misaligned_signals_are_weighted_by_their_factors() -> None:
    """Factors 0.5 and 2 of updates 1 and 3, without noise to speak of: (0.5 + 6) / 2."""
    w = torch.zeros(4)
    mean = accumulated(NoisyMean([0.5, 2.0], 1e20, Streams(0), 1)(w, [1, 1]), [w + 1, w + 3])

    assert torch.allclose(mean, torch.full((4,), 3.25))


def test_the_noise_is_another_one_in_every_burst() -> None:
    """And the same in every run of one seed."""
    w = torch.zeros(100)
    first, again, second = (
        accumulated(NoisyMean([1.0], 1.0, Streams(0), burst)(w, [1]), [w + 1]) for burst in (1, 1, 2)
    )

    assert torch.equal(first, again)
    assert not torch.allclose(first, second, atol=0.1)


def test_the_gain_in_latency_over_ofdma_grows_linearly_with_the_devices() -> None:
    """Equal links: the burst takes the same time for 2, 4 or 8 devices, parts of the band in proportion to them."""
    ring = [[30.0 * math.cos(2 * math.pi * k / 8), 30.0 * math.sin(2 * math.pi * k / 8)] for k in range(8)]

    def uplink_s(access: str, count: int) -> float:
        fed = run_small(
            access,
            "channel.rate={kind: shannon, gap_db: 0, max_efficiency_bps_hz: 2.0, min_efficiency_bps_hz: 0}",
            f"devices.count={count}",
            f"devices.placement={{kind: list, xy_m: {ring[:count]}}}",
            f"algorithm.cohort={count}",
            "stop.rounds=1",
            timing_only=True,
        )
        rows = uplinks(fed)
        return float(rows["ended_s"].max() - rows["started_s"].min())

    air = [uplink_s(AIR, count) for count in (2, 4, 8)]
    parts = [uplink_s("network.uplink.access=ofdma", count) for count in (2, 4, 8)]

    assert air == pytest.approx([0.003] * 3)
    assert np.divide(parts, air) == pytest.approx(parts[0] / 0.003 * np.array([1, 2, 4]), rel=1e-3)


def test_an_upload_by_itself_is_refused() -> None:
    """An algorithm that asks for one learns that the uplink carries sums only."""
    fed = small_federation(AIR)

    with pytest.raises(ScenarioError, match=r"network\.uplink\.access: carries sums only"):
        fed.uplink(fed.device(0), fed.initial_model())


@pytest.mark.parametrize(
    ("settings", "key", "what"),
    [
        (("network.uplink.loss={kind: random, probability: 0.1}",), "uplink.loss", "no single packet can be lost"),
        (("network.uplink.compression=sign",), "uplink.compression", "every entry is an analogue symbol"),
        (("network.power_control={kind: open-loop, target_dbm: -80}",), "power_control", "invert"),
        (("network.cells={kind: list, xy_m: [[0, 0], [400, 0]]}",), "cells", "one server"),
    ],
)
def test_what_makes_no_sense_for_sums_is_refused_before_the_run(settings, key, what) -> None:
    """Packets, bits, other power control and other cells; the problem names the key and the reason."""
    found = {".".join(path): text for path, text in small_scenario(AIR, *settings).contradictions()}

    assert what in found[f"network.{key}"]
    assert "another access than over-the-air" in found[f"network.{key}"]
