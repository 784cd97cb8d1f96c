"""Traces for Perfetto: encoding, files, energies, and what is read back with Perfetto's own protos."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, TracePacket, TrackDescriptor

import fednet_emu as fe
from fednet_emu.analysis.run import RunRecords
from fednet_emu.draw.trace import feed
from fednet_emu.draw.trace.activity import Lanes, Turns
from fednet_emu.draw.trace.feed import Part, device_slices, idle_energy, nanoseconds, steps
from fednet_emu.draw.trace.names import DEVICE, track_number, track_parts
from fednet_emu.draw.trace.packets import Form, blank_fixed, blank_number, interleaved, message, nested, varint
from fednet_emu.draw.trace.trace import write_trace
from fednet_emu.emulation.given import scenario_of
from fednet_emu.emulation.play import play
from fednet_emu.network.links.links import cell_of
from fednet_emu.records.ledger import NEVER_NS, SERVER, SEVERAL, Ledger, device_label
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.rows import KINDS
from fednet_emu.results.run import Run

Trace = Any
FAST = {"kind": "random-direction", "min_speed_m_s": 100, "max_speed_m_s": 200, "mean_leg_s": 5}
STORIES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "turns with losses": ("quickstart", 4, {"network.uplink.message_loss": {"kind": "random", "probability": 0.2}}),
    "together": ("quickstart", 4, {"network.uplink.access": "ofdma", "network.downlink.mode": "unicast"}),
    "a deadline": ("quickstart", 4, {"algorithm.deadline_s": 0.5}),
    "asynchronous": ("aspire_digits", 30, {}),
    "sidelinks": ("d2d_clusters", 3, {}),
    "cells": ("interference_cells", 3, {}),
    "moving": ("interference_cells", 6, {"devices.mobility": FAST}),
}
SPENDING: dict[str, tuple[str, int, dict[str, Any]]] = {
    "idle stations": ("quickstart", 3, {"channel.base_station.idle_w": 5}),
    "a backhaul": ("edge_servers", 1, {"devices.count": 10, "algorithm.cohort": 10}),
    "empty batteries": ("batteries", 12, {}),
}
DELAYED: dict[str, tuple[str, int, dict[str, Any]]] = {
    "waits for acknowledgements": (
        "quickstart",
        2,
        {"network.downlink.mode": "unicast", "network.transport": {"kind": "tcp", "rtt_s": 1.0}},
    ),
    "propagation": ("satellite_ring", 1, {}),
}
"""Names of scenarios, rounds and settings."""


@cache
def played(story: str) -> tuple[Run, Ledger]:
    name, rounds, settings = (STORIES | SPENDING | DELAYED)[story]
    scenario = scenario_of(name, {"stop": {"rounds": rounds}, **settings})[1].scenario
    ended = play(scenario, name, None, timing_only=True, keep_model=True)
    return Run.ended(ended, scenario, None), ended.ledger


@pytest.fixture(params=STORIES)
def story(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, read_trace: Callable[[Path], Trace]) -> Callable[[str], Trace]:
    """Reads the trace of a whole story, once; tests only look at it."""
    folder = tmp_path_factory.mktemp("whole")
    return cache(lambda story: read_trace(played(story)[0].trace(folder / f"{story}.pftrace")))


def rows(ledger: Ledger, table: str) -> Iterator[dict[str, Any]]:
    """The rows of a table of the ledger, numbered, with times in ns and reasons in words."""
    columns = getattr(ledger, table).columns
    values = [getattr(ledger, table).column(name).tolist() for name in columns]
    for number, row in enumerate(zip(*values, strict=True)):
        named = dict(zip(columns, row, strict=True))
        reasons = {name: REASONS[named[name]] for name in ("loss_reason", "stopped") if name in named}
        yield {"row": number, **named, **reasons}


Expected = tuple[str, str, int, int, int]
"""What a slice of a device must be: device, name, begin and end in ns, row in its table."""


def expected(ledger: Ledger) -> Counter[Expected]:
    """All slices of devices, one by one from the rows of the ledger."""
    found: Counter[Expected] = Counter()
    heard: dict[int, list[tuple[int, str]]] = {}
    for row in rows(ledger, "receptions"):
        heard.setdefault(row["transfer"], []).append((row["receiver"], row["loss_reason"]))
    for row in rows(ledger, "transfers"):
        kind, number, sender = KINDS[row["direction"]], row["row"], row["sender"]
        to = heard[number] if row["receiver"] == SEVERAL else [(row["receiver"], row["loss_reason"])]
        out, into = ("sidelink out", "sidelink in") if kind == "sidelink" else (kind, kind)
        took_part = [(sender, out, row["loss_reason"]), *((device, into, lost) for device, lost in to)]
        waited = [(sender, row["loss_reason"])] if sender != SERVER else to
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
    return Counter(
        (one.track[-1], one.name, one.started_ns, one.ended_ns, one.told.get("transfer", one.told.get("compute")))
        for one in of_devices(trace)
    )


def test_every_row_of_the_ledger_is_a_slice_to_the_nanosecond(story: str, whole: Callable[[str], Trace]) -> None:
    """Devices, names, begins, ends and row numbers of all slices are those of the ledger, none missing, none more."""
    _, ledger = played(story)

    trace = whole(story)

    assert expected(ledger) == written(trace)


def test_media_carry_every_transmission_once(story: str, whole: Callable[[str], Trace]) -> None:
    """What was on the air is on the track of its kind of link, in the cell where it was sent, to the nanosecond."""
    _, ledger = played(story)

    trace = whole(story)

    on_air = {(one.track[0], kind, one.told["transfer"], one.started_ns, one.ended_ns)
              for kind in KINDS for one in trace.on("medium", kind)}  # fmt: skip
    sent = {(f"cell {row['cell'] * (KINDS[row['direction']] != 'sidelink')}", KINDS[row["direction"]], row["row"],
             row["started_ns"], row["ended_ns"])
            for row in rows(ledger, "transfers") if row["started_ns"] >= 0}  # fmt: skip
    assert on_air == sent


def test_slices_are_told_their_size_rate_and_energy(story: str, whole: Callable[[str], Trace]) -> None:
    """The rate is bits over time on the air; energies of all slices sum up to the run's but idle power."""
    run, ledger = played(story)
    sent = list(rows(ledger, "transfers"))

    trace = whole(story)

    for one in of_devices(trace):
        if "size_bit" in one.told:
            row = sent[one.told["transfer"]]
            duration_s = (row["ended_ns"] - row["started_ns"]) / 1e9
            rate_bps = row["transmitted_bit"] / duration_s if duration_s else np.nan
            assert one.told["size_bit"] == row["size_bit"]
            assert one.told["rate_bps"] == pytest.approx(rate_bps, nan_ok=True)
    by_server_j = sum(row["energy_j"] for row in sent if row["sender"] == SERVER)
    shown_j = sum(one.told.get("energy_j", 0.0) for one in of_devices(trace))
    assert shown_j + by_server_j == pytest.approx(run.summary["energy_j"] - run.summary["idle_j"])


@pytest.mark.parametrize("delayed", DELAYED)
def test_the_rate_is_that_of_the_time_in_which_bits_are_sent(delayed: str, whole: Callable[[str], Trace]) -> None:
    """Neither waits for acknowledgements nor the way of the last bit make a link slower than it is."""
    _, ledger = played(delayed)
    sent = list(rows(ledger, "transfers"))

    told = [one.told for one in of_devices(whole(delayed)) if "rate_bps" in one.told]

    assert max(row["ack_wait_ns"] + row["reception_delay_ns"] for row in sent) > 0
    for each in told:
        row = sent[each["transfer"]]
        air_ns = row["ended_ns"] - row["started_ns"] - row["ack_wait_ns"] - row["reception_delay_ns"]
        assert each["rate_bps"] == pytest.approx(row["transmitted_bit"] / air_ns * 1e9)


@pytest.mark.parametrize("spending", SPENDING)
def test_energy_ends_at_that_of_the_summary(spending: str, whole: Callable[[str], Trace]) -> None:
    """Idle devices, idle base stations and the backhaul spend energy, too."""
    run, _ = played(spending)

    energy = {track[-1]: values for track, values in whole(spending).counters.items()}["energy"]

    assert energy[-1] == (nanoseconds(run.summary["simulated_s"]), pytest.approx(run.summary["energy_j"]))
    assert all(after >= before for (_, before), (_, after) in pairwise(energy))


def test_idle_energy_stands_still_while_a_battery_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each change, the counter equals the idle energy that the batteries have supplied, for any size of a part."""
    run, _ = played("empty batteries")
    monkeypatch.setattr(feed, "PART_ROWS", 7)
    given = run.table("batteries").groupby("device")

    at_ns, idle_j = idle_energy(run)

    known_j = sum(np.interp(at_ns, nanoseconds(its["simulated_s"]), its["idle_j"]) for _, its in given)
    assert (run.table("batteries")["state"] == "empty").any()
    np.testing.assert_allclose(idle_j, known_j, rtol=1e-9, atol=1e-12)


def test_slices_of_a_device_are_nested_in_turns(story: str, whole: Callable[[str], Trace]) -> None:
    """On a device's first lane all slices are inside turns, which begin and end with them; nothing else is nested."""
    trace = whole(story)

    turns = [one for one in trace.slices if one.name.startswith(("round", "turn")) and one.track[-1] != "rounds"]
    inner = of_devices(trace)
    first_lanes = {one.lane for one in turns}
    assert all(one.depth == 0 for one in turns)
    assert all(one.depth == (1 if one.lane in first_lanes else 0) for one in inner)
    begins = {(one.track, one.started_ns) for one in inner}
    ends = {(one.track, one.ended_ns) for one in inner}
    assert {(one.track, one.started_ns) for one in turns} <= begins
    assert {(one.track, one.ended_ns) for one in turns} <= ends


def test_counters_are_those_of_the_ledger(story: str, whole: Callable[[str], Trace]) -> None:
    """At every instant: transfers on the air, transfers waiting, bits and energy so far, summed over the cells."""
    _, ledger = played(story)
    sent, worked = list(rows(ledger, "transfers")), list(rows(ledger, "computes"))

    trace = whole(story)

    def at(name: str, now_ns: int) -> float:
        tracks = [values for track, values in trace.counters.items() if track[-1] == name]
        return sum(([value for at_ns, value in values if at_ns <= now_ns] or [0.0])[-1] for values in tracks)

    instants = np.unique([row[name] for row in sent for name in ("requested_ns", "started_ns", "ended_ns")])
    for now_ns in instants[instants >= 0][:: max(1, len(instants) // 20)].tolist():
        for kind in KINDS:
            mine = [row for row in sent if KINDS[row["direction"]] == kind]
            on_air = [row for row in mine if row["started_ns"] >= 0]
            begun = [row["started_ns"] if row["started_ns"] >= 0 else row["ended_ns"] for row in mine]
            waiting = sum(row["requested_ns"] <= now_ns < until for row, until in zip(mine, begun, strict=True))
            sending = sum(row["started_ns"] <= now_ns < row["ended_ns"] for row in on_air)
            bits = sum(row["transmitted_bit"] for row in on_air if row["ended_ns"] <= now_ns)
            assert at(f"{kind}: queue length", now_ns) == waiting
            assert at(f"{kind}: active senders", now_ns) == sending
            assert at(f"{kind}: bits on the air", now_ns) == pytest.approx(bits)
        spent_j = sum(row["energy_j"] + row["rx_energy_j"] for row in sent if row["ended_ns"] <= now_ns)
        spent_j += sum(row["energy_j"] for row in worked if row["ended_ns"] <= now_ns)
        idle_j = ledger.spent_j(now_ns) - ledger.energy_j
        assert at("energy", now_ns) == pytest.approx(spent_j + idle_j)
    assert trace.units[("cell 0", "medium", "uplink: bits on the air")] == "bit"


def test_rounds_are_slices_and_averages_gather_what_arrived(story: str, whole: Callable[[str], Trace]) -> None:
    """Rounds have the times of the ledger; an average at its end has a flow from each update that has come in it."""
    _, ledger = played(story)
    recorded = list(rows(ledger, "rounds"))

    trace = whole(story)

    shown = [one for one in trace.on("rounds") if one.name != "average"]
    assert [(one.name, one.started_ns, one.ended_ns, one.told["arrived"]) for one in shown] == [
        (f"round {row['round']}", row["started_ns"], row["ended_ns"], row["arrived"]) for row in recorded
    ]
    uplinks = [row for row in rows(ledger, "transfers") if row["direction"] == 0 and not row["loss_reason"]]
    began_ns = -1
    for row in recorded:
        came = sum(began_ns < uplink["ended_ns"] <= row["ended_ns"] for uplink in uplinks)
        average = [len(one.flows) for one in trace.on("rounds")
                   if one.name == "average" and one.started_ns == row["ended_ns"]]  # fmt: skip
        assert average == ([came] if came else [])
        began_ns = row["ended_ns"]


def test_flows_lead_from_a_broadcast_over_the_training_to_the_average(whole: Callable[[str], Trace]) -> None:
    """Back from each average, every chain of arrows is: uplink on the air, uplink, computing, downlink, broadcast."""
    _, ledger = played("turns with losses")
    trace = whole("turns with losses")
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

    delivered = [row for row in rows(ledger, "transfers") if row["direction"] == 0 and not row["loss_reason"]]
    assert len(chains) == len(delivered)
    for on_air, uplink, computing, downlink, broadcast in chains:
        assert [on_air.track[-2:], broadcast.track[-2:]] == [("medium", "uplink"), ("medium", "downlink")]
        assert [uplink.name, computing.name, downlink.name] == ["uplink", "computing", "downlink"]
        assert on_air.name == uplink.track[-1] == computing.track[-1] == downlink.track[-1]
        assert broadcast.name == "broadcast"


def test_one_process_per_cell_with_the_devices_it_serves(whole: Callable[[str], Trace]) -> None:
    """Each device is below the nearest of the seven stations up to shadowing, as the network itself says."""
    from fednet_emu.emulation.build import build

    run, _ = played("cells")
    network = build(run.scenario, timing_only=True).network

    trace = whole("cells")

    shown = {one.track[-1]: one.track[:2] for one in of_devices(trace)}
    assert len({track[0] for track in shown.values()}) > 3
    for device in range(run.scenario.devices.count):
        cell = cell_of(network.up_links.station_of(device))
        if device_label(device) in shown:
            assert shown[device_label(device)] == (f"cell {cell}", "devices")


def test_parts_of_any_size_give_the_same_slices(
    story: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read_trace: Callable[[Path], Trace],
    whole: Callable[[str], Trace],
) -> None:
    """A table read seven rows at a time gives the trace that a table read at once gives."""
    run, _ = played(story)
    at_once = whole(story)
    monkeypatch.setattr(feed, "PART_ROWS", 7)

    parts = read_trace(run.trace(tmp_path / "parts.pftrace"))

    assert sorted(map(repr, parts.slices)) == sorted(map(repr, at_once.slices))
    assert parts.counters.keys() == at_once.counters.keys()
    for track, values in at_once.counters.items():
        np.testing.assert_allclose(parts.counters[track], values, rtol=1e-12)
    assert {(parts.slices[a].name, parts.slices[b].name, parts.slices[a].started_ns) for a, b in parts.arrows()} == {
        (at_once.slices[a].name, at_once.slices[b].name, at_once.slices[a].started_ns) for a, b in at_once.arrows()
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


SPANS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 12)), max_size=60
)  # track, start, length
CUTS = st.lists(st.integers(0, 60), max_size=60)


@given(st.integers(0, 2**63 - 1), st.text(max_size=300))
def test_messages_are_read_as_written(number: int, name: str) -> None:
    """Numbers and texts of any size come back from the official reader, and the bytes are those that it writes."""
    written = message((1, number), (2, name))

    read = TrackDescriptor.FromString(written)

    assert (read.uuid, read.name) == (number, name)
    assert written == TrackDescriptor(uuid=number, name=name).SerializeToString(deterministic=True)
    assert varint(number) == message((1, number))[1:]


@given(
    st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**28 - 1), st.floats(allow_nan=False)), min_size=1)
)
def test_batches_are_read_as_written(rows: list[tuple[int, int, float]]) -> None:
    """Blanks of a batch keep every number up to their width, in messages inside of messages too."""
    time_ns, name, value = (np.array(column) for column in zip(*rows, strict=True))
    form = Form([*blank_number(8, 9), *nested(11, [*blank_number(10, 4), *nested(4, blank_fixed(5))])])

    packets = [TracePacket.FromString(row.tobytes()) for row in form.filled(time_ns, name, value)]

    read = [(each.timestamp, each.track_event.name_iid, each.track_event.debug_annotations[0]) for each in packets]
    assert read == [(at, iid, DebugAnnotation(double_value=number)) for at, iid, number in rows]


@given(st.permutations(range(30)))
def test_batches_of_different_lengths_are_joined_in_order(order: list[int]) -> None:
    """Each message is where its number says, whatever batch it is in."""
    short, long = Form([b"a", *blank_number(1, 1)]), Form([b"bc", *blank_number(1, 1)])
    numbers = np.array(order)

    joined = interleaved([numbers[:13], numbers[13:]], [short.filled(numbers[:13]), long.filled(numbers[13:])])

    expected = [(b"a" if order.index(place) < 13 else b"bc") + bytes([8, place]) for place in range(30)]
    assert joined == b"".join(expected)


def placed(spans: list[tuple[int, int, int]], cut_ns: int) -> list[tuple[int, int, int, int]]:
    """Track, start, end and lane of spans that come in two batches, those up to a time and those after it."""
    lanes, found = Lanes(), []
    for late in (False, True):
        batch = sorted((track, start, start + length) for track, start, length in spans if (start > cut_ns) == late)
        columns = np.array(batch, np.int64).reshape(-1, 3).T
        found += [(*span, lane) for span, lane in zip(batch, lanes.of(*columns).tolist(), strict=True)]
    return found


@given(SPANS, st.integers(0, 40))
def test_slices_on_a_lane_never_overlap_and_lanes_are_few(spans: list[tuple[int, int, int]], cut_ns: int) -> None:
    """On no lane does a slice start before the one before has ended; there are as many lanes as slices at once."""
    found = placed(spans, cut_ns)

    for track in range(4):
        mine = [(start, end, lane) for on, start, end, lane in found if on == track]
        for lane in {lane for _, _, lane in mine}:
            ends = [(start, end) for start, end, on in mine if on == lane]
            assert all(start >= before for (_, before), (start, _) in pairwise(ends))
        at_once = max((sum(start <= at < end for start, end, _ in mine) for at, _, _ in mine), default=0)
        assert len({lane for start, end, lane in mine if end > start}) <= max(at_once, 1)


@given(SPANS, CUTS, st.integers(0, 40))
def test_turns_are_the_unions_of_touching_slices(
    spans: list[tuple[int, int, int]], cuts: list[int], cut_ns: int
) -> None:
    """A turn begins where nothing lasts any more, or where everything before has just ended and a round has, too."""
    turns, begun = Turns(np.unique(np.array(cuts, np.int64))), []
    for late in (False, True):
        batch = sorted((track, start, start + length) for track, start, length in spans if (start > cut_ns) == late)
        columns = np.array(batch, np.int64).reshape(-1, 3).T
        begins, earlier_ns = turns.begin(*columns)
        begun += list(zip(batch, begins.tolist(), earlier_ns.tolist(), strict=True))

    for place, ((track, start, _), begins, earlier_ns) in enumerate(begun):
        before = max((end for (on, _, end), _, _ in begun[:place] if on == track), default=NEVER_NS)
        assert earlier_ns == before
        assert begins == (start > before or (start == before and start in cuts))


@given(st.integers(-1, 2**28 - 2), st.integers(0, 2**17 - 1))
def test_tracks_have_numbers_of_their_own(index: int, lane: int) -> None:
    """What a track belongs to is read from its number, which its varint of seven bytes can hold."""
    number = int(track_number(DEVICE, index, lane))

    assert track_parts(number) == (DEVICE, index)
    assert number < 2**49


BROADCAST, UPLOAD, GOSSIP = range(3)
SENT = {
    "transfer": [BROADCAST, UPLOAD, GOSSIP],
    "direction": [KINDS.index(kind) for kind in ("downlink", "uplink", "sidelink")],
    "sender": [SERVER, 0, 1],
    "receiver": [SEVERAL, SERVER, 0],
    "receivers": [2, 1, 1],
    "size_bit": [800, 400, 400],
    "value_id": [-1, -1, -1],
    "requested_ns": [0, 10, 20],
    "started_ns": [0, 10, 20],
    "ended_ns": [10, 20, 30],
    "transmitted_bit": [800.0, 400.0, 400.0],
    "loss_reason": [0, 0, 0],
    "energy_j": [5.0, 2.0, 3.0],
    "rx_energy_j": [0.8, 0.0, 0.25],
    "mean_rate_bps": [8e10, 4e10, 4e10],
}
"""A broadcast to devices 0 and 1, for which each of them spends 0.4 J; an upload to the server; one between devices."""
HEARD = {"transfer": [BROADCAST, BROADCAST], "receiver": [0, 1], "loss_reason": [0, 0]}
NOTHING = ("device", "started_ns", "ended_ns", "flop", "energy_j", "input", "result", "stopped", "compute")


@pytest.fixture
def part() -> Part:
    sent, heard = ({name: np.array(values) for name, values in table.items()} for table in (SENT, HEARD))
    nothing = {name: np.zeros(0, np.int64) for name in NOTHING}
    return Part(30, sent, heard, nothing, nothing)


def test_the_counter_of_energy_adds_what_receivers_spend(part: Part) -> None:
    """5.8 J by the end of the broadcast, 7.8 J by that of the upload, and 11.05 J in all."""
    found = steps(part, np.zeros(3, np.int64))
    energy = np.sort(found[found["counter"] == 0], order="at_ns")

    assert energy["at_ns"].tolist() == [10, 20, 30]
    assert np.cumsum(energy["step"]).tolist() == pytest.approx([5.8, 7.8, 11.05])


def test_a_slice_of_a_receiver_has_its_own_share(part: Part) -> None:
    """Half of what the broadcast cost its two receivers, all of what the sidelink cost its one; none of the sending."""
    found = device_slices(part)
    spent_j = {(int(row["device"]), int(row["row"])): float(row["energy_j"]) for row in found}

    assert spent_j == pytest.approx({
        (0, BROADCAST): 0.4,
        (1, BROADCAST): 0.4,
        (0, UPLOAD): 2.0,
        (1, GOSSIP): 3.0,
        (0, GOSSIP): 0.25,
    })  # fmt: skip


SHORT = {"stop.rounds": 3}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> fe.Run:
    return fe.run("quickstart", settings=SHORT, out=tmp_path_factory.mktemp("trace") / "run")


def test_scores_are_counters(learnt: fe.Run, tmp_path: Path, read_trace: Callable[[Path], Any]) -> None:
    """Scores have their values at the times of the evaluations; energy ends at the summary's."""
    trace = read_trace(learnt.trace(tmp_path / "run.pftrace"))

    measured = learnt.evaluations
    for name in ("accuracy", "loss"):
        assert [value for _, value in trace.counters["quickstart", name]] == measured[name].tolist()
    assert [at_ns for at_ns, _ in trace.counters["quickstart", "loss"]] == nanoseconds(measured["simulated_s"]).tolist()
    assert trace.counters["quickstart", "energy"][-1][1] == pytest.approx(learnt.summary["energy_j"])
    assert trace.counters["cell 0", "medium", "uplink: bits on the air"][-1][1] == learnt.summary["uplink_bit"]
    assert "worst train loss" not in [track[-1] for track in trace.counters]


def test_a_run_in_memory_and_in_a_folder_give_one_file(learnt: fe.Run, tmp_path: Path) -> None:
    """Times in the tables of the folder are those of the clock, so not a byte differs; neither does a second time."""
    again = fe.run("quickstart", settings=SHORT)

    files = [run.trace(tmp_path / name).read_bytes() for run, name in ((learnt, "a"), (learnt, "b"), (again, "c"))]

    assert files[0] == files[1] == files[2]


def test_an_empty_run_is_a_trace_without_slices(tmp_path: Path, read_trace: Callable[[Path], Any]) -> None:
    """A run in which nothing happened has a trace, too."""
    run = RunRecords("empty", {"simulated_s": 0.0}, {}, None, Ledger().frames)

    assert write_trace(run, tmp_path / "run.pftrace") == 0
    assert read_trace(tmp_path / "run.pftrace").slices == []


def test_a_trace_that_fails_leaves_the_file_as_it_was(learnt: fe.Run, tmp_path: Path) -> None:
    """When writing is interrupted, an older trace of the same name is whole, and nothing else is left."""
    path = tmp_path / "run.pftrace"
    path.write_bytes(b"older")

    def interrupt(_now_ns: int, _slices: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_trace(learnt, path, show=interrupt)
    assert path.read_bytes() == b"older"
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_table_is_named(learnt: fe.Run, write_run: Callable[..., Path], tmp_path: Path) -> None:
    """A table that cannot be read is named with its path, and there is no trace."""
    folder = write_run(tmp_path / "run", {}, simulated_s=1.0)
    (folder / "transfers.parquet").write_bytes(b"no table")

    with pytest.raises(fe.DataError, match=r"transfers\.parquet: not a readable table, got .*; restore it from a copy"):
        fe.open(folder).trace(tmp_path / "run.pftrace")
    assert not (tmp_path / "run.pftrace").exists()


@pytest.mark.parametrize(
    ("window", "problem"),
    [
        ({"devices": [3, 20]}, r"devices: no such device, got 20; they are numbered 0 to 19"),
        ({"devices": []}, r"devices: no device is to be shown, got no number; leave it out"),
        ({"from_s": 2.0, "until_s": 1.0}, r"until_s: must be after the begin at 2 s, got 1 s; give a later end"),
        ({"from_s": 1e6}, r"from_s: the run ends at .* s, got 1e\+06 s; give an earlier time"),
    ],
)
def test_a_window_without_anything_is_refused(
    learnt: fe.Run, tmp_path: Path, window: dict[str, Any], problem: str
) -> None:
    """Devices that do not exist and times outside of the run are mistakes, said in one sentence."""
    with pytest.raises(fe.FednetError, match=problem):
        learnt.trace(tmp_path / "run.pftrace", **window)


def test_times_in_seconds_are_nanoseconds_again() -> None:
    """Whatever the clock counts in 26 days comes back from float64 seconds; what never happened stays apart."""
    times_ns = np.random.default_rng(0).integers(0, 2**51, 100_000)

    assert (nanoseconds(times_ns / 1e9) == times_ns).all()
    assert nanoseconds([np.nan, 0.0]).tolist() == [-1, 0]
