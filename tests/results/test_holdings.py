"""Claims about who has what in a scenario or a run: it is what devices train on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fednet_emu as fe
from fednet_emu.emulation.build import build
from fednet_emu.emulation.given import scenario_of
from fednet_emu.results.data_split import holdings

SMALL = {
    "devices.count": 6,
    "algorithm.cohort": 2,
    "data": {"kind": "synthetic", "n_samples": 300, "n_test": 60, "features": 4, "classes": 3},
    "stop": {"rounds": 1},
}
PARTITIONS = [
    {"kind": "dirichlet", "alpha": 0.3},
    {"kind": "quantity-skew", "beta": 0.5},
    {"kind": "labels-per-device", "labels": 2},
    {"kind": "surrogate-sets", "skew": "non-iid", "sets": 3},
]


@given(st.sampled_from(PARTITIONS), st.sampled_from([None, {"kind": "label-permuted", "count": 3}]), st.integers(0, 3))
@settings(deadline=None, max_examples=12)
def test_it_is_what_devices_train_on(partition, groups, seed):
    """The labels of each device's rows in the emulation itself, as its group sees them."""
    scenario = scenario_of("quickstart", {**SMALL, "partition": partition, "groups": groups, "seed": seed})[1].scenario
    found, task = holdings(scenario).train, build(scenario, timing_only=True).task

    assert found.sizes.tolist() == task.n_samples.tolist()
    for device in range(6):
        labels = task.data.y[task.slice_of(device)].numpy()
        assert found.counts[:, device].tolist() == np.bincount(labels, minlength=3).tolist()


def test_natural_groups_and_noise(tmp_path):
    """Each of four devices has two octants of the cube, one of each class; noise moves no sample."""
    cube = {"data": "fcube", "partition": "group", "devices.count": 4, "feature_noise.variance": 0.1}
    found = holdings(scenario_of("quickstart", {**SMALL, **cube})[1].scenario)

    assert found.train.counts.tolist() == [[500] * 4] * 2
    assert found.test.sizes.sum() == 1000


def test_a_run_its_folder_and_its_scenario_have_the_same_figure(tmp_path):
    """`fe.plot` draws it of each, before and after the run."""
    run = fe.run("quickstart", settings=SMALL, out=tmp_path / "run", timing_only=True)
    drawn = [fe.plot(source, "data") for source in (run, tmp_path / "run", run.scenario)]

    for figure in drawn:
        np.testing.assert_array_equal(figure.numbers, drawn[0].numbers)
    assert drawn[0].numbers["samples"].sum() == 300
    assert run.plot("data-test").numbers["samples"].sum() == 60


def test_what_has_no_such_figure_is_refused(tmp_path):
    """Two at once, a scenario that has not run for another figure, and an algorithm with its own data."""
    with pytest.raises(fe.FednetError, match=r"plot: 'data' shows the data of one run or scenario, got 2; give one"):
        fe.plot(["quickstart", "quickstart"], "data")
    scenario = scenario_of("quickstart", SMALL)[1].scenario
    with pytest.raises(fe.FednetError, match="a scenario that has not run shows only data and data-test, got 'loss'"):
        fe.plot(scenario, "loss")
    samples = {"train_x": np.zeros((12, 2)), "train_y": np.arange(12) % 2, "train_group": np.arange(12) % 3}
    np.savez(tmp_path / "mine.npz", test_x=np.zeros((4, 2)), test_y=np.arange(4) % 2, **samples)
    mine = {"data": {"kind": "npz", "path": str(tmp_path / "mine.npz")}, "partition": "group", "devices.count": 3}
    untested = scenario_of("quickstart", {**SMALL, **mine})[1].scenario
    with pytest.raises(fe.FednetError, match=r"'data-test' has nothing to show, got no test samples at any device"):
        fe.plot(untested, "data-test")
