"""Waits before a transfer queues and tails after its last bit: stories at exact times, at 1 Mbit/s unless told."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import pytest

from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.air.transfer import Delivery, Message, Transfer
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.records.ledger import SERVER
from tests.network.conftest import Cell

MEGA = 1_000_000
PARTS = ["requested_s", "access_s", "started_s", "ended_s", "tail_s"]


def given(access_s: dict[int, float], tail_s: dict[int, float] | None = None) -> dict[str, Any]:
    """Waits and tails in s by device; none for other devices."""

    def delay(of_device_s: dict[int, float], transfer: Transfer, now_ns: int) -> int:
        return round(of_device_s.get(max(transfer.sender, transfer.receiver), 0.0) * NS_PER_S)

    return {"before": partial(delay, access_s), "after": partial(delay, tail_s or {})}


def told(rows: pd.DataFrame) -> list[tuple[Any, ...]]:
    """The parts of each row."""
    return [tuple(row) for row in rows[["sender", *PARTS]].itertuples(index=False)]


def test_turns_are_queued_for_when_waits_are_over(cell: Callable[..., Cell]) -> None:
    """Device 0 asks first and is ready last; the channel is free for it in the tail of device 1."""
    its = cell(**given({0: 2.0, 1: 0.5}, {1: 0.25}))

    deliveries = its.play((0.0, 0, MEGA), (1.0, 1, MEGA), (1.25, 2, MEGA))

    assert [delivery.ended_s for delivery in deliveries] == [4.25, 3.5, 2.25]
    assert told(its.rows) == [
        (2, 1.25, 0.0, 1.25, 2.25, 0.0),
        (1, 1.0, 0.5, 2.25, 3.5, 0.25),
        (0, 0.0, 2.0, 3.25, 4.25, 0.0),
    ]


def test_waiting_takes_no_part_of_the_band(cell: Callable[..., Cell]) -> None:
    """Device 0 has the whole band of 1 MHz until the wait of device 1 is over, then half of it; tails take no part."""
    its = cell(Ofdma(), Shannon(), **given({1: 0.5}, {0: 0.75, 1: 0.5}))
    whole_bps, half_bps = its.band.law.rate_bps(1.0, 1e6), its.band.law.rate_bps(2.0, 0.5e6)
    first_s = 0.5 + (MEGA - 0.5 * whole_bps) / half_bps
    second_s = first_s + 0.5

    deliveries = its.play((0.0, 0, MEGA), (0.0, 1, MEGA))

    assert [delivery.ended_s for delivery in deliveries] == pytest.approx([first_s + 0.75, second_s + 0.5], abs=2e-9)
    assert its.rows["wire_bit"].tolist() == its.rows["air_bit"].tolist() == [MEGA, MEGA]


def test_a_broadcast_ends_with_the_longest_tail(cell: Callable[..., Cell]) -> None:
    """Who has a tail hears of the message with the last of them, others when it leaves the air; it is one row."""
    its = cell(multicast=True, **given({}, {1: 0.25, 2: 0.5}))

    deliveries = its.play((0.0, 0, MEGA), (0.0, 1, MEGA), (0.0, 2, MEGA))

    assert [delivery.ended_s for delivery in deliveries] == [1.0, 1.5, 1.5]
    assert told(its.rows) == [(SERVER, 0.0, 0.0, 0.0, 1.5, 0.5)]
    assert its.rows["delivered_bit"].tolist() == [3 * MEGA]


def test_a_receiver_that_is_cancelled_in_its_tail_ends_no_tail_of_others(cell: Callable[..., Cell]) -> None:
    """Device 1 stops waiting 0.2 s after the last bit, device 2 receives 0.5 s after it; the row ends then."""
    its = cell(multicast=True, **given({}, {1: 0.25, 2: 0.5}))
    sent = its.medium.send_all(SERVER, [0, 1, 2], Message("payload", MEGA, 0, 1))

    def stop() -> Any:
        yield its.clock.sleep(1.2)
        its.medium.cancel(sent[1], "deadline")
        last: Delivery = yield sent[2]
        return last

    assert its.clock.run_process(stop()).ended_s == 1.5
    assert not sent[1].triggered
    assert told(its.rows) == [(SERVER, 0.0, 0.0, 0.0, 1.5, 0.5)]
    assert its.rows["delivered_bit"].tolist() == [2 * MEGA]


def test_turns_follow_the_ends_of_waits_on_a_full_channel(cell: Callable[..., Cell]) -> None:
    """Device 1 asks first and is ready at 0.4 s, device 2 asks at 0.1 s and is ready at once: it is next."""
    its = cell(**given({1: 0.4}))

    its.play((0.0, 0, MEGA), (0.0, 1, MEGA), (0.1, 2, MEGA))

    assert its.rows.set_index("sender")["started_s"].to_dict() == {0: 0.0, 2: 1.0, 1: 2.0}


@pytest.mark.parametrize(
    ("at_s", "row"),
    [
        (0.25, ("deadline", 0.25, 0.25, 0.0, 0.0)),
        (1.0, ("deadline", 0.5, 1.0, 0.0, 0.5 * MEGA)),
        (1.75, ("deadline", 0.5, 1.75, 0.25, float(MEGA))),
        (2.25, ("", 0.5, 2.0, 0.5, float(MEGA))),
    ],
)
def test_a_cancelled_transfer_has_the_phases_that_it_passed(
    cell: Callable[..., Cell], at_s: float, row: tuple[str, float, float, float, float]
) -> None:
    """It waits 0.5 s, is on the air for 1 s and has a tail of 0.5 s; its place is free once it is off the air."""
    its = cell(**given({0: 0.5}, {0: 0.5}))
    sent = its.medium.send(0, SERVER, Message("payload", MEGA, 0))

    def stop() -> Any:
        yield its.clock.sleep(at_s)
        its.medium.cancel(sent, "deadline")
        other: Delivery = yield its.medium.send(1, SERVER, Message("payload", MEGA, 0))
        return other

    other = its.clock.run_process(stop())
    its.close()

    assert other.started_s == at_s
    first = its.rows.set_index("sender").loc[0]
    assert tuple(first[["lost", "access_s", "ended_s", "tail_s", "air_bit"]]) == row
    assert sent.triggered == (not row[0])


@pytest.mark.parametrize("end_s", [0.25, 1.0, 1.75])
def test_the_end_of_the_run_ends_every_phase(cell: Callable[..., Cell], end_s: float) -> None:
    """Whatever phase it is in, what is under way is lost at the end, and every law holds."""
    its = cell(**given({0: 0.5}, {0: 0.5}))
    its.medium.send(0, SERVER, Message("payload", MEGA, 0))
    its.clock.run_process(_sleep(its, end_s))
    its.close()

    assert its.rows["lost"].tolist() == ["end"]
    assert its.rows["ended_s"].tolist() == [end_s]


def _sleep(its: Cell, end_s: float) -> Any:
    yield its.clock.sleep(end_s)
