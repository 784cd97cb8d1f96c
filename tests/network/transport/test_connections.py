"""Connections, sizes on the wire and sessions: stories at exact times, numbers by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.kernel.clock import NS_PER_S, Clock
from fednet_emu.network.air.transfer import Message, Transfer
from fednet_emu.network.faults import RandomLoss
from fednet_emu.network.transport import Grpc, NoSession, Quic, Tcp, Transport, Udp
from fednet_emu.network.transport.connections import Connections
from fednet_emu.records.ledger import SERVER
from tests.network.conftest import Cell
from tests.network.transport.lines import line

RATE_BPS, PAYLOAD_BIT = 120_000.0, 8 * 1448


def starts_s(its: Cell, *at_s: float) -> list[float]:
    """How long after its request each message of one packet is on the line."""
    deliveries = its.play(*((at, 0, PAYLOAD_BIT) for at in at_s))
    return [round(delivery.started_s - delivery.requested_s, 9) for delivery in deliveries]


def test_a_connection_is_made_once() -> None:
    """A handshake of 1 s; who asks 0.25 s later waits for the same one, and who asks when it stands does not wait."""
    assert starts_s(line(RATE_BPS, Tcp(rtt_s=1.0)), 0.0, 0.25, 2.0, 900.0) == [1.0, 0.75, 0.0, 0.0]


def test_each_message_has_a_connection_of_its_own_without_reuse() -> None:
    """Each waits for its own handshake; UDP has none."""
    assert starts_s(line(RATE_BPS, Tcp(rtt_s=1.0, reuse=False)), 0.0, 0.25, 2.0) == [1.0, 1.0, 1.0]
    assert starts_s(line(RATE_BPS, Udp(rtt_s=1.0)), 0.0, 2.0) == [0.0, 0.0]


@pytest.mark.parametrize(("session", "round_trips"), [(Grpc(), 2), (Grpc(tls=True), 3)])
def test_sessions_need_more_round_trips(session: Grpc, round_trips: int) -> None:
    """SETTINGS, and TLS before it; software takes its time for each message, after the connection stands."""
    slow = session.model_copy(update={"per_message_s": 0.125})
    assert starts_s(line(RATE_BPS, Tcp(rtt_s=1.0), session), 0.0, 5.0) == [round_trips, 0.0]
    assert starts_s(line(RATE_BPS, Tcp(rtt_s=1.0), slow), 0.0, 5.0) == [round_trips + 0.125, 0.125]


def test_quic_connects_in_a_round_trip() -> None:
    """TLS is inside of the handshake (RFC 9001)."""
    assert starts_s(line(RATE_BPS, Quic(rtt_s=1.0)), 0.0, 5.0) == [1.0, 0.0]


def test_a_loss_ends_the_connection() -> None:
    """Every message is erased, so that each has to connect again."""
    its = line(RATE_BPS, Tcp(rtt_s=1.0), loss=RandomLoss(probability=1 - 1e-12))
    assert starts_s(its, 0.0, 5.0) == [1.0, 1.0]
    assert its.rows["lost"].tolist() == ["erased", "erased"]


def test_a_refused_connection_leaves_nothing_behind() -> None:
    """The attempt takes its 20 s, nothing is on the air, and the next message tries again."""
    its = line(RATE_BPS, Tcp(rtt_s=10.0), Grpc())

    first, second = its.play((0.0, 0, PAYLOAD_BIT), (30.0, 0, PAYLOAD_BIT))

    assert (first.lost, first.ended_s, second.lost, second.ended_s) == ("connect", 20.0, "connect", 50.0)
    row = its.rows.iloc[0]
    assert (row["setup_s"], row["air_bit"], row["delivered_bit"]) == (20.0, 0.0, 0)
    assert its.rows["started_s"].isna().all()


def test_cancelling_while_it_connects() -> None:
    """The row has the part of the set-up until then; others find the connection all the same."""
    its = line(RATE_BPS, Tcp(rtt_s=1.0))
    sent = its.medium.send(0, SERVER, Message("payload", PAYLOAD_BIT, 0))

    def stop() -> Any:
        yield its.clock.sleep(0.25)
        its.medium.cancel(sent, "deadline")
        return (yield its.medium.send(0, SERVER, Message("payload", PAYLOAD_BIT, 0)))

    delivery = its.clock.run_process(stop())
    its.close()

    assert delivery.started_s == 1.0
    assert its.rows["setup_s"].tolist() == [0.25, 0.75]


def test_a_reused_window_is_of_its_direction_and_idle_time() -> None:
    """63 packets leave a window that carries 30 at once; 5 s later they start from the first packet again."""
    deliveries = line(RATE_BPS * 10, Tcp(rtt_s=1.0, initial_window=1)).play(
        (0.0, 0, 63 * PAYLOAD_BIT), (7.5, 0, 30 * PAYLOAD_BIT), (20.0, 0, 30 * PAYLOAD_BIT)
    )
    assert deliveries[1].ended_s == 7.5 + 30 * 0.01 + 0.5
    assert deliveries[2].ended_s == 20.0 + 4.0 + 15 * 0.01 + 0.5


def test_no_first_round_trip_carries_more_than_the_receive_window() -> None:
    """Two packets of ten may be in flight: three pairs of 20 ms, and a round trip of 1 s after each but the last."""
    tcp = Tcp(rtt_s=1.0, initial_window=10, receive_window_byte=3000)
    (delivery,) = line(RATE_BPS * 10, tcp).play((0.0, 0, 6 * PAYLOAD_BIT))

    assert delivery.ended_s == pytest.approx(1.0 + 2 * 1.0 + 0.02 + 0.5)


def test_a_loss_closes_the_windows_of_both_directions() -> None:
    """15 packets each way have opened windows of 16; after a loss on the way up both begin with one packet again."""
    connections = Connections(Tcp(rtt_s=1.0, initial_window=1), NoSession())

    def passed(sender: int, receiver: int, at_ns: int) -> tuple[Transfer, int]:
        sent = Transfer(Clock(), 0, lambda _its, _why: None, sender, receiver, Message(None, 15 * PAYLOAD_BIT, 0))
        sent.phases = connections.enter(sent, at_ns)
        sent.started_ns, sent.air_bit = at_ns, sent.phases.wire_bit
        connections.start(sent, at_ns)
        connections.leave(sent, at_ns + NS_PER_S // 10)
        return sent, sent.phases.window_bit // (8 * 1500)

    for ends in ((0, SERVER), (SERVER, 0)):
        assert [passed(*ends, at_ns)[1] for at_ns in (0, NS_PER_S // 5)] == [1, 16]
    lost, _ = passed(0, SERVER, NS_PER_S // 2)
    connections.lose(lost)
    assert [passed(*ends, NS_PER_S)[1] for ends in ((SERVER, 0), (0, SERVER))] == [1, 1]


@pytest.mark.parametrize(
    ("transport", "payload_byte", "packet_byte"), [(Tcp(), 1448, 1500), (Udp(), 1472, 1500), (Quic(), 1161, 1228)]
)
@given(size_bit=st.integers(0, 10**9))
def test_wire_bits_are_payload_and_headers(
    transport: Transport, payload_byte: int, packet_byte: int, size_bit: int
) -> None:
    """As many headers as packets; a full packet has its full size."""
    packets = -(-size_bit // (8 * payload_byte))
    assert transport.wire_bit(size_bit) == size_bit + 8 * (packet_byte - payload_byte) * packets
    assert transport.wire_bit(8 * payload_byte) == 8 * packet_byte


def test_framing_of_grpc() -> None:
    """1 MB has 62 frames (9 bytes) and 5 bytes of its own, 62 TLS records (22 bytes): 0.06 % and 0.14 %."""
    assert Grpc().framed_bit(8_000_000) == 8 * (1_000_000 + 5 + 62 * 9)
    assert Grpc(tls=True).framed_bit(8_000_000) == 8 * (1_000_000 + 5 + 62 * 31)
    assert Grpc().framed_bit(8 * (16_384 - 5)) == 8 * (16_384 + 9), "with its 5 bytes it fills a frame"
    assert Grpc().framed_bit(8 * (16_384 - 3)) == 8 * (16_384 + 2 + 2 * 9)


def test_a_broadcast_of_datagrams() -> None:
    """UDP has many receivers, one transmission, and half a round trip after it."""
    its = line(RATE_BPS, Udp(rtt_s=0.5), multicast=True)

    deliveries = its.play((0.0, 0, 8 * 1472), (0.0, 1, 8 * 1472))

    assert [delivery.ended_s for delivery in deliveries] == [0.35, 0.35]
    assert its.rows[["receivers", "size_bit", "wire_bit", "delivered_bit"]].iloc[0].tolist() == [
        2, 8 * 1472, 8 * 1500, 2 * 8 * 1472,
    ]  # fmt: skip
