"""Work spread over workers, and programs that train with them."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines import spread
from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.rule import ENGINES, RuleEngine
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.engines.stacks.batches import Scratch
from fednet_emu.learning.engines.stacks.form import VmapForm
from fednet_emu.learning.graph.engine import Engine, TrainResult
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.flat import FlatModel
from tests.commands import Forked
from tests.learning.results import results_of

RNG = np.random.default_rng(3)
DATA = TrainData(
    torch.from_numpy(RNG.normal(size=(60, 8)).astype(np.float32)), torch.from_numpy(RNG.integers(0, 3, 60))
)


class Noting(Engine):
    """A serial engine that notes in which thread it runs how many jobs."""

    def __init__(self, notes):
        self._notes, self._engine = notes, SerialEngine()

    def run(self, jobs):
        self._notes.append((threading.current_thread().name, len(jobs)))
        return self._engine.run(jobs)


def wavefront(module=None, lr=0.1):
    """Six jobs of 5 to 15 samples."""
    model = FlatModel(module or nn.Linear(8, 3), "cross-entropy", (8,))
    w, edges = Graph(None).constant(model.initial()), [0, 5, 20, 30, 38, 50, 60]
    plan, streams = SgdPlan(lr=lr, batch_size=4, epochs=2), Streams(0)
    return [
        TrainJob(model, DATA, slice(a, b), w, plan, streams, (a,), f"dev-{i}").resolve()
        for i, (a, b) in enumerate(itertools.pairwise(edges))
    ]


def test_jobs_are_dealt_in_stacks_and_results_keep_their_places():
    """Six jobs that are not stacked are dealt one by one; each result is bit for bit the serial engine's."""
    notes = []
    jobs = wavefront()
    found = results_of(SpreadEngine([Noting(notes), Noting(notes)]), jobs)
    expected = results_of(SerialEngine(), jobs)

    assert [count for _, count in notes] == [1] * 6
    assert all(name.startswith("train") for name, _ in notes)
    assert all(torch.equal(a.params, b.params) and a.loss == b.loss for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("make", [RuleEngine, BatchedEngine, SerialEngine])
def test_the_number_of_threads_changes_no_bit(make):
    """Of 26 jobs of ragged batches, which are two stacks of thirteen, models and losses are equal."""
    jobs = [resolved for _ in range(5) for resolved in wavefront()][:26]
    one, *others = (results_of(SpreadEngine([make() for _ in range(n)]), jobs) for n in (1, 2, 3))

    for found in others:
        assert all(torch.equal(a.params, b.params) and a.loss == b.loss for a, b in zip(found, one, strict=True))


@pytest.mark.parametrize("jobs", [wavefront()[:1], wavefront(nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 3)))])
def test_lone_jobs_and_dropout_stay_in_the_callers_thread(jobs):
    """One job has nothing to run beside, and all threads share PyTorch's random numbers."""
    notes = []
    results_of(SpreadEngine([Noting(notes), Noting(notes)]), jobs)

    assert notes == [(threading.current_thread().name, 1)] * len(jobs)


class Watched(nn.Linear):
    """A layer that says which of its copies runs in which thread; copies are kept, so that none takes another's id."""

    def __init__(self, seen):
        super().__init__(8, 3)
        self.seen = seen

    def forward(self, x):
        self.seen.append((self, threading.current_thread().name))
        return super().forward(x)

    def __deepcopy__(self, memo):
        other = Watched(self.seen)
        other.load_state_dict(self.state_dict())
        return other


@pytest.mark.parametrize("make", [SerialEngine, partial(BatchedEngine, form=VmapForm)], ids=["serial", "vmap"])
def test_no_module_is_run_by_two_threads(make):
    """PyTorch puts the parameters of a call into the module, so each thread needs a module of its own."""
    seen = []
    jobs = wavefront(Watched(seen))
    seen.clear()
    results_of(SpreadEngine([make() for _ in range(2)]), jobs)
    threads = {}
    for module, thread in seen:
        threads.setdefault(id(module), set()).add(thread)

    assert all(len(names) == 1 for names in threads.values())


@pytest.mark.parametrize("seed", range(20))
def test_of_several_errors_the_first_jobs_is_told(seed):
    """Which thread is faster changes neither the error nor what is handed over before the job that fails."""
    rng = np.random.default_rng(seed)

    class Failing(Engine):
        def run(self, jobs):
            (job,) = jobs
            time.sleep(float(rng.random()) * 1e-3)
            if job.job.label in {"dev-2", "dev-3", "dev-4"}:
                raise ScenarioError(job.job.label)
            yield job, TrainResult(job.params, float(job.job.label.removeprefix("dev-")))

    found = {}
    with pytest.raises(ScenarioError, match="dev-2"):
        found.update(SpreadEngine([Failing() for _ in range(3)]).run(wavefront()))

    labels = {job.job.label for job in found}
    assert {"dev-0", "dev-1"} <= labels
    assert all(job.job.label == f"dev-{result.loss:g}" for job, result in found.items())
    assert not {"dev-2", "dev-3", "dev-4"} & labels


def test_a_large_result_is_handed_over_while_its_share_goes_on():
    """Engines that wait until their first result of 16 MiB was taken come to an end; small ones may come together."""
    taken = {"dev-0": threading.Event(), "dev-3": threading.Event()}

    class Patient(Engine):
        def cut(self, jobs):
            return [jobs[:3], jobs[3:]]

        def run(self, jobs):
            yield jobs[0], TrainResult(torch.empty(2**22), 0.0)
            assert taken[jobs[0].job.label].wait(timeout=600)
            for job in jobs[1:]:
                yield job, TrainResult(torch.empty(1), 0.0)

    found = {}
    for job, result in SpreadEngine([Patient(), Patient()]).run(wavefront()):
        found[job.job.label] = len(result.params)
        if job.job.label in taken:
            taken[job.job.label].set()

    assert found == {f"dev-{i}": 2**22 if f"dev-{i}" in taken else 1 for i in range(6)}


def test_results_come_in_turn():
    """A thread that is free takes the next job: two threads that wait for each other train two jobs at a time."""
    both = threading.Barrier(2, timeout=600)

    class Even(Engine):
        def run(self, jobs):
            both.wait()
            yield jobs[0], TrainResult(jobs[0].params, 0.0)

    jobs = wavefront()
    order = [jobs.index(job) for job, _ in SpreadEngine([Even(), Even()]).run(jobs)]

    assert sorted(order) == list(range(6))
    assert all(abs(place - turn) <= 1 for turn, place in enumerate(order))


def test_the_number_of_threads_of_the_caller_is_left_alone():
    """One thread per operation is the rule in the pool only."""
    before = torch.get_num_threads()
    results_of(SpreadEngine([SerialEngine(), SerialEngine()]), wavefront())

    assert torch.get_num_threads() == before


def test_several_jobs_have_one_thread_per_operation_wherever_they_run():
    """In the caller's thread, too, so that results do not depend on where they are trained; a lone job has them all.

    A stack that is given by itself is one of several.
    """
    seen = []

    class Looking(Engine):
        def run(self, jobs):
            seen.append(torch.get_num_threads())
            yield jobs[0], TrainResult(jobs[0].params, 0.0)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        results_of(SpreadEngine([Looking()]), wavefront())
        results_of(SpreadEngine([Looking()]), wavefront()[:1])
        list(SpreadEngine([Looking()]).run_stack(wavefront()[:1]))
    finally:
        torch.set_num_threads(before)

    assert seen == [1] * 6 + [2] + [1]


def test_scratch_memory_is_used_again_and_grows():
    """A role keeps its memory until more is asked for; other roles and types have their own."""
    scratch, like = Scratch(), torch.zeros(1)
    first = scratch.take("w", (4, 6), like)
    smaller = scratch.take("w", (2, 3), like)
    other = scratch.take("x", (2, 3), like)
    larger = scratch.take("w", (5, 6), like)

    assert smaller.shape == (2, 3)
    assert smaller.data_ptr() == first.data_ptr() != other.data_ptr()
    assert larger.data_ptr() != first.data_ptr()
    assert scratch.take("w", (2, 3), like.double()).dtype == torch.float64


@pytest.mark.parametrize(
    "make", [ENGINES["serial"], *(lambda make=make: SpreadEngine([make(), make()]) for make in ENGINES.values())]
)
def test_a_closed_engine_has_no_threads_left_and_can_be_used_again(make):
    """After `close` there are no more threads than before the engine was made, and later results are equal."""
    before, engine, jobs = set(threading.enumerate()), make(), wavefront()
    first = results_of(engine, jobs)
    engine.close()

    assert set(threading.enumerate()) <= before
    again = results_of(engine, jobs)
    engine.close()
    engine.close()
    assert set(threading.enumerate()) <= before
    assert all(torch.allclose(a.params, b.params, rtol=1e-4) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_keeps_no_result_that_it_has_given_away(name, threads):
    """Once the caller lets go of a result, its memory is free before the engine is asked for the next one."""
    engine, kept = SpreadEngine([ENGINES[name]() for _ in range(threads)]), []
    for _, result in engine.run(wavefront()):
        params = weakref.ref(result.params)
        del result
        kept.append(params() is not None)
    engine.close()

    assert kept == [False] * 6


def test_a_wavefront_that_is_given_up_ends_its_threads(monkeypatch):
    """When a deferred function fails, jobs under way end first, no other is begun, and the engine can be used again."""
    begun, ended, go_on, wait = [], [], threading.Event(), spread.wait
    monkeypatch.setattr(spread, "wait", lambda under_way: (go_on.set(), wait(under_way)))

    class Slow(Engine):
        def run(self, jobs):
            begun.append(jobs[0].job.label)
            if jobs[0].job.label != "dev-0":
                assert go_on.wait(timeout=600)
            ended.append(jobs[0].job.label)
            yield jobs[0], TrainResult(jobs[0].params, 0.0)

    def failing(_):
        raise ZeroDivisionError

    graph = Graph(SpreadEngine([Slow(), Slow()]))
    trained = [graph.train(resolved.job).params for resolved in wavefront()]
    with pytest.raises(ZeroDivisionError):
        graph.read(graph.call(failing, trained[0]))

    assert sorted(begun) == sorted(ended)
    assert {"dev-0"} <= set(begun) <= {"dev-0", "dev-1", "dev-2"}
    assert all(graph.read(params) is not None for params in trained)
    graph.close()


SCRIPT = """
import sys
import fednet_emu as fe
from fednet_emu.learning.engines import batched
batched.WORTH_FLOP = 0
run = fe.run("quickstart", settings={"stop.rounds": 3, "training.workers": int(sys.argv[1])}, progress=False)
print(run.digest, run.summary["loss"], run.summary.get("elsewhere", {}).get("processes"), flush=True)
if len(sys.argv) > 2:
    import os, signal
    from fednet_emu.learning.engines.workers.pool import pool
    print(*(worker.process._process.pid for worker in pool()._workers), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("source", ["file", "standard input"])
def test_a_script_needs_no_guard_and_workers_end_with_it(tmp_path, source):
    """A script without `if __name__` has equal numbers with 1 and 2 workers; these end when it is killed by SIGKILL.

    So it is for one that comes by standard input, as a notebook has no file either.
    """
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, script if source == "file" else "-", "2", "die"]
    two = subprocess.run(command, input=SCRIPT, capture_output=True, text=True, timeout=600, check=False)
    one = Forked(script, "1").ended()
    told, pids = two.stdout.splitlines()

    assert one.stdout.split()[:2] == told.split()[:2], two.stderr
    assert (one.stdout.split()[2], told.split()[2]) == ("None", "1"), "beside the main process"
    assert two.stderr == ""
    wait_for_no_one(pids.split())


def wait_for_no_one(pids):
    """Wait until no such process is there any more."""
    for pid in pids:
        for _ in range(6000):
            if not Path(f"/proc/{pid}").exists():
                break
            time.sleep(0.01)
        assert not Path(f"/proc/{pid}").exists()


UNDER_WAY = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell has processes in the background ignore
from fednet_emu.learning.engines import batched
from fednet_emu.learning.engines.workers import pool
batched.WORTH_FLOP = 0
next_of, context = pool.Pool.next_of, pool.clean_context

def told(self, calls, workers):
    print("now", flush=True)
    return next_of(self, calls, workers)

if sys.argv.pop() == "training":
    pool.Pool.next_of = told
else:
    pool.clean_context = lambda *names: context("telling", *names)
from fednet_emu.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks ps for the processes of a session")
@pytest.mark.parametrize("when", ["starting", "training"])
def test_ctrl_c_is_one_sentence_and_nobody_stays(tmp_path, when):
    """A terminal sends it to all processes: those that are imported into, those that are forked, those that train."""
    script, out = tmp_path / "script.py", tmp_path / "run"
    script.write_text(UNDER_WAY)
    (tmp_path / "telling.py").write_text("import time\nprint('now', flush=True)\ntime.sleep(1)")
    command = [
        sys.executable,
        script,
        "run",
        "quickstart",
        "--set",
        "training.workers=2",
        "--set",
        "stop.rounds=1000000",
    ]
    with subprocess.Popen(
        [*command, "--quiet", "--out", out, when],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    ) as process:
        while process.stdout.readline() not in ("now\n", ""):
            pass
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise

    assert process.returncode == 130, errors
    assert errors.count("interrupted") == 1
    assert "Traceback" not in errors
    listing = ["ps", "--sid", str(process.pid), "-o", "pid="]
    wait_for_no_one(subprocess.run(listing, capture_output=True, text=True, check=False).stdout.split())
