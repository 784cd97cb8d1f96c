"""Broadcasts, and the one law of rates."""

import json
import math
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.devices.availability import Windows
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.clock import COLLECT, NS_PER_S, SETTLE
from fednet_emu.network.access.contention import FullReuse, Noma, SlottedAloha, SpatialReuse
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air import separate as air
from fednet_emu.network.air.plain import PlainAir
from fednet_emu.network.air.separate import BandAir
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.transfer import Delivery, Message
from fednet_emu.network.faults import RandomLoss
from fednet_emu.network.medium.loads import Radios
from fednet_emu.radio.channel import Terminal
from fednet_emu.radio.fading import NoFading, Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.records.ledger import SERVER, SEVERAL
from tests.commands import Forked
from tests.network.media import CAPACITY, MBIT
from tests.quick import examples

BOTH_AIRS = pytest.mark.parametrize("access", [Tdma(), Ofdma()], ids=["alone", "shared"])
SNR = [100.0, 1.0, 10.0, 3.0]
GONE = Delivery(0, 0, None, 0, 0.0, math.nan, 0.0, "deadline")


def rate_bps(snr, share=1.0):
    """Capacity of a share of 1 MHz."""
    return 1e6 * share * math.log2(1 + snr / share)


@BOTH_AIRS
def test_a_broadcast_ends_with_its_slowest_receiver(cell, access):
    """All get it at that instant: one transmission, as long as the worst link needs, in one row."""
    world = cell(access, CAPACITY, snr=SNR, multicast=True)
    deliveries = world.play(*((0.0, device, MBIT) for device in range(4)))

    end_s = MBIT / rate_bps(1.0)
    assert [delivery.receiver for delivery in deliveries] == [0, 1, 2, 3]
    assert all(delivery.ended_s == pytest.approx(end_s, abs=1e-9) for delivery in deliveries)
    (row,) = world.rows.to_dict("records")
    assert (row["sender"], row["receiver"], row["receivers"], row["size_bit"]) == (SERVER, SEVERAL, 4, MBIT)
    assert (row["delivered_bit"], row["lost_bit"]) == (4 * MBIT, 0)
    assert row["transmitted_bit"] == pytest.approx(MBIT, rel=1e-9)
    assert row["energy_j"] == pytest.approx(0.2 * end_s)
    assert world.ledger.sent_bit == [0, MBIT, 0]
    heard = world.ledger.frame("receptions")
    assert heard[["transfer", "receiver", "loss_reason"]].values.tolist() == [[0, device, ""] for device in range(4)]
    assert row["snr_db"] == pytest.approx(heard["snr_db"].min())


@BOTH_AIRS
def test_every_receiver_draws_power_while_it_receives(cell, access):
    """Three receivers of a broadcast at 0.5 W draw 1.5 W until the slowest has it; its sender's draw is apart."""
    world = cell(access, CAPACITY, snr=SNR, multicast=True, rx_consumption_w=0.5)
    world.play(*((0.25, device, MBIT) for device in range(3)))

    airtime_s = MBIT / rate_bps(1.0)
    (row,) = world.rows.to_dict("records")
    assert row["rx_energy_j"] == pytest.approx(0.5 * airtime_s * 3, rel=1e-8)
    assert row["energy_j"] == pytest.approx(0.2 * airtime_s, rel=1e-8)
    assert world.ledger.energy_j == pytest.approx((1.5 + 0.2) * airtime_s, rel=1e-8)


def test_a_receiver_without_a_link_holds_no_broadcast_up(cell):
    """One nanosecond before the broadcast ends another message starts; the end stays where it is.

    That nobody answers is known a second after the start.
    """
    law = FixedRate(bit_rate_bps=1e6, threshold_db=0.0, on_outage="stall")
    world = cell(Ofdma(), law, snr=[100.0, 0.0, 100.0], multicast=True)
    first, unreachable, _ = world.play((0.0, 0, 1000), (0.0, 1, 1000), (0.000_999_999, 2, MBIT))

    assert (first.lost, first.ended_s) == ("", 0.001)
    assert (unreachable.lost, unreachable.ended_s) == ("unreachable", 1.0)


def test_unicast_sends_one_after_the_other(cell):
    """Without multicast the same payload is as many transmissions as receivers, by the number of the device."""
    world = cell(law=CAPACITY, snr=SNR)
    deliveries = world.play(*((0.0, device, MBIT) for device in (2, 0, 1)))

    ends_s = {device: MBIT / rate_bps(SNR[device]) for device in range(3)}
    assert deliveries[1].ended_s == pytest.approx(ends_s[0], abs=1e-9)
    assert deliveries[2].ended_s == pytest.approx(ends_s[0] + ends_s[1], abs=3e-9)
    assert deliveries[0].ended_s == pytest.approx(sum(ends_s.values()), abs=3e-9)
    assert world.rows["receivers"].tolist() == [1, 1, 1]


def test_only_one_group_of_one_instant_is_one_broadcast(cell):
    """Another instant, another group or another size is another transmission."""
    world = cell(multicast=True)
    send = world.medium.send
    for receiver, group, size_bit in [(0, 0, 1000), (1, 0, 1000), (2, 5, 1000), (3, 0, 2000)]:
        send(SERVER, receiver, Message("model", size_bit, 0, group))
    world.play((0.0001, 4, 1000))

    assert world.rows[["receivers", "size_bit"]].values.tolist() == [[2, 1000], [1, 1000], [1, 2000], [1, 1000]]


@pytest.mark.parametrize("multicast", [True, False])
def test_requests_made_together_are_requests_made_one_by_one(cell, multicast):
    """The same rows, receptions and offered bits, beside another request of the instant."""
    books = []
    for together in (True, False):
        world = cell(Tdma(), CAPACITY, snr=SNR, multicast=multicast)
        if together:
            world.medium.send_all(SERVER, [2, 0, 1], Message("model", MBIT, 7, 7))
        else:
            for receiver in (2, 0, 1):
                world.medium.send(SERVER, receiver, Message("model", MBIT, 7, 7))
        world.play((0.0, 3, 1000), (0.1, 0, 1000))
        books.append((world.rows.to_csv(), world.ledger.frame("receptions").to_csv(),
                      world.ledger.offered_bit, world.ledger.energy_j))  # fmt: skip

    assert books[0] == books[1]
    assert sum(books[0][2]) == 3 * MBIT + 2000


@BOTH_AIRS
def test_a_broadcast_next_to_another_follows_the_closed_form(cell, access):
    """Two broadcasts of one server: in turns, or side by side until the first has ended.

    Side by side each has half the band and half the power, and so half the rate of one alone.
    """
    world = cell(access, CAPACITY, snr=SNR, multicast=True)
    send, both = world.medium.send, []
    for pair in ((0, 1), (2, 3)):
        both.append([send(SERVER, receiver, Message("model", MBIT, 0, pair[0])) for receiver in pair])
    world.clock.run()
    world.close()

    slow_1, slow_3 = SNR[1], SNR[3]
    if access.capacity:
        ends_s = (MBIT / rate_bps(slow_1), MBIT / rate_bps(slow_1) + MBIT / rate_bps(slow_3))
    else:
        second_s = MBIT / (rate_bps(slow_3) / 2)
        left_bit = MBIT - second_s * rate_bps(slow_1) / 2
        ends_s = (second_s + left_bit / rate_bps(slow_1), second_s)
    for transfers, end_s in zip(both, ends_s, strict=True):
        assert [transfer.value.ended_s for transfer in transfers] == pytest.approx([end_s] * 2, abs=2e-9)
    assert world.rows["transmitted_bit"].tolist() == pytest.approx([MBIT, MBIT], rel=1e-9)


@BOTH_AIRS
def test_a_receiver_that_has_it_all_may_leave(cell, access):
    """Through at 0.15 s, away from 0.6 s on: that the band is re-rated at 0.7 s takes nothing from it."""
    leaves = Windows(devices={0: ((0.0, 0.6),)})
    world = cell(access, CAPACITY, snr=SNR, multicast=True, availability=leaves)
    other = world.medium.send

    def disturb(_event):
        other(SERVER, 3, Message("another payload", 1000, 0))

    world.clock.call_at(NS_PER_S * 7 // 10, disturb)
    deliveries = world.play((0.0, 0, MBIT), (0.0, 1, MBIT))

    assert [delivery.lost for delivery in deliveries] == ["", ""]
    assert deliveries[0].ended_s == deliveries[1].ended_s > 0.9


def test_a_receiver_that_is_away_gets_a_row_of_its_own(cell):
    """The others' broadcast is not held up, and every offered bit is accounted for."""
    world = cell(multicast=True, availability=Windows(devices={1: ((5.0, 6.0),)}))
    deliveries = world.play(*((0.0, device, MBIT) for device in range(3)))

    assert [delivery.lost for delivery in deliveries] == ["", "away", ""]
    assert world.rows[["receivers", "loss_reason", "lost_bit"]].values.tolist() == [[1, "away", MBIT], [2, "", 0]]


@BOTH_AIRS
def test_an_outage_of_one_receiver_is_its_own(cell, access):
    """Below the threshold only one of three loses the broadcast."""
    law = FixedRate(bit_rate_bps=1e6, threshold_db=5.0)
    world = cell(access, law, snr=SNR[:3], multicast=True)
    deliveries = world.play(*((0.0, device, MBIT) for device in range(3)))

    assert [delivery.lost for delivery in deliveries] == ["", "outage", ""]
    assert world.rows["lost_bit"].tolist() == [MBIT]


def test_each_receiver_has_its_own_luck(cell):
    """Random loss strikes receivers independently: a broadcast may arrive at some of them."""
    world = cell(multicast=True, loss=RandomLoss(probability=0.5))
    deliveries = world.play(*((0.0, device, 1000) for device in range(8)))

    assert {delivery.lost for delivery in deliveries} == {"", "erased"}
    assert world.rows["delivered_bit"].tolist() == [1000 * sum(not delivery.lost for delivery in deliveries)]


@BOTH_AIRS
def test_a_broadcast_goes_on_until_the_last_receiver_gives_up(cell, access):
    """One receiver is cancelled: the others still get it. All are cancelled: it stops there."""
    world = cell(access, multicast=True)
    transfers = [world.medium.send(SERVER, receiver, Message("model", MBIT, 0, 1)) for receiver in range(3)]
    for at_ns, transfer in zip((2, 4, 6), transfers, strict=True):
        world.clock.call_at(at_ns * NS_PER_S // 10, lambda _event, it=transfer: it.cancel(GONE), COLLECT)
    world.clock.run()
    world.close()

    (row,) = world.rows.to_dict("records")
    assert (row["ended_s"], row["delivered_bit"]) == (0.6, 0)
    assert row["transmitted_bit"] == pytest.approx(0.6 * MBIT)
    assert world.ledger.frame("receptions")["loss_reason"].tolist() == ["deadline"] * 3


@examples(60)
@given(
    seed=st.integers(0, 10**6),
    size_bit=st.integers(0, 300_000),
    law=st.sampled_from([CAPACITY, Shannon(), FixedRate(bit_rate_bps=2e6, threshold_db=-5.0)]),
    fading=st.sampled_from([NoFading(), *(Rayleigh(coherence_s=block_s) for block_s in (0.001, 0.05, 3e9))]),
    timeout_s=st.sampled_from([0.03, 100.0]),
    leaves_s=st.sampled_from([0.2, 1e6]),
)
def test_many_receivers_are_walked_together(cell, seed, size_bit, law, fading, timeout_s, leaves_s):
    """Leg by leg or as arrays: the same fates, bits, and ends to the nanosecond."""
    snr = (10 ** np.random.default_rng(seed).uniform(-1.5, 3, 40)).tolist()
    there = Windows(devices={device: ((0.0, leaves_s if device < 5 else 1e6),) for device in range(40)})
    results = []
    for many in (2, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(air, "_MANY_LEGS", many)
            world = cell(None, law, fading, snr=snr, multicast=True, timeout_s=timeout_s, availability=there)
            deliveries = world.play(*((0.1, device, size_bit) for device in range(40)))
            results.append(([(got.lost, got.ended_s) for got in deliveries], world.rows.iloc[0]))

    (fates, row), (expected, walked) = results
    assert fates == expected
    assert row["transmitted_bit"] == pytest.approx(walked["transmitted_bit"], rel=1e-9)
    assert row["energy_j"] == walked["energy_j"]


@examples(40)
@given(
    access=st.sampled_from(
        [Tdma(), FullReuse(max_senders=1, sinr_threshold_db=3.0), Noma(max_senders=1, sinr_threshold_db=-2.0)]
    ),
    law=st.sampled_from([CAPACITY, Shannon(), FixedRate(bit_rate_bps=3e6, threshold_db=2.0)]),
    coherence_s=st.sampled_from([0.001, 0.0435, math.inf]),
    snr=st.floats(0.5, 50.0),
    size_bit=st.integers(0, 400_000),
    timeout_s=st.sampled_from([0.05, 100.0]),
)
def test_a_lone_sender_gets_what_the_general_path_gives(cell, access, law, coherence_s, snr, size_bit, timeout_s):
    """The end to the nanosecond, the bits, the energy and the fate, by the walk of one link and by that of all."""
    fading = NoFading() if math.isinf(coherence_s) else Rayleigh(coherence_s=coherence_s)
    books = []
    for shared in (False, True):
        world = cell(access, law, fading, snr=(snr,), timeout_s=timeout_s)
        if shared:
            world.medium.air = SharedAir(access, world.band, world.medium.links)
        (delivery,) = world.play((0.0013, 0, size_bit))
        row = world.rows.iloc[0]
        books.append((delivery.ended_s, delivery.lost, round(row["transmitted_bit"], 3), round(row["energy_j"], 12)))

    assert books[0] == books[1]


@pytest.mark.parametrize(
    "access",
    [
        FullReuse(max_senders=1, sinr_threshold_db=40.0),
        FullReuse(sinr_threshold_db=40.0),
        Noma(sinr_threshold_db=40.0),
        SlottedAloha(slot_s=0.001, capture_db=40.0),
    ],
)
def test_a_threshold_holds_for_a_lone_sender(cell, access):
    """29 dB does not pass 40 dB: on a constant link that is known in a second, without airtime or energy."""
    (delivery,), world = play(cell(access, CAPACITY, snr=(794.0,)), (1.0, 0, MBIT))

    assert (delivery.lost, delivery.ended_s) == ("unreachable", 2.0)
    assert world.rows["ended_s"].tolist() == [1.0]
    assert world.rows["energy_j"].tolist() == [0.0]


def test_a_threshold_holds_where_clusters_do_not_disturb_each_other(cell):
    """Reuse without interference walks each link alone, above the same threshold."""
    world = cell(SpatialReuse(interference=False, sinr_threshold_db=40.0), CAPACITY, snr=(794.0, 1e5))
    weak, strong = (world.medium.send(device, SERVER, Message("x", MBIT, 0)) for device in (0, 1))
    world.clock.run()

    assert (weak.value.lost, strong.value.lost) == ("unreachable", "")


def test_a_fading_block_below_the_threshold_carries_nothing(cell):
    """One sender at 0 dB and a threshold of its mean: only blocks above it count, so it takes longer than without."""
    fading = Rayleigh(coherence_s=0.01)
    ends_s = [
        play(cell(FullReuse(sinr_threshold_db=threshold_db), CAPACITY, fading, snr=(1.0,)), (0.0, 0, 100_000))[0][
            0
        ].ended_s
        for threshold_db in (None, 0.0)
    ]

    assert ends_s[1] > 1.2 * ends_s[0]


@pytest.mark.parametrize("access", [Ofdma(), FullReuse()])
def test_a_second_burst_draws_the_power_at_which_its_sender_is_on_the_air(cell, access):
    """At 1 W and then, asked for while that goes on, at a tenth: both draw what the sender radiates, half each."""
    radio = Terminal(tx_power_dbm=30.0, noise_figure_db=0.0, height_m=1.0, amplifier_efficiency=0.5, circuit_w=0.0)
    world = cell(access, FixedRate(bit_rate_bps=1e6), radios=Radios(radio))
    send = world.medium.send
    first = send(0, SERVER, Message("x", MBIT, 0))
    world.clock.call_at(NS_PER_S // 2, lambda _event: send(0, SERVER, Message("x", MBIT, 0), power_part=0.1))
    world.clock.run()
    world.close()

    assert first.value.ended_s == 1.0
    assert world.rows["energy_j"].tolist() == pytest.approx([2.0 * 0.75, 2.0 * 0.75])


@BOTH_AIRS
@pytest.mark.parametrize("way", ["cancelled", "left"])
def test_nobody_waits_for_a_receiver_that_is_gone(cell, access, way):
    """A receiver that needs 140 s is cancelled, or leaves, after 0.2 s: the broadcast takes the other's 0.5 s."""
    leaves = Windows(devices={1: ((0.0, 0.2),)}) if way == "left" else None
    world = cell(access, CAPACITY, snr=(3.0, 0.005), multicast=True, availability=leaves)
    fast, slow = (world.medium.send(SERVER, device, Message("model", MBIT, 0, 1)) for device in (0, 1))
    if way == "cancelled":
        world.clock.call_at(NS_PER_S // 5, lambda _event: slow.cancel(GONE))
    world.clock.run()
    world.close()

    assert (fast.value.lost, fast.value.ended_s) == ("", 0.5)
    assert world.ledger.frame("receptions")["loss_reason"].tolist() == [
        "",
        "deadline" if way == "cancelled" else "left",
    ]
    assert world.rows["energy_j"].tolist() == pytest.approx([0.2 * 0.5])


@examples(30)
@given(
    size_bit=st.integers(1, 3_000_000),
    looks_ns=st.lists(st.integers(1, 2 * NS_PER_S), max_size=30),
    rate_bps=st.sampled_from([1e6, 7e5, math.pi * 1e5]),
)
def test_looking_at_a_transfer_does_not_change_its_end(cell, size_bit, looks_ns, rate_bps):
    """However often the bits flow on the way, shared air ends in the nanosecond of a single division."""
    world = cell(Ofdma(), FixedRate(bit_rate_bps=rate_bps), Rayleigh(coherence_s=0.01))
    transfer = world.medium.send(0, SERVER, Message("x", size_bit, 0))
    for at_ns in looks_ns:
        world.clock.call_at(at_ns, lambda _event: world.medium._settle_at(world.clock.now), SETTLE)
    world.clock.run()

    assert round(transfer.value.ended_s * NS_PER_S) == math.ceil(Fraction(size_bit) * NS_PER_S / Fraction(rate_bps))


def test_a_settling_leaves_nothing_behind_in_the_clock(cell):
    """A change takes back the wake-up that it made wrong: the queue stays short over a thousand changes."""
    world, lengths = cell(Ofdma(), CAPACITY, snr=(10.0,) * 8), []

    def device(index):
        for turn in range(150):
            yield world.medium.send(index, SERVER, Message("x", 1000 + 37 * (index + turn), 0))
            lengths.append(len(world.clock._queue))

    for index in range(8):
        world.clock.process(device(index))
    world.clock.run()

    assert len(lengths) == 1200
    assert max(lengths) < 64 + 40


@pytest.mark.parametrize(
    ("access", "fading", "key"),
    [
        (Tdma(), Rayleigh(coherence_s=1e-9), "channel.fading.coherence_s"),
        (Ofdma(), Rayleigh(coherence_s=1e-9), "channel.fading.coherence_s"),
        (SlottedAloha(slot_s=1e-9), Rayleigh(coherence_s=0.01), r"network\.\*\.access.slot_s"),
    ],
)
def test_too_many_blocks_are_an_error_that_names_the_setting(cell, monkeypatch, access, fading, key):
    """A billion blocks in a second: the run says which setting makes them, after as many as it is told to walk."""
    monkeypatch.setattr("fednet_emu.network.air.band.MOST_BLOCKS", 10_000)

    with pytest.raises(ScenarioError, match=rf"^{key}: a transfer spans more than .* got 1e-09 s for one"):
        play(cell(access, CAPACITY, fading), (0.0, 0, MBIT))


def test_the_choice_of_air_follows_from_who_can_disturb_whom(cell):
    """Turns of one cell and clusters apart walk alone; everything else shares, in the short way where it can."""
    chosen = {
        access: type(cell(access).medium.air)
        for access in (
            Tdma(),
            FullReuse(max_senders=1),
            SpatialReuse(interference=False),
            SpatialReuse(),
            Ofdma(),
            Noma(),
        )
    }

    assert [*chosen.values()] == [BandAir, BandAir, BandAir, SharedAir, PlainAir, PlainAir]


DAYS = """
import hashlib, json, sys
import numpy as np
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams, uniforms
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.access.contention import FullReuse
from fednet_emu.network.access.orthogonal import Tdma
from fednet_emu.devices.availability import Always, Presence
from fednet_emu.network.links.links import CellLinks
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.medium.medium import Medium
from fednet_emu.network.medium.loads import Radios
from fednet_emu.network.settings import Uplink
from fednet_emu.radio.channel import DeviceRadio
from fednet_emu.radio.fading import FADINGS
from fednet_emu.radio.rates.shannon import FiniteBlocklength
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.records.ledger import SERVER, Ledger

draws, found = uniforms(7, np.arange(100_000)), {}
for kind, law in FADINGS.items():
    fading = law(**{"rician": {"k_db": 6.0}, "nakagami": {"m": 2.5}}.get(kind, {}))
    gains = 10.0 * fading.gains(draws, draws < 0.3)
    for rate in (Shannon(), FiniteBlocklength(block_symbols=200, error_rate=1e-3)):
        found[f"{kind}, {rate.kind}"] = hashlib.sha256(rate.rates_bps(gains, 1e6).tobytes()).hexdigest()
    for access in (Tdma(), Ofdma(), FullReuse()):
        clock, ledger, streams = Clock(), Ledger(), Streams(0)
        links = CellLinks(np.array([[3.0, 10.0, 40.0]]), [streams.key("fading")])
        use = access.use(Band.of(1e6, Shannon(), fading), links, 1, 3)
        settings = Uplink(access=access, timeout_s=3600.0)
        medium = Medium(clock, ledger, Presence(Always(), 0, 3), settings, use, links, Radios(DeviceRadio()))

        def device(index):
            while clock.now_s < int(sys.argv[1]) * 86_400:
                yield medium.send(index, SERVER, Message(None, 3_000_000))
                yield clock.sleep(40_000.0)

        for index in range(3):
            clock.process(device(index))
        clock.run()
        found[f"{kind}, {access.kind}"] = ledger.event_digest()
print(json.dumps(found))
"""


@pytest.mark.parametrize("days", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_a_hundred_days_do_not_depend_on_vector_instructions(days):
    """Of every fading law: the bits of rates, and the events of turns and shared bands over so many simulated days."""
    narrow = os.environ | {"NPY_DISABLE_CPU_FEATURES": " ".join(_wide_features())}
    command = [sys.executable, "-c", DAYS, str(days)]
    without = json.loads(subprocess.run(command, env=narrow, check=True, stdout=subprocess.PIPE).stdout)
    with_all = json.loads(Forked("-c", DAYS, days).ended().stdout)

    assert len(with_all) == 25
    assert with_all == without


def _wide_features():
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    wide = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
    if not wide:
        pytest.skip("this processor has no vector instructions beyond NumPy's least")
    return wide


def play(world, *requests):
    """The deliveries, and the world that they came through."""
    return world.play(*requests), world
