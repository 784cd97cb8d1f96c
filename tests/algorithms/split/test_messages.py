"""Messages, bits and times: closed forms to the nanosecond and the bit, cuts, lost devices, refusals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fednet_emu as fe
from fednet_emu.algorithms.split.splitfed import CutLink
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import SgdPlan
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.learning.models.cuts import Cut, cuts_of
from fednet_emu.records.laws.verify import verify
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.split.oracle import UNEVEN, splitfed, timed, trained

BPS = 1e6
TURNS = frozenset({"uplink", "downlink"})


def sent(fed: Federation) -> pd.DataFrame:
    """The transfers of a run."""
    return fed.ledger.frames()["transfers"]


# ---- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "model", "cut", "up", "down"),
    [
        ("64", "{kind: mlp, hidden: [32, 16]}", 1, 1_689_600, 1_638_400),
        ("64", "{kind: mlp, hidden: [32, 16]}", 2, 870_400, 819_200),
        ("[1, 8, 8]", "{kind: digit-model, channels: [8, 8, 8], units: [16, 8]}", 2, 6_604_800, 6_553_600),
    ],
)
def test_bits_of_eighty_batches_of_twenty(sample: str, model: str, cut: int, up: int, down: int) -> None:
    """1,600 samples and a network of widths 64-32-16-10, or of eight channels pooled to 4 x 4: 160 messages."""
    fed = timed(
        f"data={{kind: synthetic, features: {sample}, classes: 10, n_samples: 1600, n_test: 10}}",
        *("devices.count=1", f"model={model}", "server.flop_per_s=1e9", "stop.rounds=1"),
        splitfed("v1", cohort=1, cut=cut, batch_size=20, local_epochs=1),
    )
    batches = sent(fed).iloc[1:-1]
    ways = [batches[batches["receiver"] == end] for end in (-1, 0)]

    assert len(batches) == 160
    assert [int(way["size_bit"].sum()) for way in ways] == [up, down]
    for ends in (sent(fed).iloc[0], sent(fed).iloc[-1]):
        assert ends["size_bit"] == 32 * cuts_of(fed.task.model)[cut - 1].device.n_shared


@pytest.mark.parametrize(("cut", "most"), [(1, 265), (2, 513), (3, 10)])
def test_where_it_breaks_even_with_fedavg(cut: int, most: int) -> None:
    """McMahan's CNN: behind its first, second and third layer splitting saves bits below 266, 514 and 11 samples."""

    def bits(n_samples: int, algorithm: str, *more: str) -> int:
        data = f"data={{kind: synthetic, features: [1, 28, 28], classes: 10, n_samples: {n_samples}, n_test: 10}}"
        settings = ("devices.count=1", "model=mcmahan-cnn", "stop.rounds=1", data, *more, algorithm)
        return int(sent(timed(*settings))["size_bit"].sum())

    local = "cohort: 1, lr: 0.1, batch_size: 20, local_epochs: 1"
    for n_samples, pays in ((most, True), (most + 1, False)):
        split = f"algorithm={{kind: splitfed, cut: {cut}, {local}}}"
        whole = bits(n_samples, f"algorithm={{kind: fedavg, {local}}}")
        assert (bits(n_samples, split, "server.flop_per_s=1e12") < whole) == pays


def test_parts_of_the_model_go_once_a_round_or_once_a_step() -> None:
    """The device's part goes down and up once for each turn in sl, v1 and v2, and once for each step in psl."""
    for variant, times in (("sl", 1), ("v1", 1), ("v2", 1), ("psl", 4)):
        settings = (*UNEVEN, "partition=iid", "devices.count=3", "network.downlink.mode=unicast")
        fed = timed(*settings, "data.n_samples=48", splitfed(variant), "stop.rounds=1")
        size_bit = 32 * cuts_of(fed.task.model)[0].device.n_shared
        parts = sent(fed)[sent(fed)["size_bit"] == size_bit]
        assert [int((parts["receiver"] == end).sum()) for end in (-1, 0, 1, 2)] == [3 * times] + [times] * 3


@given(
    n_samples=st.integers(1, 60),
    batch_size=st.none() | st.integers(1, 70),
    length=st.sampled_from([{"epochs": 1}, {"epochs": 3}, {"steps": 1}, {"steps": 7}]),
    drop_last=st.booleans(),
)
def test_sizes_of_batches_add_up(
    n_samples: int, batch_size: int | None, length: dict[str, int], drop_last: bool
) -> None:
    """As many as there are steps, as many samples as are processed; the smallest is that of `least_batch`."""
    plan = SgdPlan(0.1, batch_size, drop_last=drop_last, **length)
    sizes = plan.batch_sizes(n_samples)

    assert len(sizes) == plan.n_steps(n_samples)
    assert sum(sizes) == plan.n_samples_processed(n_samples)
    assert min(sizes) == plan.least_batch(n_samples)


# ---- times -----------------------------------------------------------------------------------------------------------

UNIT_S = 32e-6
"""Time of a number on a link of 1 Mbit/s."""
LAW = [
    *(
        (k, (4.5, 5, 2, 4, 4.5), n, t)
        for k, n, t in ((1, 1, 20), (1, 50, 1000), (4, 1, 35), (4, 50, 1015), (8, 50, 2015))
    ),
    *((3, (10, 5, 2, 4, 10), n, t) for n, t in ((1, 41), (50, 1560))),
    *((10, (100, 5, 2, 4, 100), n, t) for n, t in ((1, 256), (50, 10595))),
    *((30, (100, 5, 2, 4, 100), n, t) for n, t in ((1, 356), (50, 10695))),
]
"""Devices, times of forward, uplink, server, downlink and backward, steps, and the time that an independent model has
found for them: forward and backward are equal here, since a first layer needs no gradient of its input."""


def ping_pong(count: int, parts: tuple[float, ...], steps: int, queue: str = "fifo") -> int:
    """Simulated ns until equal devices have made all their steps, with links of 1 Mbit/s in turns.

    Four numbers and a label of each sample go up, and four come back.
    """
    forward, _, server, _, _ = (part * UNIT_S for part in parts)
    settings = (
        f"data={{kind: synthetic, features: 3, classes: 2, n_samples: {count * steps}, n_test: 2}}",
        *(f"devices.count={count}", "partition=iid", "model={kind: mlp, hidden: [4]}"),
        *(f"devices.speed.flop_per_s={2 * 3 * 4 / forward!r}", f"server.flop_per_s={3 * 2 * 4 * 2 / server!r}"),
    )
    fed = small_federation(*settings, timing_only=True)
    cut, link = cuts_of(fed.task.model)[0], CutLink(fed, SgdPlan(0.1, 1, epochs=1), queue, 0)
    fed.clock.run_process(all_steps(fed, link, cut), None)
    assert not any(verify(fed.ledger, TURNS).values())
    return int(fed.clock.now)


def all_steps(fed: Federation, link: CutLink, cut: Cut) -> fe.Process:
    """All devices at once, without the model at both ends of a round."""
    yield fed.gather(link.steps(k, cut, []) for k in fed.devices())


@pytest.mark.parametrize(("count", "parts", "steps", "units"), LAW)
def test_the_closed_form_to_the_nanosecond(count: int, parts: tuple[float, ...], steps: int, units: int) -> None:
    """T = T0 + (K - 1) m + (n - 1) max(T0, K m) for the sum T0 of the parts and the longest shared one, m."""
    t_0, m = sum(parts), max(parts[1:4])

    assert units == t_0 + (count - 1) * m + (steps - 1) * max(t_0, count * m)
    assert ping_pong(count, parts, steps) == units * 32_000


def test_the_server_is_the_bottleneck() -> None:
    """With 7 units for a batch it is m; computing them side by side leaves the uplink as m, and 7 in T0."""
    parts = (4.5, 5.0, 7.0, 4.0, 4.5)

    assert ping_pong(8, parts, 50) == (25 + 7 * 7 + 49 * 56) * 32_000
    assert ping_pong(8, parts, 50, "parallel") == (25 + 7 * 5 + 49 * 40) * 32_000


def test_the_relay_and_a_lone_device_by_hand() -> None:
    """N T0 for each device, and its part of the model there and back: sl of three, and v1 of one three times."""
    settings = (*UNEVEN, "devices.count=3", "partition=iid", "data.n_samples=48", "devices.speed={kind: fixed}")
    speed = ("devices.speed.flop_per_s=1e6", "stop.rounds=1")
    fed = timed(*settings, *speed, splitfed("sl"))
    cut = cuts_of(fed.task.model)[0]
    step_s = 8 * ((cut.forward_flop + cut.backward_flop) / 1e6 + cut.server_flop / 2e6 + 32 * (2 * cut.width + 1) / BPS)
    turn_s = 4 * step_s + 2 * 32 * cut.device.n_shared / BPS

    assert fed.clock.now == 3 * round(turn_s * NS_PER_S)
    for variant in ("v1", "v2"):
        assert timed(*settings, *speed, splitfed(variant, cohort=1)).clock.now == round(turn_s * NS_PER_S)


@pytest.mark.parametrize("variant", ["sl", "v1", "v2", "psl"])
def test_no_round_is_shorter_than_what_is_done_in_it(variant: str) -> None:
    """At least as long as any device needs by itself, and as each link and the server are busy; one batch at a time."""
    fed = timed(*UNEVEN, "devices.straggler={kind: shifted-exponential, mean_factor: 1.0}", splitfed(variant))
    frames = fed.ledger.frames()
    computes, rounds, links = frames["computes"], frames["rounds"], frames["transfers"]
    assert not any(verify(fed.ledger, TURNS).values())
    for start, end in zip(rounds["started_s"], rounds["ended_s"], strict=True):
        mine = computes[(computes["started_s"] >= start) & (computes["ended_s"] <= end)]
        busy_s = (mine["ended_s"] - mine["started_s"]).groupby(mine["device"]).sum()
        now = links[(links["started_s"] >= start) & (links["ended_s"] <= end)]
        on_air_s = (now["ended_s"] - now["started_s"]).groupby(now["receiver"] == -1).sum()
        assert max(busy_s.max(), on_air_s.max()) <= end - start + 1e-9


# ---- the cut that takes the least time -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("speed", "server", "hidden"),
    [
        (1e8, 1e4, [2, 30]),
        (1e4, 1e9, [9, 3]),
        (1e8, 1e5, [9, 3]),
        (1e7, 1e7, [30, 2]),
        (1e6, 1e6, [2, 30]),
        (3e5, 1e6, [12, 6, 3]),
    ],
)
def test_least_time_is_the_best_of_all_cuts(speed: float, server: float, hidden: list[int]) -> None:
    """A lone device: of the rounds that are played with each cut, the shortest is the one with `least-time`."""
    settings = (*UNEVEN, "devices.count=1", f"devices.speed={{kind: fixed, flop_per_s: {speed}}}")
    settings = (*settings, f"server.flop_per_s={server}", f"model={{kind: mlp, hidden: {hidden}}}", "stop.rounds=1")
    each = [timed(*settings, splitfed("sl", cut=cut)).clock.now for cut in range(1, len(hidden) + 1)]

    assert len(set(each)) == len(each)
    assert timed(*settings, splitfed("sl", cut="least-time")).clock.now == min(each)


def test_least_time_goes_by_the_device() -> None:
    """A slow device keeps little, a fast one with a slow server much; what they learn is the same."""
    speed = "devices.speed={kind: list, flop_per_s: [1e4, 1e9, 1e4, 1e9, 1e4]}"
    settings = (*UNEVEN, speed, "server.flop_per_s=1e5", "stop.rounds=1")
    fed = timed(*settings, splitfed("v1", cohort=5, cut="least-time"))
    first = sent(fed)[sent(fed)["payload"] >= 0].groupby("receiver")["size_bit"]
    sizes = [32 * cut.device.n_shared for cut in cuts_of(fed.task.model)]
    ups = sent(fed)[(sent(fed)["receiver"] == -1) & (sent(fed)["payload"] >= 0)].set_index("sender")["size_bit"]

    assert len(first) > 0
    assert ups.sort_index().tolist() == [sizes[0], sizes[1], sizes[0], sizes[1], sizes[0]]


# ---- losses and cost -------------------------------------------------------------------------------------------------


def test_a_late_device_is_left_out_on_both_sides() -> None:
    """A device a hundred times slower is cancelled amid its steps; the model is that of the others."""
    even = (*UNEVEN, "partition=iid", "devices.count=4", "data.n_samples=64", "stop.rounds=2")
    slow = "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e4, 1e6]}"
    fed, found = trained(*even, slow, splitfed("v1", cohort=4, deadline_s=0.1))
    computes, rounds = fed.ledger.frames()["computes"], fed.ledger.frames()["rounds"]
    bare = [setting for setting in even if "server" not in setting]
    _, expected = trained(
        *(*bare, "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1, 1e6]}"),
        "algorithm={kind: fedavg, cohort: 4, lr: 0.3, batch_size: 8, local_epochs: 2, deadline_s: 1}",
    )

    assert rounds["arrived"].tolist() == [3, 3]
    np.testing.assert_allclose(rounds["ended_s"] - rounds["started_s"], 0.1, rtol=1e-12)
    assert (computes[computes["device"] == 2]["stopped"] == "deadline").sum() == 2
    assert found.equal(expected)


def test_a_lost_gradient_ends_the_round_of_its_device() -> None:
    """Without retries nobody sends anything after a loss until the next round; with retries the message goes again."""
    lossy = ("network.downlink.loss={kind: random, probability: 0.1}", "network.downlink.mode=unicast")
    for retries in (0, 1):
        fed = timed(*UNEVEN, *lossy, "stop.rounds=4", splitfed("v1", cohort=5, retries=retries))
        rounds = fed.ledger.frames()["rounds"]
        own = sent(fed)[["sender", "receiver", "size_bit", "requested_s", "ended_s", "lost"]]
        n_after = 0
        for start, end in zip(rounds["started_s"], rounds["ended_s"], strict=True):
            for k in range(5):
                mine = own[((own["sender"] == k) | (own["receiver"] == k)) & (own["requested_s"] >= start)]
                mine = mine[mine["requested_s"] < end].sort_values("requested_s", kind="stable")
                lost = mine[(mine["lost"] != "") & (mine["size_bit"] != mine["size_bit"].iloc[0])]
                if len(lost):
                    after = mine[mine["requested_s"] >= lost["ended_s"].iloc[0]]
                    n_after += len(after)
                    assert retries == 0 or after["size_bit"].iloc[0] == lost["size_bit"].iloc[0]
        assert (n_after > 0) == (retries > 0)


@pytest.mark.parametrize(("variant", "each"), [("sl", 2 + 5 * 4), ("v1", 2 + 5 * 4), ("v2", 2 + 5 * 4), ("psl", 7 * 4)])
def test_check_tells_the_events(variant: str, each: int) -> None:
    """Transfers and computations of three devices with four batches each, for which psl shares those of the server."""
    data = "data={kind: synthetic, features: 9, classes: 3, n_samples: 42, n_test: 3}"
    settings = (*UNEVEN, "devices.count=3", "partition=iid", data, splitfed(variant), "network.downlink.mode=unicast")
    told = Outlook(small_scenario(*settings)).cost.events
    fed = timed(*settings)
    shared = 5 * 4 * 2 if variant == "psl" else 0

    assert told == 5 * 3 * each
    assert len(fed.ledger.transfers) + len(fed.ledger.computes) == told - shared


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (splitfed("v2", cut="least-time"), "devices that share the server's part have one cut, got least-time with v2"),
        (splitfed("psl", cut="least-time"), "have one cut, got least-time with psl"),
        (
            splitfed("sl", server_queue="parallel"),
            "one step at a time, got parallel with sl; leave it out",
        ),
        (splitfed("psl", local_optimizer="adam"), "only if steps are plain, got Adam"),
        (splitfed("v1", clip_norm=1), "clip_norm: neither end has the whole gradient, got 1; leave it out"),
        (splitfed("v1", private_sgd="{clip_norm: 1, noise_multiplier: 1}"), "devices send more than models"),
        (splitfed("v1", cut=0), "algorithm.cut"),
    ],
)
def test_what_cannot_be_is_refused(setting: str, told: str) -> None:
    """With the reason."""
    with pytest.raises(ScenarioError, match=told):
        small_scenario(*UNEVEN, setting)


def test_a_server_that_does_not_compute_is_refused() -> None:
    """Its speed is asked for before the run."""
    told = [what for _, what in small_scenario(*UNEVEN, "server.flop_per_s=null", splitfed("v1")).contradictions()]

    assert told == ["computes on the server, got no speed of it; give server.flop_per_s"]


def test_a_cut_behind_the_last_layer_is_refused() -> None:
    """Of three layers with parameters two may be on the device."""
    with pytest.raises(ScenarioError, match=r"algorithm.cut: leaves the server no layer .*, got 3; must be at most 2"):
        run_small(*UNEVEN, splitfed("v1", cut=3))


def test_batch_norm_of_a_shared_part_is_refused() -> None:
    """Its statistics would be those of no device."""
    images = "data={kind: synthetic, features: [1, 8, 8], classes: 3, n_samples: 96, n_test: 20}"
    model = "model={kind: digit-model, channels: [2, 2, 2], units: [8, 4]}"
    with pytest.raises(ScenarioError, match=r"model: devices share a part, .*, got variant v2; choose v1 or sl"):
        run_small(images, model, "server.flop_per_s=1e7", splitfed("v2"))
