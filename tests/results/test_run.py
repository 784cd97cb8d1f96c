"""`fe.run`: one scenario from Python, in memory or into a folder."""

import copy
import gc
import json
import os
import re
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from ruamel.yaml import YAML
from torch import nn

import fednet_emu as fe
from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.document import from_text
from fednet_emu.scenario.yaml_text import dump
from fednet_emu.testing import SMALL, small_scenario

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


def test_numbers_of_the_small_federation(small):
    """Four devices, three rounds: 4 downlinks (or one broadcast) and 4 uplinks of 320 bit each, 4 computations."""
    assert list(small.rounds["arrived"]) == [4, 4, 4]
    uplinks = small.transfers.query("kind == 'uplink'")
    assert len(uplinks) == 12
    assert set(uplinks["size_bit"]) == {320}
    assert len(small.computes) == 12
    assert len(small.evaluations) == 4


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
        """One round in which nothing happens but time."""
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
