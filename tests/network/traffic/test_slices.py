"""Slices: parts by hand and by invariants, laws of priorities, and turns in the order of priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fednet_emu.network.air.transfer import Message
from fednet_emu.network.slices import Slice, Slices
from fednet_emu.network.traffic.laws import ExponentialGap, ExponentialSize, FixedSize
from fednet_emu.records.ledger import SERVER
from fednet_emu.testing import run_small, small_scenario
from tests.network.traffic.playing import Played, by_laws, files, mean_and_error, source
from tests.network.traffic.test_runs import PHONES, refusals
from tests.quick import share

MB = 8_000_000


def ends(slices: dict[str, Slice], flows: list[tuple[str, float, int]]) -> list[float]:
    """Ends in s, at 8 Mbit/s, of files by slice, arrival in s and size in bits."""
    names = Slices(slices).names
    sources = [source(k, files([(at_s, bit)]), slice=names.index(name)) for k, (name, at_s, bit) in enumerate(flows)]
    table = Played(sources, 8e6, slices).until(20)
    return [round(end_s, 6) for end_s in table.sort_values("user")["ended_s"]]


@pytest.mark.parametrize(
    ("slices", "flows", "due"),
    [
        ({"a": Slice(weight=3), "b": Slice()}, [("a", 0, MB), ("b", 0, MB)], [1.333333, 2.0]),
        ({"a": Slice(weight=3), "b": Slice()}, [("a", 0, MB * 3 // 2 // 3)] * 3 + [("b", 0, MB)], [2.0, 2.0, 2.0, 2.5]),
        ({"a": Slice(priority=1), "b": Slice()}, [("a", 0, MB), ("b", 0.25, MB // 2)], [1.5, 0.75]),
        ({"a": Slice(dedicated=0.25), "b": Slice()}, [("b", 0, MB * 3 // 4)], [1.0]),
        ({"a": Slice(priority=1, min=0.25), "b": Slice()}, [("b", 0, MB * 3 // 4), ("a", 0, MB)], [1.0, 1.75]),
        ({"a": Slice(max=0.5), "b": Slice(max=0.25)}, [("a", 0, MB // 2), ("b", 0, MB // 4)], [1.0, 1.0]),
        (
            {"a": Slice(max=0.2), "b": Slice(), "c": Slice(weight=2)},
            [("a", 0, 1_600_000), ("b", 0, 2_133_333), ("c", 0, 4_266_666)],
            [1.0, 1.0, 1.0],
        ),
    ],
)
def test_parts_by_hand(slices: Any, flows: Any, due: list[float]) -> None:
    """Weights, preemption, dedicated and guaranteed parts, and largest parts, with ends that one line calculates."""
    assert ends(slices, flows) == pytest.approx(due, abs=2e-6)


@pytest.mark.parametrize("seed", range(share(400)))
def test_invariants_of_drawn_slices(seed: int) -> None:
    """Sum at most 1, each between guarantee and maximum, nothing idle, levels in order, weights within a level."""
    rng = np.random.default_rng(seed)
    given = {}
    budget = 1.0
    for name in ("fl", "others", "a", "b", "c", "d")[: rng.integers(2, 7)]:
        low = float(rng.choice([0.0, rng.uniform(0, budget / 2)]))
        budget -= low
        kept = low * float(rng.choice([0.0, rng.random()]))
        most = float(rng.choice([1.0, rng.uniform(low, 1.0)]))
        given[name] = Slice(
            priority=int(rng.integers(3)),
            weight=float(rng.uniform(0.1, 9)),
            min=low,
            dedicated=kept,
            max=max(most, 0.01),
        )
    slices = Slices(given)
    active = rng.random(len(slices.names)) < 0.7
    parts, every = slices.parts(active.tolist()), list(given.values())
    room = 1 - sum(its.dedicated for its, sends in zip(every, active, strict=True) if not sends)
    sending = [(part, its) for part, its, sends in zip(parts, every, active, strict=True) if sends]
    assert sum(parts) <= room + 1e-9
    assert all(its.guaranteed - 1e-12 <= part <= its.max + 1e-12 for part, its in sending)
    assert all(part == 0 for part, sends in zip(parts, active, strict=True) if not sends)
    greedy = [its for part, its in sending if part < its.max - 1e-9]
    assert not greedy or sum(parts) == pytest.approx(room, abs=1e-9)
    for part, its in sending:
        if part > its.guaranteed + 1e-9:
            assert all(other.priority >= its.priority for other in greedy)
            same = [
                (p, o)
                for p, o in sending
                if o.priority == its.priority and o.guaranteed < p - 1e-9 and p < o.max - 1e-9
            ]
            assert all(p / o.weight == pytest.approx(part / its.weight) for p, o in same if part < its.max - 1e-9)


def test_preemptive_priorities_in_order() -> None:
    """M/G/1 with two preemptive classes in order of arrival: T_1 = s / (1 - r_0) + sum l e / (2 (1 - r_0) (1 - R))."""
    slices = {"others": Slice(), "fl": Slice(priority=1)}
    size, gap = ExponentialSize(mean_byte=3000), ExponentialGap(mean_s=0.08)
    one_by_one = [by_laws(user, size, gap, slice=user, of=user) for user in (0, 1)]
    table = Played(one_by_one, 1e6, slices).until(120)
    s, rate = 0.024, 1 / 0.08
    second, load = rate * 2 * s**2, rate * s
    laws_s = s + second / (2 * (1 - load)), s / (1 - load) + 2 * second / (2 * (1 - load) * (1 - 2 * load))
    for name, law_s in zip(("these", "those"), laws_s, strict=True):
        own = table[table["traffic_class"] == name]
        mean_s, error_s = mean_and_error(own["ended_s"] - own["requested_s"])
        assert abs(mean_s - law_s) < 2.5 * error_s


def test_turns_with_priorities_follow_cobham() -> None:
    """Turns, which nothing interrupts: s_k + (sum l e / 2) / ((1 - R_(k-1)) (1 - R_k))."""
    slices = {"others": Slice(), "fl": Slice(priority=1)}
    gaps = ExponentialGap(mean_s=0.2 / 3), ExponentialGap(mean_s=1 / 0.3)
    bytes_ = 2500, 125_000
    flows = [by_laws(k, FixedSize(byte=bytes_[k]), gaps[k], queues=False, places=5000, slice=k, of=k) for k in (0, 1)]
    flows[1].radio = 6000
    table = Played(flows, 1e6, slices, in_turns=True).until(1500)
    sizes_s, rates = (0.02, 1.0), (15.0, 0.3)
    residual = sum(rate * s**2 for rate, s in zip(rates, sizes_s, strict=True)) / 2
    laws_s = sizes_s[0] + residual / (1 - 0.3), sizes_s[1] + residual / ((1 - 0.3) * (1 - 0.6))
    for name, law_s in zip(("these", "those"), laws_s, strict=True):
        own = table[table["traffic_class"] == name]
        mean_s, error_s = mean_and_error(own["ended_s"] - own["requested_s"])
        assert abs(mean_s - law_s) < 2.5 * error_s


def test_uploads_that_give_way_lose_what_their_slice_loses() -> None:
    """An upload of 1 MB in the last slice waits 0.5 s on the air for a file: all of that is lost to others."""
    slices = {"others": Slice(), "fl": Slice(priority=1)}
    played = Played([source(9, files([(0.25, MB // 2)]))], 8e6, slices)

    def upload() -> Any:
        yield played.medium.send(0, SERVER, Message(None, MB))

    played.while_playing(upload())
    assert played.ledger.transfers.frame()["ended_s"].tolist() == pytest.approx([1.5])
    assert played.ledger.transfers.column("others_s").tolist() == pytest.approx([0.5])


OFDMA = ("network.uplink.access=ofdma", f"traffic=[{PHONES}]")


def test_slices_of_turns_may_state_defaults() -> None:
    """A saved scenario has all keys of its slices; only other values than the defaults are refused with turns."""
    slices = "network.slices={fl: {priority: 2, dedicated: 0, min: 0, max: 1, weight: 1}}"
    assert not list(small_scenario(OFDMA[1], "network.uplink.access=tdma", slices).contradictions())


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            (*OFDMA, "network.slices={fl: {min: 0.7}, others: {min: 0.5}}"),
            "guarantees add up to 1.2, must be at most 1",
        ),
        ((*OFDMA, "network.slices={fl: {min: 0.3, max: 0.2}}"), "max is below min, got 0.2 and 0.3"),
        ((*OFDMA, "network.slices={gold: {}}"), "network.slices.gold: has no traffic; name it in traffic"),
        (
            (OFDMA[1], "network.slices={fl: {weight: 2}}"),
            "turns cannot be weighed, got weight with network.uplink.access",
        ),
        (("network.slices={fl: {weight: 2}}",), "got no traffic"),
        (
            (f"traffic=[{PHONES[:-1]}, slice: voce}}]", "network.slices={voice: {}, fl: {}}"),
            "there is no such slice, got voce; did you mean 'voice'?",
        ),
        ((OFDMA[1], "network.uplink.access=noma", "network.slices={fl: {}}"), "are parts of a band that is divided"),
    ],
)
def test_slices_that_cannot_be_are_refused(settings: tuple[str, ...], text: str) -> None:
    """Each error names its key and what would be right."""
    assert text in refusals(*settings)


@pytest.mark.parametrize("access", ["ofdma", "tdma", "{kind: ethernet, port_bps: 1e6}"])
def test_runs_with_slices_keep_the_laws(access: str) -> None:
    """The federation last, beside phones: rounds end, later than as equals, and all laws hold."""
    settings = (f"network.uplink.access={access}", f"traffic=[{PHONES}]", "stop.rounds=8")
    last, equal = (
        run_small(*settings, f"network.slices={{fl: {{priority: {level}}}}}", timing_only=True) for level in (1, 0)
    )
    assert last.round == equal.round == 8
    assert last.clock.now >= equal.clock.now
