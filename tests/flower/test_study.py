"""The study of Flower's strategies beside our algorithms compares like with like."""

from pathlib import Path

import pytest

import fednet_emu as fe
from fednet_emu.study.runs import runs_of

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")

METHODS = ("our fedavg", "our cyclic-fedavg", "our aspire", "Flower FedAvg", "Flower FedYogi")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def runs(monkeypatch):
    """The first rounds of every method with the first seed."""
    monkeypatch.chdir(ROOT)  # the app's folder is given as a path from there
    first = {run.columns["method"]: run.scenario for run in reversed(runs_of("flower_strategies"))}
    return {method: fe.run(first[method], settings={"stop.rounds": 2}, progress=False) for method in METHODS}


def test_all_do_the_same_work_with_the_same_data(runs):
    """Five steps of 20 images on the same 2,410 parameters are the same operations; the framing differs by 578 B."""
    assert {method: set(run.computes.query("stopped == ''")["flop"]) for method, run in runs.items()} == {
        method: {1_011_200} for method in METHODS
    }
    model = {
        method: int(run.transfers.query("direction == 'uplink'")["size_bit"].mode()[0]) for method, run in runs.items()
    }
    assert model["our fedavg"] == model["our cyclic-fedavg"] == 32 * 2410
    assert model["Flower FedAvg"] == model["Flower FedYogi"] == 32 * 2410 + 8 * 578


def test_the_app_has_the_images_of_our_partition(monkeypatch):
    """Client k of the app owns the training images of digit k, and everybody is tested on the same images."""
    monkeypatch.syspath_prepend(ROOT / "examples" / "flower_strategies")
    from strategies.task import digits, load_data

    from fednet_emu.learning.data.datasets.mnist import Digits

    ours = Digits().load(None, None)
    (train_x, train_y), (test_x, test_y) = digits()

    assert train_x.equal(ours.train_x.flatten(1))
    assert train_y.equal(ours.train_y)
    assert test_x.equal(ours.test_x.flatten(1))
    assert test_y.equal(ours.test_y)
    assert [sorted(set(load_data(k)[1].tolist())) for k in range(10)] == [[k] for k in range(10)]
