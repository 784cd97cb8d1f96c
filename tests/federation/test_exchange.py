"""Exchanges: what a device receives, what of its reply is sent and when, who counts; and evaluation on the devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fednet_emu.federation import Arrived, Deferred, Device, Federation, Process, Reply, SgdPlan
from fednet_emu.testing import small_federation

PLAN = SgdPlan(lr=0.1, steps=2, batch_size=8)
MODEL_S, STEP_S = 320e-6, 720e-6
LOST = "network.uplink.message_loss={kind: random, probability: 0.999999}"


def trains(_fed: Federation, k: Device, w: Deferred) -> Process:
    """A client that makes one step on all its samples."""
    trained = yield k.train(w, SgdPlan(lr=0.1, steps=1), 0)
    return trained.params


def exchanged(fed: Federation, message: Any, client: Any, *args: Any, **how: Any) -> Arrived:
    arrived: Arrived = fed.clock.run_process(fed.exchange(fed.devices(), message, client, *args, **how))
    return arrived


def uplinks(fed: Federation) -> Any:
    transfers = fed.ledger.frame("transfers")
    return transfers[transfers["direction"] == "uplink"]


# ---- messages and replies --------------------------------------------------------------------------------------------


def test_an_exchange_takes_a_broadcast_a_step_and_the_uploads_in_turn() -> None:
    """320 + 720 + 4 x 320 us, and the average is that of the four models by hand."""
    fed = small_federation()
    arrived = exchanged(fed, fed.initial_model(), trains)

    assert fed.now_s == pytest.approx(MODEL_S + STEP_S + 4 * MODEL_S, abs=1e-12)
    assert [k.index for k in arrived.devices] == [0, 1, 2, 3]
    mean = torch.stack([fed.read(fed.defer(torch.clone, w_k)) for w_k in arrived.models]).mean(0)
    assert torch.allclose(fed.read(arrived.average()), mean, atol=1e-6)


def test_the_parts_of_a_message_are_arguments() -> None:
    """A message of a model and two numbers is 12 x 32 bit, and the client gets three arguments and its own."""
    fed, seen = small_federation(), []

    def client(_fed: Federation, k: Device, w: Deferred, mu: float, t: int, own: str) -> Process:
        seen.append((k.index, w.size, mu, t, own))
        yield k.train(w, PLAN, t)
        return w, 1

    arrived = exchanged(fed, (fed.initial_model(), 0.5, 7), client, "own")

    assert seen == [(k, 10, 0.5, 7, "own") for k in range(4)]
    assert arrived.part(1) == [1] * 4
    assert fed.ledger.frame("transfers")["size_bit"].tolist() == [384] + [352] * 4


def test_each_device_may_be_sent_another_message() -> None:
    """A function gives the number of each device, which it returns squared."""
    fed = small_federation()

    def client(fed: Federation, _k: Device, number: int) -> Process:
        yield fed.sleep(0.0)
        return number**2

    assert [reply for _, reply in exchanged(fed, lambda k: k.index, client)] == [0, 1, 4, 9]


def test_a_reply_may_say_how_it_is_sent() -> None:
    """At a quarter of the power, a transfer of the same length takes a quarter of the radiated energy."""

    def energy_j(part: float) -> float:
        fed = small_federation("channel.device.circuit_w=0")

        def client(fed: Federation, _k: Device, w: Deferred) -> Process:
            yield fed.sleep(0.0)
            return Reply(w, power_part=part)

        exchanged(fed, fed.initial_model(), client)
        return float(uplinks(fed)["energy_j"].sum())

    assert energy_j(0.25) == pytest.approx(energy_j(1.0) / 4)


def test_what_a_client_has_sent_by_itself_is_its_reply() -> None:
    """A client that returns a delivery sends nothing more."""
    fed = small_federation()

    def client(fed: Federation, k: Device, w: Deferred) -> Process:
        return (yield fed.uplink(k, w, 64))

    assert len(exchanged(fed, fed.initial_model(), client)) == 4
    assert uplinks(fed)["size_bit"].tolist() == [64] * 4


# ---- losses and deadlines --------------------------------------------------------------------------------------------


def test_who_is_late_is_left_out_and_the_model_stays_if_all_are() -> None:
    """Before the first upload of 320 us is through, nobody has arrived; a moment later one has."""
    for over_s, count in ((-1e-6, 0), (1e-6, 1)):
        fed = small_federation()
        w = fed.initial_model()
        arrived = exchanged(fed, w, trains, deadline_s=2 * MODEL_S + STEP_S + over_s)

        assert len(arrived) == count
        assert [reply.lost for reply in arrived.replies] == [""] * count + ["deadline"] * (4 - count)
        assert (arrived.average() is w) == (count == 0)


def test_an_exchange_that_is_cancelled_at_once_sends_nothing() -> None:
    """The messages to its devices wait for their turn still, and go with it."""
    fed = small_federation()

    def cancels() -> Process:
        started = fed.start(fed.exchange(fed.devices(), fed.initial_model(), trains))
        yield fed.sleep(0.0)
        fed.cancel(started)
        yield fed.sleep(1.0)

    fed.clock.run_process(cancels())

    rows = fed.ledger.frame("transfers")
    assert (rows["loss_reason"].unique().tolist(), rows["started_s"].notna().sum()) == (["deadline"], 0)
    assert len(rows) == fed.n_devices


def test_a_lost_reply_is_sent_again_at_once() -> None:
    """Three attempts of four devices, one directly after the other."""
    fed = small_federation(LOST)
    arrived = exchanged(fed, fed.initial_model(), trains, retries=2)

    assert not arrived
    assert len(uplinks(fed)) == 12
    assert fed.now_s == pytest.approx(MODEL_S + STEP_S + 12 * MODEL_S)


def test_messages_are_sent_again_in_both_directions_while_patience_lasts() -> None:
    """Attempts of 1 us or less begin after 0, 1 and 3 ms, pauses doubling; with 3 ms of patience no fourth."""
    down = "network.downlink.message_loss={kind: random, probability: 0.999999}"
    for loss, kind in ((down, "downlink"), (LOST, "uplink")):
        fed = small_federation(loss, "devices.count=1", "algorithm.cohort=1")

        def client(fed: Federation, _k: Device, _message: None) -> Process:
            yield fed.sleep(0.0)
            return None

        exchanged(fed, None, client, patience_s=3.0001e-3)
        transfers = fed.ledger.frame("transfers")
        begun_s = transfers[transfers["direction"] == kind]["requested_s"].to_numpy()
        assert begun_s == pytest.approx([0, 1e-3, 3e-3], abs=1e-9)


# ---- who counts ------------------------------------------------------------------------------------------------------


def test_a_round_knows_who_was_invited_and_who_arrived() -> None:
    """Two exchanges of four and three devices, a third that does not count; numbers that are given come first."""
    fed = small_federation("stop.rounds=9")
    w = fed.initial_model()

    def server() -> Process:
        few = [fed.device(k) for k in range(3)]
        yield from fed.exchange(fed.devices(), w, trains)
        yield from fed.exchange(few, w, trains, deadline_s=1e-9)
        yield from fed.exchange(few, w, trains, counts=False)
        fed.end_of_round(w)
        yield from fed.exchange(few, w, trains)
        fed.end_of_round(w, arrived=1)

    fed.clock.run_process(server())
    rounds = fed.ledger.frame("rounds")

    assert rounds["invited"].tolist() == [7, 3]
    assert rounds["arrived"].tolist() == [4, 1]


def test_a_record_has_the_round_and_the_time() -> None:
    """Unless the row gives them itself."""
    fed = small_federation()

    def server() -> Process:
        yield fed.sleep(1.5)
        fed.record("own", value=3)
        fed.end_of_round(fed.initial_model(), invited=1, arrived=1)
        fed.record("own", round=7, value=4)

    fed.clock.run_process(server())

    assert fed.ledger.series["own"] == [
        {"round": 1, "simulated_s": 1.5, "value": 3},
        {"round": 7, "simulated_s": 1.5, "value": 4},
    ]


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "bit"), [((), 320), (("loss",), 352), (("square", "samples"), 384)])
@pytest.mark.parametrize("timing_only", [False, True])
def test_every_statistic_is_32_bit_of_the_reply(asked: Any, bit: int, timing_only: bool) -> None:
    """With and without training; the payload that arrives is the model alone."""
    fed = small_federation(timing_only=timing_only)
    arrived = exchanged(fed, fed.initial_model(), trains, statistics=asked)

    assert uplinks(fed)["size_bit"].tolist() == [bit] * 4
    assert [w_k.size for w_k in arrived.models] == [10] * 4
    assert [len(k.measured) for k in arrived.devices] == [len(asked)] * 4


@pytest.mark.parametrize(("plan", "samples"), [(PLAN, 16), (SgdPlan(lr=0.1, epochs=10), 20)])
def test_statistics_are_those_of_the_latest_training(plan: SgdPlan, samples: int) -> None:
    """Samples count once: of 20, two steps of 8 have seen 16; the mean square is no less than the squared mean."""
    fed = small_federation()

    def client(_fed: Federation, k: Device, w: Deferred) -> Process:
        yield k.train(w, SgdPlan(lr=0.1, steps=1, batch_size=1), 1)
        trained = yield k.train(w, plan, 0)
        return trained.params, 3

    arrived = exchanged(fed, fed.initial_model(), client, statistics=("loss", "square", "samples"))

    assert arrived.part(1) == [3] * 4
    assert [len(payload) for _, payload in arrived] == [2] * 4
    for k in arrived.devices:
        loss, square, seen = k.measured
        assert fed.read(square) >= fed.read(loss) ** 2
        assert seen == samples


# ---- evaluation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_evaluation_is_a_forward_pass_over_all_samples(count: int) -> None:
    """18 FLOP of 20 samples for each model, 360 us at 1 MFLOP/s: half a step; the loss is the mean square."""
    fed = small_federation("data.n_samples=80")
    k, w = fed.device(1), fed.initial_model()
    models = [fed.defer(torch.add, w, shift) for shift in range(count)]

    def server() -> Process:
        return (yield k.evaluate(models[0] if count == 1 else models))

    scores = fed.clock.run_process(server())

    assert fed.ledger.frame("computes")["flop"].tolist() == [18 * 20 * count]
    assert fed.now_s == pytest.approx(count * STEP_S / 2)
    rows = fed.task.slice_of(1)
    x, y = fed.task.data.x[rows].double(), fed.task.data.y[rows].double().reshape(20)
    for model, score in zip(models, [scores] if count == 1 else scores, strict=True):
        point = fed.read(model).double()
        residual = x @ point[:9] + point[9] - y
        assert fed.read(score.loss) == pytest.approx(float(residual.square().mean()), rel=1e-5)
        assert fed.read(score.accuracy) is None


def test_the_accuracy_on_a_device_is_the_share_of_its_samples_that_are_right() -> None:
    """A softmax regression, by hand."""
    data = "data={kind: synthetic, features: 9, classes: 3, n_samples: 80, n_test: 20}"
    fed = small_federation(data, "model=softmax")
    k, w = fed.device(2), fed.initial_model()
    seen = {}

    def server() -> Process:
        trained = yield k.train(w, SgdPlan(lr=0.5, steps=3), 0)
        seen["scores"], seen["w"] = (yield k.evaluate(trained.params)), trained.params

    fed.clock.run_process(server())
    rows, point = fed.task.slice_of(2), fed.read(seen["w"])
    outputs = fed.task.model.forward(point, fed.task.data.x[rows])
    right = (outputs.argmax(1) == fed.task.data.y[rows]).double().mean()

    assert fed.read(seen["scores"].accuracy) == pytest.approx(float(right))
    assert 0 < float(right) < 1


def test_a_timing_only_run_evaluates_nothing_and_takes_as_long() -> None:
    """Its losses are the nominal ones."""
    times = []
    for timing_only in (False, True):
        fed = small_federation(timing_only=timing_only)

        def server(fed: Federation = fed) -> Process:
            scores = yield fed.device(0).evaluate(fed.initial_model())
            return fed.read(scores.loss, nominal=1.0)

        loss = fed.clock.run_process(server())
        times.append(fed.now_s)
        assert (loss == 1.0) == timing_only

    assert times[0] == times[1]
