"""Laws of records, of transfers with phases, and in blocks."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.records.laws import Busy, verify
from fednet_emu.records.ledger import SERVER, TABLES, IdleEnergy, Ledger
from fednet_emu.records.reasons import CODE
from fednet_emu.records.rows import TrafficRow
from fednet_emu.records.summaries import add_energies
from fednet_emu.records.table import Table
from fednet_emu.testing import run_small
from tests.algorithms.small import ALGORITHM_SETTINGS, CONDITIONS, EVERYWHERE
from tests.quick import examples

S = 1_000_000_000
BOTH = frozenset({"uplink", "downlink"})
ENERGY = "energy is the sum of its parts"


def broken(ledger, exclusive=BOTH):
    """The laws that do not hold, with what breaks them."""
    return {law: text for law, text in verify(ledger, exclusive).items() if text}


def test_a_lawful_ledger_passes(rows, make_ledger):
    """No law cries wolf, on a small run and on an empty one."""
    assert broken(make_ledger(rows)) == {}
    assert broken(Ledger()) == {}
    assert len(verify(Ledger(), BOTH)) == 17


OFFERED = "bits offered = delivered + lost"
ON_AIR = "bits on the air = payload"
BROADCAST = "a broadcast is the sum of its receptions"
TURNS = "airtime never overlaps in turns"
ORDER = "requested <= started <= ended"
MONOTONE = "records are written as time goes"
ONE = "one computation at a time"
USED = "nothing is used before it is there"
BACKHAUL = "the backhaul delivers or loses"
DUPLEX = "nobody receives while it sends"
CHARGE = "charge is conserved"
TABLE = "energies of devices and stations add up"
PHASES = "phases add up to the time from request to end"

BREACHES = [
    # table, row, changes, law, part of the text
    (
        "transfers",
        1,
        {"size_bit": 99, "transmitted_bit": 99.0, "delivered_bit": 99},
        OFFERED,
        "uplink: 300 bit were offered, 299",
    ),
    (
        "transfers",
        1,
        {"delivered_bit": 101},
        OFFERED,
        "1 of 4 transfers deliver more or less than they carry, first in row 1",
    ),
    ("transfers", 1, {"delivered_bit": 0}, OFFERED, "first in row 1"),
    ("transfers", 3, {"delivered_bit": 100, "transmitted_bit": 100.0}, OFFERED, "first in row 3"),
    ("transfers", 2, {"transmitted_bit": 101.0}, ON_AIR, "1 of 4 transfers, first in row 2"),
    ("transfers", 2, {"transmitted_bit": 99.0}, ON_AIR, "1 of 4 transfers, first in row 2"),
    (
        "transfers",
        0,
        {"delivered_bit": 200},
        BROADCAST,
        "1 of 4 transfers differ from their receptions, first in row 0",
    ),
    ("receptions", 1, {"loss_reason": CODE[""]}, BROADCAST, "first in row 0"),
    ("receptions", 1, {"transfer": 1}, BROADCAST, "2 of 4 transfers"),
    ("receptions", 1, {"transfer": 4}, BROADCAST, "1 of 2 receptions are of no transfer, first in row 1"),
    ("receptions", 1, {"transfer": 17}, BROADCAST, "1 of 2 receptions are of no transfer, first in row 1"),
    (
        "transfers",
        2,
        {"started_ns": 4 * S - 1},
        TURNS,
        "1 of 4 transfers start before the uplink before has ended, first in row 2",
    ),
    ("transfers", 1, {"started_ns": 3 * S - 1}, ORDER, "1 of 4 transfers, first in row 1"),
    ("transfers", 2, {"started_ns": 5 * S + 1}, ORDER, "1 of 4 transfers, first in row 2"),
    ("transfers", 3, {"requested_ns": 6 * S}, ORDER, "1 of 4 transfers, first in row 3"),
    ("computes", 1, {"started_ns": 3 * S + 1}, ORDER, "1 of 2 computations, first in row 1"),
    ("transfers", 3, {"ended_ns": 4 * S}, MONOTONE, "1 of 4 transfers go back in time, first in row 3"),
    ("computes", 1, {"ended_ns": 3 * S - 1}, MONOTONE, "1 of 2 computations go back in time, first in row 1"),
    ("evaluations", 0, {"simulated_ns": 6 * S}, MONOTONE, "1 of 2 evaluations go back in time, first in row 1"),
    (
        "computes",
        1,
        {"device": 0, "result": 10},
        ONE,
        "1 of 2 computations start before the device's one before has ended",
    ),
    (
        "computes",
        0,
        {"started_ns": 2 * S - 1},
        USED,
        "1 of 2 computations start before their input has come, first in row 0",
    ),
    (
        "transfers",
        1,
        {"requested_ns": 3 * S - 1},
        USED,
        "1 of 4 transfers are asked for before their payload is there, first in row 1",
    ),
    (
        "transfers",
        2,
        {"value_id": 2},
        USED,
        "1 of 4 transfers are asked for before their payload is there, first in row 2",
    ),
    ("transfers", 1, {"transmitted_bit": 100.0002}, ON_AIR, "1 of 4 transfers, first in row 1"),
    ("transfers", 1, {"transmitted_bit": 99.9998}, ON_AIR, "1 of 4 transfers, first in row 1"),
    ("transfers", 3, {"transmitted_bit": 100.0002}, ON_AIR, "1 of 4 transfers, first in row 3"),
    ("transfers", 2, {"rx_energy_j": 0.125}, ENERGY, "the parts are 2.125 J, the total is 2 J"),
    ("transfers", 1, {"energy_j": 0.6}, ENERGY, "the parts are 2.1 J, the total is 2 J"),
    ("backhaul", 0, {"delivered_bit": 49}, BACKHAUL, "1 of 2 messages, first in row 0"),
    ("backhaul", 1, {"delivered_bit": 50}, BACKHAUL, "1 of 2 messages, first in row 1"),
    ("backhaul", 0, {"sent_bit": 49}, BACKHAUL, "1 of 2 messages, first in row 0"),
    ("backhaul", 0, {"sent_bit": 51}, BACKHAUL, "1 of 2 messages, first in row 0"),
    ("backhaul", 1, {"sent_bit": 1}, BACKHAUL, "1 of 2 messages, first in row 1"),
    ("backhaul", 0, {"size_bit": 60, "sent_bit": 60, "delivered_bit": 60}, BACKHAUL, "50 bit were sent, 60 bit"),
    ("backhaul", 0, {"requested_ns": 1}, BACKHAUL, "1 of 2 messages, first in row 0"),
    ("backhaul", 0, {"started_ns": S + 1}, BACKHAUL, "1 of 2 messages, first in row 0"),
    ("backhaul", 1, {"ended_ns": S - 1}, BACKHAUL, "1 of 2 messages, first in row 1"),
    ("backhaul", 0, {"energy_j": 0.125}, ENERGY, "the parts are 2.125 J, the total is 2 J"),
    ("computes", 1, {"energy_j": 0.3}, ENERGY, "the parts are 2.05 J, the total is 2 J"),
]


@pytest.mark.parametrize(("table", "row", "changes", "law", "text"), BREACHES)
def test_every_law_notices_its_breach(rows, make_ledger, table, row, changes, law, text):
    """One value is wrong: its law says so, names the row, and no other law complains."""
    rows[table][row] |= changes

    complaints = broken(make_ledger(rows))

    assert list(complaints) == [law]
    assert text in complaints[law]


def test_a_payload_of_several_receivers_is_there_when_it_arrives(rows, make_ledger):
    """A broadcast's own arrival counts: device 1 missed it, so nothing says when it may use model 1."""
    rows["receptions"][1]["loss_reason"] = CODE[""]
    rows["transfers"][0]["delivered_bit"] = 200
    rows["computes"][1] |= {"input": 1, "started_ns": 2 * S - 5}

    assert list(broken(make_ledger(rows))) == [USED]


def test_values_without_a_number_are_nobodys_input(rows, make_ledger):
    """Payload -1 names nothing: plain numbers may be sent and used at any time."""
    for table, column in (("transfers", "value_id"), ("computes", "input"), ("computes", "result")):
        for row in rows[table]:
            row[column] = -1
    rows["computes"][0]["started_ns"] = 0

    assert broken(make_ledger(rows)) == {}


def test_only_exclusive_kinds_take_turns(rows, make_ledger):
    """On OFDMA uplinks may overlap; an uplink and a downlink always may."""
    rows["transfers"][2] |= {"started_ns": 3 * S}
    rows["transfers"][0] |= {"ended_ns": 4 * S}
    rows["computes"].clear()
    ledger = make_ledger(rows)
    ledger.energy_j = 1.5

    assert broken(ledger, frozenset()) == {}
    assert list(broken(ledger)) == [TURNS]


def test_the_server_computes_under_the_same_laws(rows, make_ledger):
    """What the server sends before it has computed it is noticed too."""
    rows["computes"].append(
        {**rows["computes"][0], "device": SERVER, "started_ns": 4 * S, "ended_ns": 5 * S, "result": 1, "energy_j": 0.0}
    )

    assert list(broken(make_ledger(rows))) == [USED]


def test_staleness_is_never_negative(rows, make_ledger):
    """Zero for a lone synchronous worker is right, minus one is a counter that moved too early."""
    ledger = make_ledger(rows)
    ledger.record("staleness", step=1, staleness=0)
    ledger.record("cuts", step=1, planes=3)
    assert broken(ledger) == {}

    ledger.record("staleness", step=2, staleness=-1)
    assert broken(ledger) == {"staleness >= 0": "negative in staleness"}


def test_push_sum_keeps_its_mass(rows, make_ledger):
    """Rounding is allowed; a share that got lost on the way is not."""
    ledger = make_ledger(rows)
    ledger.record("mixing", round=1, mass=1 - 1e-15)
    assert broken(ledger) == {}

    ledger.record("mixing", round=2, mass=0.95)
    assert broken(ledger) == {"mass is conserved": "mass of mixing differs from 1"}


def test_nobody_receives_while_it_sends(rows, make_ledger):
    """Device 1 is sent something while it sends: a breach where sidelinks are half duplex, and only there."""
    side = {"direction": 2, "receiver": 1, "value_id": -1, "energy_j": 0.0}
    rows["transfers"][1] |= side
    rows["transfers"][2] |= {**side, "sender": 1, "receiver": 2, "started_ns": 3 * S, "requested_ns": 3 * S}
    ledger = make_ledger(rows)
    ledger.offered_bit, ledger.energy_j = [100, 200, 200], 1.0

    assert DUPLEX not in {law for law, text in verify(ledger, frozenset()).items() if text}
    assert "sidelink" in verify(ledger, frozenset(), frozenset({"sidelink"}))[DUPLEX]


def test_a_part_in_a_million_is_rounding(rows, make_ledger):
    """The bits of a fluid model may be off by less than that; what was lost on its way may have used any part."""
    rows["transfers"][1]["transmitted_bit"] = 100.00009
    rows["transfers"][2]["transmitted_bit"] = 99.99991
    rows["transfers"][3] |= {"started_ns": 5 * S, "transmitted_bit": 40.0}

    assert broken(make_ledger(rows)) == {}


def test_rounds_are_written_as_time_goes(rows, make_ledger):
    """The second round ends before the first."""
    rows["rounds"].append({**rows["rounds"][0], "ended_ns": 5 * S - 1})

    assert broken(make_ledger(rows)) == {MONOTONE: "1 of 2 rounds go back in time, first in row 1"}


def duplex(rows, make_ledger, *transfers, heard=()):
    """What the law of half duplex says of sidelinks (sender, receiver, start, end in s) and broadcasts' receptions."""
    columns = ("sender", "receiver", "started_ns", "ended_ns")
    spans = [(sender, receiver, start_s * S, end_s * S) for sender, receiver, start_s, end_s in transfers]
    table = [{**rows["transfers"][1], "direction": 2, **dict(zip(columns, span, strict=True))} for span in spans]
    receptions = [{**rows["receptions"][1], "transfer": row, "receiver": device} for row, device in heard]
    ledger = make_ledger({"transfers": table, "receptions": receptions})
    return verify(ledger, frozenset(), frozenset({"sidelink"}))[DUPLEX]


@pytest.mark.parametrize(
    ("transfers", "heard"),
    [
        ([(0, 1, 0, 2), (1, 2, 1, 3)], []),  # it sends before what it receives has ended
        ([(1, 2, 0, 2), (0, 1, 1, 3)], []),
        ([(0, 1, 0, 2), (2, 1, 1, 3)], []),  # it receives twice
        ([(0, 1, 0, 2), (0, 2, 1, 3)], []),  # it sends twice
        ([(0, -2, 0, 2), (1, 2, 1, 3)], [(0, 1)]),  # it sends while it would hear a broadcast, though in vain
        ([(1, 2, 0, 2), (0, -2, 1, 3)], [(1, 2)]),
    ],
)
def test_half_duplex_has_its_breaches(rows, make_ledger, transfers, heard):
    """Device 1, or another, takes part in two transmissions from second 1 to 2."""
    assert "airtimes overlap on the sidelink" in duplex(rows, make_ledger, *transfers, heard=heard)


@pytest.mark.parametrize(
    "transfers",
    [
        [(0, 1, 0, 1), (1, 2, 1, 3)],  # one after the other
        [(0, 1, 0, 2), (2, 3, 0, 2)],  # four devices
        [(0, SERVER, 0, 2), (1, SERVER, 1, 3)],  # a base station is no device
    ],
)
def test_half_duplex_lets_pass_what_is_right(rows, make_ledger, transfers):
    """Nobody takes part in two transmissions at a time."""
    assert duplex(rows, make_ledger, *transfers) == ""


BATTERY = dict.fromkeys(("harvested_j", "spilled_j", "computing_j", "sending_j", "receiving_j", "idle_j"), 0.0)


def charged(rows):
    """The same run with batteries of 3 J: devices 0 to 2 draw what their rows say, and half a joule comes in."""
    spent = [(0.25, 0.5), (0.25, 0.5), (0.0, 0.0)]
    begin = [{**BATTERY, "device": k, "simulated_ns": 0, "charge_j": 3.0, "state": 1} for k in range(3)]
    end = [
        {
            **BATTERY,
            "device": k,
            "simulated_ns": 5 * S,
            "state": 1,
            "harvested_j": 0.5,
            "spilled_j": 0.125,
            "idle_j": 0.25,
        }
        | {"computing_j": computing_j, "sending_j": sending_j, "charge_j": 3.125 - computing_j - sending_j}
        for k, (computing_j, sending_j) in enumerate(spent)
    ]
    return {**rows, "batteries": begin + end}


@pytest.mark.parametrize(
    ("row", "changes", "text"),
    [
        (4, {"charge_j": 2.375 + 1e-7}, "1 of 6 charges are not conserved, first in row 4"),
        (4, {"spilled_j": 0.0}, "1 of 6 charges are not conserved, first in row 4"),
        (3, {"harvested_j": 0.75}, "1 of 6 charges are not conserved, first in row 3"),
        (3, {"idle_j": 0.0}, "1 of 6 charges are not conserved, first in row 3"),
        (5, {"sending_j": 0.125, "charge_j": 3.0}, "dev-2: sending_j of its battery differs"),
        (4, {"computing_j": 0.0, "charge_j": 2.625}, "dev-1: computing_j of its battery differs"),
        (4, {"receiving_j": 0.125, "charge_j": 2.25}, "dev-1: receiving_j of its battery differs"),
        (3, {"idle_j": 0.125, "charge_j": 2.5}, "idle_j of all batteries is 0.625 J, the idle power"),
    ],
)
def test_charge_is_conserved(rows, make_ledger, row, changes, text):
    """What came in is spilled, drawn or left; what was drawn is the energy of the other tables, or 50 mW of idling."""

    def of_batteries(lawful):
        ledger = make_ledger(lawful)
        ledger.idle = IdleEnergy(3 * 0.05)
        return broken(ledger)

    lawful = charged(rows)
    assert of_batteries(lawful) == {}

    lawful["batteries"][row] |= changes
    assert text in of_batteries(lawful)[CHARGE]


@pytest.mark.parametrize(
    ("column", "amounts_j", "text"),
    [
        ("sending_j", {1: 0.625}, "its rows are 2.975 J, all that was drawn beside the backhaul is 2.85 J"),
        ("idle_j", {3: 0.0}, "its rows are 2.75 J"),  # that of the base stations
        ("sending_j", {0: -0.5, 1: 1.5}, "dev-0: sending_j is negative, -0.5 J"),
        ("waiting_j", {2: -0.25}, "dev-2: waiting_j is negative, -0.25 J"),
        ("waiting_j", {0: 0.05}, "dev-0: waiting_j differs by 0.05 J"),
        ("idle_j", {0: 0.2, 1: 0.3}, "dev-0: waiting_j differs"),  # moved from one to the other
    ],
)
def test_the_table_of_energies_adds_up(rows, make_ledger, column, amounts_j, text):
    """Three devices at 50 mW and a station at 20 mW for 5 s are 0.85 J, beside 2 J of sending and computing.

    Devices 0 and 1 listen, compute and send for a second each, and wait for two; device 2 waits for all five.
    """
    ledger = make_ledger(rows)
    ledger.idle, ledger.stations_w = IdleEnergy(3 * 0.05), 0.02
    add_energies(ledger, np.full(3, 0.05), np.ones(3, np.bool_), 5 * S)
    assert ledger.energies.column("waiting_j")[:3].tolist() == pytest.approx([0.1, 0.1, 0.25])
    assert broken(ledger) == {}

    table = {name: ledger.energies.column(name) for name in ledger.energies.columns}
    for place, amount_j in amounts_j.items():
        table[column][place] = amount_j
    ledger.energies = Table(ledger.energies.columns)
    ledger.energies.extend(**table)
    assert text in broken(ledger)[TABLE]


OTHERS = "bits and times of other users add up"


@pytest.mark.parametrize(
    ("changes", "totals", "text"),
    [
        ({}, {}, ""),
        ({}, {"traffic_bit": 999}, "999 bit of files have arrived, 1000 bit are accounted for"),
        ({}, {"traffic_ns": 5}, "files spent 3000000000 ns, the integral of their number is 5 ns"),
        ({"started_ns": S // 2}, {}, "1 of 1 files, first in row 0"),
        ({"transmitted_bit": 900.0}, {}, "1 of 1 files, first in row 0"),
        ({"started_ns": -1}, {}, "1 of 1 files, first in row 0"),
    ],
)
def test_files_of_others_add_up(changes, totals, text):
    """A file of 1000 bit arrives at 1 s and ends at 4 s; each breach of order, bits or Little's law is named."""
    ledger = Ledger()
    ledger.add_traffic({"phones": (0, "uplink")}, ["others"])
    ledger.traffic_bit, ledger.traffic_ns = totals.get("traffic_bit", 1000), totals.get("traffic_ns", 3 * S)
    lawful = TrafficRow(0, 0, 0, 0, 0, 1000, S, 2 * S, 4 * S, 1000.0, CODE[""])
    ledger.traffic.append(lawful._replace(**changes))
    assert broken(ledger) == ({OTHERS: text} if text else {})


def test_files_take_turns_with_transfers(rows, make_ledger):
    """In turns, a file that is on the air together with a transfer breaks the law of turns."""
    ledger = make_ledger(rows)
    ledger.is_shared = True
    ledger.traffic_bit, ledger.traffic_ns = 1000, 2 * S
    ledger.traffic.append(TrafficRow(0, 0, 0, 0, 0, 1000, 3 * S, 3 * S, 5 * S, 1000.0, CODE[""]))
    assert list(broken(ledger)) == [TURNS]


def test_every_law_has_a_breach():
    """The table above, and the tests of staleness, mass, half duplex and charge, leave no law untested."""
    laws = set(verify(Ledger(), BOTH))

    assert laws == {law for *_, law, _ in BREACHES} | {
        *("staleness >= 0", "mass is conserved", DUPLEX, CHARGE, PHASES, TABLE, OTHERS)
    }


BOTH_VERIFY_IN_BLOCKS, SIDE = frozenset({"uplink", "downlink"}), frozenset({"sidelink"})
OVERLAPS = {"airtime never overlaps in turns", "nobody receives while it sends", "one computation at a time"}
CHANGED = {
    "transfers": (
        "direction",
        "sender",
        "receiver",
        "size_bit",
        "value_id",
        "requested_ns",
        "started_ns",
        "delivered_bit",
    ),
    "receptions": ("receiver", "loss_reason"),
    "computes": ("device", "started_ns", "input", "result"),
    "backhaul": ("size_bit", "started_ns", "sent_bit"),
}


@cache
def played(kind: str) -> Ledger:
    """The ledger of a lossy run with broadcasts, and with sidelinks or edge servers."""
    return run_small(*EVERYWHERE, *ALGORITHM_SETTINGS[kind], *CONDITIONS["30 % loss"]).ledger


def in_blocks(ledger: Ledger, rows: int, changes: dict[tuple[str, int, str], int]) -> dict[str, str]:
    """What the laws say of a ledger whose blocks have so many rows, and in which some values are others."""
    with (
        patch("fednet_emu.records.table.CHUNK_ROWS", rows),
        patch("fednet_emu.records.table.BLOCK_ROWS", rows),
        patch("fednet_emu.records.laws.BLOCK_ROWS", rows),
    ):
        copy = Ledger()
        for name in TABLES:
            table = getattr(copy, name)
            whole = np.concatenate(list(getattr(ledger, name).blocks()))
            for (changed, row, column), value in changes.items():
                if changed == name:
                    whole[column][row] = value
            for row in whole.tolist():
                table.append(row)
        copy.given, copy.series = ledger.given, ledger.series
        copy.offered_bit, copy.energy_j = ledger.offered_bit, ledger.energy_j
        copy.backhaul_bit, copy.backhaul_j, copy.ended_ns = ledger.backhaul_bit, ledger.backhaul_j, ledger.ended_ns
        copy.idle, copy.stations_w = ledger.idle, ledger.stations_w
        return verify(copy, BOTH_VERIFY_IN_BLOCKS if not len(ledger.backhaul) else frozenset(), SIDE)


@pytest.mark.parametrize("kind", ["fedavg", "connectivity-aware", "hier-favg"])
@pytest.mark.parametrize("rows", [4, 15])
def test_a_lawful_run_is_lawful_in_blocks(kind: str, rows: int) -> None:
    """No law cries wolf where a block ends."""
    assert not any(in_blocks(played(kind), rows, {}).values())


@examples(30)
@given(st.data())
def test_blocks_find_what_one_piece_finds(data: st.DataObject) -> None:
    """The same laws are broken, in the same rows, after any change of any value."""
    ledger = played(data.draw(st.sampled_from(["fedavg", "connectivity-aware", "hier-favg"])))
    table = data.draw(st.sampled_from([name for name in CHANGED if len(getattr(ledger, name))]))
    column = data.draw(st.sampled_from(CHANGED[table]))
    values = getattr(ledger, table).column(column)
    row = data.draw(st.integers(0, len(values) - 1))
    value = data.draw(st.sampled_from(sorted({*values.tolist(), int(values[row]) + 1, max(int(values[row]) - 1, 0)})))
    changes = {(table, row, column): value}
    whole, blocks = in_blocks(ledger, 10**6, changes), in_blocks(ledger, data.draw(st.integers(3, 20)), changes)

    assert {law for law, text in whole.items() if text} == {law for law, text in blocks.items() if text}
    assert all(whole[law] == blocks[law] for law in whole.keys() - OVERLAPS)


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 12), st.integers(1, 5)), max_size=14),
    st.lists(st.integers(0, 14), max_size=4),
)
def test_overlaps_are_those_of_pairs(spans: list[tuple[int, int, int]], cuts: list[int]) -> None:
    """Intervals in the order of their ends, cut into blocks anywhere: one is marked exactly if two of an owner meet."""
    rows = sorted(((owner, start, start + length) for owner, start, length in spans), key=lambda row: row[2])
    busy, marked = Busy(), []
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for first, end in pairwise(edges):
        owner, started_ns, ended_ns = np.array(rows[first:end], np.int64).reshape(-1, 3).T
        marked += busy.overlaps(owner, started_ns, ended_ns).tolist()
    meet = any(
        one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
        for place, one in enumerate(rows)
        for other in rows[:place]
    )

    assert any(marked) == meet
