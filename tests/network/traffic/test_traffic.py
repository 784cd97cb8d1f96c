"""Other users: scenes to the nanosecond, laws of queues, and what their files take from the federation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fednet_emu.devices.placement import Disc
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.slices import Slice
from fednet_emu.network.traffic.laws import (
    ExponentialGap,
    ExponentialSize,
    FixedGap,
    FixedSize,
    LogNormalSize,
    ParetoSize,
)
from fednet_emu.network.traffic.settings import Traffic
from fednet_emu.network.traffic.users import users_of
from fednet_emu.records.ledger import SERVER
from tests.network.traffic.playing import Played, by_laws, files, mean_and_error, source
from tests.quick import crossed

SCENES = json.loads(Path(__file__).with_name("scenes.json").read_text(encoding="utf-8"))


def test_files_share_a_port_and_wait_for_their_own_user() -> None:
    """8 Mbit/s: 1 MB at 0 of two users, 500 kB at 1 s of a third all end at 2.5 s; of one user twice: 2 and 3 s."""
    three = [source(0, files([(0, 8_000_000)])), source(1, files([(0, 8_000_000)])), source(2, files([(1, 4_000_000)]))]
    assert Played(three, 8e6).until(4)["ended_s"].tolist() == [2.500000001] * 3
    twice = [source(0, files([(0, 8_000_000), (0, 8_000_000)])), source(1, files([(0, 8_000_000)]))]
    table = Played(twice, 8e6).until(4)
    assert sorted(table["ended_s"]) == [2.0, 2.0, 3.0]
    assert table["requested_s"].tolist() == [0.0] * 3


@pytest.mark.parametrize("name", SCENES)
def test_drawn_scenes_of_an_independent_player(name: str) -> None:
    """Ends of rounds, and starts and ends of all files until then, equal those of an integer player: 0 ns."""
    scene, ends_ns = SCENES[name], list[int]()
    slices = {its.pop("name"): Slice(**its) for its in map(dict, scene["slices"])} if name[0] == "2" else {}
    played = Played(sources_of(scene), scene["port_bps"], slices)
    played.while_playing(played.rounds(scene["federation"], ends_ns))
    assert ends_ns == scene["round_ends_ns"]
    assert delivered(played) == sorted(map(tuple, scene["files"]))


def sources_of(scene: Any) -> list[Any]:
    """The users of a scene: open ones, whose files arrive at given times, and closed ones with reading times."""
    flows: dict[int, list[tuple[float, int]]] = {}
    for arrival_ns, user, bit in scene["open"]:
        flows.setdefault(user, []).append((arrival_ns / 1e9, bit))
    made = [source(user, files(rows)) for user, rows in sorted(flows.items())]
    closed = [(user, iter(list(zip([0, *gaps], sizes, strict=False)))) for user, sizes, gaps in scene["closed"]]
    return made + [source(user, flow, follows=True, of=1) for user, flow in closed]


def delivered(played: Played) -> list[tuple[int, int, int]]:
    """Request, end and user of all messages that arrived, of devices and of other users."""
    rows = []
    for table, user, lost in (
        (played.ledger.traffic, "user", "loss_reason"),
        (played.ledger.transfers, "sender", "loss_reason"),
    ):
        column = table.column
        arrived = column(lost) == 0
        rows += zip(*(column(each)[arrived].tolist() for each in ("requested_ns", "ended_ns", user)), strict=True)
    return sorted(rows)


POISSON = 0.05
"""Mean gap in s of files of 40,000 bit on average at 1 Mbit/s: load 0.8."""


class TwoPointSize:
    """Half the mean for 16 files of 17, and nine times the mean for the others: E[s^2] = 5 E[s]^2."""

    def __init__(self, mean_byte: float) -> None:
        self.mean_byte = mean_byte

    def quantiles(self, uniform: Any) -> Any:
        return self.mean_byte * np.where(uniform < 1 / 17, 9.0, 0.5)


@pytest.mark.parametrize("size", [FixedSize(byte=3125), TwoPointSize(3125)])
def test_equal_parts_stretch_a_file_by_the_load_alone(size: Any) -> None:
    """M/G/1 with processor sharing: a file of x takes x / (1 - rho) on average, whatever its size and their law."""
    played = Played([by_laws(0, size, ExponentialGap(mean_s=0.05), queues=False, places=9000)])
    table = played.until(350).iloc[200:]
    load = table["size_bit"].mean() / 0.05 / 1e6
    for size_bit, own in table.groupby("size_bit"):
        mean_s, error_s = mean_and_error(own["ended_s"] - own["requested_s"])
        assert abs(mean_s - size_bit / 1e6 / (1 - load)) < 2.5 * error_s


@pytest.mark.parametrize("size", [FixedSize(byte=5000), ExponentialSize(mean_byte=5000), TwoPointSize(5000)])
def test_turns_follow_pollaczek_and_khinchine(size: Any) -> None:
    """M/G/1 in turns: s + lambda E[s^2] / (2 (1 - rho)), by the sizes that were drawn."""
    played = Played([by_laws(0, size, ExponentialGap(mean_s=0.08), queues=False, places=9000)], in_turns=True)
    table = played.until(800).iloc[200:]
    spent_s, s = table["ended_s"] - table["requested_s"], table["size_bit"] / 1e6
    rate = len(table) / (table["requested_s"].iloc[-1] - table["requested_s"].iloc[0])
    law_s = s.mean() + rate * (s**2).mean() / (2 * (1 - rate * s.mean()))
    mean_s, error_s = mean_and_error(spent_s)
    assert abs(mean_s - law_s) < 2.5 * error_s


@pytest.mark.parametrize(
    ("loop", "size"),
    crossed(
        [(5, 10.0, 1.467), (20, 10.0, 10.04), (20, 30.0, 2.262), (40, 30.0, 10.58), (60, 30.0, 30.0)],
        [FixedSize(byte=125_000), ExponentialSize(mean_byte=125_000)],
    ),
)
def test_readers_follow_mean_value_analysis(loop: tuple[int, float, float], size: Any) -> None:
    """A closed loop of m users: R(m) = s (1 + Q(m - 1)), at the mean size that was drawn."""
    users, reading_s, law_s = loop
    readers = [by_laws(user, size, ExponentialGap(mean_s=reading_s), follows=True) for user in range(users)]
    table = Played(readers).until(2500).iloc[10 * users :]
    assert mean_response_s(users, reading_s, 1.0) == pytest.approx(law_s, abs=0.006)
    mean_s, error_s = mean_and_error(table["ended_s"] - table["requested_s"])
    drawn_s = mean_response_s(users, reading_s, table["size_bit"].mean() / 1e6)
    assert abs(mean_s - drawn_s) < 2.5 * error_s


def mean_response_s(users: int, reading_s: float, service_s: float) -> float:
    """Mean value analysis of one server and `users` readers."""
    response_s = service_s
    for m in range(2, users + 1):
        response_s = service_s * (1.0 + (m - 1) * response_s / (response_s + reading_s))
    return response_s


def test_endless_uploads_leave_the_load_to_others() -> None:
    """K endless uploads in equal parts have 1 - rho together; files of others take (k + 1) x / (1 - rho)."""
    played = Played([by_laws(100, FixedSize(byte=12_500), ExponentialGap(mean_s=0.2), queues=False, places=9_000)])

    def uploads() -> Any:
        for device in range(5):
            played.medium.send(device, SERVER, Message(None, 10**12))
        yield played.clock.sleep(800)

    table = played.while_playing(uploads()).iloc[200:]
    sent_bit = played.ledger.transfers.column("transmitted_bit").sum()
    assert sent_bit / 800e6 == pytest.approx(0.5, abs=0.025)
    mean_s, error_s = mean_and_error(table["ended_s"] - table["requested_s"])
    assert abs(mean_s - 6 * 0.1 / 0.5) < 2.5 * error_s


def test_uploads_lose_the_part_of_the_band_that_files_take() -> None:
    """8 Mbit/s: an upload of 1 MB beside a file of 250 kB from 0 on has half the band for 0.5 s: it loses 0.25 s."""
    played = Played([source(9, files([(0, 2_000_000)]))], 8e6)

    def upload() -> Any:
        yield played.medium.send(0, SERVER, Message(None, 8_000_000))

    played.while_playing(upload())
    assert played.ledger.transfers.frame()["ended_s"].tolist() == [1.25]
    assert played.ledger.transfers.column("others_s").tolist() == [0.25]


def test_uploads_lose_the_wait_behind_files() -> None:
    """In turns, two uploads at 0.1 s wait for a file until 0.5 s; the second waits for the first, too: no loss."""
    played = Played([source(9, files([(0, 500_000)]))], in_turns=True)

    def uploads() -> Any:
        yield played.clock.sleep(0.1)
        sent = [played.medium.send(device, SERVER, Message(None, 100_000)) for device in (0, 1)]
        yield sent[0]
        yield sent[1]

    played.while_playing(uploads())
    table = played.ledger.transfers.frame()
    assert table["started_s"].tolist() == [0.5, 0.6]
    assert table["others_s"].tolist() == pytest.approx([0.4, 0.4], abs=1e-12)


def test_a_user_is_drawn_by_its_class_and_number_alone() -> None:
    """A further class, user or device changes nobody's place, key, gaps and sizes."""
    size, gap = ExponentialSize(mean_byte=1000), ExponentialGap(mean_s=1)
    phones = Traffic(name="phones", users=2, size=size, gap=gap)
    few = users_of([phones], Disc(radius_m=50), 4, Streams(3), lambda bit: bit)
    other = Traffic(name="other", users=3, size=size, gap=gap, slice="others")
    many = users_of([other, phones.model_copy(update={"users": 5})], Disc(radius_m=50), 9, Streams(3), lambda bit: bit)
    assert few.xy_m.tolist() == many.xy_m[3:5].tolist()
    assert few.numbers.tolist() == many.numbers[3:5].tolist()
    for one, same in zip(few.sources, many.sources[3:5], strict=True):
        assert [next(one.files) for _ in range(20)] == [next(same.files) for _ in range(20)]


@pytest.mark.parametrize(
    "law",
    [
        ParetoSize(shape=1.5, min_byte=10, max_byte=1000),
        ParetoSize(shape=1.0, min_byte=10, max_byte=1000),
        LogNormalSize(mean_byte=100, sigma=1.5, max_byte=500),
        LogNormalSize(mean_byte=100, sigma=1.0),
        FixedGap(mean_s=2.5),
    ],
)
def test_the_mean_of_a_law_is_the_mean_of_its_quantiles(law: Any) -> None:
    """Integral of the quantile function over (0, 1), by the midpoint rule."""
    uniform = (np.arange(200_000) + 0.5) / 200_000
    assert law.quantiles(uniform).mean() == pytest.approx(law.mean, rel=2e-3)
