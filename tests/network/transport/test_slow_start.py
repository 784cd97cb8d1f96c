"""Senders that release bits in bursts: stories at exact times, and a second emulator of a shared line."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.network.access.base import Access
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.transport import Tcp
from fednet_emu.records.ledger import SERVER
from tests.network.conftest import Cell
from tests.network.transport.lines import Spent, line, spent
from tests.quick import examples

S, MS = 1_000_000_000, 1_000_000
PACKET_BIT = 12_000
PAYLOAD_BIT = 8 * 1448


def tcp(rtt_s: float = 1.0, packets: int = 1, **more: Any) -> Tcp:
    """A path on which a packet takes 0.1 s at 120 kbit/s."""
    return Tcp(rtt_s=rtt_s, initial_window=packets, **more)


RATE_BPS = 120_000.0


def test_a_lone_upload() -> None:
    """1, 2, 4 and 8 packets take 0.1 to 0.8 s, a round trip 1 s; 10 more follow the next 16 without a gap."""
    its = line(RATE_BPS, tcp())

    (delivery,) = its.play((0.0, 0, 41 * PAYLOAD_BIT))

    assert delivery.ended_s == 1.0 + 4.0 + 2.6 + 0.5
    row = its.rows.iloc[0]
    assert spent(row) == Spent(S, 0, 4_100 * MS, (900 + 800 + 600 + 200) * MS, S // 2)
    assert (row["wire_bit"], row["air_bit"], row["size_bit"]) == (41 * PACKET_BIT, 41 * PACKET_BIT, 41 * PAYLOAD_BIT)
    assert row["energy_j"] == pytest.approx(0.2 * 4.1)


def test_others_have_the_line_in_the_gaps() -> None:
    """Device 0 keeps the line busy from 1.05 s on; 3 packets of device 1, with a gap of 0.15 s, delay it by 0.3 s."""
    its = line(RATE_BPS, tcp(rtt_s=0.35))

    first, second = its.play((0.0, 0, 103 * PAYLOAD_BIT), (1.65, 1, 3 * PAYLOAD_BIT))

    assert second.ended_s == 2.75 + 0.175
    assert first.ended_s == 11.35 + 0.175
    rows = its.rows.set_index("sender")
    assert spent(rows.loc[1]) == Spent(350 * MS, 0, 600 * MS, 150 * MS, 175 * MS)


@pytest.mark.parametrize("packets", [4, 10, 1000])
def test_windows_that_keep_the_line_busy_cost_no_event(packets: int) -> None:
    """Four packets last for longer than a round trip of 0.35 s: the clock has as many events as without a window."""
    its = line(RATE_BPS, tcp(rtt_s=0.35, packets=packets))

    (delivery,) = its.play((0.0, 0, 103 * PAYLOAD_BIT))

    assert delivery.ended_s == pytest.approx(0.35 + 10.3 + 0.175)
    assert next(its.clock._eid) == EVENTS_OF_A_MESSAGE


EVENTS_OF_A_MESSAGE = 9
"""Of the test's processes, the wait for the connection, the end on the air, the tail."""


def test_who_gets_faster_within_a_round_trip_still_waits_for_acknowledgements() -> None:
    """Half of the line until the other is cancelled at 1.2 s: six packets have left at 1.7 s, four follow at 2 s."""
    its = line(RATE_BPS, tcp(packets=6))
    stays, goes = (its.medium.send(device, SERVER, Message(None, 10 * PAYLOAD_BIT, 0)) for device in (0, 1))
    its.clock.call_at(1_200 * MS, lambda _event: its.medium.cancel(goes, "deadline"))
    its.clock.run(until=stays)

    assert stays.value.ended_s == 2.0 + 0.4 + 0.5
    its.close()
    rows = its.rows.set_index("sender")
    assert spent(rows.loc[0]) == Spent(S, 0, 1_100 * MS, 300 * MS, S // 2)
    assert rows.loc[1, "air_bit"] == PACKET_BIT


def test_a_turn_is_kept_in_the_gaps() -> None:
    """Where senders take turns, the next one waits for the last bit of the one before, not for its tail."""
    its = line(RATE_BPS, tcp(), access=Tdma())

    its.play((0.0, 0, 3 * PAYLOAD_BIT), (0.0, 1, PAYLOAD_BIT))

    rows = its.rows.set_index("sender")
    assert spent(rows.loc[0]) == Spent(S, 0, 300 * MS, 900 * MS, S // 2)
    assert spent(rows.loc[1]) == Spent(S, 1_200 * MS, 100 * MS, 0, S // 2)


@pytest.mark.parametrize("access", [Ofdma(), Tdma()])
@pytest.mark.parametrize(
    ("at_s", "bits", "gap_ms"),
    [(1.05, 0.5, 0), (1.1, 1, 0), (1.5, 1, 400), (2.0, 1, 900), (2.1, 2, 900), (2.5, 3, 900 + 300)],
)
def test_a_transfer_may_end_in_a_burst_or_in_a_gap(at_s: float, bits: float, gap_ms: int, access: Access) -> None:
    """Cancelled or timed out: the row has the bits until then, and the gaps."""
    its = line(RATE_BPS, tcp(), access=access)
    sent = its.medium.send(0, SERVER, Message("payload", 41 * PAYLOAD_BIT, 0))
    its.clock.run_process(_sleep(its, at_s))
    its.medium.cancel(sent, "deadline")
    its.close()
    timed = line(RATE_BPS, tcp(), access=access, timeout_s=round(at_s - 1.0, 9))
    (delivery,) = timed.play((0.0, 0, 41 * PAYLOAD_BIT))

    assert (delivery.lost, delivery.ended_s) == ("timeout", at_s)
    for rows in (its.rows, timed.rows):
        (row,) = rows.to_dict("records")
        assert row["air_bit"] == pytest.approx(bits * PACKET_BIT)
        assert spent(row) == Spent(S, 0, round((at_s - 1.0) * S) - gap_ms * MS, gap_ms * MS, 0)
        assert row["energy_j"] == pytest.approx(0.2 * bits * 0.1)


def test_gaps_do_not_count_in_timeouts_that_are_left_open() -> None:
    """100 round trips of 10 s in a window of a packet: far more than the 60 s that 101 packets have."""
    its = line(RATE_BPS * 100, tcp(rtt_s=10.0, receive_window_byte=1500), timeout_s=None)
    (delivery,) = its.play((0.0, 0, 101 * PAYLOAD_BIT))
    assert (delivery.lost, delivery.ended_s) == ("", 10.0 + 1000.0 + 0.001 + 5.0)


def _sleep(its: Cell, duration_s: float) -> Any:
    yield its.clock.sleep(duration_s)


def second_emulator(rate_bps: float, rtt_s: float, first: int, flows: list[tuple[float, int]]) -> list[float]:
    """When the last bits of flows (start in s, bits) leave a line that serves all equally that have bits to send."""
    left = [bits for _, bits in flows]
    burst = [float(first)] * len(flows)
    released = [start for start, _ in flows]
    backlog, due, ended = [0.0] * len(flows), list(released), [math.inf] * len(flows)
    now = 0.0
    while not all(math.isfinite(end) for end in ended):
        for k, at in enumerate(due):
            if at <= now + 1e-12:
                backlog[k], released[k], due[k] = min(burst[k], left[k]), now, math.inf
                left[k] -= backlog[k]
        busy = [k for k, bits in enumerate(backlog) if bits > 0]
        pace = rate_bps / max(len(busy), 1)
        step = min([backlog[k] / pace for k in busy] + [at - now for at in due if math.isfinite(at)])
        now += step
        for k in busy:
            backlog[k] -= pace * step
            if backlog[k] > 1e-6:
                continue
            backlog[k] = 0.0
            if left[k] <= 0:
                ended[k] = now
            elif now >= released[k] + rtt_s - 1e-12:
                backlog[k], left[k], released[k] = left[k], 0.0, now
            else:
                due[k], burst[k] = released[k] + rtt_s, 2 * burst[k]
    return ended


@examples(25)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 300)), min_size=1, max_size=6), st.integers(1, 3000))
def test_a_second_emulator_of_a_shared_line(flows: list[tuple[int, int]], rtt_ms: int) -> None:
    """Flows of some packets at some ms end in the same instants, to a few ns; the line carries what is on the wire."""
    its = line(RATE_BPS * 10, tcp(rtt_s=rtt_ms / 1e3, packets=2))
    starts = [(at_ms + rtt_ms) / 1e3 for at_ms, _ in flows]

    deliveries = its.play(*((at_ms / 1e3, k, n * PAYLOAD_BIT) for k, (at_ms, n) in enumerate(flows)))

    bits = [n * PACKET_BIT for _, n in flows]
    expected = second_emulator(RATE_BPS * 10, rtt_ms / 1e3, 2 * PACKET_BIT, list(zip(starts, bits, strict=True)))
    assert [its_.ended_s - rtt_ms / 2e3 for its_ in deliveries] == pytest.approx(expected, abs=1e-6)
    assert its.rows["air_bit"].tolist() == its.rows["wire_bit"].tolist()


def test_a_battery_is_spared_in_gaps() -> None:
    """The planned power, which batteries follow, is none in a gap and full on the air."""
    its = line(RATE_BPS, tcp(), access=Tdma())
    its.medium.send(0, SERVER, Message("payload", 41 * PAYLOAD_BIT, 0))

    shares = []
    for wait_s in (
        1.05,
        0.5,
        0.5,
    ):  # until 1.05 s in the first burst, 1.55 s in the first gap, 2.05 s in the second burst
        its.clock.run_process(_sleep(its, wait_s))
        shares += [part for _, _, part in its.medium.air.powers()]
    its.close()

    assert shares == [(1.0,), (0.0,), (1.0,)]
