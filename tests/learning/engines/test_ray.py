"""Jobs dealt to Ray actors: `pip install 'fednet-emu[ray]'`, then `make test-ray`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import fednet_emu as fe
from fednet_emu.errors import Diverged, FednetError
from fednet_emu.federation import mean_update
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines.ray import ray_engine
from fednet_emu.learning.engines.ray.ray_engine import Cluster, RayEngine
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.flat import FlatModel
from tests.learning.results import results_of

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'fednet-emu[ray]'"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]

RNG = np.random.default_rng(3)
DATA = TrainData(
    torch.from_numpy(RNG.normal(size=(60, 8)).astype(np.float32)), torch.from_numpy(RNG.integers(0, 3, 60))
)
EDGES = [0, 5, 20, 30, 38, 50, 60]
SETTINGS = {"stop.rounds": 4, "evaluation.every_rounds": 2}


@pytest.fixture(scope="module")
def address():
    """A local cluster of two nodes with two cores each."""
    cluster = import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    cluster.add_node(num_cpus=2)
    yield cluster.address
    cluster.shutdown()


@pytest.fixture
def engine(address, request):
    """An engine of as many actors as the test asks for, four by default."""
    engine = RayEngine(Cluster(address, actors=getattr(request, "param", 4)))
    yield engine
    engine.close()


def train_jobs(graph, lr=0.1, rows=None, **terms):
    """Six jobs of 5 to 15 samples."""
    model = FlatModel(nn.Linear(8, 3), "cross-entropy", (8,))
    w, plan, streams = graph.constant(torch.linspace(-1, 1, model.size)), SgdPlan(lr, 4, epochs=2), Streams(0)
    rows = rows or [slice(a, b) for a, b in pairwise(EDGES)]
    return w, [TrainJob(model, DATA, own, w, plan, streams, (i,), f"dev-{i}", **terms) for i, own in enumerate(rows)]


def equal(found, expected):
    """Check that results are equal to 1e-5."""
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.params, b.params, rtol=1e-5, atol=1e-6)
        assert a.loss == pytest.approx(b.loss, rel=1e-5)


@pytest.mark.parametrize("engine", [1, 2, 4], indirect=True)
def test_results_are_those_of_the_serial_engine(engine):
    """Whatever the number of actors, each job has the parameters and the loss of the serial engine; squares, too.

    So it is for rows out of order, and for rows of all shards.
    """
    rows = [slice(0, 20), np.array([9, 3, 40]), slice(None), slice(50, 60), np.array([59, 0])]
    for terms in ({}, {"squares": True}, {"prox": 0.5, "scale": 0.3, "l1": 0.1}):
        jobs = [job.resolve() for job in train_jobs(Graph(None), rows=rows, **terms)[1]]
        found, expected = results_of(engine, jobs), results_of(SerialEngine(), jobs)

        equal(found, expected)
        np.testing.assert_allclose([r.square for r in found], [r.square for r in expected], rtol=1e-5)


@pytest.mark.parametrize("engine", [2], indirect=True)
def test_a_sum_brings_back_one_mean_per_actor(engine):
    """The sum is that of the models to 1e-5, and what is received has the size of two models instead of six."""
    graph, plain = Graph(engine), Graph(SerialEngine())
    read = []
    for own in (graph, plain):
        w, jobs = train_jobs(own)
        results = [own.train(job) for job in jobs]
        total = own.accumulate(mean_update, [result.params for result in results], w, [1, 2, 3, 4, 5, 6])
        read.append((own.read(total), [own.read(result.loss) for result in results]))

    torch.testing.assert_close(read[0], read[1], rtol=1e-5, atol=1e-6)
    assert engine.statistics["received_byte"] == 2 * 4 * w.size
    assert graph.statistics == plain.statistics


@pytest.mark.parametrize("engine", [2], indirect=True)
def test_what_something_else_needs_comes_back_itself(engine):
    """Of a sum whose parts are read elsewhere, too, the models come back."""
    graph = Graph(engine)
    w, jobs = train_jobs(graph)
    results = [graph.train(job) for job in jobs]
    norms = [graph.call(torch.linalg.vector_norm, result.params, size=1) for result in results]
    total = graph.accumulate(mean_update, [result.params for result in results], w, [1] * 6)

    assert graph.read(total).norm() > 0
    assert all(graph.read(norm) > 0 for norm in norms)
    assert engine.statistics["received_byte"] == 6 * 4 * w.size


def test_data_are_sent_once_and_the_start_once_per_wavefront(engine):
    """After the first wavefront, the data stay: only the starting model and the text of the jobs are sent again.

    Of the four shards of 15 rows, the first and the third get 5 more, for a client that is on both sides of a cut.
    """
    sent = [0]
    for _ in range(3):
        jobs = [job.resolve() for job in train_jobs(Graph(None))[1]]
        results_of(engine, jobs)
        sent.append(engine.statistics["sent_byte"])
    first, second, third = np.diff(sent)

    assert second == third
    assert first - second == (60 + 5 + 5) / 60 * (DATA.x.nbytes + DATA.y.nbytes)


def test_jobs_begin_before_anything_is_read(engine, monkeypatch):
    """A call that is full is away as soon as its last job is known; nothing is known before the read."""
    monkeypatch.setattr(ray_engine, "_CALL_JOBS", 1)
    graph = Graph(engine)
    results = [graph.train(job) for job in train_jobs(graph)[1]]

    assert engine.statistics["sent_byte"] > DATA.x.nbytes
    assert not any(result.params.done for result in results)
    assert engine.statistics["ahead_s"] == 0
    graph.flush()
    assert all(result.params.done for result in results)
    assert engine.statistics["ahead_s"] > 0


@pytest.mark.parametrize("engine", [2], indirect=True)
def test_an_actor_that_is_killed_is_replaced(engine):
    """SIGKILL ends both actors while jobs are away; the results are those of the serial engine."""
    ray = import_module("ray")
    jobs = [job.resolve() for job in train_jobs(Graph(None))[1]]
    pids = ray.get([actor.__ray_call__.remote(lambda own: os.getpid()) for actor in engine._actors])
    engine.begin_all(jobs)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)

    equal(results_of(engine, jobs), results_of(SerialEngine(), jobs))
    equal(results_of(engine, jobs), results_of(SerialEngine(), jobs))


def test_divergence_is_that_of_the_first_actor(engine):
    """The error names one of the jobs in the first call that fails; a job that does not is handed over."""
    jobs = [job.resolve() for job in train_jobs(Graph(None))[1][:1]]
    jobs += [job.resolve() for job in train_jobs(Graph(None), lr=1e38)[1]]
    found = {}

    with pytest.raises(Diverged, match=r"dev-[01]"):
        found.update(engine.run(jobs))
    assert jobs[0] in found


def test_runs_have_the_events_of_the_serial_engine(address):
    """Events are equal to the byte, metrics to 1e-5, with one, two and four actors; equal actors repeat every bit."""
    serial = fe.run("quickstart", settings={**SETTINGS, "training.engine": "serial"})
    found = [
        fe.run(
            "quickstart",
            settings={**SETTINGS, "training.engine": "ray", "training.ray_address": address, "training.workers": n},
        )
        for n in (1, 2, 4, 4)
    ]

    for run in found:
        assert run.summary["event_digest"] == serial.summary["event_digest"]
        assert run.summary["loss"] == pytest.approx(serial.summary["loss"], rel=1e-5)
    assert found[2].summary["loss"] == found[3].summary["loss"]


def test_no_room_and_no_gpu_are_told(address):
    """More actors than there are cores for, and a GPU where there is none, are mistakes in one sentence."""
    with pytest.raises(FednetError, match=r"training\.workers: the cluster has room for 4 actors of 1 cores, got 5"):
        RayEngine(Cluster(address, actors=5))
    with pytest.raises(FednetError, match=r"training\.device: no GPU is in the cluster, got cuda; use cpu"):
        RayEngine(Cluster(address, device="cuda"))


def test_an_address_without_a_cluster_ends_the_command():
    """The exit code is 2, with a sentence that names the address, long before Ray itself would give up."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        settings = ["--set", "training.engine=ray", "--set", f"training.ray_address={address}"]
        command = [sys.executable, "-m", "fednet_emu", "run", "quickstart", *settings]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    assert ended.returncode == 2
    assert f"no cluster responds at {address}" in " ".join(ended.stderr.split())
