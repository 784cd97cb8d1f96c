"""Results of runs, of runs that diverge, who has what data, and fronts."""

import copy
import gc
import json
import os
import re
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from torch import nn

import fednet_emu as fe
from fednet_emu.analysis.data_split import DataSplit, Part
from fednet_emu.analysis.scales import TRADED
from fednet_emu.draw.figures.study_pareto import pareto_figure
from fednet_emu.draw.page.run import run_document
from fednet_emu.draw.page.study_page import study_document
from fednet_emu.emulation.build import build
from fednet_emu.emulation.given import scenario_of
from fednet_emu.errors import ScenarioError
from fednet_emu.records.ledger import Ledger
from fednet_emu.records.rows import EvaluationRow
from fednet_emu.records.summaries import divergence
from fednet_emu.results.library import data_split
from fednet_emu.scenario.document import from_text
from fednet_emu.scenario.yaml_text import dump
from fednet_emu.testing import SMALL, small_scenario
from tests.quick import examples

MAPPING = from_text(SMALL, "small").data
"""The small federation of `fednet_emu.testing`, as a mapping with the keys of a file."""


class OneByOne(fe.Algorithm):
    """An algorithm without `kind`, as somebody writes it in a notebook."""

    cohort: int = 2

    def run(self, fed: fe.Federation) -> fe.Process:
        """Each round some devices train, one after the other."""
        w, plan = fed.initial_model(), fe.SgdPlan(lr=0.1, batch_size=None, steps=1)
        for t in fed.rounds():
            devices = yield fed.cohort(self.cohort, t)
            for k in devices:
                got = yield fed.downlink(k, w)
                trained = yield k.train(got.payload, plan, t)
                w = (yield fed.uplink(k, trained.params)).payload
            fed.end_of_round(w, invited=len(devices), arrived=len(devices))


@pytest.fixture(scope="module")
def small():
    """A run in memory; tests only look at it."""
    return fe.run(MAPPING)


@pytest.fixture
def samples():
    """Three classes of points that a line each tells apart."""
    x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    y = x[:, :3].argmax(1)
    return fe.Samples(x[:200], y[:200], x[200:], y[200:], classes=3)


def test_a_run_in_memory_has_what_a_folder_would_have(small, tmp_path):
    """Summary, every table and the digest are the same, host time aside; without `out` no file appears."""
    before = set(os.listdir())
    in_folder = fe.run(MAPPING, out=tmp_path / "run")

    assert small.folder is None
    assert in_folder.folder == tmp_path / "run"
    assert set(os.listdir()) == before
    host = {"host_s", "host_parts", "trained_jobs", "known_jobs"}
    assert {**small.summary, **dict.fromkeys(host)} == {**in_folder.summary, **dict.fromkeys(host)}
    for name in ("rounds", "transfers", "receptions", "computes", "evaluations", "device_evaluations"):
        pd.testing.assert_frame_equal(getattr(small, name), getattr(in_folder, name))
    assert small.digest == in_folder.digest == fe.open(tmp_path / "run").digest
    assert small.verdict == "all records consistent"


def test_what_the_summary_holds_are_attributes(small):
    """Totals and scores are read and completed as attributes; names of tables stay tables; others suggest one."""
    for name in ("accuracy", "loss", "simulated_s", "energy_j", "seed", "status", "uplink_bit"):
        assert getattr(small, name) == small.summary[name]
        assert name in dir(small)
    assert small.total_bit == sum(small.summary[f"{link}_bit"] for link in ("uplink", "downlink", "sidelink"))
    assert isinstance(small.rounds, pd.DataFrame)
    with pytest.raises(AttributeError, match="a run has no attribute 'acuracy'; did you mean 'accuracy'"):
        small.acuracy  # noqa: B018
    assert copy.copy(small).digest == small.digest


def test_a_frame_is_the_callers_own(small):
    """Changing one changes neither the next one nor the figures."""
    frame = small.evaluations
    frame["loss"] = 0.0

    assert (small.evaluations["loss"] > 0).all()


@pytest.mark.parametrize(
    ("written", "then", "now"), [("4.0", "4", None), ("1.0", "1", "1.0"), ("0.5", "0.5", "0.5"), ("2", "2", "2")]
)
def test_a_folder_of_version_1_0_keeps_its_number_of_devices(tmp_path, written, then, now):
    """There every cohort was written as a float, and 1.0 was one device; a folder of today holds what it says."""
    path = tmp_path / "scenario.yaml"
    path.write_text(re.sub("cohort: .*", f"cohort: {written}", dump(small_scenario())))

    def cohort():
        settings = YAML(typ="safe", pure=True).load(path)
        return repr(fe.Run(name="a", summary={}, settings=settings, folder=tmp_path).scenario.algorithm.cohort)

    if now is None:
        with pytest.raises(ScenarioError, match=r"got 4\.0; write 4"):
            cohort()
    else:
        assert cohort() == now
    path.write_text(path.read_text().replace("  slowdown: {}\n", ""))
    assert cohort() == then


def test_a_name_a_path_a_mapping_and_a_scenario_are_the_same(tmp_path):
    """All ways to say what is run give one digest, which is that of the command's scenario; settings change it."""
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    ways = [tmp_path / "small.yaml", str(tmp_path / "small"), MAPPING, fe.check(MAPPING)]

    digests = [fe.run(way, seed=3, settings={"stop.rounds": 2}).digest for way in ways]

    assert len(set(digests)) == 1
    assert fe.run(MAPPING, seed=3, settings=["stop.rounds=3"]).digest not in digests


def test_library_names_work_in_mappings_as_in_files():
    """`channel: urban-micro` is read from the library, and what stands beside an `include` wins."""
    by_name = fe.check({**MAPPING, "channel": "urban-micro"})
    beside = fe.check({**MAPPING, "channel": {"include": "urban-micro", "bandwidth_hz": 5e6}})

    assert by_name.channel == fe.check("quickstart", settings={"channel": "urban-micro"}).channel
    assert beside.channel == by_name.channel.model_copy(update={"bandwidth_hz": 5e6})


def test_numpy_and_paths_are_values_like_others():
    """What a notebook computes can be a setting."""
    given = fe.check(MAPPING, settings={"algorithm.lr": np.float64(0.25), "stop.rounds": np.int64(7)})

    assert (given.algorithm.lr, given.stop.rounds) == (0.25, 7)


def test_problems_are_the_sentences_of_the_command():
    """Each problem of a mapping and of its settings, with the key and the place, as one exception."""
    with pytest.raises(fe.ScenarioError) as caught:
        fe.run({**MAPPING, "sed": 1}, settings={"algorithm.lrr": 1, "stop.rounds": -1})

    assert sorted(caught.value.problems) == [
        "scenario  sed: no such setting; did you mean 'seed'?",
        "settings['algorithm.lrr']  algorithm.lrr: no such setting; did you mean 'lr'?",
        "settings['stop.rounds']  stop.rounds: must be > 0, got -1",
    ]


def test_objects_in_place_of_yaml(samples):
    """An algorithm without `kind`, a module and samples are run as they are; the records say what they were."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    run = fe.run(MAPPING, algorithm=OneByOne(cohort=3), model=net, data=samples, settings={"stop.rounds": 30})

    assert run.summary["accuracy"] > 0.8
    assert list(run.rounds["invited"]) == [3] * 30
    assert run.scenario.algorithm == OneByOne(cohort=3)
    told = run.scenario.model_dump(mode="json")
    assert told["algorithm"] == {"kind": f"{OneByOne.__module__}:OneByOne", "cohort": 3}
    assert told["data"]["given"].startswith("200 training and 100 test samples ")


def test_a_module_starts_from_its_own_numbers_and_a_maker_from_the_seed(samples):
    """The first evaluation of a module is that of the module; a maker's numbers follow from the seed alone."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    settings = {"stop.rounds": 1}
    with torch.no_grad():
        loss = nn.functional.cross_entropy(net(samples.test_x), samples.test_y).item()

    own = fe.run(MAPPING, model=net, data=samples, settings=settings)
    made = [
        fe.run(MAPPING, model=lambda outputs: nn.Linear(4, outputs), data=samples, seed=seed, settings=settings)
        for seed in (1, 1, 2)
    ]

    assert own.evaluations["loss"][0] == pytest.approx(loss, rel=1e-5)
    first, again, other = (run.evaluations["loss"][0] for run in made)
    assert first == again != other


def test_objects_in_a_mapping(samples):
    """The keys of a mapping take the objects too."""
    mapping = {**MAPPING, "data": samples, "model": nn.Linear(4, 3), "algorithm": OneByOne()}

    assert fe.run(mapping, settings={"stop.rounds": 1}).summary["rounds"] == 1


def test_a_folder_of_objects_opens_but_cannot_be_run_again(samples, tmp_path):
    """What was an object is told, and what it takes to have it again."""
    fe.run(MAPPING, data=samples, model=nn.Linear(4, 3), out=tmp_path / "run")
    opened = fe.open(tmp_path / "run")

    assert len(opened.rounds) == 3
    with pytest.raises(fe.ScenarioError, match=r"data.given: was an object of Python, .*; hand it over again"):
        _ = opened.scenario


def test_samples_are_checked_as_those_of_a_file(samples):
    """Labels out of range are told before anything is run."""
    wrong = fe.Samples(samples.train_x, samples.train_y + 1, samples.test_x, samples.test_y, classes=3)

    with pytest.raises(fe.DataError, match=r"data: train_y must hold labels 0\.\.2, got 3"):
        fe.run(MAPPING, data=wrong)


def test_the_final_model_predicts_what_was_scored(tmp_path, samples):
    """Its loss on the test samples is the last one recorded, in memory and out of the folder."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    settings = {"stop.rounds": 5, "model": {"kind": "softmax"}}
    in_memory = fe.run(MAPPING, data=samples, model=net, settings={"stop.rounds": 5})
    fe.run({**MAPPING, "data": "digits"}, settings=settings, out=tmp_path / "run")
    from_folder = fe.open(tmp_path / "run")

    def loss(model, x, y):
        with torch.no_grad():
            return nn.functional.cross_entropy(model(x), y).item()

    digits = from_folder.scenario.data.load(None, np.random.default_rng(0))
    assert loss(in_memory.model, samples.test_x, samples.test_y) == pytest.approx(in_memory.summary["loss"], rel=1e-5)
    assert not in_memory.model.training
    assert from_folder.model(digits.test_x[:5]).shape == (5, 10)


def test_each_devices_own_model():
    """Where devices keep models of their own, there is one for each."""
    run = fe.run(
        MAPPING, settings={"algorithm": {"kind": "local", "cohort": 4, "lr": 0.1, "batch_size": None, "local_steps": 1}}
    )

    assert len(run.model) == 4


def test_an_unfinished_run_is_gone_on_with_and_a_finished_one_kept(tmp_path):
    """The folder is an ordinary run folder: not overwritten unless told to."""
    first = fe.run(MAPPING, out=tmp_path / "run")

    with pytest.raises(fe.DataError, match="holds a finished run"):
        fe.run(MAPPING, out=tmp_path / "run")
    assert fe.run(MAPPING, out=tmp_path / "run", force=True).digest == first.digest
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "done"


def test_a_series_is_asked_for_by_name():
    """Tables that an algorithm keeps of itself; an unknown one names those there are."""
    run = fe.run("aspire_digits", settings={"stop.rounds": 3, "stop.simulated_s": None})

    assert len(run.series("activations")) >= 3
    with pytest.raises(fe.DataError, match=r"activation: no such series in this run; its series are: "):
        run.series("activation")


class Labelled(fe.Algorithm):
    """An algorithm whose `kind` is in no table: the class is what counts."""

    kind = "fedavg"

    def run(self, fed: fe.Federation) -> fe.Process:
        w = fed.initial_model()
        for _ in fed.rounds():
            yield fed.clock.sleep(1.0)
            fed.end_of_round(w, invited=0, arrived=0)


def test_the_class_of_an_object_counts_not_its_kind():
    """An object of a class that borrows a kind is run as what it is."""
    run = fe.run(MAPPING, algorithm=Labelled())

    assert run.summary["simulated_s"] == pytest.approx(3.0)


@pytest.mark.parametrize(
    "settings", [{}, {"algorithm.lr": 1e30, "stop.rounds": 9}, {"training.engine": "batched"}], ids=str
)
def test_a_run_that_has_ended_has_no_threads_left(settings):
    """Nor does it leave that to the garbage collector, which may come late; one that diverges does not either."""
    digits = {"data": "digits", "model": {"kind": "mlp", "hidden": [4]}, "training.engine": "by-rule"}
    before = set(threading.enumerate())
    gc.disable()
    try:
        run = fe.run(MAPPING, settings={**digits, "training.threads": 2, **settings})
        assert set(threading.enumerate()) <= before
        assert run.summary["status"] == ("diverged" if settings.get("algorithm.lr") else "done")
    finally:
        gc.enable()


DIGITS = {**MAPPING, "data": "digits", "model": "softmax"}


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([], ""),
        ([2.3, 0.1], ""),
        ([2.3, 22.9], ""),
        ([2.3, 23.1], "far above that of the first model, got 23.1 after 2.3"),
        ([2.3, 99.0, 2.0], ""),
        ([2.3, float("nan")], "not finite any more, got nan"),
        ([2.3, float("inf")], "not finite any more, got inf"),
        ([0.0, 5.0], ""),
    ],
)
def test_what_counts_as_diverged(losses, words):
    """The last loss does: not finite, or more than ten times the first."""
    ledger = Ledger()
    for number, loss in enumerate(losses):
        row = {**dict.fromkeys(EvaluationRow._fields, 0), "round": number, "loss": loss}
        ledger.evaluations.append(tuple(row.values()))

    assert words in divergence(ledger)
    assert bool(words) == bool(divergence(ledger))


class Spoils(fe.Algorithm):
    """Rounds of nothing but a pause, of which the second one ends with a model of nan."""

    def run(self, fed):
        w = fed.initial_model()
        for t in fed.rounds():
            yield fed.sleep(1)
            fed.end_of_round(w * float("nan") if t == 1 else w, invited=0, arrived=1)


def test_a_loss_that_was_not_finite_once_ends_as_diverged_whatever_follows():
    """Nan after round 2 of 4, finite again after it; the text names the round. Alone, the accuracy is no limit then."""
    run = fe.run({**DIGITS, "stop": {"rounds": 4}}, algorithm=Spoils())

    assert run.evaluations["loss"].isna().tolist() == [False, False, True, False, False]
    assert run.summary["status"] == "diverged"
    assert (
        run.summary["diverged"]
        == "the loss is not finite after round 2, got nan; lower the learning rate, or the noise"
    )
    assert len(fe.run({**DIGITS, "stop": {"accuracy": 0.99}}, algorithm=Spoils()).evaluations) == 3


def test_training_that_leaves_the_finite_numbers_ends_the_run():
    """No exception: a run, with what was measured until then, that says who diverged and with what step size."""
    run = fe.run(MAPPING, settings={"algorithm.lr": 1e30, "algorithm.local_steps": 5})

    assert run.summary["status"] == "diverged"
    assert run.summary["diverged"].startswith("dev-0, round 1: training diverges, got loss inf after step 1 with lr=1e")
    assert len(run.evaluations) == 1
    assert repr(run).endswith(", diverged>")
    assert "<th>status</th><td>diverged</td>" in run._repr_html_()


def test_a_loss_far_above_the_first_ends_as_diverged_though_finite(tmp_path):
    """Steps a little too large: three rounds, all finite; the folder's manifest and log say it too."""
    run = fe.run(MAPPING, settings={"algorithm.lr": 5.0}, out=tmp_path / "run")

    assert run.summary["rounds"] == 3
    assert run.summary["diverged"].startswith("the loss is far above that of the first model, got ")
    assert fe.open(tmp_path / "run").summary["status"] == "diverged"
    first = run_document(run, "")["words"][0]
    assert first.startswith(f"The run diverged: {run.summary['diverged']}. 3 rounds with ")
    assert "reached an accuracy" not in first
    assert "diverged: the loss is far above" in (tmp_path / "run" / "log.txt").read_text()
    with pytest.raises(fe.DataError, match="holds a finished run"):
        fe.run(MAPPING, settings={"algorithm.lr": 5.0}, out=tmp_path / "run")


def test_a_diverged_model_does_not_stop_at_a_target_accuracy():
    """Its accuracy of one class in ten would be enough, but counts for nothing."""
    wild = {"algorithm.lr": 1e4, "stop": {"rounds": 4, "accuracy": 0.02}}
    calm = {"algorithm.lr": 0.1, "stop": {"rounds": 4, "accuracy": 0.02}}
    first = fe.run(DIGITS, settings={"stop.rounds": 1}).evaluations["accuracy"][0]
    target = {"stop.accuracy": max(0.02, first + 0.01)}

    assert fe.run(DIGITS, settings=calm | target).summary["rounds"] < 4
    assert fe.run(DIGITS, settings=wild | target).summary["rounds"] == 4


@pytest.mark.usefixtures("cells_here")
def test_a_diverged_cell_is_in_the_table_but_reaches_no_target():
    """Its row says so, with the reason; time to target is blank, also for another target; the other run is as ever."""
    study = fe.sweep(
        DIGITS,
        grid={"algorithm.lr": [0.1, 1e4]},
        seeds=1,
        workers=1,
        target={"accuracy": 0.02},
        settings={"stop.rounds": 2},
    )

    runs = study.runs.set_index("algorithm.lr")
    assert list(runs["status"]) == ["done", "diverged"]
    assert runs.loc[1e4, "reason"].startswith("the loss is far above")
    assert runs["time_to_target_s"].notna().tolist() == [True, False]
    assert study.aiming_at(0.01).runs["time_to_target_s"].notna().tolist() == [True, False]
    assert "2 runs done, 1 diverged" in repr(study)


SPLIT = {
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
    scenario = scenario_of("quickstart", {**SPLIT, "partition": partition, "groups": groups, "seed": seed})[1].scenario
    found, task = data_split(scenario).train, build(scenario, timing_only=True).task

    assert found.sizes.tolist() == task.n_samples.tolist()
    for device in range(6):
        labels = task.data.y[task.slice_of(device)].numpy()
        assert found.counts[:, device].tolist() == np.bincount(labels, minlength=3).tolist()


def test_natural_groups_and_noise(tmp_path):
    """Each of four devices has two octants of the cube, one of each class; noise moves no sample."""
    cube = {"data": "fcube", "partition": "group", "devices.count": 4, "feature_noise.variance": 0.1}
    found = data_split(scenario_of("quickstart", {**SPLIT, **cube})[1].scenario)

    assert found.train.counts.tolist() == [[500] * 4] * 2
    assert found.test.sizes.sum() == 1000


def test_a_run_its_folder_and_its_scenario_have_the_same_figure(tmp_path):
    """`fe.plot` draws it of each, before and after the run."""
    run = fe.run("quickstart", settings=SPLIT, out=tmp_path / "run", timing_only=True)
    drawn = [fe.plot(source, "data") for source in (run, tmp_path / "run", run.scenario)]

    for figure in drawn:
        np.testing.assert_array_equal(figure.numbers, drawn[0].numbers)
    assert drawn[0].numbers["samples"].sum() == 300
    assert run.plot("data-test").numbers["samples"].sum() == 60


def numbers(figure):
    return [[round(patch.get_height(), 6) for patch in axes.patches] for axes in figure.axes]


def test_settings_of_the_figure_are_those_of_the_scenario():
    """A name with settings is drawn as the changed scenario is; so is a run, whose record is that of other settings."""
    few = SPLIT | {"devices.count": 3}
    run = fe.run("quickstart", settings=SPLIT, timing_only=True)
    meant = numbers(fe.plot(fe.check("quickstart", settings=few), "data"))

    assert numbers(fe.plot("quickstart", "data", settings=few)) == meant
    assert numbers(fe.plot(run, "data", settings={"devices.count": 3})) == meant
    assert numbers(fe.plot(run, "data")) != meant


def test_what_has_no_such_figure_is_refused(tmp_path):
    """Two at once, a scenario that has not run for another figure, and an algorithm with its own data."""
    with pytest.raises(fe.FednetError, match=r"plot: 'data' shows the data of one run or scenario, got 2; give one"):
        fe.plot(["quickstart", "quickstart"], "data")
    scenario = scenario_of("quickstart", SPLIT)[1].scenario
    with pytest.raises(fe.FednetError, match="a scenario that has not run shows only data and data-test, got 'loss'"):
        fe.plot(scenario, "loss")
    samples = {"train_x": np.zeros((12, 2)), "train_y": np.arange(12) % 2, "train_group": np.arange(12) % 3}
    np.savez(tmp_path / "mine.npz", test_x=np.zeros((4, 2)), test_y=np.arange(4) % 2, **samples)
    mine = {"data": {"kind": "npz", "path": str(tmp_path / "mine.npz")}, "partition": "group", "devices.count": 3}
    untested = scenario_of("quickstart", {**SPLIT, **mine})[1].scenario
    with pytest.raises(fe.FednetError, match=r"'data-test' has nothing to show, got no test samples at any device"):
        fe.plot(untested, "data-test")


@pytest.mark.parametrize("data", [SPLIT["data"], {"kind": "synthetic", "n_samples": 300, "n_test": 60, "classes": 40}])
def test_a_run_records_its_split(data, tmp_path):
    """Read from its folder, it is the split of the scenario, also of labels that nobody has."""
    run = fe.run("quickstart", settings=SPLIT | {"data": data}, out=tmp_path / "run", timing_only=True)
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


STUDY = Path(__file__).parents[2] / "scenarios/studies/quickstart_access.yaml"
COSTS = [cost.column for cost in TRADED.values()]


@pytest.fixture(scope="module")
def study(cells_here, tmp_path_factory):
    """The study of the tutorial, with 8 of its 40 rounds and 2 of its 5 seeds."""
    path = tmp_path_factory.mktemp("study") / "access.yaml"
    path.write_text(STUDY.read_text(encoding="utf-8").replace("seeds: 5", "seeds: 2"), encoding="utf-8")
    return fe.sweep(str(path), settings={"stop.rounds": 8}, progress=False)


def points(table):
    """Setting, round, costs and accuracy of each point, sorted."""
    return sorted(map(tuple, table[["setting", "round", *COSTS, "accuracy"]].to_numpy().tolist()))


@pytest.fixture(scope="module")
def shown_of(study):
    """The page and the figure of the study."""
    return study_document(study), pareto_figure(study)


@pytest.mark.parametrize("cost", TRADED)
def test_the_page_and_the_figure_show_the_front_of_the_study(study, shown_of, cost):
    """The same settings, rounds and means for accuracy against each cost; some points are on it, and most are not."""
    front = study.front(cost)
    told, figure = shown_of
    part = told["pareto"]["rounds"]
    place = part["fronts"][f"{TRADED[cost].column}:accuracy"]
    shown = front.iloc[:0].assign(
        setting=[told["settings"][int(number)]["label"] for number in part["setting"][place]],
        **{name: part[name][place] for name in ("round", *COSTS, "accuracy")},
    )
    numbers = figure.numbers
    drawn = numbers[numbers["front"] == cost]
    drawn = drawn.assign(setting=[f"{row.access}, devices.count = {row._3}" for row in drawn.itertuples()])

    assert 1 < len(front) < len(part["setting"]) / 2
    assert points(front) == points(shown) == points(drawn)


def test_the_front_of_two_costs_is_over_settings(study):
    """What reaching the target cost: no other setting of which every run got there was cheaper in both."""
    reached = study.aiming_at(0.5)
    front = reached.front("bits", "energy")
    means = reached.runs.groupby(["access", "devices.count"])[["bits_to_target", "energy_to_target_j"]]
    known = means.mean()[means.count().min(axis=1) == 2].to_numpy()
    beaten = [((known <= row).all(axis=1) & (known < row).any(axis=1)).any() for row in known]

    assert len(known) >= 2
    assert sorted(front["total_bit"]) == pytest.approx(sorted(known[~np.array(beaten), 0]))
    assert set(front["round"]) == {-1}


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        (("tme", "accuracy"), "no such quantity of a front, got 'tme'; did you mean 'time'"),
        (("rounds", "accuracy"), "choose from time, bits, energy, accuracy"),
        (("bits", "bits"), "weighs two quantities, got 'bits' twice"),
    ],
)
def test_mistakes_are_told(study, pair, problem):
    """With the names that there are."""
    with pytest.raises(fe.FednetError, match=problem):
        study.front(*pair)
