"""Sums of updates, secret ones too."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import exp1

from fednet_emu.federation import Deferred, Device, Federation, Process, accumulated, mean_update
from fednet_emu.federation.secure_sums import PRIME, SecureMean, agreed, levels, mask, opened, shares
from fednet_emu.federation.sums import NoisyMean
from fednet_emu.kernel.streams import Streams, uniform
from fednet_emu.network.secure_aggregation import Bonawitz, SecAggPlus
from fednet_emu.records.laws import verify
from fednet_emu.records.ledger import SERVER
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import assert_it_goes_on
from tests.quick import crossed, examples

KNOWN = [  # n, m, bits of keys, shares, vector, expansion over 16 bit an entry; the first two as the abstract prints
    (1024, 1048576, 524288, 1309696, 27262976, 1.7343),
    (16384, 16777216, 8388608, 20970496, 503316480, 1.9844),
    (100, 2410, 51200, 126976, 55430, 6.0582),
    (20, 2410, 10240, 24576, 50610, 2.2154),
    (100, 1663370, 51200, 126976, 38257510, 1.4442),
    (1000, 100000, 512000, 1278976, 2600000, 2.7444),
]
SPARSE = [  # n, corrupt, dropout, k, t
    (100, 0.05, 0.05, 12, 6),
    (100, 0.1, 0.1, 22, 11),
    (100, 0.2, 0.05, 24, 19),
    (100, 0.3333, 0.05, 34, 29),
    (500, 0.05, 0.05, 30, 16),
    (500, 0.3333, 0.05, 74, 56),
    (1000, 0.05, 0.05, 34, 18),
    (1000, 0.2, 0.05, 58, 39),
    (10000, 0.05, 0.05, 38, 21),
    (10000, 0.2, 0.05, 68, 46),
    pytest.param(100000, 0.3333, 0.05, 112, 82, marks=pytest.mark.slow),
]
FEDAVG = "algorithm={kind: fedavg, cohort: 4, lr: 0.1, local_steps: 1, batch_size: null, weighting: uniform}"
SECURE = "network.uplink.secure_aggregation={kind: bonawitz}"
REAL = "network.uplink.secure_aggregation.masks=real"
RULES = (SECURE, "network.uplink.secure_aggregation={kind: secagg-plus, neighbours: 2, threshold: 2}")
ADAPTIVE = "algorithm.aggregation={kind: dp, clip_norm: 1, noise_multiplier: 0.1, adaptive: {}}"


@pytest.mark.parametrize(("n", "m", "keys", "vector_shares", "vector", "expansion"), KNOWN)
def test_sizes_are_those_that_the_paper_prints(n, m, keys, vector_shares, vector, expansion):
    """Each device sends and receives 2 n keys, 5 n - 4 shares and its vector: 1.73 and 1.98 times as much as openly."""
    total = Bonawitz().total_bit(n, m)
    assert total == keys + vector_shares + vector
    assert total / (16 * m) == pytest.approx(expansion, abs=5e-5)


@pytest.mark.parametrize(("n", "corrupt", "dropout", "k", "t"), SPARSE)
def test_neighbours_of_the_sparse_graph(n, corrupt, dropout, k, t):
    """As another program found them; for few devices, bits by hand."""
    rule = SecAggPlus(corrupt=corrupt, dropout=dropout)
    assert rule.sized(n) == (k, t)
    assert n > 1000 or rule.total_bit(n, 10) == 512 * (k + 1) + 256 * (5 * k + 1) + 10 * rule.entry_bit(n)


@examples(40)
@given(st.integers(3, 40), st.integers(1, 6), st.integers(0, 10**6))
def test_the_graph_is_regular_and_mutual(n, half, seed):
    """Each device has k neighbours, or all others, and is theirs."""
    rule = SecAggPlus(neighbours=2 * half)
    graph, (k, _) = rule.graph(n, np.random.default_rng(seed)), rule.sized(n)
    assert all(len(others) == k == min(2 * half, n - 1) and i not in others for i, others in enumerate(graph))
    assert all(i in graph[j] for i, others in enumerate(graph) for j in others)


@examples(40)
@given(st.integers(0, PRIME - 1), st.integers(2, 6))
def test_any_threshold_of_shares_opens_a_secret_and_one_less_does_not(secret, threshold):
    """Lagrange's polynomial at 0, over all choices of holders."""
    known = shares(secret, range(6), threshold)
    assert all(opened({j: known[j] for j in some}) == secret for some in combinations(range(6), threshold))
    assert opened({j: known[j] for j in range(threshold - 1)}) != secret


def test_two_devices_agree_and_masks_fill_all_bits():
    """The secret is the same from both ends; a mask of 24 bits has mean 2^23."""
    assert agreed(12345, 67890) == agreed(67890, 12345)
    drawn = mask(7, 40_000, 24)
    assert drawn.max() < 2**24
    assert drawn.mean() == pytest.approx(2**23, rel=0.02)


@pytest.mark.parametrize(
    ("lost", "answers", "total"), [((), range(5), 15_000), ((2,), (0, 1, 3, 4), 12_000), ((3, 4), (0, 1, 2), 6_000)]
)
def test_the_toy_of_five(lost, answers, total):
    """Vectors (k + 1)(1000, 2000, 3000, 4000) of five devices, threshold 3: sums of those that have come, by hand."""
    rule = Bonawitz(threshold=3, input_bits=20, clip=524_287.0, masks="real")
    graph = dict(enumerate(rule.graph(5, np.random.default_rng(0))))
    came, own = [k for k in range(5) if k not in lost], torch.tensor([1e3, 2e3, 3e3, 4e3], dtype=torch.float64)
    mean = SecureMean(rule, graph, came, frozenset(answers), 3, Streams(0), 1)
    found = accumulated(mean(torch.zeros(4, dtype=torch.float64), [1.0] * len(came)), [(k + 1) * own for k in came])

    assert (found * len(came)).tolist() == pytest.approx([total * part for part in (1, 2, 3, 4)], abs=1e-6)


def test_a_masked_vector_tells_nothing_and_fewer_shares_open_nothing():
    """Entries of one masked vector are spread over all values; with two shares of three the sum stays noise."""
    rule = Bonawitz(threshold=3, masks="real")
    graph = dict(enumerate(rule.graph(5, np.random.default_rng(0))))
    mean = SecureMean(rule, graph, range(5), frozenset(range(5)), 3, Streams(0), 1)
    hidden = (mean.masks_of(0, 50_000) & np.uint64(2**mean.bit - 1)) / 2.0**mean.bit
    assert np.histogram(hidden, 10, (0, 1))[0] == pytest.approx(5_000, rel=0.07)

    w = torch.zeros(1000)
    few = SecureMean(rule, graph, range(5), frozenset(range(2)), 3, Streams(0), 1)
    opened_, closed = (accumulated(m(w, [1.0] * 5), [w + 0.5] * 5) for m in (mean, few))
    assert opened_.std() < 1e-6
    assert closed.std() > 0.2


@examples(60)
@given(st.integers(0, 10**6), st.integers(2, 20), st.floats(0.01, 10))
def test_rounding_never_lets_an_update_grow_and_errs_by_a_step_at_most(seed, bits, clip):
    """What is read is no larger than what was meant, within one step, and cut at the clip; zero is zero."""
    rule = Bonawitz(input_bits=bits, clip=clip)
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=50)) * clip
    read = (levels(x, rule).astype(np.int64) - rule.largest) * (clip / rule.largest)
    cut = x.clamp(-clip, clip).numpy()
    assert (np.abs(read) <= np.abs(cut) * (1 + 1e-12)).all()
    assert (np.abs(read - cut) <= clip / rule.largest * (1 + 1e-9)).all()
    assert (levels(torch.zeros(3), rule) == rule.largest).all()


def test_a_round_by_hand():
    """Four devices, ten entries, 1 Mbit/s in turns: 25,296 bit and as many us, beside the model's way and a step."""
    fed = run_small(FEDAVG, SECURE, "network.downlink.mode=unicast", "stop.rounds=1")
    sizes = fed.ledger.frame("transfers").groupby("direction", observed=True)["size_bit"]
    up, down = sizes.get_group("uplink").tolist(), sizes.get_group("downlink").tolist()

    assert up == [512] * 4 + [1536] * 4 + [180] * 4 + [1024] * 4
    assert down == [1536] * 8 + [320] * 4
    assert sum(up) + sum(down) - 4 * 320 == 25_296
    assert [(row["step"], row["asked"], row["arrived"]) for row in fed.ledger.series["secure_aggregation"]] == [
        (step, 4, 4) for step in ("keys", "shares", "vectors", "unmask")
    ]
    open_s = 4 * 320e-6 + 720e-6  # the last device receives the model and makes a step; the others send meanwhile
    vectors_s = fed.now_s - (25_296 - 4 * 180) * 1e-6
    assert vectors_s == pytest.approx(open_s + 180e-6, abs=1e-9)


def test_keys_are_broadcast_once():
    """With a broadcast downlink: 2 n keys for all together; the clock without training is the same."""
    settings_ = (FEDAVG, SECURE, "stop.rounds=2")
    fed, timed = run_small(*settings_), run_small(*settings_, timing_only=True)
    down = fed.ledger.frame("transfers").query("direction == 'downlink'")["size_bit"].tolist()
    assert down[:5] == [2048, 1536, 1536, 1536, 1536]
    assert timed.ledger.event_digest() == fed.ledger.event_digest()


@pytest.mark.parametrize("rule", RULES)
def test_without_losses_it_is_federated_averaging(rule):
    """To the rounding of 16 bits; with real masks to the last bit of that without."""
    models = [fed.read(fed.latest) for fed in (run_small(FEDAVG, *more) for more in ((), (rule,), (rule, REAL)))]
    assert torch.allclose(models[0], models[1], atol=3 * 2 / 2**16)
    assert not torch.equal(models[0], models[1])
    assert torch.equal(models[1], models[2])


FAULTS = {
    "loss": (
        "network.uplink.message_loss={kind: random, probability: 0.1}",
        "network.downlink.message_loss={kind: random, probability: 0.05}",
    ),
    "a deadline": ("devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 10]}", "algorithm.deadline_s=1"),
    "departures": ("devices.availability={kind: periodic, on_s: 0.03, off_s: 0.01}",),
}


@pytest.mark.parametrize(("rule", "fault"), crossed(RULES, FAULTS))
def test_drop_outs_leave_the_sum_of_the_others(rule, fault):
    """Laws hold, real masks cancel to the last bit, engines and no training have one clock."""
    faults = [more.replace("1e6, 10]", "1e6, 1e6, 1e6, 10]") for more in FAULTS[fault]]
    settings_ = (FEDAVG, "devices.count=6", "algorithm.cohort=6", rule, "stop.rounds=12", *faults)
    fed, batched = run_small(*settings_), run_small(*settings_, "training.engine=batched")
    timed, real = run_small(*settings_, timing_only=True), run_small(*settings_, REAL)

    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())
    assert len({run.ledger.event_digest() for run in (fed, batched, timed, real)}) == 1
    assert torch.equal(fed.read(fed.latest), real.read(real.latest))
    assert torch.allclose(fed.read(fed.latest), batched.read(batched.latest), atol=1e-4)
    steps = pd.DataFrame(fed.ledger.series["secure_aggregation"])
    vectors, shared = steps[steps["step"] == "vectors"], steps[steps["step"] == "shares"].set_index("round")["arrived"]
    widths = vectors["round"].map(shared).map(Bonawitz().entry_bit)
    assert (vectors["arrived_bit"] == vectors["arrived"] * 10 * widths).all()
    assert (vectors["arrived"] < vectors["asked"]).any() or fault == "departures"
    arrived = fed.ledger.frame("rounds")["arrived"]
    assert arrived.max() > 0
    assert ((arrived == 0) | (arrived >= 2)).all()


@pytest.mark.parametrize(("mode", "keys"), [("broadcast", [1536]), ("unicast", [1024] * 3)])
def test_who_leaves_before_its_keys_have_come_is_left_out_of_all_that_follows(mode, keys):
    """Three of four go on: keys of three, two shares each way, entries of 18 bit, shares of three secrets; by hand."""
    leaves = "devices.availability={kind: windows, devices: {3: [[0, 0.001]]}}"
    fed = run_small(FEDAVG, SECURE, leaves, f"network.downlink.mode={mode}", "stop.rounds=1")
    sent = fed.ledger.frame("transfers")
    up, down = sent[sent["direction"] == "uplink"], sent[sent["direction"] == "downlink"]
    model = [320] * (1 if mode == "broadcast" else 3)

    assert up[up["loss_reason"] == ""]["size_bit"].tolist() == [512] * 3 + [1024] * 3 + [180] * 3 + [768] * 3
    assert sorted(down["size_bit"]) == sorted([*keys, *[1024] * 3, *model])
    assert fed.ledger.rounds.column("arrived").tolist() == [3]


def test_each_attempt_has_its_own_graph_and_secrets(monkeypatch):
    """What one round reveals must not help in the next."""
    drawn, draw = [], SecAggPlus.graph

    def graph(rule, n, rng):
        drawn.append(draw(rule, n, rng))
        return drawn[-1]

    monkeypatch.setattr(SecAggPlus, "graph", graph)
    run_small(FEDAVG, "devices.count=12", "algorithm.cohort=12", "data.n_samples=240", RULES[1])
    assert drawn[0] != drawn[1] != drawn[2]
    of_three = dict(enumerate(Bonawitz().graph(3, np.random.default_rng(0))))
    one, two = (SecureMean(Bonawitz(), of_three, range(3), frozenset(range(3)), 2, Streams(0), n) for n in (1, 2))
    assert {one.secret(what, 0) for what in ("key", "own")}.isdisjoint(two.secret(what, 0) for what in ("key", "own"))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("deadline_s", "more"),
    [
        *((deadline_s, ()) for deadline_s in (1e-5, 5e-4, 2e-3, 3e-3, 5e-3)),
        *((0.05, (f"network.transport={kind}",)) for kind in ("tcp", "quic")),
        (
            0.005,
            (
                "devices={count: 4, profile: pi-4b}",
                "channel={carrier_hz: 3.5e+9, bandwidth_hz: 2e+7, path_loss: free-space, shadowing: none}",
                "network.uplink.access=nr-grants",
            ),
        ),
    ],
)
def test_a_deadline_in_any_step_ends_the_round(deadline_s, more, rule):
    """In keys or shares, on their way up or down; for all devices or one of four: the next round begins at once."""
    fed = run_small(FEDAVG, rule, f"algorithm.deadline_s={deadline_s}", "stop.rounds=3", *more)
    rounds = fed.ledger.frame("rounds")

    assert rounds["arrived"].tolist() == [0, 0, 0]
    assert rounds["started_s"].tolist() == pytest.approx([0, deadline_s, 2 * deadline_s])
    assert {row["step"] for row in fed.ledger.series["secure_aggregation"]} <= {"keys", "shares", "vectors"}
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())


def test_every_round_has_its_deadline():
    """With a device that is late, the last step begins a second after each round, not later."""
    fed = run_small(FEDAVG, SECURE, *FAULTS["a deadline"], "stop.rounds=3")
    began_s = [row["started_s"] for row in fed.ledger.series["secure_aggregation"] if row["step"] == "unmask"]
    assert began_s == pytest.approx(fed.ledger.frame("rounds")["started_s"].to_numpy() + 1)


def test_too_few_end_the_attempt_and_leave_the_model():
    """Of four, two are too slow for the deadline: all bits are spent, nothing arrives."""
    slow = ("devices.speed={kind: list, flop_per_s: [1e6, 1e6, 10, 10]}", "algorithm.deadline_s=1", "stop.rounds=2")
    fed = run_small(FEDAVG, SECURE, *slow)
    assert fed.ledger.rounds.column("arrived").tolist() == [0, 0]
    assert torch.equal(fed.read(fed.latest), fed.task.model.initial())
    assert [row["step"] for row in fed.ledger.series["secure_aggregation"]] == ["keys", "shares", "vectors"] * 2
    assert fed.ledger.series["secure_aggregation"][2]["arrived"] == 2


def test_the_server_expands_the_masks_of_who_is_lost():
    """One of four is late: 3 masks of those that came and 3 in common with the late one, of 10 entries each."""
    slow = ("devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 10]}", "algorithm.deadline_s=1", "stop.rounds=1")
    work = ("server={flop_per_s: 1e3}", "network.uplink.secure_aggregation.prg_flop_per_entry=2")
    fed, free = run_small(FEDAVG, SECURE, *slow, *work), run_small(FEDAVG, SECURE, *slow)
    assert fed.ledger.rounds.column("arrived").tolist() == [3]
    assert fed.now_s - free.now_s == pytest.approx(6 * 10 * 2 / 1e3)


def test_it_goes_on_from_a_checkpoint_file():
    """With central noise and a sparse graph."""
    noise = "algorithm.aggregation={kind: dp, clip_norm: 0.3, noise_multiplier: 0.1}"
    assert_it_goes_on(FEDAVG, "algorithm.selection=poisson", noise, RULES[1], *FAULTS["loss"], "stop.rounds=3")


@pytest.mark.parametrize("rule", ["dp", "local-dp"])
def test_central_and_local_noise_go_with_it(rule):
    """Clipped by the devices, summed in the dark, noise as without it: models differ by the rounding only."""
    noise = f"algorithm.aggregation={{kind: {rule}, clip_norm: 0.3, noise_multiplier: 0.1}}"
    runs = [run_small(FEDAVG, "algorithm.selection=all", noise, *more) for more in ((), (SECURE,))]
    models = [run.read(run.latest) for run in runs]
    assert torch.allclose(*models, atol=3 * 2 / 2**16)


AIR = "network.uplink.access={kind: over-the-air, slot_s: 0.001, symbols_per_slot: 4, cutoff: 0.2}"
FADING = "channel.fading={kind: rayleigh, coherence_s: 0.01}"
DIFFERENT = "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 2e5]}"
"""A model of ten entries takes three slots of four; one step takes 720 us, on the last device 3.6 ms."""
DOWN_S = 320e-6


def uplinks(fed: Federation):
    assert not any(verify(fed.ledger, frozenset({"downlink"})).values())
    transfers = fed.ledger.frame("transfers")
    return transfers[transfers["direction"] == "uplink"].reset_index(drop=True)


def final(fed: Federation) -> torch.Tensor:
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
    rows, rounds = uplinks(fed), fed.ledger.frame("rounds")

    assert rows["sender"].tolist() == [0, 1, 2]
    assert rows["started_s"].to_numpy() == pytest.approx(np.full(3, 2e-3))
    assert (rounds["invited"][0], rounds["arrived"][0]) == (4, 3)
    assert rounds["ended_s"][0] == pytest.approx(5e-3)


def test_who_leaves_in_the_middle_of_a_burst_is_left_out() -> None:
    """Device 1 leaves in the burst, device 2 before it: they are lost for "left" and "away"."""
    windows = "{1: [[0, 0.002], [9, 10]], 2: [[0, 0.0015], [9, 10]]}"
    slow = "devices.speed={kind: list, flop_per_s: [4.5e5, 1e6, 1e6, 1e6]}"  # ready at 1.92 ms
    fed = run_small(AIR, slow, "stop.rounds=1", f"devices.availability={{kind: windows, devices: {windows}}}")
    rows = uplinks(fed)

    assert dict(zip(rows["sender"], rows["loss_reason"], strict=True)) == {0: "", 1: "left", 2: "away", 3: ""}
    assert fed.ledger.series["over_the_air"][0]["summed"] == 2
    assert fed.ledger.rounds.column("arrived").tolist() == [2]


def test_who_leaves_has_sent_what_the_slots_until_then_carry() -> None:
    """The burst of 3 ms and 320 bit begins at 1.92 ms; a device that leaves at 2.67 ms has sent a quarter of it."""
    slow = "devices.speed={kind: list, flop_per_s: [4.5e5, 1e6, 1e6, 1e6]}"
    away = "devices.availability={kind: windows, devices: {1: [[0, 0.00267], [9, 10]]}}"
    rows = uplinks(run_small(AIR, slow, "stop.rounds=1", away))

    assert dict(zip(rows["sender"], rows["transmitted_bit"], strict=True)) == pytest.approx(
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
        assert (row.loss_reason == "outage") == (gain < 0.2)
        assert row.energy_j == pytest.approx(0.0 if row.loss_reason else due_j, rel=1e-4)
    assert 0 < (rows["loss_reason"] == "outage").sum() < 40


def test_the_mean_is_over_those_that_have_sent() -> None:
    """A round in which devices are silent, with next to no noise: the mean of the others alone, weighted, by hand."""
    quiet = ("network.uplink.access.snr_db=120", "channel.device.tx_power_dbm=120", "stop.rounds=1")

    def n_sent(seed: int) -> int:
        return int(
            (uplinks(run_small(AIR, FADING, *quiet, f"seed={seed}", timing_only=True))["loss_reason"] == "").sum()
        )

    seed = next(seed for seed in range(50) if 0 < n_sent(seed) < 4)
    settings = (AIR, FADING, *quiet, f"seed={seed}")
    fed, alone = run_small(*settings), small_federation(*settings)
    arrived = uplinks(fed).query("loss_reason == ''")["sender"].tolist()
    w = alone.initial_model()
    plan = small_scenario(*settings).algorithm.plan
    models = [alone.read(alone.device(k).training(w, plan, 0).result.params) for k in arrived]
    weights = [alone.device(k).n_samples for k in arrived]

    assert torch.allclose(final(fed), w.value + accumulated(mean_update(w.value, weights), models), atol=1e-5)


def test_without_an_update_there_is_no_noise() -> None:
    """Bit for bit."""
    w = torch.randn(50, generator=torch.Generator().manual_seed(0))

    assert torch.equal(w + accumulated(NoisyMean([1.0, 1.0], 4.0, Streams(0), 1)(w, [1, 3]), [w, w]), w)


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
