"""Claims about what a sender gets: one law, whether it is alone or among others, waited for or given up."""

import json
import math
import os
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.devices.availability import Windows
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.clock import NS_PER_S, SETTLE
from fednet_emu.network.access.contention import Noma, Shared, SlottedAloha, SpatialReuse
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.plain import PlainAir
from fednet_emu.network.air.separate import BandAir
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.transfer import Delivery, Message
from fednet_emu.network.medium.loads import Radios
from fednet_emu.radio.channel import Terminal
from fednet_emu.radio.fading import NoFading, Rayleigh
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.records.ledger import SERVER
from tests.commands import Forked
from tests.quick import examples

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
MBIT = 1_000_000
GONE = Delivery(0, 0, None, 0, 0.0, math.nan, 0.0, "deadline")


@examples(40)
@given(
    access=st.sampled_from([Tdma(), Shared(max_senders=1, threshold_db=3.0), Noma(max_senders=1, threshold_db=-2.0)]),
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
        books.append((delivery.ended_s, delivery.lost, round(row["air_bit"], 3), round(row["energy_j"], 12)))

    assert books[0] == books[1]


@pytest.mark.parametrize(
    "access",
    [
        Shared(max_senders=1, threshold_db=40.0),
        Shared(threshold_db=40.0),
        Noma(threshold_db=40.0),
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
    world = cell(SpatialReuse(interference=False, threshold_db=40.0), CAPACITY, snr=(794.0, 1e5))
    weak, strong = (world.medium.send(device, SERVER, Message("x", MBIT, 0)) for device in (0, 1))
    world.clock.run()

    assert (weak.value.lost, strong.value.lost) == ("unreachable", "")


def test_a_fading_block_below_the_threshold_carries_nothing(cell):
    """One sender at 0 dB and a threshold of its mean: only blocks above it count, so it takes longer than without."""
    fading = Rayleigh(coherence_s=0.01)
    ends_s = [
        play(cell(Shared(threshold_db=threshold_db), CAPACITY, fading, snr=(1.0,)), (0.0, 0, 100_000))[0][0].ended_s
        for threshold_db in (None, 0.0)
    ]

    assert ends_s[1] > 1.2 * ends_s[0]


@pytest.mark.parametrize("access", [Ofdma(), Shared()])
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


@pytest.mark.parametrize("access", [Tdma(), Ofdma()], ids=["alone", "shared"])
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
    assert world.ledger.frames()["receptions"]["lost"].tolist() == ["", "deadline" if way == "cancelled" else "left"]
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
        for access in (Tdma(), Shared(max_senders=1), SpatialReuse(interference=False), SpatialReuse(), Ofdma(), Noma())
    }

    assert [*chosen.values()] == [BandAir, BandAir, BandAir, SharedAir, PlainAir, PlainAir]


DAYS = """
import hashlib, json, sys
import numpy as np
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams, uniforms
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.access.contention import Shared
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
from fednet_emu.radio.rates.finite_blocklength import FiniteBlocklength
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.records.ledger import SERVER, Ledger

draws, found = uniforms(7, np.arange(100_000)), {}
for kind, law in FADINGS.items():
    fading = law(**{"rician": {"k_db": 6.0}, "nakagami": {"m": 2.5}}.get(kind, {}))
    gains = 10.0 * fading.gains(draws, draws < 0.3)
    for rate in (Shannon(), FiniteBlocklength(block_symbols=200, error_rate=1e-3)):
        found[f"{kind}, {rate.kind}"] = hashlib.sha256(rate.rates_bps(gains, 1e6).tobytes()).hexdigest()
    for access in (Tdma(), Ofdma(), Shared()):
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
