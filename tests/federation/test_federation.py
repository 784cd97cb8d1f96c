"""What an algorithm sees: payload sizes, links, gathering, reading, and errors that say who waits for whom."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
import torch

from fednet_emu.devices.processors import Work
from fednet_emu.errors import Deadlock, ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.updates import n_scalars
from fednet_emu.kernel.clock import Process
from fednet_emu.learning.graph.jobs import SgdPlan
from fednet_emu.records.laws import verify
from fednet_emu.testing import run_small, small_federation
from tests.federation.flows import play

# ---- sizes -----------------------------------------------------------------------------------------------------------


def test_a_whole_size_may_be_a_float_or_of_numpy() -> None:
    """1e3 is as good as 1000."""

    def server(fed: Federation) -> Process:
        for size_bit in (1000, 1e3, np.int32(1000)):
            yield fed.uplink(fed.device(0), None, size_bit)  # type: ignore[arg-type]

    _, fed = play(server, "network.overhead=none")

    assert fed.ledger.transfers.column("size_bit").tolist() == [1000, 1000, 1000]


def test_messages_carry_their_header_and_a_given_size_wins() -> None:
    """32 bit per scalar and the header; `size_bit` replaces the count and not the header."""

    def flow(fed: Federation) -> Process:
        yield fed.uplink(fed.device(0), (1.0, 2.0))
        yield fed.uplink(fed.device(0), None)
        yield fed.uplink(fed.device(0), {"any": "thing"}, size_bit=1000)

    _, fed = play(flow, "network.overhead={kind: header, header_bit: 24}")

    assert fed.ledger.transfers.column("size_bit").tolist() == [88, 24, 1024]


# ---- devices ---------------------------------------------------------------------------------------------------------


def test_an_object_of_a_class_belongs_to_its_run() -> None:
    """The first call makes it, later ones return the same, and another run or class has its own."""

    class Tally(list[int]):
        """A list of this run."""

    fed, other = small_federation(), small_federation()
    fed.state(Tally, Tally).append(1)

    assert fed.state(Tally, lambda: Tally([9])) == [1]
    assert other.state(Tally, Tally) == []
    assert fed.state(dict, dict) == {}


def test_views_on_one_device_are_one_key() -> None:
    """Devices made twice are equal and share a place in a dict; those of another federation are strangers."""
    fed = small_federation()
    first, again = fed.device(1), list(fed.devices())[1]

    assert {first: "x"}[again] == "x"
    assert first != fed.device(2)
    assert first != small_federation().device(1)
    assert repr(first) == "dev-1"


def test_training_costs_its_floating_point_operations() -> None:
    """36 FLOP per sample: 2 epochs of 20 samples, 4 batches of 8, 8, 4 and 8, and 3 epochs of a subset of 5."""
    fed = small_federation()
    device, model = fed.device(0), fed.initial_model()

    def flop(plan: SgdPlan, **terms: Any) -> float:
        return device.training(model, plan, 0, **terms).flop

    assert flop(SgdPlan(lr=0.1, batch_size=8, epochs=2)) == 36 * 40
    assert flop(SgdPlan(lr=0.1, batch_size=8, steps=4)) == 36 * (8 + 8 + 4 + 8)
    assert flop(SgdPlan(lr=0.1, epochs=3), subset=np.arange(5)) == 36 * 15


def test_a_subset_counts_places_among_the_devices_own_samples() -> None:
    """Training device 1 on its samples 3 and 5 follows the gradient of just those two."""
    fed = small_federation()
    device, model = fed.device(1), fed.initial_model()
    work = device.training(model, SgdPlan(lr=0.1, steps=1), 0, subset=np.array([3, 5]))

    rows = torch.tensor([20 + 3, 20 + 5])
    x, y = fed.task.data.x[rows].double(), fed.task.data.y[rows].double()
    design = torch.cat([x, torch.ones(2, 1, dtype=torch.float64)], 1)
    w = fed.read(model).double()
    expected = w - 0.1 * 2 / 2 * design.T @ (design @ w - y)

    assert torch.allclose(fed.read(work.result.params).double(), expected, atol=1e-6)


def test_work_of_an_algorithms_own_takes_its_time() -> None:
    """Any work has a cost and a result that is there when its time is over."""

    def flow(fed: Federation) -> Process:
        result = yield fed.server.compute(Work(5e5, "answer"))
        return result, fed.clock.now_s

    assert play(flow, "server.flop_per_s=1e6")[0] == ("answer", 0.5)


# ---- flow ------------------------------------------------------------------------------------------------------------


def test_without_a_sidelink_the_error_names_the_setting() -> None:
    """An algorithm that sends from device to device needs the scenario's sidelink."""

    def flow(fed: Federation) -> Process:
        yield fed.sidelink(fed.device(0), [fed.device(1)], 1.0)

    with pytest.raises(ScenarioError, match=r"^network\.sidelink: is required"):
        play(flow)


def test_what_is_cancelled_is_a_lost_delivery() -> None:
    """A process is cancelled 1 ms into a computation of a second: that stops, and nobody waits for it any more."""

    def job(fed: Federation) -> Process:
        yield fed.device(0).compute(Work(1e6, None))

    def flow(fed: Federation) -> Process:
        started = fed.start(job(fed))
        yield fed.sleep(0.001)
        fed.cancel(started)
        outcome = yield started
        return outcome, fed.now_s

    (outcome, now_s), fed = play(flow)
    [stopped] = fed.ledger.frame("computes").itertuples()

    assert (outcome.lost, outcome.payload, outcome.ended_s) == ("deadline", None, 0.001)
    assert (stopped.ended_s, stopped.stopped, now_s) == (0.001, "deadline", 0.001)


def test_a_deadline_stops_computing_waiting_and_sending() -> None:
    """At 1.5 ms device 0 has arrived, 1 is on the air, 2 waits for its turn and 3 computes; the books say so."""
    fed = run_small("devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 1e5]}",
                    "algorithm.deadline_s=1.5e-3", "stop.rounds=1")  # fmt: skip
    frames = fed.ledger.frames()
    uplinks = frames["transfers"].query("direction == 'uplink'").set_index("sender")
    [late] = frames["computes"].query("stopped != ''").itertuples()

    assert uplinks["loss_reason"].to_dict() == {0: "", 1: "deadline", 2: "deadline"}
    assert uplinks["transmitted_bit"].to_dict() == pytest.approx({0: 320.0, 1: 140.0, 2: 0.0})
    assert (uplinks["started_s"][1], math.isnan(uplinks["started_s"][2])) == (1.36e-3, True)
    assert (late.device, late.stopped) == (3, "deadline")
    assert late.flop == pytest.approx(1e5 * (1.5e-3 - 0.32e-3))
    assert frames["rounds"].values.tolist() == [[1, 0.0, 1.5e-3, 4, 1]]
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())


def test_after_a_deadline_the_next_round_starts_unhindered() -> None:
    """A device that was cut off while it computed starts the next round's work as soon as it has the model."""
    fed = run_small("devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 1e5]}",
                    "algorithm.deadline_s=1.5e-3", "stop.rounds=2")  # fmt: skip
    starts_s = fed.ledger.frame("computes").query("device == 3")["started_s"].tolist()

    assert starts_s == [0.32e-3, pytest.approx(1.82e-3)]


# ---- learning --------------------------------------------------------------------------------------------------------


def test_reading_gives_the_number_behind_a_deferred_value() -> None:
    """A deferred function is computed when read; its size is that of its first argument unless given."""
    fed = small_federation()
    model = fed.initial_model()
    norm = fed.defer(lambda w: float(w.norm()), model, size=1)

    assert (n_scalars(norm), n_scalars(fed.defer(torch.neg, model))) == (1, 10)
    assert fed.read(norm) == pytest.approx(float(fed.task.model.initial().norm()))
    assert not fed.learner.nominal


def test_a_timing_only_run_takes_the_nominal_value_and_is_marked() -> None:
    """Without training there is no number: the declared one stands for it, and the run says so."""
    fed = small_federation(timing_only=True)
    gap = fed.defer(torch.norm, fed.initial_model(), size=1)

    with pytest.raises(ScenarioError, match="timing-only run: a computed value is read"):
        fed.read(gap)
    assert not fed.learner.nominal
    assert fed.read(gap, nominal=3) == 3
    assert fed.learner.nominal


def test_training_that_diverges_names_device_round_step_and_lr() -> None:
    """A loss that is not finite stops the run at once, and is never plotted."""
    with pytest.raises(ScenarioError) as caught:
        run_small("algorithm.lr=1e30", "algorithm.local_steps=5")

    assert str(caught.value).startswith("dev-0, round 1: training diverges, got loss inf after step 1 with lr=1e+30")


# ---- who waits for whom ----------------------------------------------------------------------------------------------


def test_a_deadlock_tells_who_is_missing_and_what_was_lost() -> None:
    """The server waits for device 3, whose only upload was lost; the error says both, with the time."""

    def worker(fed: Federation, index: int, inbox: Any) -> Process:
        sent = yield fed.uplink(fed.device(index), 1.0, size_bit=1000)
        if not sent.lost:
            inbox.put(index, sent)

    def flow(fed: Federation) -> Process:
        inbox = fed.inbox()
        for index in (2, 3):
            fed.start(worker(fed, index, inbox))
        yield inbox.collect(at_least=1, including={3})

    with pytest.raises(Deadlock) as caught:
        play(flow, "network.uplink.message_loss={kind: random, probability: 0.999999}")

    assert str(caught.value) == (
        "deadlock at t=0.002 s: run waits for 1 arrivals in the inbox, which holds 0; dev-3 must be among them; "
        "last lost: uplink dev-2 to server at t=0.001 s (erased), uplink dev-3 to server at t=0.002 s (erased)"
    )


def test_a_deadlock_tells_lost_broadcasts_too() -> None:
    """Every receiver that missed a broadcast is named."""

    def listener(fed: Federation, index: int, inbox: Any) -> Process:
        got = yield fed.downlink(fed.device(index), "hello", size_bit=1000)
        if not got.lost:
            inbox.put(index, got)

    def flow(fed: Federation) -> Process:
        inbox = fed.inbox()
        for index in range(3):
            fed.start(listener(fed, index, inbox))
        yield inbox.collect(at_least=3)

    with pytest.raises(Deadlock, match=r"downlink server to dev-0 at t=0\.001 s \(erased\), downlink server to dev-1"):
        play(flow, "network.downlink.message_loss={kind: random, probability: 0.999999}")


@pytest.mark.parametrize("changes", [(), ("network.uplink.message_loss={kind: random, probability: 0.5}",)])
def test_a_deadline_that_nobody_meets_is_named(changes: tuple[str, ...]) -> None:
    """Rounds that take a nanosecond each and bring nothing end after a thousand, with the setting and its value."""
    classes = ("data={kind: synthetic, features: 4, classes: 2, n_samples: 80, n_test: 20}", "model=softmax")
    hopeless = (*classes, "evaluation.every_rounds=500", "algorithm.deadline_s=1e-9", "stop={accuracy: 0.99}", *changes)

    with pytest.raises(Deadlock, match=r"1000 rounds in a row brought nothing, .*algorithm\.deadline_s, 1e-09 s: give"):
        run_small(*hopeless)


def test_rounds_that_bring_something_now_and_then_go_on() -> None:
    """Only rounds in a row count: with nine of ten updates lost a run of a thousand rounds comes to its end."""
    lossy = ("network.uplink.message_loss={kind: random, probability: 0.9}", "algorithm.cohort=1", "stop.rounds=1200")
    fed = run_small(*lossy, timing_only=True)

    assert (fed.ledger.rounds.column("arrived") == 0).sum() > 1000


class Cheat:
    """Trains on the model although its downlink was lost, or passes on what another device has computed."""

    def __init__(self, how: str) -> None:
        self.how = how

    def run(self, fed: Federation) -> Process:
        w = fed.defer(lambda v: v * 0.5, fed.initial_model())
        got = yield fed.downlink(fed.device(0), w)
        trained = yield fed.device(0).train(w, SgdPlan(lr=0.1, steps=1), 0)
        if self.how == "pass on":
            yield fed.uplink(fed.device(1), trained.params)
        fed.end_of_round(w, invited=1, arrived=int(not got.lost))


@pytest.mark.parametrize(
    ("how", "changes", "told"),
    [
        (
            "train",
            ["network.downlink.message_loss={kind: random, probability: 0.999}"],
            "computations start before their input",
        ),
        ("pass on", [], "transfers are asked for before their payload is there"),
        ("train", [], ""),
    ],
)
def test_use_without_arrival_breaks_a_law(how: str, changes: list[str], told: str) -> None:
    """Whoever computes on what never arrived, or sends what it never had, is found out by the books."""
    fed = small_federation("stop.rounds=1", *changes)
    fed.run(Cheat(how))

    assert told in verify(fed.ledger, frozenset())["nothing is used before it is there"]
    assert bool(told) == bool(verify(fed.ledger, frozenset())["nothing is used before it is there"])


def test_a_shared_payload_and_a_model_are_two_broadcasts() -> None:
    """Sent in one instant, the first shared payload and the first deferred value use a transmission each."""

    def flow(fed: Federation) -> Process:
        model = fed.initial_model()
        yield fed.all_of([fed.downlink(fed.device(0), model), fed.downlink(fed.device(1), fed.shared((1.0, 2.0)))])
        return model.number

    number, fed = play(flow, "network.downlink.mode=broadcast")

    assert number == 1
    assert fed.ledger.frame("transfers")["receivers"].tolist() == [1, 1]


def test_threads_of_training_end_with_the_run():
    """Also those that train what only the evaluation of the final model asks for, after all transfers."""
    before = set(threading.enumerate())
    fed = run_small("training={engine: by-rule, threads: 2}", "evaluation={every_rounds: 100}")

    assert set(threading.enumerate()) <= before
    assert fed.ledger.frame("evaluations")["round"].tolist()[-1] == 3
