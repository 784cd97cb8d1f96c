"""The federation: all operations for algorithms. Operations that take simulated time return an event to `yield`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
from simpy.events import Event
from simpy.events import Process as Started

from fednet_emu.arrays import IntArray
from fednet_emu.devices.availability import Presence
from fednet_emu.devices.processors import Processors
from fednet_emu.errors import Deadlock
from fednet_emu.federation.cohort import Cohort, cohort_size
from fednet_emu.federation.device import Device
from fednet_emu.federation.exchange import PATIENCE_S, PAUSE_S, Client, Exchange, Send, asked, exchange, retrying
from fednet_emu.federation.learner import Kept, Learner
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.federation.links import Links
from fednet_emu.federation.local_rounds import LocalRounds
from fednet_emu.federation.observer import Models, Observer
from fednet_emu.federation.outside import Orders, Outside, Question
from fednet_emu.federation.rounds import PAUSE, Rounds
from fednet_emu.federation.secure_sums import sums_of
from fednet_emu.federation.stop import COSTS, Evaluation, Stop
from fednet_emu.federation.sums import without_statistics
from fednet_emu.federation.updates import Shared, Since
from fednet_emu.host import rare_garbage_collection
from fednet_emu.kernel.all_of import AllOf, gather
from fednet_emu.kernel.clock import Clock, Decision, Process, Sleep
from fednet_emu.kernel.events import cancel
from fednet_emu.kernel.inbox import Inbox
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.accumulation import Accumulation
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.network.air.transfer import Delivery, Transfer
from fednet_emu.network.network import Network
from fednet_emu.network.topology import Digraph
from fednet_emu.records.ledger import SERVER, Ledger, device_label
from fednet_emu.records.summaries import add_energies, recent_losses

State = TypeVar("State")


class Federation:
    """Devices, links, training and records of one run.

    Attributes:
        clock, streams: the clock of simulated time, and the random streams by name.
        ledger, graph: the records, and the graph of deferred values.
        network, processors: uplink, downlink and sidelink, and the processors of the devices and the server.
        links: sizes, headers and compression of payloads.
        presence: times at which the devices are present.
        timing_only: whether the run neither trains nor evaluates a model.
        observers: functions called at the end of every round, which must not change the run.
        learner: the learning of the run: training jobs, computed values and scores.
        memory: values by name that an algorithm stores during the run; see `state` for objects of a class.
        kept: values that an algorithm with its own learning stores, so that a resumed run can read them.
        workers: number of processes in which an algorithm with its own learning may train.
        asks: function that counts requested transfers and computations; its argument is their number, 1 by default.
        outside: the decisions that the caller of `begin` takes.
        orders: settings for the devices of the current round that replace the algorithm's settings.
    """

    def __init__(
        self,
        clock: Clock,
        streams: Streams,
        ledger: Ledger,
        graph: Graph,
        task: LearningTask | None,
        network: Network,
        processors: Processors,
        presence: Presence,
        stop: Stop,
        evaluation: Evaluation,
        *,
        timing_only: bool = False,
        workers: int = 1,
    ) -> None:
        self.clock, self.streams, self.ledger, self.graph = clock, streams, ledger, graph
        self._task, self.network, self.processors = task, network, processors
        self.timing_only, self.workers = timing_only, workers
        self.learner = Learner(graph, task, streams, timing_only=timing_only)
        self._rounds = Rounds(
            clock, ledger, presence.count, moving=network.moving, ends_by_time=stop.simulated_s is not None
        )
        self.asks = self._rounds.request
        self.server, self.memory, self.kept = Device(self, SERVER), dict[str, Any](), Kept()
        self._states: dict[type, Any] = {}
        self.outside, self.orders = Outside(), Orders()
        self._process: Any = None
        self.presence, self._stop = presence, stop
        self._able = presence if task is None else presence.only(np.flatnonzero(task.n_samples))
        self.links = Links(network, graph, streams, self.learner.read, 0 if task is None else task.model.shipped_bit)
        if self.n_statistics:
            self.links.statistics[self.task.model.size] = self.n_statistics
        self.sums = sums_of(self)
        self.local_rounds = LocalRounds(self, stop.simulated_s, alone=evaluation.every_s is None)
        self.observers: list[Callable[[Federation], None]] = []
        score = partial(self.learner.score, evaluation=evaluation, validate=stop.patience is not None)
        unscored = timing_only or task is None
        self._observer = Observer(clock, ledger, evaluation, None if unscored else score, stop.patience)
        stop.refuse_accuracy(timing_only=timing_only, regression=not (task is None or task.model.has_accuracy))

    # ---- devices -----------------------------------------------------------------------------------------------------

    @property
    def n_devices(self) -> int:
        """Number of devices, including absent devices."""
        return self.presence.count

    def device(self, index: int) -> Device:
        """Return the device with this index; raise an `IndexError` if there is none."""
        if not 0 <= index < self.n_devices:
            raise IndexError(f"device: no such number, got {index}; must be from 0 to {self.n_devices - 1}")
        return Device(self, index)

    def devices(self) -> Iterator[Device]:
        """Return an iterator over all devices in the order of their indices."""
        return (Device(self, index) for index in range(self.n_devices))

    def cohort(self, size: int | float, *key: Any, among: IntArray | None = None) -> Cohort:
        """Return an event whose value is a random list of up to `size` present devices that have training samples.

        An int `size` is a number of devices, a float a share of all devices: 1.0 means all devices, 1 one device. The
        devices are drawn uniformly and sorted by index. If all devices are absent, the event waits for the first device
        to return. `key` names the random stream, for example the round. `among` limits the draw to these sorted device
        indices.

        Raises:
            AlgorithmError: `size` is neither an integer of at least 1 nor a share up to 1.0.
        """
        self._rounds.wait()
        able = self._able if among is None else self.presence.only(among)
        count = cohort_size(size, self.n_devices, "fed.cohort")
        return Cohort(self.clock, able, count, partial(self.streams, "cohort", *key), partial(Device, self))

    def somebody_there(self) -> Cohort:
        """Return an event that triggers as soon as a device with training samples is present."""
        return self.cohort(1)

    # ---- links -------------------------------------------------------------------------------------------------------

    def shared(self, payload: Any) -> Shared:
        """Mark a payload for broadcast: one transmission serves all devices to which it is sent at the same time.

        The result is passed to `downlink`; devices receive the payload itself. Deferred values can be broadcast without
        this call. Any other payload that is not marked is sent to one device at a time.
        """
        return self.links.shared(payload)

    def downlink(self, device: Device, payload: Any, size_bit: int | None = None) -> Transfer:
        """Send a payload from the server to a device; the value of the event is the `Delivery`.

        With `network.downlink.mode: broadcast`, one transmission serves all devices to which the same deferred value or
        the same `shared` payload is sent at the same instant. The transmission lasts as long as the slowest link needs.
        """
        self.asks()
        return self.links.downlink(device.index, payload, size_bit)

    def published(self, model: Deferred) -> Deferred:
        """Return the model that devices receive when the server sends `model`.

        If the downlink compresses, the server must also continue from the returned model. Devices that have the
        previously published model then receive the compressed update, and all other devices the whole model.
        """
        return self.links.published(model)

    def uplink(
        self, device: Device, payload: Any, size_bit: int | None = None, *, power_part: float = 1.0, since: Since = None
    ) -> Transfer:
        """Send a payload from a device to the server; the value of the event is the `Delivery`.

        `power_part` is the share of the device's transmit power that is used. `since` is the model that the device
        started from and that the server also has; compression (`network.uplink.compression`) sends the difference from
        this model. If the payload is a tuple, `since` has one entry per element: the model, 0 if the element is already
        an update, or None to send the element uncompressed.
        """
        rounds, links, sender = self._rounds, self.links, device.index
        rounds.requests += 1  # `asks`, inlined
        if rounds.requests > rounds.most:
            rounds.refuse_requests()
        if links.uploads_payloads and not links.grants:
            return self.network.uplink.send(sender, SERVER, links.parcel(payload, size_bit), power_part=power_part)
        ratio = self.orders.ratio
        kept = None if ratio is None else float(ratio[sender])
        return links.uplink(sender, payload, size_bit, power_part, since, kept)

    def exchange(self, cohort: Iterable[Device], message: Any, client: Client, *args: Any, **how: Any) -> Process:
        """Send a message to every device, run `client` on each, and collect the replies.

        Example: `arrived = yield from fed.exchange(cohort, w, self.client, t)`. The result is an `Arrived`.

        Args:
            cohort: the devices.
            message: a value or a tuple of values, which may be broadcast; or a function that maps a device to its
                message.
            client: process `client(fed, k, *values, *args)` of a device k that has received the values of the message.
                Its return value is the reply. If the uplink compresses, the first value of the reply is sent as a
                difference from the first value of the message. A `Reply` sets other options.
            args: further arguments of `client`.
            how: `deadline_s`, `retries` and the other fields of `Exchange`.
        """
        self._rounds.deadline_s = how.get("deadline_s")
        return exchange(self, cohort, message, client, args, Exchange(**how))

    def ask(self, device: Device, message: Any, client: Client, *args: Any) -> Process:
        """Run an exchange with one device, which is not counted as invited; the result is the reply's `Delivery`."""
        return asked(self, device, message, client, args, Exchange())

    def answered(self, invited: int, arrived: int) -> None:
        """Add to the round's numbers of invited devices and arrived replies; `exchange` calls this method itself."""
        self._rounds.answered(invited, arrived)

    def sidelink(
        self, sender: Device, receivers: Sequence[Device], payload: Any, size_bit: int | None = None, cluster: int = 0
    ) -> AllOf:
        """Send a payload from a device to other devices; the value of the event is the list of deliveries.

        The deliveries are in the order of the receivers. With `network.sidelink.mode: broadcast`, one transmission
        serves all receivers. `cluster` is the index of the cluster of sender and receivers, for access schemes in which
        clusters send in parallel. If the scenario has no sidelink, a `ScenarioError` is raised.
        """
        self.asks()
        return self.all_of(self.links.sidelink(sender.index, receivers, payload, size_bit, cluster))

    def retry(
        self,
        send: Send | Sequence[Send],
        attempts: int | None = None,
        pause_s: float = PAUSE_S,
        *,
        patience_s: float = PATIENCE_S,
        to_the_gone: bool = True,
    ) -> Process:
        """Send a message until it arrives or a limit is reached; the result is the last attempt's `Delivery`.

        Example: `got = yield from fed.retry(lambda: fed.uplink(k, w), attempts=3)`.

        Args:
            send: function that makes one attempt, or a sequence of functions whose attempts run in parallel. When all
                attempts have ended, the lost messages are sent again; the result is then a list with the value of each
                function's last attempt.
            attempts: maximum number of attempts; None for no limit except `patience_s`. If the device is out of reach
                and does not move, one attempt is made.
            pause_s: pause in s between the first and the second attempt; the pause doubles each time. 0 for no pause.
            patience_s: maximum time in s between the starts of the first and the last attempt; one week by default.
            to_the_gone: whether to retry while the device is absent; False is better in synchronous rounds. A message
                to a satellite out of view is always sent again at its next pass, which does not count as an attempt.
        """
        how = {"to_the_gone": to_the_gone, "moving": self.network.moving}
        return retrying(self.clock, send, attempts, pause_s, patience_s, presence=self.presence, **how)

    def digraph(self, *name: int) -> Digraph:
        """Return the current graph of sidelinks between devices.

        `name` is the name of the random stream of the graph, and begins with the index of the round.

        Raises:
            ScenarioError: there is no sidelink topology, or an impossible one.
        """
        return self.network.digraph(*name)

    # ---- learning ----------------------------------------------------------------------------------------------------

    @property
    def task(self) -> LearningTask:
        """The run's model and samples; raises a `RuntimeError` if the algorithm brings its own model and data."""
        if self._task is None:
            raise RuntimeError("task: there is none, got an algorithm that brings its own model and data; use those")
        return self._task

    def initial_model(self) -> Deferred:
        """Return the model before training, and evaluate it as the model after round 0."""
        model = self.learner.initial()
        self.ledger.given.add(model.number)
        self._observer.see(model, after_round=0)
        return model

    @property
    def n_trainers(self) -> int:
        """Number of devices that have training samples."""
        return int(np.count_nonzero(self.task.n_samples))

    @property
    def n_statistics(self) -> int:
        """Number of running statistics (batch norm) at the end of the model's parameter vector."""
        return 0 if self._task is None else self._task.model.n_statistics

    def without_statistics(self, w: Deferred) -> Deferred:
        """Return the model `w` with zeros for its running statistics (batch norm); `w` itself if it has none."""
        return self.defer(without_statistics, w, self.n_statistics) if self.n_statistics else w

    def zeros(self) -> Deferred:
        """Return a deferred vector with a zero for each trainable parameter of the model."""
        return self.learner.zeros()

    def defer(self, function: Callable[..., Any], *args: Any, size: int | None = None) -> Deferred:
        """Return the deferred result of a pure function that is cheap to compute.

        The arguments may contain deferred values. The result has `size` scalars, by default as many as the first
        deferred value.
        """
        return self.graph.call(function, *args, size=size)

    def accumulate(
        self, function: Callable[..., Accumulation], parts: Sequence[Deferred], *args: Any, size: int | None = None
    ) -> Deferred:
        """Return the deferred result of a function that receives the values `parts` one by one, to save memory.

        `function(*args)` is a generator: each `(yield)` evaluates to the next value, and its return value is the
        result. `size` is as for `defer`. Afterwards, the values may be used only by further calls of `accumulate` that
        follow immediately.
        """
        return self.graph.accumulate(function, parts, *args, size=size)

    def read(self, value: Deferred, nominal: Any = None) -> Any:
        """Compute a deferred value and return the result.

        A timing-only run computes no values: the method sets `learner.nominal` and returns `nominal`, if given.
        """
        return self.learner.read(value, nominal)

    def state(self, kind: type[State], make: Callable[[], State]) -> State:
        """Return the run's only object of class `kind`; the first call creates the object with `make`."""
        if kind not in self._states:
            self._states[kind] = make()
        state: State = self._states[kind]
        return state

    # ---- flow --------------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Current simulated time in s."""
        return self.clock.now_s

    def sleep(self, duration_s: float) -> Sleep:
        """Return an event that triggers after `duration_s` of simulated time in s."""
        self._rounds.wait(PAUSE)
        return self.clock.sleep(duration_s)

    def start(self, process: Process) -> Started:
        """Start a process that runs in parallel with the calling process, and return the event of its end."""
        self.local_rounds.alone = False
        return self.clock.process(process)

    def gather(self, processes: Iterable[Process], deadline_s: float | None = None) -> AllOf:
        """Start processes, and return an event whose value is the list of their results, in the same order.

        Processes that have not ended `deadline_s` seconds later are cancelled; their result is a `Delivery` with the
        loss reason "deadline".
        """
        self._rounds.deadline_s, self.local_rounds.alone = deadline_s, False
        return gather(self.clock, processes, deadline_s, late=lambda: Delivery.given_up(self.now_s))

    def cancel(self, started: Started) -> None:
        """Cancel a process; its result is then a `Delivery` with the loss reason "deadline"."""
        cancel(started, Delivery.given_up(self.now_s))

    def all_of(self, events: Iterable[Event]) -> AllOf:
        """Return an event that triggers when all `events` have; its value is the list of their values in order."""
        return AllOf(self.clock, list(events))

    def inbox(self) -> Inbox:
        """Return a new inbox, which collects messages for an algorithm in the order of their arrival."""
        return Inbox(self.clock, device_label)

    @property
    def round(self) -> int:
        """Number of completed rounds."""
        return self._rounds.ended

    def rounds(self) -> Iterator[int]:
        """Yield the round indices, from 0, until a stop rule ends the run; call `end_of_round` in every round."""
        while not self.stopped:
            self._rounds.turn()
            yield self.round

    def end_of_round(self, model: Models | None, *, invited: int | None = None, arrived: int | None = None) -> None:
        """Record a completed round (or server step) with its global model, and evaluate the model when due.

        If each device has a model, `model` is the list of all models in the order of the devices, and each model is
        evaluated on the test samples of its device. An algorithm that trains and evaluates by itself passes None, and
        calls `report`. By default, `invited` and `arrived` are the counts of the exchanges of the round.

        Raises:
            AlgorithmError: `model` is not a model, or the algorithm has not waited for any event in the round.
        """
        self.learner.check(model, "fed.end_of_round")
        self._rounds.refuse_unheard(self.network.unheard())
        self._rounds.end(invited=invited, arrived=arrived)
        if model is not None:
            self._observer.see(model, after_round=self.round)
        for observer in self.observers:
            observer(self)

    def record(self, series: str, **values: Any) -> None:
        """Add a row to a series of the records; unless given, the round (from 1) and the simulated time are added."""
        self.ledger.record(series, **{"round": self.round + 1, "simulated_s": self.now_s} | values)

    def report(self, after_round: int, *, loss: float | None, accuracy: float | None) -> None:
        """Record scores that an algorithm has measured by itself; None for an unknown score."""
        self._observer.report(after_round, loss, accuracy)

    def divergence(self) -> str:
        """Return why the run has diverged (a loss is not finite, or the last is too large); "" if it has not."""
        return self._observer.divergence()

    @property
    def stopped(self) -> bool:
        """True if a stop rule ends the run at the end of the latest round."""
        if self._observer.not_finite and self._stop.only_accuracy:  # the run would never end
            return True
        costs = self.round, self.clock.now_s, sum(self.ledger.sent_bit), self.ledger.spent_j(self.clock.now)
        return self._observer.out_of_patience or self._stop.reached(dict(zip(COSTS, costs, strict=True)), self.accuracy)

    @property
    def budget_left(self) -> float:
        """Smaller remaining share of the limits on rounds and on simulated time, from 0 to 1; 1 if there are none."""
        stop = self._stop
        spent = ((self.round, stop.rounds), (self.clock.now_s, stop.simulated_s))
        return min((max(0.0, 1.0 - cost / limit) for cost, limit in spent if limit is not None), default=1.0)

    @property
    def accuracy(self) -> float | None:
        """The latest accuracy on the whole test set; None before the first evaluation."""
        return self._observer.accuracy

    @property
    def latest(self) -> Models | None:
        """The latest global model, or the latest models of all devices; None before the first model."""
        return self._observer.latest

    @rare_garbage_collection()
    def run(self, algorithm: Any) -> Models | None:
        """Run an algorithm until it ends or a stop rule applies, and return its final model, which is evaluated.

        Raises:
            Deadlock: all processes wait for events that cannot occur; the error lists them and the lost transfers.
        """
        self._start(algorithm)
        with self._running():
            self.clock.run_process(self._process, self._stop.simulated_s)
        self._finish()
        return self.latest

    def begin(self, algorithm: Any) -> bool:
        """Start an algorithm, and run it until it requests a decision of the caller; return False if it ends before.

        The property `question` is the requested decision, and `answer` passes the decision on. The errors of `run` are
        raised.
        """
        self._start(algorithm)
        with self._running():
            self._main = self.clock.main(self._process, self._stop.simulated_s)
        return self._advance()

    @property
    def question(self) -> Question:
        """The decision that the algorithm requests and the caller of `begin` must pass to `answer`."""
        assert self.clock.asked is not None, "a question is open"
        question: Question = self.clock.asked.question
        return question

    def answer(self, value: Any) -> bool:
        """Pass the requested decision on, and run until the next request; return False if the algorithm ends before."""
        with self._running():
            self.clock.answer(value)
        return self._advance()

    def decision(self, question: Question) -> Decision:
        """Return an event whose value is a decision of the caller of `begin`; for conditions, see `Clock.ask`."""
        return self.clock.ask(question)

    def _start(self, algorithm: Any) -> None:
        self._rounds.trusted = type(algorithm).__module__.startswith("fednet_emu.algorithms.")
        self._process = algorithm.run(self)
        self._observer.start(self._stop.simulated_s)

    def _advance(self) -> bool:
        with self._running():
            if self.clock.advance(self._main):
                return True
        self._finish()
        return False

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Context manager that closes the algorithm's process on an error and adds lost transfers to a `Deadlock`."""
        try:
            yield
        except BaseException as error:
            if self._process is not None:
                self._process.close()
            if isinstance(error, Deadlock):
                raise Deadlock(error.args[0], error.args[1] + recent_losses(self.ledger)) from None
            raise

    def _finish(self) -> None:
        self._process.close()
        self._end()
        self._observer.evaluate()
        self.graph.close()

    def close(self) -> None:
        """Stop all transfers and computations, which are then recorded as stopped, and stop the training."""
        if self._process is not None:
            self._process.close()
        self._end()
        self.graph.close()

    def _end(self) -> None:
        self._observer.stop()
        self.network.close()
        self.processors.close()
        self.presence.close()
        if self.ledger.ended_ns != self.clock.now or not len(self.ledger.energies):
            add_energies(self.ledger, self.network.idle_w, self.processors.energy_known, self.clock.now)
