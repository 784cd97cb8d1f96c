"""A trace read back with Perfetto's own protos, beside the ledger of the run that it was written from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fednet_emu.draw.trace import feed
from fednet_emu.emulation.given import scenario_of
from fednet_emu.emulation.play import play
from fednet_emu.records.ledger import SERVER, SEVERAL, Ledger, device_label
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.rows import KINDS
from fednet_emu.results.run import Run

Trace = Any
FAST = {"kind": "random-direction", "min_speed_m_s": 100, "max_speed_m_s": 200, "mean_leg_s": 5}
STORIES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "turns with losses": ("quickstart", 4, {"network.uplink.loss": {"kind": "random", "probability": 0.2}}),
    "together": ("quickstart", 4, {"network.uplink.access": "ofdma", "network.downlink.mode": "unicast"}),
    "a deadline": ("quickstart", 4, {"algorithm.deadline_s": 0.5}),
    "asynchronous": ("aspire_digits", 30, {}),
    "sidelinks": ("d2d_clusters", 3, {}),
    "cells": ("interference_cells", 3, {}),
    "moving": ("interference_cells", 6, {"devices.mobility": FAST}),
}
"""Names of scenarios, rounds and settings."""


@cache
def played(story: str) -> tuple[Run, Ledger]:
    """A short run without training, and its ledger."""
    name, rounds, settings = STORIES[story]
    scenario = scenario_of(name, {"stop": {"rounds": rounds}, **settings})[1].scenario
    ended = play(scenario, name, None, timing_only=True, keep_model=True)
    return Run.ended(ended, scenario, None), ended.ledger


@pytest.fixture(params=STORIES)
def story(request: pytest.FixtureRequest) -> str:
    """The name of a story."""
    return str(request.param)


def rows(ledger: Ledger, table: str) -> Iterator[dict[str, Any]]:
    """The rows of a table of the ledger, numbered, with times in ns and reasons in words."""
    columns = getattr(ledger, table).columns
    values = [getattr(ledger, table).column(name).tolist() for name in columns]
    for number, row in enumerate(zip(*values, strict=True)):
        named = dict(zip(columns, row, strict=True))
        reasons = {name: REASONS[named[name]] for name in ("lost", "stopped") if name in named}
        yield {"row": number, **named, **reasons}


Expected = tuple[str, str, int, int, int]
"""What a slice of a device must be: device, name, begin and end in ns, row in its table."""


def expected(ledger: Ledger) -> Counter[Expected]:
    """All slices of devices, one by one from the rows of the ledger."""
    found: Counter[Expected] = Counter()
    heard: dict[int, list[tuple[int, str]]] = {}
    for row in rows(ledger, "receptions"):
        heard.setdefault(row["transfer"], []).append((row["receiver"], row["lost"]))
    for row in rows(ledger, "transfers"):
        kind, number, sender = KINDS[row["kind"]], row["row"], row["sender"]
        to = heard[number] if row["receiver"] == SEVERAL else [(row["receiver"], row["lost"])]
        out, into = ("sidelink out", "sidelink in") if kind == "sidelink" else (kind, kind)
        took_part = [(sender, out, row["lost"]), *((device, into, lost) for device, lost in to)]
        waited = [(sender, row["lost"])] if sender != SERVER else to
        requested_ns, started_ns, ended_ns = row["requested_ns"], row["started_ns"], row["ended_ns"]
        for device, name, lost in took_part if started_ns >= 0 else []:
            if device != SERVER:
                found[
                    device_label(device), name + (f", lost: {lost}" if lost else ""), started_ns, ended_ns, number
                ] += 1
        until_ns = started_ns if started_ns >= 0 else ended_ns
        for device, lost in waited if until_ns > requested_ns else []:
            name = "waiting" if started_ns >= 0 else f"waiting, given up: {lost}"
            found[device_label(device), name, requested_ns, until_ns, number] += 1
    for row in rows(ledger, "computes"):
        name = "computing" + (f", stopped: {row['stopped']}" if row["stopped"] else "")
        found[device_label(row["device"]), name, row["started_ns"], row["ended_ns"], row["row"]] += 1
    return found


def of_devices(trace: Trace) -> list[Any]:
    """All slices on the tracks of devices and of the server, without the turns that hold them."""
    return [one for one in trace.slices if one.track[-1].startswith(("dev-", "server")) and one.told]


def written(trace: Trace) -> Counter[Expected]:
    """The slices of devices as in `expected`."""
    return Counter(
        (one.track[-1], one.name, one.started_ns, one.ended_ns, one.told.get("transfer", one.told.get("compute")))
        for one in of_devices(trace)
    )


def test_every_row_of_the_ledger_is_a_slice_to_the_nanosecond(
    story: str, tmp_path: Path, read_trace: Callable[[Path], Trace]
) -> None:
    """Devices, names, begins, ends and row numbers of all slices are those of the ledger, none missing, none more."""
    run, ledger = played(story)

    trace = read_trace(run.trace(tmp_path / "run.pftrace"))

    assert expected(ledger) == written(trace)


def test_media_carry_every_transmission_once(story: str, tmp_path: Path, read_trace: Callable[[Path], Trace]) -> None:
    """What was on the air is on the track of its kind of link, in the cell where it was sent, to the nanosecond."""
    run, ledger = played(story)

    trace = read_trace(run.trace(tmp_path / "run.pftrace"))

    on_air = {(one.track[0], kind, one.told["transfer"], one.started_ns, one.ended_ns)
              for kind in KINDS for one in trace.on("medium", kind)}  # fmt: skip
    sent = {(f"cell {row['cell'] * (KINDS[row['kind']] != 'sidelink')}", KINDS[row["kind"]], row["row"],
             row["started_ns"], row["ended_ns"])
            for row in rows(ledger, "transfers") if row["started_ns"] >= 0}  # fmt: skip
    assert on_air == sent


def test_slices_are_told_their_size_rate_and_energy(
    story: str, tmp_path: Path, read_trace: Callable[[Path], Trace]
) -> None:
    """The rate is bits over time on the air; energies of all slices sum up to the run's but idle power."""
    run, ledger = played(story)
    sent = list(rows(ledger, "transfers"))

    trace = read_trace(run.trace(tmp_path / "run.pftrace"))

    for one in of_devices(trace):
        if "size_bit" in one.told:
            row = sent[one.told["transfer"]]
            duration_s = max(row["ended_ns"] - row["started_ns"], 1) / 1e9
            assert one.told["size_bit"] == row["size_bit"]
            assert one.told["rate_bps"] == pytest.approx(row["air_bit"] / duration_s)
    by_server_j = sum(row["energy_j"] for row in sent if row["sender"] == SERVER)
    shown_j = sum(one.told.get("energy_j", 0.0) for one in of_devices(trace))
    assert shown_j + by_server_j == pytest.approx(run.summary["energy_j"] - run.summary["idle_j"])


def test_slices_of_a_device_are_nested_in_turns(
    story: str, tmp_path: Path, read_trace: Callable[[Path], Trace]
) -> None:
    """On a device's first lane all slices are inside turns, which begin and end with them; nothing else is nested."""
    run, _ = played(story)

    trace = read_trace(run.trace(tmp_path / "run.pftrace"))

    turns = [one for one in trace.slices if one.name.startswith(("round", "turn")) and one.track[-1] != "rounds"]
    inner = of_devices(trace)
    first_lanes = {one.lane for one in turns}
    assert all(one.depth == 0 for one in turns)
    assert all(one.depth == (1 if one.lane in first_lanes else 0) for one in inner)
    begins = {(one.track, one.started_ns) for one in inner}
    ends = {(one.track, one.ended_ns) for one in inner}
    assert {(one.track, one.started_ns) for one in turns} <= begins
    assert {(one.track, one.ended_ns) for one in turns} <= ends


def test_counters_are_those_of_the_ledger(story: str, tmp_path: Path, read_trace: Callable[[Path], Trace]) -> None:
    """At every instant: transfers on the air, transfers waiting, bits and energy so far, summed over the cells."""
    run, ledger = played(story)
    sent, worked = list(rows(ledger, "transfers")), list(rows(ledger, "computes"))

    trace = read_trace(run.trace(tmp_path / "run.pftrace"))

    def at(name: str, now_ns: int) -> float:
        tracks = [values for track, values in trace.counters.items() if track[-1] == name]
        return sum(([value for at_ns, value in values if at_ns <= now_ns] or [0.0])[-1] for values in tracks)

    instants = np.unique([row[name] for row in sent for name in ("requested_ns", "started_ns", "ended_ns")])
    for now_ns in instants[instants >= 0][:: max(1, len(instants) // 40)].tolist():
        for kind in KINDS:
            mine = [row for row in sent if KINDS[row["kind"]] == kind]
            on_air = [row for row in mine if row["started_ns"] >= 0]
            begun = [row["started_ns"] if row["started_ns"] >= 0 else row["ended_ns"] for row in mine]
            waiting = sum(row["requested_ns"] <= now_ns < until for row, until in zip(mine, begun, strict=True))
            sending = sum(row["started_ns"] <= now_ns < row["ended_ns"] for row in on_air)
            bits = sum(row["air_bit"] for row in on_air if row["ended_ns"] <= now_ns)
            assert at(f"{kind}: queue length", now_ns) == waiting
            assert at(f"{kind}: active senders", now_ns) == sending
            assert at(f"{kind}: bits on the air", now_ns) == pytest.approx(bits)
        spent_j = sum(row["energy_j"] + row["receive_j"] for row in sent if row["ended_ns"] <= now_ns)
        spent_j += sum(row["energy_j"] for row in worked if row["ended_ns"] <= now_ns)
        assert at("energy", now_ns) == pytest.approx(spent_j)
    assert trace.units[("cell 0", "medium", "uplink: bits on the air")] == "bit"


def test_rounds_are_slices_and_averages_gather_what_arrived(
    story: str, tmp_path: Path, read_trace: Callable[[Path], Trace]
) -> None:
    """Rounds have the times of the ledger; an average at its end has a flow from each update that has come in it."""
    run, ledger = played(story)
    recorded = list(rows(ledger, "rounds"))

    trace = read_trace(run.trace(tmp_path / "run.pftrace"))

    shown = [one for one in trace.on("rounds") if one.name != "average"]
    assert [(one.name, one.started_ns, one.ended_ns, one.told["arrived"]) for one in shown] == [
        (f"round {row['round']}", row["started_ns"], row["ended_ns"], row["arrived"]) for row in recorded
    ]
    uplinks = [row for row in rows(ledger, "transfers") if row["kind"] == 0 and not row["lost"]]
    began_ns = -1
    for row in recorded:
        came = sum(began_ns < uplink["ended_ns"] <= row["ended_ns"] for uplink in uplinks)
        average = [len(one.flows) for one in trace.on("rounds")
                   if one.name == "average" and one.started_ns == row["ended_ns"]]  # fmt: skip
        assert average == ([came] if came else [])
        began_ns = row["ended_ns"]


def test_flows_lead_from_a_broadcast_over_the_training_to_the_average(
    tmp_path: Path, read_trace: Callable[[Path], Trace]
) -> None:
    """Back from each average, every chain of arrows is: uplink on the air, uplink, computing, downlink, broadcast."""
    run, ledger = played("turns with losses")
    trace = read_trace(run.trace(tmp_path / "run.pftrace"))
    before: dict[int, list[int]] = {}
    for source, target in trace.arrows():
        before.setdefault(target, []).append(source)

    chains = []
    for place, average in enumerate(trace.slices):
        if average.name == "average":
            for first in before[place]:
                chain, step = [trace.slices[first]], first
                while step in before:
                    (step,) = before[step]
                    chain.append(trace.slices[step])
                chains.append(chain)

    delivered = [row for row in rows(ledger, "transfers") if row["kind"] == 0 and not row["lost"]]
    assert len(chains) == len(delivered)
    for on_air, uplink, computing, downlink, broadcast in chains:
        assert [on_air.track[-2:], broadcast.track[-2:]] == [("medium", "uplink"), ("medium", "downlink")]
        assert [uplink.name, computing.name, downlink.name] == ["uplink", "computing", "downlink"]
        assert on_air.name == uplink.track[-1] == computing.track[-1] == downlink.track[-1]
        assert broadcast.name == "broadcast"


def test_one_process_per_cell_with_the_devices_it_serves(tmp_path: Path, read_trace: Callable[[Path], Trace]) -> None:
    """Each device is below the nearest of the seven stations up to shadowing, as the network itself says."""
    from fednet_emu.emulation.build import build

    run, _ = played("cells")
    network = build(run.scenario, timing_only=True).network

    trace = read_trace(run.trace(tmp_path / "run.pftrace"))

    shown = {one.track[-1]: one.track[:2] for one in of_devices(trace)}
    assert len({track[0] for track in shown.values()}) > 3
    for device in range(run.scenario.devices.count):
        cell = -1 - network.up_links.station_of(device)
        if device_label(device) in shown:
            assert shown[device_label(device)] == (f"cell {cell}", "devices")


def test_parts_of_any_size_give_the_same_slices(
    story: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_trace: Callable[[Path], Trace]
) -> None:
    """A table read seven rows at a time gives the trace that a table read at once gives."""
    run, _ = played(story)
    whole = read_trace(run.trace(tmp_path / "whole.pftrace"))
    monkeypatch.setattr(feed, "PART_ROWS", 7)

    parts = read_trace(run.trace(tmp_path / "parts.pftrace"))

    assert sorted(map(repr, parts.slices)) == sorted(map(repr, whole.slices))
    assert parts.counters.keys() == whole.counters.keys()
    for track, values in whole.counters.items():
        np.testing.assert_allclose(parts.counters[track], values, rtol=1e-12)
    assert {(parts.slices[a].name, parts.slices[b].name, parts.slices[a].started_ns) for a, b in parts.arrows()} == {
        (whole.slices[a].name, whole.slices[b].name, whole.slices[a].started_ns) for a, b in whole.arrows()
    }


def test_a_window_has_what_overlaps_it(story: str, tmp_path: Path, read_trace: Callable[[Path], Trace]) -> None:
    """Slices are those of the ledger that overlap the window, of the devices that were asked for."""
    run, ledger = played(story)
    end_s = run.summary["simulated_s"]
    chosen = sorted({row["sender"] for row in rows(ledger, "transfers") if row["sender"] >= 0})[:3]
    names = {device_label(device) for device in chosen}

    part = read_trace(run.trace(tmp_path / "p.pftrace", from_s=0.3 * end_s, until_s=0.6 * end_s, devices=chosen))

    from_ns, until_ns = round(0.3 * end_s * 1e9), round(0.6 * end_s * 1e9)
    wanted = {what: count for what, count in expected(ledger).items()
              if what[0] in names and what[3] >= from_ns and what[2] <= until_ns}  # fmt: skip
    assert written(part) == Counter(wanted)
    assert wanted
    assert all(from_ns <= at_ns <= until_ns for values in part.counters.values() for at_ns, _ in values)
