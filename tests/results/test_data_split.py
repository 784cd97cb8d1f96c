"""Claims about who has what in a scenario or a run: it is what devices train on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fednet_emu as fe
from fednet_emu.analysis.data_split import DataSplit, Part
from fednet_emu.emulation.build import build
from fednet_emu.emulation.given import scenario_of
from fednet_emu.results.scenarios import data_split
from tests.quick import examples

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
@examples(12)
def test_it_is_what_devices_train_on(partition, groups, seed):
    """The labels of each device's rows in the emulation itself, as its group sees them."""
    scenario = scenario_of("quickstart", {**SMALL, "partition": partition, "groups": groups, "seed": seed})[1].scenario
    found, task = data_split(scenario).train, build(scenario, timing_only=True).task

    assert found.sizes.tolist() == task.n_samples.tolist()
    for device in range(6):
        labels = task.data.y[task.slice_of(device)].numpy()
        assert found.counts[:, device].tolist() == np.bincount(labels, minlength=3).tolist()


def test_natural_groups_and_noise(tmp_path):
    """Each of four devices has two octants of the cube, one of each class; noise moves no sample."""
    cube = {"data": "fcube", "partition": "group", "devices.count": 4, "feature_noise.variance": 0.1}
    found = data_split(scenario_of("quickstart", {**SMALL, **cube})[1].scenario)

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


def numbers(figure):
    """The heights of all bars, by axes."""
    return [[round(patch.get_height(), 6) for patch in axes.patches] for axes in figure.axes]


def test_settings_of_the_figure_are_those_of_the_scenario():
    """A name with settings is drawn as the changed scenario is; so is a run, whose record is that of other settings."""
    few = SMALL | {"devices.count": 3}
    run = fe.run("quickstart", settings=SMALL, timing_only=True)
    meant = numbers(fe.plot(fe.check("quickstart", settings=few), "data"))

    assert numbers(fe.plot("quickstart", "data", settings=few)) == meant
    assert numbers(fe.plot(run, "data", settings={"devices.count": 3})) == meant
    assert numbers(fe.plot(run, "data")) != meant


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


@pytest.mark.parametrize("data", [SMALL["data"], {"kind": "synthetic", "n_samples": 300, "n_test": 60, "classes": 40}])
def test_a_run_records_its_split(data, tmp_path):
    """Read from its folder, it is the split of the scenario, also of labels that nobody has."""
    run = fe.run("quickstart", settings=SMALL | {"data": data}, out=tmp_path / "run", timing_only=True)
    meant, found = data_split(run.scenario), DataSplit.of(fe.open(tmp_path / "run"))

    for one, other in ((meant.train, found.train), (meant.test, found.test)):
        np.testing.assert_array_equal(one.sizes, other.sizes)
        np.testing.assert_array_equal(one.counts, other.counts)


def test_recorded_targets_are_those_of_the_split():
    """Quantiles of numbers, and none for a device without samples; samples with several targets have sizes alone."""
    order, offsets = np.array([4, 0, 1, 5, 2]), np.array([0, 2, 2, 5])
    for y in (np.array([10.0, 0.0, 2.0, 99.0, 20.0, 1.0]), np.zeros((6, 3))):
        part = Part.of(y, order, offsets, None)
        read = Part.read(DataSplit(part, part).frame().query("part == 'test'").drop(columns="part"), 3)

        np.testing.assert_array_equal(part.sizes, read.sizes)
        np.testing.assert_array_equal(part.targets, read.targets)


def test_labels_that_nobody_has_are_recorded():
    """Also the last ones, so that pages and figures have a row for each label."""
    part = Part.of(np.array([2, 0, 0, 1, 2, 0]), np.array([4, 0, 1, 5, 2]), np.array([0, 2, 2, 5]), 5)
    read = Part.read(DataSplit(part, part).frame().query("part == 'train'"), 3)

    np.testing.assert_array_equal(read.counts, part.counts)
    assert read.counts.shape == (5, 3)
