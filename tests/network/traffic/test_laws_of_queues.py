"""Mean delays of files and uploads by the laws of queues that share one server, and bounds that hold file by file."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest

from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.slices import Slice
from fednet_emu.network.traffic.laws import ExponentialGap, ExponentialSize, FixedSize
from fednet_emu.radio.rates.base import RateLaw
from fednet_emu.records.ledger import SERVER
from tests.network.traffic.playing import RADIOS, Played, by_laws, mean_and_error

MBIT = 125_000
"""Bytes of a file that takes 1 s at 1 Mbit/s."""


def poisson(size: Any, mean_s: float, number: int = 0, **how: Any) -> Any:
    """Files of a class that arrive at random and wait for no other file, with sizes by a law."""
    its = by_laws(number, size, ExponentialGap(mean_s=mean_s), queues=False, places=9000, of=number, **how)
    its.radio = 9000 * number
    return its


def delays_s(table: Any) -> Any:
    return table["ended_s"] - table["requested_s"]


@cache
def one_rate(load: float, files: int) -> Any:
    """Files of 0.04 s on average, exponential, in equal parts of one rate."""
    table = Played([poisson(ExponentialSize(mean_byte=5000), 0.04 / load)]).until(files * 0.04 / load)
    return table[table["loss_reason"] == ""].iloc[200:].sort_values("requested_s")


def work_s(table: Any) -> Any:
    return table["size_bit"] / 1e6


# ---- equal parts -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("least_s", "most_s"), [(0, 0.01), (0.01, 0.03), (0.03, 0.06), (0.06, 0.12), (0.12, 9)])
def test_files_of_each_size_are_stretched_alike(least_s: float, most_s: float) -> None:
    """Equal parts: a file of x takes x / (1 - rho) on average, at load 0.8, whatever its size."""
    table = one_rate(0.8, 12_000)
    own = table[work_s(table).between(least_s, most_s)]
    mean, error = mean_and_error(delays_s(own) / work_s(own) if least_s else delays_s(own))
    assert abs(mean - (1 if least_s else work_s(own).mean()) / 0.2) < 2.5 * error


@pytest.mark.slow
@pytest.mark.parametrize(("part", "quantile"), [(0.5, 0.69315), (0.9, 2.3026), (0.99, 4.6052)])
def test_delays_in_heavy_traffic_are_exponential(part: float, quantile: float) -> None:
    """Equal parts at load 0.95: (1 - rho) T / x is exponential with mean 1, in the limit of load 1."""
    table = one_rate(0.95, 60_000)
    below, error = mean_and_error(0.05 * delays_s(table) / work_s(table) <= quantile)
    assert abs(below - part) < 2.5 * error


class TwoRates(RateLaw):
    """2 bit/s/Hz on strong links and 0.2 bit/s/Hz on others, however narrow their part of the band."""

    kind = "two-rates"
    min_sinr: ClassVar[float] = 0.0

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        return bandwidth_hz * (2.0 if sinr > 1e9 else 0.2)

    def rates_bps(self, sinr: Any, bandwidth_hz: Any) -> Any:
        return bandwidth_hz * np.where(sinr > 1e9, 2.0, 0.2)


def test_two_link_rates_share_the_time() -> None:
    """OFDMA, classes with 2 and 0.2 Mbit/s: both take (x / r) / (1 - rho), by the load drawn, about 0.5."""
    snr = np.where(np.arange(RADIOS) < 9000, 1e15, 1e3)
    size, gaps_s = ExponentialSize(mean_byte=MBIT // 10), (0.05 / 0.25, 0.5 / 0.25)
    flows = [poisson(size, mean_s, of) for of, mean_s in enumerate(gaps_s)]
    table = Played(flows, access=Ofdma(), law=TwoRates(), snr=snr).until(600).iloc[50:]
    fast = table["traffic_class"] == "these"
    alone_s = table["size_bit"] / np.where(fast, 2e6, 2e5)
    load = alone_s.sum() / (table["requested_s"].max() - table["requested_s"].min())
    for own in (fast, ~fast):
        mean, error = mean_and_error((delays_s(table) / alone_s)[own])
        assert abs(mean - 1 / (1 - load)) < 2.5 * error


# ---- uploads begun at a random time ----------------------------------------------------------------------------------


@pytest.mark.parametrize("in_turns", [False, True])
def test_uploads_wait_for_the_backlog_that_they_find(in_turns: bool) -> None:
    """Work W of 1 s at load 0.6: (W + V) / (1 - rho) giving way, W + V in turns; V = lambda E[s^2] / (2 (1 - rho))."""
    slices = {} if in_turns else {"others": Slice(), "fl": Slice(priority=1)}
    played = Played([poisson(FixedSize(byte=MBIT // 2), 0.5 / 0.6)], 1e6, slices, in_turns=in_turns)
    wait_s = np.random.default_rng(5).exponential(15.0 if in_turns else 5.0, 150)

    def uploads() -> Any:
        for gap_s in wait_s:
            yield played.clock.sleep(gap_s)
            yield played.medium.send(10, SERVER, Message(None, 10**6))

    played.while_playing(uploads())
    mean_s, error_s = mean_and_error(delays_s(played.ledger.transfers.frame()))
    backlog_s = 0.6 * 0.5 / (2 * 0.4)
    assert abs(mean_s - (1 + backlog_s) / (1 if in_turns else 0.4)) < 2.5 * error_s


# ---- weights and guarantees ------------------------------------------------------------------------------------------


def fayolle_s(weights: Any, rates: Any, sizes_s: Any) -> Any:
    """Mean delays of classes of exponential files with a weight per file (Fayolle, Mitrani, Iasnogorodski 1980)."""
    g, rate, mu = (np.asarray(each, float) for each in (weights, rates, 1 / np.asarray(sizes_s)))
    taken = rate * g / (g * mu + (g * mu)[:, None])
    return np.linalg.solve(np.diag(1 - taken.sum(1)) - taken, sizes_s)


class SliceOfEach:
    """A slice for each transfer on the air: of weight `weights[k]` for class k, the first of these that is free."""

    MOST = 20

    def __init__(self, weights: Any) -> None:
        self.slices = {f"{k}-{n}": Slice(weight=weight) for k, weight in enumerate(weights) for n in range(self.MOST)}
        self.taken: dict[Any, int] = {}

    def __call__(self, transfer: Any) -> int:
        if transfer not in self.taken:
            self.taken = {its: number for its, number in self.taken.items() if not its.triggered}
            first, used = self.MOST * (transfer.sender // 9000), set(self.taken.values())
            self.taken[transfer] = next(n for n in range(first, first + self.MOST) if n not in used)
        return self.taken[transfer]


def test_weights_of_files_follow_fayolle() -> None:
    """Discriminatory processor sharing, loads 0.3 and 0.4 of files of 0.5 and 4/3 s: by the linear system."""
    found_s = fayolle_s((10, 1), (0.6, 0.3), (0.5, 4 / 3))
    assert found_s == pytest.approx((0.836, 5.067), abs=1e-3)
    each = SliceOfEach((10, 1))
    flows = [
        poisson(ExponentialSize(mean_byte=byte), gap_s, k)
        for k, byte, gap_s in ((0, MBIT // 2, 1 / 0.6), (1, MBIT * 4 // 3, 1 / 0.3))
    ]
    table = Played(flows, 1e6, each.slices, slice_of=each).until(3000)
    for name, law_s in zip(("these", "those"), found_s, strict=True):
        mean_s, error_s = mean_and_error(delays_s(table[table["traffic_class"] == name]))
        assert abs(mean_s - law_s) < 2.5 * error_s


RULES = [
    {"others": Slice(), "fl": Slice()},
    {"others": Slice(weight=9), "fl": Slice()},
    {"others": Slice(priority=1), "fl": Slice()},
    {"others": Slice(priority=1, min=0.3), "fl": Slice(max=1.0, min=0.1)},
]


def shared(slices: Any, end_s: float) -> Any:
    """Two classes in two slices, whose users send one file after the other; the rows of their files."""
    size, gap = ExponentialSize(mean_byte=MBIT // 10), ExponentialGap(mean_s=0.25)
    return Played([by_laws(user, size, gap, slice=user, of=user) for user in (0, 1)], 1e6, slices).until(end_s)


def test_work_is_conserved_under_every_rule() -> None:
    """The bits that are left at an instant depend on the files alone, not on weights, priorities and guarantees."""
    left_bit = []
    for slices in RULES:
        table = shared(slices, 20)
        left_bit.append((table["size_bit"] - table["transmitted_bit"]).sum())
    assert left_bit[0] > 0
    assert left_bit == pytest.approx([left_bit[0]] * len(RULES), abs=1.0)


@pytest.mark.parametrize(
    ("slices", "parts"),
    [
        ({"others": Slice(weight=3), "fl": Slice()}, (0.75, 0.25)),
        ({"others": Slice(min=0.4, priority=1), "fl": Slice()}, (0.4, 0.6)),
        ({"others": Slice(min=0.4, weight=0.01), "fl": Slice(dedicated=0.2, min=0.6)}, (0.4, 0.6)),
    ],
)
def test_a_guarantee_delays_no_file_longer_than_a_band_of_that_part(slices: Any, parts: Any) -> None:
    """Parekh and Gallager: files in order end no later than alone on the guaranteed part of the band."""
    both = shared(slices, 80)
    for user, (name, part) in enumerate(zip(("these", "those"), parts, strict=True)):
        own = both[both["traffic_class"] == name].sort_values("requested_s")
        size, gap = ExponentialSize(mean_byte=MBIT // 10), ExponentialGap(mean_s=0.25)
        alone = Played([by_laws(user, size, gap)], part * 1e6).until(80).sort_values("requested_s")
        count = min((own["loss_reason"] == "").sum(), (alone["loss_reason"] == "").sum())
        late_s = own["ended_s"].to_numpy()[:count] - alone["ended_s"].to_numpy()[:count]
        assert count > 120
        assert late_s.max() < 1e-6
        assert late_s.min() < -0.01
