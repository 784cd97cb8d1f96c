"""One scenario and one seed are one event log, whatever the host does; engines agree on the model."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch

import fednet_emu as fe
from fednet_emu.federation.federation import Federation
from fednet_emu.testing import run_small, small_federation, small_scenario

VARIED = (
    "devices.count=8",
    "devices.speed={kind: log-normal, median_flop_per_s: 1e6, sigma: 0.5}",
    "devices.straggler={kind: shifted-exponential, mean_factor: 0.5}",
    "channel=urban-micro",
    "network.uplink.access=ofdma",
    "network.uplink.loss={kind: random, probability: 0.2}",
    "data={kind: synthetic, n_samples: 240, n_test: 60, features: [1, 8, 8], classes: 4}",
    "partition={kind: dirichlet, alpha: 0.5, min_samples: 4}",
    "model=softmax",
    "algorithm.cohort=5",
    "algorithm.batch_size=10",
    "algorithm.local_steps=3",
    "stop.rounds=5",
)
PRINT_DIGESTS = """
import sys
import fednet_emu as fe
from fednet_emu.testing import run_small
print(run_small(*sys.argv[1:]).ledger.event_digest(), fe.run("quickstart", settings={"stop.rounds": 2}).digest)
"""


@pytest.fixture
def _threads() -> Iterator[None]:
    """Put torch's number of threads back, which the scenario may set."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def digest() -> str:
    """The fingerprint of the varied scenario, serial and with training."""
    return run_small(*VARIED).ledger.event_digest()


def test_running_twice_gives_the_same_events_and_models(digest: str) -> None:
    """Same scenario, same seed: the same digest, and the same measurements bit for bit."""
    first, second = run_small(*VARIED), run_small(*VARIED)

    assert first.ledger.event_digest() == second.ledger.event_digest() == digest
    assert first.ledger.evaluations.digest() == second.ledger.evaluations.digest()
    assert first.ledger.frames()["evaluations"].equals(second.ledger.frames()["evaluations"])


@pytest.mark.usefixtures("_threads")
def test_learnt_numbers_do_not_depend_on_how_fast_the_host_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a host whose clock stands still and on one where every look at it takes an hour, models agree bit for bit."""
    settings = (*VARIED, "training={threads: 1}", "stop.rounds=12")
    found = []
    for hour_s in (0.0, 3600.0):
        with monkeypatch.context() as patched:
            patched.setattr(time, "perf_counter", partial(next, count(0.0, hour_s)))
            fed = small_federation(*settings)
            found.append(fed.read(fed.run(small_scenario(*settings).algorithm)))

    assert torch.equal(*found)


def test_another_seed_gives_other_events(digest: str) -> None:
    """The digest is not blind: it changes with the seed."""
    assert run_small(*VARIED, "seed=1").ledger.event_digest() != digest


@pytest.mark.parametrize("engine", ["by-rule", "batched"])
def test_the_engine_changes_no_event(engine: str, digest: str) -> None:
    """How training is run on the host is no business of the simulated clock."""
    assert run_small(*VARIED, f"training.engine={engine}").ledger.event_digest() == digest


def test_a_timing_only_run_has_the_same_events(digest: str) -> None:
    """Leaving out training changes neither time nor bits nor who does what."""
    trained, timed = run_small(*VARIED), run_small(*VARIED, timing_only=True)

    assert timed.ledger.event_digest() == digest
    assert timed.ledger.energy_j == trained.ledger.energy_j
    assert timed.ledger.transfers.column("payload").tolist() == trained.ledger.transfers.column("payload").tolist()


@pytest.mark.usefixtures("_threads")
def test_the_number_of_threads_changes_no_event(digest: str) -> None:
    """One and two threads of torch."""
    assert {run_small(*VARIED, f"training.threads={n}").ledger.event_digest() for n in (1, 2)} == {digest}


def test_the_hash_seed_of_the_process_changes_no_event(digest: str) -> None:
    """A process of its own with another PYTHONHASHSEED has the same digests."""
    root = Path(__file__).parents[2]
    other = "0" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": other, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", PRINT_DIGESTS, *VARIED]

    ran = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == [digest, fe.run("quickstart", settings={"stop.rounds": 2}).digest]


@pytest.mark.parametrize("model", ["softmax", "{kind: mlp, hidden: [16]}", "mcmahan-cnn"])
def test_serial_and_batched_training_agree_after_five_rounds(model: str) -> None:
    """With devices of unequal sizes, the models of the two engines differ by at most 1e-5 in relative norm."""

    def trained(engine: str) -> tuple[torch.Tensor, Federation]:
        settings = (*VARIED, f"model={model}", f"training.engine={engine}", "evaluation.every_rounds=5")
        fed = small_federation(*settings)
        final = fed.run(small_scenario(*settings).algorithm)
        assert final is not None
        return fed.read(final), fed

    serial, fed = trained("serial")
    batched, _ = trained("batched")
    moved = (serial - fed.task.model.initial()).norm()

    assert len(set(fed.task.n_samples.tolist())) > 4
    assert float((serial - batched).norm() / serial.norm()) <= 1e-5
    assert moved > 100 * (serial - batched).norm()
