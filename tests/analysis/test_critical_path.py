"""What decided when a round ended: hand-made rounds whose paths can be told by looking, and laws of all rounds."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fednet_emu as fe
from fednet_emu.analysis.critical_path import critical_path, parts_frame

SERVER, SEVERAL = -1, -2
TIMES = st.integers(0, 3_000_000_000)


def tables(sent=(), computed=(), rounds=((0, 10),)):
    """The three tables, from rows in seconds.

    A transfer is (kind, sender, receiver, requested, started, ended, lost, cell), a computation (device, started,
    ended), a round (started, ended).
    """
    transfers = pd.DataFrame(
        [(*row, *("", 0)[len(row) - 6 :]) for row in sent],
        columns=["direction", "sender", "receiver", "requested_s", "started_s", "ended_s", "loss_reason", "cell"],
    ).assign(energy_j=2.0, rx_energy_j=1.0)
    computes = pd.DataFrame([(*row, "")[:4] for row in computed], columns=["device", "started_s", "ended_s", "stopped"])
    spans = [(number, *span) for number, span in enumerate(rounds, start=1)]
    return transfers, computes.assign(energy_j=4.0), pd.DataFrame(spans, columns=["round", "started_s", "ended_s"])


def messages(*rows):
    """The table `backhaul` from rows (direction, edge, requested, started, ended, lost) in seconds."""
    columns = ["direction", "edge", "requested_s", "started_s", "ended_s", "loss_reason"]
    return pd.DataFrame([(*row, "")[:6] for row in rows], columns=columns).assign(energy_j=6.0)


def path(*args, backhaul=None, **kwargs):
    """The parts as (what, device, start, end) in seconds."""
    found = critical_path(*tables(*args, **kwargs), backhaul)
    return [(its.what, its.device, its.started_ns / 1e9, its.ended_ns / 1e9) for its in found]


def test_the_last_device_decides():
    """Broadcast, then both compute and send at once; device 1 is last, and device 0 does not matter."""
    sent = [("downlink", SERVER, SEVERAL, 0, 0, 2), ("uplink", 0, SERVER, 3, 3, 6), ("uplink", 1, SERVER, 7, 7, 10)]

    assert path(sent, [(0, 2, 3), (1, 2, 7)]) == [
        ("downlink", SERVER, 0, 2),
        ("compute", 1, 2, 7),
        ("uplink", 1, 7, 10),
    ]


def test_a_wait_for_a_turn_is_the_sending_of_whoever_is_in_the_way():
    """Device 1 was ready at 3 s, but the band was busy: what it computed decided nothing, what device 0 did, did."""
    sent = [
        ("downlink", SERVER, 0, 0, 0, 1),
        ("downlink", SERVER, 1, 1, 1, 2),
        ("uplink", 0, SERVER, 2, 2, 6),
        ("uplink", 1, SERVER, 3, 6, 10),
    ]

    assert path(sent, [(0, 1, 2), (1, 2, 3)]) == [
        ("downlink", 0, 0, 1),
        ("compute", 0, 1, 2),
        ("uplink", 0, 2, 6),
        ("uplink", 1, 6, 10),
    ]


def test_a_wait_with_nobody_in_the_way_is_a_wait():
    """For a slot or a contact, for instance; a transfer of another kind that ends then is not in the way."""
    sent = [("downlink", SERVER, SEVERAL, 0, 0, 5), ("uplink", 0, SERVER, 2, 5, 10)]

    assert path(sent, [(0, 0, 2)]) == [("compute", 0, 0, 2), ("waiting", 0, 2, 5), ("uplink", 0, 5, 10)]


def test_a_turn_in_another_cell_is_in_nobodys_way():
    """A sending that ends at 5 s in cell 1 has not kept device 0 waiting in cell 0; one in cell 0 has."""
    sent = [("downlink", SERVER, SEVERAL, 0, 0, 1), ("uplink", 0, SERVER, 2, 5, 10)]
    in_cell_1, in_cell_0 = (("uplink", 1, SERVER, 1, 1, 5, "", cell) for cell in (1, 0))

    assert path([*sent, in_cell_1], [(0, 1, 2)])[2:] == [("waiting", 0, 2, 5), ("uplink", 0, 5, 10)]
    assert path([*sent, in_cell_0], [(0, 1, 2)])[1:] == [("uplink", 1, 1, 5), ("uplink", 0, 5, 10)]


def test_of_several_turns_that_end_together_the_last_was_in_the_way():
    """Devices 1 and 2 leave a band for two at 5 s, device 2 as the last; the server got both, device 1 as the first."""
    band_for_two = [("uplink", 1, SERVER, 0, 0, 5), ("uplink", 2, SERVER, 0, 0, 5)]

    assert path([*band_for_two, ("uplink", 0, SERVER, 1, 5, 10)]) == [("uplink", 2, 0, 5), ("uplink", 0, 5, 10)]
    assert path([*band_for_two, ("downlink", SERVER, 0, 5, 5, 10)]) == [("uplink", 1, 0, 5), ("downlink", 0, 5, 10)]


def test_edge_servers_stand_between_the_devices_and_the_cloud():
    """Both edge servers get the model; that of cell 1 is the last, two edge rounds and a lost message later."""
    sent = [
        ("downlink", SERVER, 0, 2, 2, 3, "", 0),
        ("uplink", 0, SERVER, 3, 3, 4, "", 0),
        ("downlink", SERVER, 1, 1, 1, 2, "", 1),
        ("uplink", 1, SERVER, 3, 3, 4, "", 1),
        ("downlink", SERVER, 1, 4, 4, 5, "", 1),
        ("uplink", 1, SERVER, 5, 5, 6, "", 1),
    ]
    backhaul = messages(
        ("down", 0, 0, 0, 2),
        ("down", 1, 0, 0, 1),
        ("up", 0, 4, 4, 6),
        ("up", 1, 6, 6, 8, "erased"),
        ("up", 1, 8, 8, 10),
    )

    assert path(sent, [(1, 2, 3)], backhaul=backhaul) == [
        ("backhaul down", SERVER, 0, 1),
        ("downlink", 1, 1, 2),
        ("compute", 1, 2, 3),
        ("uplink", 1, 3, 4),
        ("downlink", 1, 4, 5),
        ("uplink", 1, 5, 6),
        ("backhaul up", SERVER, 6, 8),
        ("backhaul up", SERVER, 8, 10),
    ]


def test_a_message_that_waits_for_its_line_follows_the_one_in_front():
    """One second on the line and two more to the cloud: device 1's waits from 1 s to 3 s behind what began at 2 s."""
    sent = [("uplink", 0, SERVER, 0, 0, 2), ("uplink", 1, SERVER, 0, 0, 1, "", 1)]
    backhaul = messages(("up", 0, 2, 2, 5), ("up", 0, 2.5, 3, 6), ("up", 0, 2.7, None, 2.8), ("down", 0, 2.5, 3, 6))

    assert path(sent, rounds=[(0, 6)], backhaul=backhaul) == [
        ("uplink", 0, 0, 2),
        ("backhaul up", SERVER, 2, 3),
        ("backhaul up", SERVER, 3, 6),
    ]


def test_a_deadline_of_an_edge_round_counts_from_its_invitation():
    """Device 1 is given up while it computes; the edge server had invited it at 2 s, and sends what it has at 7 s."""
    sent = [("downlink", SERVER, SEVERAL, 2, 2, 3), ("uplink", 0, SERVER, 4, 4, 5)]
    backhaul = messages(("down", 0, 0, 0, 2), ("up", 0, 7, 7, 10))

    assert path(sent, [(0, 3, 4), (1, 3, 7, "deadline")], backhaul=backhaul) == [
        ("backhaul down", SERVER, 0, 2),
        ("deadline", -3, 2, 7),
        ("backhaul up", SERVER, 7, 10),
    ]
    later = path(sent, [(0, 3, 4), (1, 3, 7, "deadline")], rounds=[(0, 3), (3, 10)], backhaul=backhaul)
    assert later[-2:] == [("deadline", -3, 3, 7), ("backhaul up", SERVER, 7, 10)]


def test_a_deadline_is_nobodys_work():
    """Those who were late are given up at 10 s: the deadline decided, from the start of the round."""
    sent = [("downlink", SERVER, SEVERAL, 0, 0, 2), ("uplink", 0, SERVER, 3, 3, 10, "deadline")]

    assert path(sent, [(0, 2, 3), (1, 2, 10, "deadline")]) == [("deadline", -3, 0, 10)]


def test_a_step_that_ends_for_all_goes_on_with_the_last():
    """At a barrier inside a round dev-0 begins what follows when dev-1 has been heard; no pause lies between."""
    sent = [("uplink", 0, SERVER, 0, 0, 2), ("uplink", 1, SERVER, 0, 2, 5), ("uplink", 0, SERVER, 5, 5, 10)]
    assert path(sent) == [("uplink", 0, 0, 2), ("uplink", 1, 2, 5), ("uplink", 0, 5, 10)]


def test_the_steps_of_secure_aggregation_are_nobodys_pause():
    """Where nobody is ever away and nothing pauses, all of a round has a cause in the records."""
    settings = {
        "stop": {"rounds": 3},
        "algorithm": {"kind": "fedavg", "cohort": 10, "lr": 0.1, "weighting": "uniform"},
        "network.uplink": {"access": "tdma", "secure_aggregation": {"kind": "secagg-plus", "neighbours": 4}},
        "network.downlink.mode": "unicast",
    }
    run = fe.run("quickstart", settings=settings, timing_only=True)
    parts = critical_path(run.transfers, run.computes, run.rounds)
    assert {its.what for its in parts} == {"uplink", "downlink", "compute"}


def test_pauses_are_idle():
    """Device 0 begins to compute 2 s after its model came, and the round ends 1 s after its update."""
    sent = [("downlink", SERVER, SEVERAL, 0, 0, 2), ("uplink", 0, SERVER, 7, 7, 9)]

    assert path(sent, [(0, 4, 7)]) == [
        ("downlink", SERVER, 0, 2),
        ("idle", -3, 2, 4),
        ("compute", 0, 4, 7),
        ("uplink", 0, 7, 9),
        ("idle", -3, 9, 10),
    ]


def test_what_began_earlier_counts_from_the_start_of_the_round():
    """Steps of an asynchronous server: the second one waited for a computation that began in the first."""
    sent = [("uplink", 0, SERVER, 2, 2, 4), ("uplink", 1, SERVER, 8, 8, 10)]

    found = critical_path(*tables(sent, [(0, 0, 2), (1, 0, 8)], rounds=[(0, 4), (4, 10)]))

    assert [(its.round, its.what, its.device) for its in found] == [
        (1, "compute", 0),
        (1, "uplink", 0),
        (2, "compute", 1),
        (2, "uplink", 1),
    ]
    assert [its.energy_j for its in found] == pytest.approx([4.0, 3.0, 2.0, 3.0]), "half of 4 J in its second half"


def test_a_round_of_devices_among_themselves_ends_with_what_ended_last():
    """Where the server receives nothing, anything that ends with the round decides."""
    assert path([("sidelink", 2, 3, 6, 6, 10)], [(2, 0, 6)]) == [("compute", 2, 0, 6), ("sidelink", 2, 6, 10)]


@given(st.data())
def test_parts_lie_end_to_end_and_add_up(data):
    """Whatever happened: in whole nanoseconds, from the start of each round to its end, without a gap or an overlap."""
    device, lost = st.integers(0, 2), st.sampled_from(["", "outage", "deadline"])
    coarse = st.integers(0, 6).map(lambda step: step * 500_000_000) | TIMES
    sent = []
    for _ in range(data.draw(st.integers(0, 8))):
        asked, began, over = sorted(data.draw(coarse) for _ in range(3))
        who, up = data.draw(device), data.draw(st.booleans())
        sender, receiver = (who, SERVER) if up else (SERVER, data.draw(st.sampled_from([who, SEVERAL])))
        never = data.draw(st.booleans()) and began == over
        row = (asked / 1e9, None if never else began / 1e9, over / 1e9, data.draw(lost))
        sent.append(("uplink" if up else "downlink", sender, receiver, *row))
    computed = [
        (data.draw(device), *(time / 1e9 for time in sorted([data.draw(coarse), data.draw(coarse)])), data.draw(lost))
        for _ in range(data.draw(st.integers(0, 6)))
    ]
    middle, end = sorted([data.draw(coarse), data.draw(coarse)])

    found = critical_path(*tables(sent, computed, rounds=[(0, middle / 1e9), (middle / 1e9, end / 1e9)]))

    for number, (start, stop) in enumerate([(0, middle), (middle, end)], start=1):
        edges = [(its.started_ns, its.ended_ns) for its in found if its.round == number]
        assert all(a < b for a, b in edges)
        assert [b for _, b in edges[:-1]] == [a for a, _ in edges[1:]]
        assert sum(b - a for a, b in edges) == stop - start
        assert not edges or (edges[0][0], edges[-1][1]) == (start, stop)
    assert parts_frame(found)["took_s"].sum() == pytest.approx(end / 1e9)


PHASES = ["connection_setup_s", "grant_delay_s", "ack_wait_s", "reception_delay_s"]


def phased_path(sent, phases, rounds):
    transfers, computes, spans = tables(sent, rounds=rounds)
    found = critical_path(
        transfers.assign(**dict(zip(PHASES, zip(*phases, strict=True), strict=True))), computes, spans
    )
    return [(its.what, its.device, its.started_ns / 1e9, its.ended_ns / 1e9, its.energy_j) for its in found]


def test_the_phases_of_a_transfer_have_parts_of_their_own():
    """Set-up, access, a turn that nobody was in the way of, gaps and air, tail; the air has all the energy."""
    sent = [("uplink", 0, SERVER, 0, 4, 10)]
    assert phased_path(sent, [(1, 2, 1.5, 0.5)], [(0, 10)]) == [
        ("setup", 0, 0, 1, 0),
        ("access", 0, 1, 3, 0),
        ("waiting", 0, 3, 4, 0),
        ("gaps", 0, 4, 5.5, 0),
        ("uplink", 0, 5.5, 9.5, 3.0),
        ("tail", 0, 9.5, 10, 0),
    ]


def test_who_is_in_the_way_is_so_until_it_leaves_the_air():
    """Device 1 is ready at 2 s and waits for device 0, whose tail it does not wait for; the round began at 0.5 s."""
    sent = [("uplink", 0, SERVER, 0, 1, 5), ("uplink", 1, SERVER, 0, 4, 9)]
    assert phased_path(sent, [(1, 0, 0, 1), (1, 1, 0, 1)], [(0.5, 9)]) == [
        ("setup", 0, 0.5, 1, 0),
        ("uplink", 0, 1, 4, 3.0),
        ("uplink", 1, 4, 8, 3.0),
        ("tail", 1, 8, 9, 0),
    ]


def test_nobody_is_in_the_way_of_who_is_not_ready():
    """Device 1 starts as device 0 leaves the air, but only because its connection stands just then."""
    sent = [("uplink", 0, SERVER, 0, 1, 4), ("uplink", 1, SERVER, 0, 4, 9)]
    assert phased_path(sent, [(1, 0, 0, 0), (4, 0, 0, 0)], [(0, 9)]) == [
        ("setup", 1, 0, 4, 0),
        ("uplink", 1, 4, 9, 3.0),
    ]


def test_the_fixed_time_of_a_computation_of_an_earlier_round_is_at_its_start():
    """A computation from 2 to 7 s begins with 3 s of fixed time. The round from 4 s on contains its last second."""
    transfers, computes, rounds = tables([("uplink", 1, SERVER, 7, 7, 10)], [(1, 2, 7)], [(4, 10)])
    found = critical_path(transfers, computes.assign(fixed_s=3.0), rounds)

    assert [(its.what, its.started_ns / 1e9, its.ended_ns / 1e9) for its in found] == [
        ("fixed time", 4, 5),
        ("compute", 5, 7),
        ("uplink", 7, 10),
    ]


def test_the_fixed_time_of_a_computation_is_a_part_of_its_own():
    """Of 5 s of computing at 4 J the first 3 s do not depend on the work; each second draws as much as any other."""
    sent = [("uplink", 1, SERVER, 7, 7, 10)]
    transfers, computes, rounds = tables(sent, [(1, 2, 7)], [(2, 10)])
    found = critical_path(transfers, computes.assign(fixed_s=3.0), rounds)

    assert [(its.what, its.started_ns / 1e9, its.ended_ns / 1e9, its.energy_j) for its in found] == [
        ("fixed time", 2, 5, pytest.approx(2.4)),
        ("compute", 5, 7, pytest.approx(1.6)),
        ("uplink", 7, 10, 3.0),
    ]
