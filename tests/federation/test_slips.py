"""Slips in an own algorithm: each ends in a sentence that says what to write, at the line that has it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fednet_emu as fe
from fednet_emu.algorithms.asynchronous.fedbuff import FedBuff
from fednet_emu.compression.base import Compression
from fednet_emu.emulation.build import build
from fednet_emu.errors import AlgorithmError
from fednet_emu.federation.rounds import MAX_REQUESTS, MAX_TURNS, Rounds
from fednet_emu.kernel.clock import Clock
from fednet_emu.records.ledger import Ledger
from fednet_emu.testing import small_federation, small_scenario

PLAN = fe.SgdPlan(lr=0.1, batch_size=20, epochs=1)


class Sound(fe.Algorithm):
    """Federated averaging with arithmetic on values; every slip below is one change of it."""

    def run(self, fed: fe.Federation) -> fe.Process:
        w = fed.initial_model()
        for t in fed.rounds():
            cohort = yield fed.cohort(4, t)
            replies = yield fed.gather(self.client(fed, k, w, t) for k in cohort)
            w = self.mean(fed, [reply.payload for reply in replies if not reply.lost])
            fed.end_of_round(w, invited=len(cohort), arrived=len(cohort))

    def client(self, fed: fe.Federation, k: fe.Device, w: Any, t: int) -> fe.Process:
        got = yield fed.downlink(k, w)
        trained = yield k.train(got.payload, PLAN, t)
        return (yield fed.uplink(k, trained.params))

    def mean(self, fed: fe.Federation, arrived: list[Any]) -> Any:
        return sum(arrived) / len(arrived)


def told(slip: Callable[[], fe.Algorithm], *settings: str) -> str:
    """The sentence in which a run with a slip ends."""
    with pytest.raises(AlgorithmError) as caught:
        small_federation(*settings).run(slip())
    return str(caught.value)


def test_the_sound_algorithm_runs() -> None:
    """Its round is one broadcast, one step and four uploads in turn: 320 + 720 + 4 x 320 us."""
    fed = small_federation("stop.rounds=1")

    fed.run(Sound())

    assert fed.now_s == pytest.approx(2320e-6, abs=1e-12)


# ---- arguments of k.train -------------------------------------------------------------------------------------------


class Trains(Sound):
    """A client that trains with arguments of its own."""

    arguments: Any = None

    def client(self, fed: fe.Federation, k: fe.Device, w: Any, t: int) -> fe.Process:
        got = yield fed.downlink(k, w)
        plan, terms = self.arguments
        trained = yield k.train(got.payload, plan, t, **terms)
        return (yield fed.uplink(k, trained.params))


def training(plan: Any, **terms: Any) -> Callable[[], fe.Algorithm]:
    return lambda: Trains(arguments=(plan, terms))


def test_a_lost_payload_is_no_model() -> None:
    """Training from the payload of a lost delivery."""

    class Careless(Sound):
        def client(self, fed: fe.Federation, k: fe.Device, w: Any, t: int) -> fe.Process:
            trained = yield k.train(None, PLAN, t)  # type: ignore[arg-type]
            return (yield fed.uplink(k, trained.params))

    assert "k.train: starts from a model, got None; look at `lost` before using a payload" in told(Careless)


# ---- a compression of one's own -------------------------------------------------------------------------------------


class Bare(Compression):
    """A compression whose message is wrong in one way."""

    makes: Any = None

    def bit(self, n: int) -> int:
        return 32 * n

    def compress(self, v: torch.Tensor, rng: Any) -> Any:
        return self.makes(v)


@pytest.mark.parametrize(
    ("makes", "words"),
    [
        (lambda v: v, "Bare.compress: makes no message, got Tensor; return Message(read, bit)"),
        (lambda v: (v[:3], 320), "Bare.compress: reads [3] numbers of a vector [10], got another shape"),
        (lambda v: (v, 7), "must have as many bits as `bit(10)`, 320, or at most as many"),
        (lambda v: (v, 32.5), "got 32.5; return the whole number of bits of the message"),
    ],
)
def test_a_compression_that_returns_something_else_says_what_to_return(makes: Any, words: str) -> None:
    """No error of Python from inside the package."""
    scenario = small_scenario()
    uplink = scenario.network.uplink.model_copy(update={"compression": Bare(makes=makes)})
    network = scenario.network.model_copy(update={"uplink": uplink})
    with pytest.raises(AlgorithmError) as caught:
        build(scenario.model_copy(update={"network": network})).run(scenario.algorithm)

    assert words in str(caught.value)


# ---- loops that would never end --------------------------------------------------------------------------------


class WithoutItsEnd(Sound):
    """The loop over the rounds never ends one."""

    def run(self, fed: fe.Federation) -> fe.Process:
        for _ in fed.rounds():
            yield fed.downlink(fed.device(0), None, size_bit=1000)


class Empty(Sound):
    """The loop over the rounds takes no time at all."""

    def run(self, fed: fe.Federation) -> fe.Process:
        for _ in fed.rounds():
            pass
        yield fed.sleep(1)


class Endless(Sound):
    """A loop of its own, which asks for a cohort and does nothing with it."""

    def run(self, fed: fe.Federation) -> fe.Process:
        while True:
            yield fed.cohort(4)


def test_a_loop_over_the_rounds_that_ends_none_is_refused() -> None:
    """After a thousand turns of 1 ms each."""
    assert told(WithoutItsEnd).split("  ")[1] == (
        "fed.rounds: round 1 would never end, got 1000 turns of the loop between t=0 s and t=1 s without its end; "
        "call fed.end_of_round at the end of each round, or limit stop.simulated_s"
    )


def test_simulated_time_ends_such_a_loop_too() -> None:
    """With a limit of 5 s the loop of 1 ms is no mistake, but one that takes no time is."""
    fed = small_federation("stop={simulated_s: 5}")

    fed.run(WithoutItsEnd())

    assert fed.now_s == 5
    assert len(fed.ledger.transfers) == 5001  # the last is cut
    assert "got 1000 turns of the loop between t=0 s and t=0 s" in told(Empty, "stop={simulated_s: 5}")


def test_a_loop_of_its_own_is_refused_by_what_it_asks_for() -> None:
    """Ten thousand requests for each device."""
    sentence = told(Endless, "devices.count=1")

    assert "got 10000 transfers, computations and cohorts between t=0 s and t=0 s without its end" in sentence


def test_the_count_begins_anew_with_every_round() -> None:
    """Any number of rounds may take as many requests as a round may, and pauses count a hundredth."""
    rounds = Rounds(Clock(), Ledger(), 1, ends_by_time=False)

    for _ in range(3):
        for _ in range(MAX_TURNS):
            rounds.turn()
        for _ in range(MAX_REQUESTS - 1):
            rounds.wait()
        for _ in range(99):
            rounds.wait(0.01)
        rounds.end(invited=1, arrived=1)

    for _ in range(MAX_REQUESTS):
        rounds.wait()
    with pytest.raises(AlgorithmError, match="round 4 would never end"):
        rounds.wait()


def test_an_exchange_counts_two_requests_for_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message and the reply: six are enough for three exchanges."""
    monkeypatch.setattr("fednet_emu.federation.rounds.MAX_REQUESTS", 6)
    fed, ended = small_federation(timing_only=True), []

    def replies(_fed: fe.Federation, _k: fe.Device, w: Any) -> fe.Process:
        yield from ()
        return w

    def exchanges() -> fe.Process:
        w = fed.initial_model()
        while True:
            yield from fed.exchange(fed.devices(), w, replies)
            ended.append(fed.now_s)

    with pytest.raises(AlgorithmError, match="round 1 would never end"):
        fed.clock.run_process(exchanges())
    assert len(ended) == 3


def test_an_algorithm_of_the_package_may_have_rounds_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer of 50 updates of one device is 150 requests in a round, which ends; an own class is held to 100."""
    monkeypatch.setattr("fednet_emu.federation.rounds.MAX_REQUESTS", 100)
    settings: dict[str, Any] = {"lr": 0.1, "batch_size": None, "local_steps": 1, "buffer_size": 50}
    fed = small_federation("devices.count=1", "stop.rounds=1", timing_only=True)

    fed.run(FedBuff(**settings))

    assert (fed.round, len(fed.ledger.computes)) == (1, 50)
    with pytest.raises(AlgorithmError, match="round 1 would never end, got 100 transfers"):
        small_federation("devices.count=1", timing_only=True).run(type("Own", (FedBuff,), {})(**settings))


# ---- a forgotten `yield` --------------------------------------------------------------------------------------------


class ReturnsAnUplink(Sound):
    """The client returns the event of its upload."""

    def client(self, fed: fe.Federation, k: fe.Device, w: Any, t: int) -> fe.Process:
        got = yield fed.downlink(k, w)
        return fed.uplink(k, got.payload)


class TakesADownlink(Sound):
    """The client takes the event of the download for the delivery."""

    def client(self, fed: fe.Federation, k: fe.Device, w: Any, t: int) -> fe.Process:
        got = fed.downlink(k, w)
        return (yield fed.uplink(k, got.payload))


class TakesAComputation(Sound):
    """The client takes the event of the training for its result."""

    def client(self, fed: fe.Federation, k: fe.Device, w: Any, t: int) -> fe.Process:
        got = yield fed.downlink(k, w)
        trained = k.train(got.payload, PLAN, t)
        return (yield fed.uplink(k, trained.params))


class TakesACohort(Sound):
    """The server takes the event of the cohort for the devices."""

    def run(self, fed: fe.Federation) -> fe.Process:
        for t in fed.rounds():
            yield fed.gather(self.client(fed, k, None, t) for k in fed.cohort(4, t))


class TakesReplies(Sound):
    """The server takes the event of the gathering for the replies."""

    def run(self, fed: fe.Federation) -> fe.Process:
        w = fed.initial_model()
        yield fed.sleep(1)
        fed.gather(self.client(fed, k, w, 0) for k in fed.devices())[0]


@pytest.mark.parametrize(
    ("slip", "what"),
    [
        (ReturnsAnUplink, "Transfer: is an event that has to be waited for, got its payload"),
        (TakesADownlink, "Transfer: is an event that has to be waited for, got its payload"),
        (TakesAComputation, "Computation: is an event that has to be waited for, got its params"),
        (TakesACohort, "Cohort: is an event that has to be waited for, got its value"),
        (TakesReplies, "AllOf: is an event that has to be waited for, got its value"),
    ],
)
def test_an_event_in_place_of_its_value(slip: type[fe.Algorithm], what: str) -> None:
    """The sentence begins with the line of the algorithm, and says what to write."""
    place, sentence = told(slip).split("  ")

    assert place.startswith("test_slips.py:")
    assert sentence == f"{what} asked for before that; write `yield` before the verb that makes it"


class Hurries(Sound):
    """The server ends its rounds without waiting for anything."""

    def run(self, fed: fe.Federation) -> fe.Process:
        w = fed.initial_model()
        for _ in fed.rounds():
            for k in fed.devices():
                fed.downlink(k, w)
            fed.end_of_round(w, invited=4, arrived=4)
        yield fed.sleep(0)


def test_rounds_that_wait_for_nothing_are_refused() -> None:
    """They would be three rounds in 0 s."""
    assert told(Hurries).split("  ")[1] == (
        "fed.end_of_round: round 1 ends at 0 s, got 4 transfers and computations not waited for; "
        "write `yield` before the verbs that send, compute and gather"
    )


class UploadsBeside(Sound):
    """The client does not wait for its upload, and the server takes the model from its hand."""

    beside: bool = False

    def client(self, fed: fe.Federation, k: fe.Device, w: Any, t: int) -> fe.Process:
        """Sends in passing, or lets a process wait for it."""
        if self.beside:
            fed.start(self.upload(fed, k, w))
        else:
            fed.uplink(k, w)
        yield fed.sleep(0.01)
        return fe.Delivery(k.index, -1, w, 0, 0, 0, 0)

    def upload(self, fed: fe.Federation, k: fe.Device, w: Any) -> fe.Process:
        yield fed.uplink(k, w)


def test_an_upload_that_nobody_waits_for_is_refused() -> None:
    """At the end of the round in which it has ended; a process that was started may wait for it."""
    assert "no process waits for its delivery, got the uplink from dev-0 to server at the end of a round" in (
        told(UploadsBeside)
    )
    fed = small_federation("stop.rounds=2")
    fed.run(UploadsBeside(beside=True))
    assert (fed.round, fed.now_s) == (2, 0.02)


class WaitsLater(Sound):
    """An upload is waited for after it has ended."""

    def client(self, fed: fe.Federation, k: fe.Device, w: Any, t: int) -> fe.Process:
        sent = fed.uplink(k, w)
        yield fed.sleep(0.01)
        return (yield sent)


def test_an_event_may_be_waited_for_later() -> None:
    """Who holds it can still ask for its delivery once it has ended."""
    fed = small_federation("stop.rounds=2")

    fed.run(WaitsLater())

    assert (fed.round, fed.now_s) == (2, 0.02)


# ---- models ---------------------------------------------------------------------------------------------------------


def with_mean(mean: Callable[[Any, list[Any]], Any]) -> type[fe.Algorithm]:
    return type("Slip", (Sound,), {"mean": lambda _self, fed, arrived: mean(fed, arrived), "__module__": __name__})


def test_training_from_a_model_of_another_shape() -> None:
    """Where its size is known, and where only its value shows it."""

    class Promises(Sound):
        def client(self, fed: fe.Federation, k: fe.Device, w: Any, t: int) -> fe.Process:
            half = fed.defer(lambda x: x[:5], w, size=5)
            return (yield k.train(half, PLAN, t))

    class Makes(Sound):
        def client(self, fed: fe.Federation, k: fe.Device, w: Any, t: int) -> fe.Process:
            trained = yield k.train(fed.defer(lambda x: x[:5], w), PLAN, t)
            return (yield fed.uplink(k, trained.params))

    assert "k.train: got a value of 5 numbers, the model of the scenario has 10 parameters" in told(Promises)
    assert "training (dev-0, round 1): starts from 5 numbers, got a model of 10 parameters" in told(Makes)


def test_a_run_that_is_no_generator() -> None:
    """Its function lacks a `yield`."""

    class Plain(Sound):
        def run(self, fed: fe.Federation) -> fe.Process:
            return None  # type: ignore[return-value]

    assert "process: is no generator, got None; a function with `yield` makes one" in told(Plain)


# ---- settings -------------------------------------------------------------------------------------------------------


class Own(Sound):
    """An algorithm with settings."""

    cohort: int
    lr: float = 0.1
