"""Rounds played as arrays: the same events, records, energies and models as one by one."""

from __future__ import annotations

import random
from io import StringIO

import pandas as pd
import pytest

from fednet_emu.algorithms.fedavg import FedAvg
from fednet_emu.emulation.build import build
from fednet_emu.errors import AlgorithmError, FednetError
from fednet_emu.federation import Reply, SgdPlan
from fednet_emu.federation.exchange import Exchange
from fednet_emu.federation.local_rounds import LocalRounds, computes_only
from fednet_emu.federation.rounds import Rounds
from fednet_emu.kernel.clock import to_ns
from fednet_emu.testing import small_federation, small_scenario

STREET = (
    "channel=urban-micro",
    "devices.placement={kind: disc, radius_m: 150, inner_radius_m: 10}",
    "devices.speed={kind: log-normal, median_flop_per_s: 1e6, sigma: 0.6}",
)
CLASSES = (
    "data={kind: synthetic, n_samples: 180, n_test: 20, features: 4, classes: 3}",
    "model=softmax",
    "server={samples: 20, flop_per_s: 1e9}",
)
CLIENTS = {
    "fedavg": ("algorithm.kind=fedavg",),
    "fedavg-adam": ("algorithm.server_optimizer={kind: adam, lr: 0.1}",),
    "fedprox": ("algorithm={kind: fedprox, mu: 0.1, lr: 0.1, batch_size: 20}",),
    "scaffold": ("algorithm={kind: scaffold, option: I, lr: 0.1, batch_size: 20}",),
    "scaffold-ii": ("algorithm={kind: scaffold, option: II, lr: 0.1, batch_size: 20}",),
    "scaffold-momentum": (
        "algorithm={kind: scaffold, lr: 0.1, batch_size: 20, local_optimizer: {kind: momentum, beta: 0.5}}",
    ),
    "local-dp": ("algorithm.aggregation={kind: local-dp, clip_norm: 1.0, noise_multiplier: 0.1}",),
    "schedule": ("algorithm.lr_schedule={kind: cosine, rounds: 3}", "training.workers=2"),
    "dropout": ("model={kind: mlp, hidden: [5], dropout: [0.0, 0.5]}",),
    "fednova": ("algorithm={kind: fednova, lr: 0.1, batch_size: 20}",),
    "feddyn": ("algorithm={kind: feddyn, alpha: 0.1, lr: 0.1, batch_size: 20}",),
    "ditto": ("algorithm={kind: ditto, pull: 0.1, lr: 0.1, batch_size: 20}",),
    "ifca": ("algorithm={kind: ifca, clusters: 2, lr: 0.1, batch_size: 20}",),
    "q-ffl": ("algorithm={kind: q-ffl, q: 1.0, lr: 0.1, batch_size: 20}",),
    "oort": ("algorithm.selection={kind: oort}",),
    "afl": ("algorithm={kind: afl, lr: 0.1, batch_size: 20, lr_lambda: 0.1}",),
    "drfa": ("algorithm={kind: drfa, lr: 0.1, batch_size: 20, lr_lambda: 0.1, local_steps: 2, cohort: 4}",),
    "feddf": (*CLASSES, "algorithm={kind: feddf, lr: 0.1, batch_size: 20}"),
    "fedmd": (*CLASSES, "algorithm={kind: fedmd, lr: 0.1, batch_size: 20}"),
    "fedproto": (*CLASSES, "algorithm={kind: fedproto, lr: 0.1, batch_size: 20}", "model={kind: mlp, hidden: [5]}"),
}


@pytest.fixture
def played(monkeypatch):
    """Play a scenario as arrays where that is possible, or one by one; the number of rounds played as arrays."""
    taken = []
    take = LocalRounds.take

    def run(settings, *, arrays, timing_only=True):
        def choose(self, *args, **options):
            taken.append(arrays and take(self, *args, **options))
            return taken[-1]

        monkeypatch.setattr(LocalRounds, "take", choose)
        taken.clear()
        scenario = small_scenario(*settings)
        fed = build(scenario, timing_only=timing_only)
        fed.run(scenario.algorithm)
        tables = {name: frame.to_csv() for name, frame in fed.ledger.frames().items()}
        latest = fed.latest if isinstance(fed.latest, list) else [fed.latest]
        models = None if timing_only else [fed.graph.read(model).numpy().tobytes() for model in latest]
        time_plane = fed.ledger.energy_j, fed.clock.now, fed.ledger.sent_bit, fed.ledger.offered_bit
        return (tables, models, *time_plane), sum(taken)

    return run


@pytest.mark.parametrize("name", CLIENTS)
def test_trained_rounds_are_those_of_events_to_the_last_bit(played, name):
    """All tables, scores of every round among them, models, the energy and the end; three of three rounds are arrays.

    Arrays train as one record in columns, single events as single jobs; a model with dropout cannot share a call.
    """
    settings = ("devices.count=8", "data.n_samples=160", "stop.rounds=3", *STREET, *CLIENTS[name])
    one_by_one, _ = played(settings, arrays=False, timing_only=False)
    arrays, rounds = played(settings, arrays=True, timing_only=False)

    assert arrays == one_by_one
    assert rounds >= 3


ACCESS = ("tdma", "ofdma", "noma", "{kind: full-reuse, sinr_threshold_db: -20}")
SPEEDS = (
    "devices.speed={kind: log-normal, median_flop_per_s: 1e6, sigma: 0.6}",
    "devices.speed={kind: fixed, flop_per_s: 1e6}",
)
MORE = (
    "devices.straggler={kind: shifted-exponential, mean_factor: 1.0}",
    "devices.profile=pi-4b",
    "channel.device={tx_j_per_bit: 1e-7, rx_j_per_bit: 1e-8}",
    "network.power_control={kind: target-snr, target_snr_db: 20}",
    "algorithm.selection={kind: oort}",
    "stop={rounds: 4, simulated_s: 0.02}",
    "stop={rounds: 4, simulated_s: 0.3}",
    "network.uplink.timeout_s=0.05",
    "channel.device.tx_power_dbm=-5",
    "algorithm.local_steps=3",
    "network.uplink.message_loss={kind: random, probability: 0.4}",
    "algorithm.deadline_s=0.01",
    "algorithm.deadline_s=0.1",
    "algorithm.deadline_s=1",
)


def drawn(number):
    """Settings of one small world, drawn by a number."""
    rng = random.Random(number)
    count = rng.choice((1, 2, 7, 20, 40))
    street = (*STREET[:2], f"devices.placement.radius_m={rng.choice((50, 150, 400))}") if rng.random() < 0.8 else ()
    size = (f"devices.count={count}", f"data.n_samples={20 * count}", f"algorithm.cohort={rng.randint(1, count)}")
    world = (f"network.uplink.access={rng.choice(ACCESS)}", rng.choice(SPEEDS), f"seed={number}")
    return (*size, "stop.rounds=3", *street, *world, *rng.sample(MORE, rng.randint(0, 3)))


WORLDS = [*range(14), *(pytest.param(number, marks=pytest.mark.slow) for number in range(14, 40))]


@pytest.mark.parametrize("number", WORLDS)
def test_drawn_worlds_are_those_of_events_to_the_last_bit(played, number):
    """Timing only: all tables, the energy and the end of worlds that are drawn, most of which are played as arrays."""
    settings = drawn(number)
    try:
        one_by_one, _ = played(settings, arrays=False)
    except FednetError as error:
        with pytest.raises(type(error)):
            played(settings, arrays=True)
        return
    assert played(settings, arrays=True)[0] == one_by_one


def test_most_drawn_worlds_are_played_as_arrays(played):
    """Of the first worlds above that can be played, at least half have such a round."""
    counts = []
    for number in range(14):
        try:
            counts.append(played(drawn(number), arrays=True)[1] > 0)
        except FednetError:
            continue
    assert sum(counts) >= len(counts) / 2


APART = {
    "network.uplink.message_loss={kind: random, probability: 0.4}; algorithm.retries=1": "are sent again",
    "network.downlink.message_loss={kind: random, probability: 0.4}": "is unicast, or its messages may be lost",
    "network.transport={kind: tcp}": "messages may be lost or late",
    "devices.availability={kind: periodic, on_s: 1.0, off_s: 1.0}": "devices may be absent",
    "devices.mobility={kind: random-waypoint}": "messages may be lost or late",
    "algorithm={kind: q-ffl, lr: 0.1, batch_size: 20, deadline_s: 0.4}": "has a deadline",
    "network.uplink.compression={kind: top-k, share: 0.1}": "messages are compressed",
    "network.downlink.mode=unicast": "is unicast",
    "evaluation.every_s=0.01": "timed evaluations",
    "devices.cpu_frequency={within_s: 0.1, min_part: 0.1}": "",
}


@pytest.mark.parametrize("setting", APART)
def test_worlds_that_set_devices_apart_are_played_one_by_one(setting):
    """Losses, delays, absences, movement, deadlines, compression, unicast, or scores between rounds: the reason."""
    scenario = small_scenario("devices.count=4", "stop.rounds=2", *STREET, *setting.split("; "))
    fed = build(scenario, timing_only=True)
    fed.run(scenario.algorithm)
    played, refused = fed.local_rounds.played, fed.local_rounds.refused

    if not APART[setting]:
        assert (played, refused) == (2, {})
    else:
        assert played == 0
        assert [APART[setting] in why for why in refused] == [True]
        assert sum(refused.values()) == 2


STRAGGLERS = "devices.straggler={kind: shifted-exponential, mean_factor: 1.0}"
LAW = "algorithm={kind: %s, lr: 0.1, batch_size: 20%s}"
SPECIAL = {
    "several computations in one exchange": (STRAGGLERS, LAW % ("ditto", ", pull: 0.1")),
    "a battery that ends": (
        "devices.battery={capacity_j: 0.0003}",
        "channel.device={rx_consumption_w: 0.2, idle_w: 0.01}",
        "stop={rounds: 4, simulated_s: 5}",
    ),
    "outages": ("channel.rate={kind: fixed, bit_rate_bps: 1e6, threshold_db: 20}", "devices.placement.radius_m=400"),
    "uploads that are sent again": ("network.uplink.timeout_s=0.001", "algorithm.retries=3"),
    "uploads that are sent again for some time": ("network.uplink.timeout_s=0.001", LAW % ("afl", ", lr_lambda: 0.1")),
    "uploads that are lost": (
        "network.uplink.message_loss={kind: random, probability: 0.4}",
        "algorithm.deadline_s=10",
    ),
    "edge of reach": (
        "channel.device.tx_power_dbm=-20",
        "devices.placement.radius_m=400",
        "network.uplink.access=ofdma",
    ),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_worlds_are_those_of_events_to_the_last_bit(played, name):
    """Whatever may stop a computation or lose an upload: all tables, the energy and the end are equal."""
    settings = ("devices.count=8", "data.n_samples=160", "stop.rounds=4", *STREET, *SPECIAL[name])
    one_by_one, _ = played(settings, arrays=False)

    assert played(settings, arrays=True)[0] == one_by_one


def test_an_end_of_the_run_at_the_instant_of_an_end_is_that_of_events(played):
    """A run that ends when the broadcast, or the last upload, of a round does, one nanosecond sooner, or one later."""
    settings = ("devices.count=8", "data.n_samples=160", *STREET)
    (tables, *_), _ = played((*settings, "stop.rounds=1"), arrays=True)
    ends_s = [float(line) for line in pd.read_csv(StringIO(tables["transfers"]))["ended_s"]]
    for end_s in (ends_s[0], max(ends_s)):
        for later_ns in (-1, 0, 1):
            limit = f"stop={{rounds: 3, simulated_s: {end_s + later_ns * 1e-9:.9f}}}"
            one_by_one, _ = played((*settings, limit), arrays=False)
            assert played((*settings, limit), arrays=True)[0] == one_by_one


def test_a_deadline_at_the_instant_of_an_end_is_that_of_events(played):
    """Deadlines at the end of the broadcast, or of the first or the last upload, a nanosecond sooner, or later."""
    settings = ("devices.count=8", "data.n_samples=160", "stop={rounds: 2, simulated_s: 100}", *STREET)
    (tables, *_), _ = played((*settings, "stop.rounds=1"), arrays=True)
    ends_s = sorted(float(line) for line in pd.read_csv(StringIO(tables["transfers"]))["ended_s"])
    seen = set()
    for end_s in (ends_s[0], ends_s[1], ends_s[-1]):
        for later_ns in (-1, 0, 1):
            deadline = f"algorithm.deadline_s={end_s + later_ns * 1e-9:.9f}"
            one_by_one, _ = played((*settings, deadline), arrays=False)
            assert played((*settings, deadline), arrays=True)[0] == one_by_one
            seen.add(one_by_one[0]["transfers"])
    assert len(seen) > 5


def test_a_round_counts_as_many_steps_as_with_events(monkeypatch):
    """Of each device a message, a computation and an upload; runs that get nowhere are given up by this number."""
    counted = []
    for arrays in (True, False):
        if not arrays:
            monkeypatch.setattr(LocalRounds, "take", lambda self, *args, **options: False)
        scenario = small_scenario("devices.count=4", "algorithm.cohort=4", "stop.rounds=1", *STREET)
        fed, end = build(scenario, timing_only=True), Rounds.end
        with monkeypatch.context() as patch:
            patch.setattr(Rounds, "end", lambda self, end=end, **of: (counted.append(self.requests), end(self, **of)))
            fed.run(scenario.algorithm)

    assert counted == [12, 12]


def test_messages_of_each_device_are_sent_one_by_one():
    """A function gives each device its own message, which no broadcast can carry: only one message is a round."""
    fed = build(small_scenario("devices.count=4", *STREET), timing_only=True)
    rounds = LocalRounds(fed, None, alone=True)
    client = computes_only(lambda fed, k, w: iter(()))

    assert rounds.take(client, 0, Exchange())
    assert not rounds.take(client, lambda k: 0, Exchange())


def test_whatever_else_may_act_in_a_round_lets_it_be_played_one_by_one():
    """An event that is scheduled, a planned upload, or a granted clock: alone, each refuses a round of arrays."""
    client = computes_only(lambda fed, k, w: iter(()))
    changes = (
        lambda fed: fed.clock.call_at(to_ns(1.0), lambda _: None),
        lambda fed: fed.links.grants.update({0: None}),
        lambda fed: fed.processors.granted.update({0: None}),
    )
    for change in changes:
        fed = build(small_scenario("devices.count=4", *STREET), timing_only=True)
        rounds = LocalRounds(fed, None, alone=True)

        assert rounds.take(client, 0, Exchange())
        change(fed)
        assert not rounds.take(client, 0, Exchange())


def test_a_reply_at_a_part_of_the_power_is_sent_one_by_one(monkeypatch):
    """Half the power over the whole band takes longer and draws less: with events in both cases."""

    class Quiet(FedAvg):
        kind = "quiet"

        @computes_only
        def client(self, fed, k, w, t):
            trained = yield k.train(w, self.plan, t)
            return Reply(trained.params, power_part=0.5)

    def outcome(*, arrays):
        if not arrays:
            monkeypatch.setattr(LocalRounds, "take", lambda self, *args, **options: False)
        fed = small_federation("devices.count=4", *STREET, timing_only=True)
        fed.run(Quiet(cohort=4, local_epochs=1))
        return fed.ledger.event_digest(), fed.ledger.energy_j, fed.clock.now

    assert outcome(arrays=True) == outcome(arrays=False)


def test_a_marked_client_that_returns_its_training_unawaited_is_refused():
    """As an unmarked one is."""

    def client(fed, k, w, t):
        yield k.train(w, SgdPlan(lr=0.1, batch_size=20, epochs=1), t)
        return k.train(w, SgdPlan(lr=0.1, batch_size=20, epochs=1), t, "again")

    with pytest.raises(AlgorithmError, match=r"write `yield` before k\.train"):
        _run_marked(client)


def _run_marked(client):
    """Run one round of a client that is marked as one that only computes."""
    fed = small_federation("devices.count=4", *STREET, timing_only=True)

    def server():
        yield from fed.exchange(list(fed.devices()), fed.initial_model(), computes_only(client), 0)

    fed.clock.run_process(server())
