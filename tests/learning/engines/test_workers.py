"""Jobs dealt to processes of this machine: the same numbers on any number of them, whatever happens to one."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

import fednet_emu as fe
from fednet_emu.errors import Diverged, FednetError, ScenarioError
from fednet_emu.federation import mean_update
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines import batched
from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.rule import RuleEngine
from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.engines.workers import worker as main_of_worker
from fednet_emu.learning.engines.workers import workers_engine
from fednet_emu.learning.engines.workers.memory import Memory
from fednet_emu.learning.engines.workers.pool import pool
from fednet_emu.learning.engines.workers.workers_engine import WorkersEngine
from fednet_emu.learning.graph.engine import Engine, TrainResult
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.flat import FlatModel
from tests.learning.engines.layers import Deadly, Picky
from tests.learning.results import results_of
from tests.quick import crossed

EDGES = [0, 20, 45, 60, 80, 110, 125, 140, 165, 200, 220, 240]
MODULES = {
    "W1": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5)), SgdPlan(lr=0.1, batch_size=8, epochs=2)),
    "W2": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 5)),
        SgdPlan(lr=0.1, batch_size=7, steps=4),
    ),
    "W3": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5)),
        SgdPlan(lr=0.1, batch_size=6, epochs=1),
    ),
    "dropout": (
        lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 5)),
        SgdPlan(lr=0.1, batch_size=8, steps=2),
    ),
}


@pytest.fixture(autouse=True)
def _small_jobs_are_worth_it(monkeypatch):
    monkeypatch.setattr(batched, "WORTH_FLOP", 0)
    monkeypatch.setattr(batched, "STACK_PAYS", 4)


def wavefront(kind="W1", lr=None, module=None):
    """Eleven jobs of 15 to 35 samples."""
    build, plan = MODULES[kind]
    plan = plan if lr is None else SgdPlan(lr=lr, batch_size=8, epochs=2)
    rng, streams = np.random.default_rng(3), Streams(0)
    x, y = rng.normal(size=(240, 1, 8, 8)).astype(np.float32), rng.integers(0, 5, 240)
    data = TrainData(torch.from_numpy(x), torch.from_numpy(y))
    model = FlatModel(seeded_module(build, 5) if module is None else module, "cross-entropy", (1, 8, 8))
    w = Graph(None).constant(model.initial())
    return [
        TrainJob(model, data, slice(a, b), w, plan, streams, (a,), f"dev-{i}").resolve()
        for i, (a, b) in enumerate(pairwise(EDGES))
    ]


def engine_of(count, make=RuleEngine, name="by-rule"):
    return WorkersEngine(name, SpreadEngine([make()]), count, at_once=True)


def free_byte():
    pool().memory.trim()
    return sum(end - start for start, end in pool().memory._free)


def equal(found, expected):
    """Whether all results are equal to the last bit."""
    return all(torch.equal(a.params, b.params) and a.loss == b.loss for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("counts", [(2,), pytest.param((3, 4), marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "its"), crossed(MODULES, [(RuleEngine, "by-rule"), (BatchedEngine, "batched")]))
def test_the_number_of_workers_changes_no_bit(kind, its, counts):
    """With 2, 3 and 4 processes, models and losses are equal to those of one process, in several rounds.

    Here, too, an operation has one thread: the order in which several add up changes the last bits.
    """
    jobs, (make, name) = wavefront(kind), its
    expected = results_of(SpreadEngine([make()]), jobs)
    for count in counts:
        engine = engine_of(count, make, name)
        assert equal(results_of(engine, jobs), expected)
        assert equal(results_of(engine, jobs), expected)
        each, received = jobs[0].params.nbytes, engine.statistics.get("received_byte", 0)
        assert received <= 2 * len(jobs) * each, "the main process trains what no worker has"
        assert received >= 2 * each
        engine.close()


def test_results_are_their_own_and_give_their_memory_back():
    """A result that is kept keeps its numbers in later wavefronts; without results, all of the memory is free again."""
    engine, jobs = engine_of(2), wavefront()
    free = free_byte()
    first = results_of(engine, jobs)
    kept = [result.params.clone() for result in first]
    results_of(engine, wavefront("W1", lr=0.5))
    engine.close()

    assert all(torch.equal(a.params, b) for a, b in zip(first, kept, strict=True))
    del first, engine, jobs
    assert free_byte() == free


def test_data_and_models_go_out_once_and_the_start_once_per_wavefront():
    """The second wavefront sends the model it starts from and the text of its jobs; the samples lie in one place."""
    engine, jobs = engine_of(2), wavefront()
    data, sent = jobs[0].job.data, [0]
    for _ in range(3):
        results_of(engine, jobs)
        sent.append(engine.statistics["sent_byte"])
    first, second, third = np.diff(sent)

    assert second == third < 11 * 1000
    assert first - second >= data.x.nbytes + data.y.nbytes
    assert 0 <= data.x.data_ptr() - pool().memory._base < len(pool().memory._map)


def test_large_jobs_begin_while_the_clock_goes_on():
    """From the second job of a wavefront on; a lone one waits, as it trains in this process with all threads."""
    engine, plain = engine_of(2), Graph(SpreadEngine([RuleEngine()]))
    graph, jobs = Graph(engine), [resolved.job for resolved in wavefront("dropout")]
    lone = graph.train(jobs[0]).params
    assert engine.statistics == {}
    assert torch.equal(graph.read(lone), plain.read(plain.train(jobs[0]).params))
    assert engine.statistics == {}

    w = plain.constant(jobs[0].model.initial())
    parts = [graph.train(job).params for job in jobs]
    assert len(engine._begun) == len(jobs)
    assert not any(part.done for part in parts)
    total = graph.read(graph.accumulate(mean_update, parts, w, [1] * len(jobs)))
    expected = plain.accumulate(mean_update, [plain.train(job).params for job in jobs], w, [1] * len(jobs))
    assert torch.equal(total, plain.read(expected))
    assert engine.statistics["ahead_s"] > 0
    graph.close()


def test_what_was_begun_before_the_end_of_a_run_is_still_trained():
    """A run closes its graph before it evaluates the last model, whose jobs may be away by then."""
    engine, jobs = engine_of(2), wavefront("dropout")
    graph = Graph(engine)
    parts = [graph.train(resolved.job).params for resolved in jobs]
    assert engine._begun
    graph.close()

    expected = results_of(SpreadEngine([RuleEngine()]), jobs)
    assert all(torch.equal(graph.read(part), own.params) for part, own in zip(parts, expected, strict=True))
    graph.close()


def test_a_wavefront_that_has_begun_outlives_the_end_of_a_run_and_jobs_that_begin_after_it():
    """After the end it is begun anew; jobs of the next one that begin meanwhile are trained with theirs."""
    engine, jobs = engine_of(2), wavefront("dropout")
    expected = results_of(SpreadEngine([RuleEngine()]), jobs)
    first, second = jobs[:6], jobs[6:]

    engine.begin_all(first)
    engine.close()
    assert equal(results_of(engine, first), expected[:6])
    sent = engine.statistics["sent_byte"]
    engine.begin_all(first)
    for resolved in second:
        engine.begin(resolved.job)
    away = engine.statistics["sent_byte"]
    assert away > sent
    assert equal(results_of(engine, first), expected[:6])
    engine.begin_all(second)
    assert engine.statistics["sent_byte"] == away
    assert equal(results_of(engine, second), expected[6:])
    engine.close()


def killed(count):
    """End so many workers with SIGKILL; one that was ended before may not have been missed yet."""
    for worker in pool()._workers[:count]:
        with suppress(ProcessLookupError):
            os.kill(worker.process._process.pid, signal.SIGKILL)


def comes_true(check):
    return any(check() or time.sleep(0.01) for _ in range(6000))


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="needs Linux")
def test_workers_do_not_interrupt_the_main_process_when_they_wake_up():
    """Linux lets a process of the policy SCHED_BATCH wait for its turn when it wakes up (man 7 sched)."""
    engine = engine_of(3)
    results_of(engine, wavefront("dropout"))
    policies = [os.sched_getscheduler(worker.process._process.pid) for worker in pool()._workers[:2]]
    engine.close()

    assert policies == [os.SCHED_BATCH] * 2


def test_who_closes_one_engine_leaves_the_other_alone():
    """What another engine of this process has under way is trained all the same."""
    engine, other, jobs = engine_of(2), engine_of(2), wavefront("dropout")
    results, others = engine.run(jobs), other.run(jobs)
    found = dict([next(results)])
    next(others)
    other.close()
    found.update(results)
    engine.close()

    assert equal([found[resolved] for resolved in jobs], results_of(SpreadEngine([RuleEngine()]), jobs))


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /dev/shm and /proc")
def test_a_worker_that_is_killed_is_replaced():
    """With SIGKILL, idle or at work, again and again: results are the same, and neither zombies nor memory are left."""
    engine, jobs = engine_of(2), wavefront("dropout")
    expected = results_of(SpreadEngine([RuleEngine()]), jobs)
    assert equal(results_of(engine, jobs), expected)
    shared = set(Path("/dev/shm").iterdir())
    for _ in range(2):
        killed(1)
        results = engine.run(jobs)
        found = dict([next(results)])
        killed(2)
        found.update(results)
        assert equal([found[resolved] for resolved in jobs], expected)
    engine.close()

    assert comes_true(lambda: set(Path("/dev/shm").iterdir()) <= shared)  # others name theirs for an instant
    listing = ["ps", "--ppid", str(os.getpid()), "-o", "stat="]
    listed = subprocess.run(listing, capture_output=True, text=True, check=True)
    assert "Z" not in listed.stdout


def test_jobs_that_kill_every_worker_are_one_sentence():
    """After three deaths at the same jobs; the engine can be used again."""
    engine = engine_of(2)
    jobs = wavefront(module=Deadly(64, 5))

    with pytest.raises(FednetError, match=r"training\.workers: .* was killed by SIGKILL.*3 times.*; give fewer"):
        results_of(engine, jobs)
    engine.close()
    assert equal(results_of(engine, wavefront()), results_of(SpreadEngine([RuleEngine()]), wavefront()))


def test_what_cannot_travel_is_trained_here():
    """A class inside a function cannot be pickled."""

    class Local(nn.Linear):
        def forward(self, x):
            return super().forward(x.flatten(1))

    engine, jobs = engine_of(2), wavefront(module=seeded_module(lambda: Local(64, 5), 1))

    assert equal(results_of(engine, jobs), results_of(SpreadEngine([RuleEngine()]), jobs))
    assert engine.statistics == {}
    assert "in the main process, as they cannot be sent: AttributeError: Can't pickle local" in engine.choices[-1]


@pytest.mark.parametrize(("loads", "why"), [(False, "cannot load them: OSError"), (True, "has failed, OSError")])
def test_the_log_says_why_a_worker_cannot_train(loads, why):
    """The error of the worker; the jobs are trained in the main process."""
    engine, jobs = engine_of(2), wavefront(module=Picky(loads=loads))

    assert equal(results_of(engine, jobs), results_of(SpreadEngine([RuleEngine()]), jobs))
    assert f"trained in the main process, as a worker {why}: not in this process" in engine.choices[-1]
    engine.close()


def test_the_one_job_of_a_wavefront_that_cannot_travel_has_one_thread_per_operation():
    """As it has beside the others in one process: the last bits depend on it. A lone job has all threads."""
    seen = []

    class Local(nn.Linear):
        pass

    class Looking(Engine):
        def run(self, jobs):
            if jobs[0].job.model is stays[0].job.model:
                seen.append(torch.get_num_threads())
            for resolved in jobs:
                yield resolved, TrainResult(resolved.params, 0.0)

    engine = WorkersEngine("by-rule", SpreadEngine([Looking()]), 2, at_once=True)
    stays = wavefront(module=nn.Sequential(nn.Flatten(), seeded_module(lambda: Local(64, 5), 1)))[:1]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        results_of(engine, wavefront() + stays)
        results_of(engine, stays)
    finally:
        torch.set_num_threads(before)

    assert seen == [1, 2]


def test_an_error_is_raised_as_in_this_process():
    """Training that diverges names the job, the step and the remedy, and what has not diverged is handed over."""
    engine, found = engine_of(2), {}
    jobs = wavefront("dropout", lr=1e38)
    with pytest.raises(Diverged, match=r"dev-0: training diverges"):
        found.update(engine.run(jobs))
    engine.close()


def test_a_computation_that_is_given_up_leaves_nothing_behind():
    """After `close` in the middle, as by Ctrl-C, a later wavefront has its own results."""
    engine, jobs = engine_of(2), wavefront("dropout")
    results = engine.run(jobs)
    next(results)
    results.close()
    engine.close()

    assert equal(results_of(engine, wavefront("W2")), results_of(SpreadEngine([RuleEngine()]), wavefront("W2")))


def test_other_threads_and_small_wavefronts_stay_here(monkeypatch):
    """Workers answer one thread; they are sent nothing that is not worth it."""
    engine, jobs, found = engine_of(2), wavefront(), []
    thread = threading.Thread(target=lambda: found.append(results_of(engine, jobs)))
    thread.start()
    thread.join()
    assert equal(found[0], results_of(SpreadEngine([RuleEngine()]), jobs))
    monkeypatch.setattr(batched, "WORTH_FLOP", 1e12)
    results_of(engine, jobs)

    assert engine.statistics == {}


def test_auto_starts_workers_when_they_would_have_been_worth_it(monkeypatch):
    """By the work of the jobs, and by no clock: the third wavefront is the first to be sent."""
    jobs = wavefront()
    monkeypatch.setattr(workers_engine, "START_FLOP", 1.5 * sum(resolved.job.flop for resolved in jobs))
    engine = WorkersEngine("by-rule", SpreadEngine([RuleEngine()]), 2, at_once=False)
    sent = []
    for _ in range(3):
        results_of(engine, jobs)
        sent.append(engine.statistics.get("received_byte", 0) > 0)

    assert sent == [False, False, True]


def test_arrays_that_lie_in_the_memory_are_not_copied():
    """A tensor that is there already has a place; what is given back joins its neighbours."""
    memory = Memory()
    before = list(memory._free)
    first, place = memory.new((3, 5), np.float32)
    second, _ = memory.new((2,), np.int64)
    first[...] = 7

    assert (memory.at(place) == 7).all()
    assert memory.copy_of(torch.from_numpy(first[1]))[1] == (place.offset + 20, (5,), "<f4")
    assert first.ctypes.data % 64 == second.ctypes.data % 64 == 0
    del first, second
    memory.trim()
    assert memory._free == before


def test_serial_has_no_workers():
    """One job after the other, in several processes, is a contradiction."""
    with pytest.raises(ScenarioError, match=r"training\.workers: the engine serial .*, got 2; leave it out"):
        fe.run("quickstart", settings={"training.engine": "serial", "training.workers": 2}, progress=False)


def test_frozen_weights_lie_in_one_place_for_all_processes():
    """They move to the shared memory, where workers read them; numbers are those of this process, to the last bit."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 300).requires_grad_(False), nn.ReLU(), nn.Linear(300, 5))
    module[1].register_buffer("constant", torch.ones(3))
    jobs = wavefront(module=module)
    expected, engine = results_of(SpreadEngine([RuleEngine()]), jobs), engine_of(2)
    frozen = jobs[0].job.model.constants
    assert len(frozen) == 4  # of which the buffer is one for training and one for evaluation

    assert equal(results_of(engine, jobs), expected)
    first = engine.statistics["sent_byte"]
    assert all(0 <= its.data_ptr() - pool().memory._base < len(pool().memory._map) for its in frozen)
    assert sum(its.nbytes for its in frozen) < first < sum(its.nbytes for its in frozen) + 250_000
    assert equal(results_of(engine, jobs), expected)
    engine.close()


@pytest.mark.parametrize(("call", "error"), [("recv", ConnectionResetError), ("send", BrokenPipeError)])
def test_a_worker_whose_orders_end_says_nothing(monkeypatch, call, error):
    """A run that ends closes the connection at once; a worker that has a report left ends without an error."""
    monkeypatch.setattr(main_of_worker, "end_with_parent", lambda: None)
    monkeypatch.setattr(main_of_worker, "_answer", lambda *_: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda _count: None)
    orders = Mock()
    orders.recv.return_value = (None,) * len(main_of_worker.Order._fields)
    getattr(orders, call).side_effect = error
    main_of_worker.serve(orders, None)
