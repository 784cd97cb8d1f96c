"""Runs do not disturb each other, nor the process that they are in."""

import gc
import logging
import random
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info
from torch import nn

import fednet_emu as fe
from fednet_emu.emulation.guard import none_left_behind
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL

MAPPING = from_text(SMALL, "small").data
DROPPING = {
    **MAPPING,
    "data": "digits",
    "model": {"kind": "mlp", "hidden": [16], "dropout": [0.2, 0.5]},
    "algorithm": {"kind": "fedavg", "cohort": 3, "lr": 0.1, "batch_size": 20, "local_steps": 30},
    "stop": {"rounds": 6},
}
"""Draws torch's random numbers from beginning to end."""


def state():
    """All that a run could leave changed in its process."""
    return {
        "collector": gc.get_threshold(),
        "torch threads": torch.get_num_threads(),
        "blas": [pool["num_threads"] for pool in threadpool_info()],
        "torch numbers": torch.random.get_rng_state().tolist(),
        "numpy numbers": np.random.get_state()[1].tolist(),
        "python numbers": random.getstate(),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "warnings": list(warnings.filters),
        "log": (logging.getLogger("fednet_emu").level, list(logging.getLogger("fednet_emu").handlers)),
        "gradients": torch.is_grad_enabled(),
        "types": torch.get_default_dtype(),
        "numpy errors": np.geterr(),
    }


@pytest.fixture
def odd():
    collector, threads = gc.get_threshold(), torch.get_num_threads()
    gc.set_threshold(701, 11, 12)
    torch.set_num_threads(2)
    yield
    gc.set_threshold(*collector)
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("odd")
def test_a_run_leaves_its_process_as_it_was(tmp_path):
    """Thresholds, threads, random numbers, signals, warnings and logs, in memory and into a folder, also on failure."""
    wrong = nn.Linear(3, 1)
    filters = list(warnings.filters)
    fe.run(DROPPING, settings={"stop.rounds": 1})  # loads libraries, which have filters and threads of their own
    assert list(warnings.filters) == filters
    before = state()

    fe.run(DROPPING, settings={"stop.rounds": 1})
    assert state() == before
    fe.run(DROPPING, settings={"stop.rounds": 1}, out=tmp_path / "run")
    assert state() == before
    with pytest.raises(fe.FednetError):
        fe.run(MAPPING, model=wrong)
    assert state() == before


@pytest.mark.usefixtures("odd")
def test_the_last_of_several_puts_back_what_the_first_has_found():
    """Whoever ends first must not put back settings under which others run, nor the last one theirs."""
    before = state()
    first, second = none_left_behind(), none_left_behind()
    first.__enter__()
    gc.set_threshold(2_000_000, 50, 100)
    torch.set_num_threads(1)
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() == (2_000_000, 50, 100)
    second.__exit__(None, None, None)

    assert state() == before


def test_two_at_once_are_what_they_are_alone(tmp_path):
    """In two threads, neither the main one: digests, scores and logs are those of each run by itself."""
    alone = [fe.run(DROPPING, seed=seed) for seed in (1, 2)]

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda seed: fe.run(DROPPING, seed=seed, out=tmp_path / str(seed)), (1, 2)))

    for own, beside in zip(alone, together, strict=True):
        assert beside.digest == own.digest
        assert list(beside.evaluations["loss"]) == list(own.evaluations["loss"])
    for seed in (1, 2):
        log = (tmp_path / str(seed) / "log.txt").read_text()
        assert f"seed {seed}:" in log
        assert f"seed {3 - seed}:" not in log


def test_figures_of_two_threads_leave_matplotlib_as_it_was():
    """The settings of a figure are the process's: threads take turns with them."""
    import matplotlib as mpl

    run, before = fe.run(MAPPING), dict(mpl.rcParams)
    pictures = []
    threads = [threading.Thread(target=lambda: pictures.append(run.plot()._repr_png_())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(pictures) == 4
    assert dict(mpl.rcParams) == before


def test_a_programs_own_signal_handler_stays_its_own():
    """A program that has a handler for termination keeps it while a run is under way."""
    seen = []

    class Asking(fe.Algorithm):
        def run(self, fed):
            seen.append(signal.getsignal(signal.SIGTERM))
            yield fed.clock.sleep(1.0)

    def mine(_number, _frame):
        raise AssertionError

    before = signal.signal(signal.SIGTERM, mine)
    try:
        fe.run(MAPPING, algorithm=Asking())
    finally:
        signal.signal(signal.SIGTERM, before)

    assert seen == [mine]
