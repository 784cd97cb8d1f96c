"""Whole rounds by the project and by the second emulator: the same books."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from fednet_emu.emulation.build import build
from fednet_emu.errors import Deadlock
from fednet_emu.federation.federation import Federation
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.rows import KINDS
from fednet_emu.records.table import Table
from fednet_emu.testing import small_scenario
from tests.quick import share

from .emulator import Emulator
from .scenes import scene

CLOSE_NS = 50
"""Instants that both have calculated by themselves differ by rounding, which adds up from instant to instant."""

Rows = list[tuple[Any, ...]]


def rows(table: Table, names: str) -> Rows:
    """Some columns of a table, by row."""
    return list(zip(*(table.column(name).tolist() for name in names.split()), strict=True))


def books_of(fed: Federation) -> dict[str, Rows]:
    """The ledger in the second emulator's form."""
    ledger = fed.ledger
    fates: dict[int, Rows] = {}
    for transfer, receiver, lost in rows(ledger.receptions, "transfer receiver loss_reason"):
        fates.setdefault(transfer, []).append((receiver, REASONS[lost]))
    transfers = []
    what = "direction sender started_ns ended_ns receiver loss_reason transmitted_bit energy_j rx_energy_j"
    what += " others_s" * ledger.is_shared
    for number, (kind, sender, start, end, receiver, lost, *amounts) in enumerate(rows(ledger.transfers, what)):
        each = sorted(fates.get(number, [(receiver, REASONS[lost])]))
        transfers.append((KINDS[kind], sender, start, end, *each, *amounts))
    flips, state = [], dict[int, int]()
    for k, at_ns, on in rows(ledger.batteries, "device simulated_ns state"):
        if state.setdefault(k, on) != on:
            flips.append((k, at_ns, bool(on)))
            state[k] = on
    balance = "device charge_j harvested_j spilled_j computing_j sending_j receiving_j idle_j"
    backhaul = rows(ledger.backhaul, "edge direction requested_ns started_ns ended_ns loss_reason energy_j")
    computes = rows(ledger.computes, "device started_ns ended_ns stopped flop energy_j")
    plans, bursts = ledger.series.get("plan", []), ledger.series.get("over_the_air", [])
    return {
        "transfers": transfers,
        "computes": [(*when, REASONS[stopped], flop, joule) for *when, stopped, flop, joule in computes],
        "rounds": rows(ledger.rounds, "started_ns ended_ns invited arrived"),
        "backhaul": [(edge, bool(up), *when, REASONS[lost], joule) for edge, up, *when, lost, joule in backhaul],
        "flips": flips,
        "batteries": list({row[0]: row for row in rows(ledger.batteries, balance)}.values()),
        "plan": [tuple(row[name] for name in ("round", "device", "share", "power_part", "ends_s")) for row in plans],
        "idle": [(ledger.idle.until_j(fed.clock.now),)],
        "traffic": traffic_of(ledger),
        "bursts": [tuple(row[name] for name in ("ready", "summed", "snr")) for row in bursts],
    }  # fmt: skip


def traffic_of(ledger: Any) -> Rows:
    """The files of other users."""
    what = "traffic_class user slice size_bit requested_ns started_ns ended_ns transmitted_bit loss_reason"
    return [(*row, REASONS[lost]) for *row, lost in rows(ledger.traffic, what)]


def assert_same_rounds(settings: tuple[str, ...]) -> None:
    """Every row of every table: instants to some nanoseconds, and amounts to what flows in these."""
    scenario = small_scenario(*settings)
    fed, other, ended = build(scenario, timing_only=True), Emulator(scenario).play(), "done"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of plans that nobody fits into
        try:
            fed.run(scenario.algorithm)
        except Deadlock:
            ended = "deadlock"
            fed.close()
    books = books_of(fed)
    assert ended == other.ended
    for name, expected in other.all_books().items():
        both = [books[name], expected]
        if name == "traffic":  # without the files that the end of the run cuts off
            both = [[row for row in each if row[6] < other.now_ns] for each in both]
        found, due = (sorted(each, key=in_order) for each in both)
        assert len(found) == len(due), (name, found, due)
        for pair in zip(found, due, strict=True):
            assert len(pair[0]) == len(pair[1]), (name, pair)
            assert all(map(is_close, *pair)), (name, pair)


def in_order(row: tuple[Any, ...]) -> list[str]:
    """By what and whom, and then by time: not by what was written first in an instant."""
    return [f"{value:>30}" if isinstance(value, int) else str(value) for value in row]


def is_close(found: Any, due: Any) -> bool:
    """Whether two entries of the books are as good as equal."""
    if isinstance(due, float):
        return bool(found == pytest.approx(due, rel=1e-5, abs=2e-7 if due < 1 else 0.2, nan_ok=True))
    if isinstance(due, int) and due > 1000:
        return abs(found - due) <= CLOSE_NS
    return bool(found == due)


LEFT_BEFORE_ITS_BATTERY_WAS_EMPTY = 4000673
"""A scene in which a receiver of a broadcast leaves, and the batteries of all receivers are empty afterwards."""


@pytest.mark.parametrize("number", [*range(share(80)), LEFT_BEFORE_ITS_BATTERY_WAS_EMPTY])
def test_both_keep_the_same_books(number: int) -> None:
    """Of drawn scenes: turns, parts, plans, sums over the air and edge servers, half of them with batteries."""
    assert_same_rounds(scene(number))


@pytest.mark.parametrize("number", range(share(40)))
def test_both_keep_the_same_books_among_other_users(number: int) -> None:
    """Of drawn scenes with files of other users in turns or in parts of the band, most with slices."""
    assert_same_rounds(scene(number, shared=True))


def test_both_end_where_only_batteries_go_on() -> None:
    """The devices leave for good after 5 ms, within a round; batteries would get empty and be charged for ever."""
    windows = {"kind": "windows", "devices": {device: [[0.0, 0.005]] for device in range(3)}}
    settings = (*scene(514), f"devices.availability={json.dumps(windows)}")

    assert_same_rounds(settings)
    assert Emulator(small_scenario(*settings)).play().ended == "deadlock"


@pytest.mark.slow
def test_both_keep_the_same_books_of_many_scenes() -> None:
    """Of a thousand."""
    for number in range(1000):
        assert_same_rounds(scene(number))
        assert_same_rounds(scene(number, shared=True))
