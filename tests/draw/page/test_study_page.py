"""The document of a study's page has the numbers of the tables, of `compare` and of the definitions."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fednet_emu.analysis.comparison import compare, compared_axes, level_pairs
from fednet_emu.analysis.fronts import LEARNT, on_front
from fednet_emu.analysis.scales import first_reached
from fednet_emu.analysis.settings import Names, data_set_names, failures_text
from fednet_emu.analysis.statistics import mean_interval
from fednet_emu.analysis.study import StudyRecords
from fednet_emu.draw.page.document import browser_file
from fednet_emu.draw.page.study_page import left_out, runs_table, study_document

AXES = {"access": ["tdma", "ofdma"], "size": [1, 2]}
SECONDS = {"tdma": 2.0, "ofdma": 1.0}
SCORES = ("worst_accuracy", "std_accuracy", "worst_train_loss", "attack_success")


def evaluations(access, size, seed, rounds):
    """A run that gains 0.1 of accuracy in each round, which takes a second or two, and with size 2 stops at 0.4."""
    steps = np.arange(rounds + 1)
    return pd.DataFrame(
        {
            "access": access,
            "size": size,
            "seed": seed,
            "run": f"{access}-{size}-{seed}",
            "round": steps,
            "simulated_s": steps * (SECONDS[access] + 0.1 * seed),
            "uplink_bit": steps * 1e6 * size,
            "downlink_bit": 0.0,
            "sidelink_bit": 0.0,
            "total_bit": steps * 1e6 * size,
            "energy_j": steps * 0.5,
            "loss": 1.0 / (1 + steps),
            "accuracy": np.minimum(steps / 10, 1.0 if size == 1 else 0.4),
            **dict.fromkeys(SCORES, np.nan),
        }
    )


@pytest.fixture
def story():
    """A study with two accesses, two sizes and three seeds; size 2 never reaches 0.55, and one run of it failed."""
    rows, runs, missing = [], [], []
    for access, size, seed in itertools.product(*AXES.values(), range(3)):
        run = evaluations(access, size, seed, 10)
        keys = {"access": access, "size": size, "seed": seed, "run": run["run"][0]}
        if (access, size, seed) == ("tdma", 2, 2):
            missing.append({**keys, "status": "failed", "reason": "took longer than 1 s"})
            continue
        last = run.iloc[-1][["simulated_s", "uplink_bit", "total_bit", "energy_j", "loss", "accuracy"]].to_dict()
        rows.append(run)
        runs.append(
            {
                **keys,
                "status": "done",
                "reason": "",
                "data_set": "digits",
                **last,
                **first_reached(run, [keys["run"]], "accuracy", 0.55).iloc[0],
            }
        )
    lost = pd.DataFrame(missing)
    tables = pd.concat(rows, ignore_index=True), pd.DataFrame(runs), list(lost["run"])
    return StudyRecords("story", AXES, {"accuracy": 0.55}, *tables, lost)


@pytest.fixture
def document(story):
    return study_document(story)


def column(columns, name):
    return next(each["values"] for each in columns if each["name"] == name)


def test_cells_are_those_of_the_table_and_the_failed_ones(story, document):
    """Finished runs have the numbers of the table, a failed one its reason and no number."""
    view = story
    runs = document["runs"]

    assert column(runs, "accuracy") == pytest.approx([*view.runs["accuracy"], np.nan], nan_ok=True)
    assert column(runs, "time_to_target_s") == pytest.approx([*view.runs["time_to_target_s"], np.nan], nan_ok=True)
    assert column(runs, "status")[-1] == "failed"
    assert column(runs, "reason")[-1] == "took longer than 1 s"
    assert column(runs, "seed").tolist() == [*view.runs["seed"], 2]
    assert [each["name"] for each in runs][:4] == ["access", "size", "seed", "status"]
    assert "attack_success" not in runs_table(view), "nobody was attacked"


def test_curves_are_means_of_steps(document):
    """After 5 s, the three runs of 1.0, 1.1 and 1.2 s a round have done 5, 4 and 4 rounds; at 12 s only one goes on."""
    (line,) = [
        each
        for each in document["curves"]
        if (each["setting"], each["metric"], each["cost"]) == (2, "accuracy", "time")
    ]
    at = int(np.searchsorted(line["spent"], 5.0, side="right"))
    means = mean_interval(np.floor(line["spent"][at] / np.array([1.0, 1.1, 1.2])) / 10)

    assert document["settings"][2]["label"] == "ofdma, size = 1"
    assert (line["mean"][at], line["low"][at], line["high"][at]) == pytest.approx(means)
    assert line["runs"][at] == line["seeds"] == 3
    assert line["spent"][-1] == pytest.approx(12.0)
    assert (line["mean"][-1], line["runs"][-1]) == (1.0, 1)


def test_a_cross_marks_a_run_that_diverged(story):
    """It is at the last evaluation of that run, on the line of its setting; other runs have none."""
    own = (story.runs["access"] == "ofdma") & (story.runs["size"] == 1) & (story.runs["seed"] == 2)
    ends = np.where(own, "diverged", story.runs["status"])
    lines = study_document(replace(story, runs=story.runs.assign(status=ends)))["curves"]
    (line,) = [each for each in lines if (each["setting"], each["metric"], each["cost"]) == (2, "accuracy", "time")]

    assert line["diverged"]["spent"] == pytest.approx([12.0])
    assert line["diverged"]["mean"] == pytest.approx([1.0])
    assert not any(len(each["diverged"]["spent"]) for each in lines if each["setting"] != 2)


def test_every_metric_is_there_against_every_cost(document):
    """Two metrics were measured, and there are four costs and four settings."""
    found = {(each["setting"], each["metric"], each["cost"]) for each in document["curves"]}

    assert found == set(itertools.product(range(4), ["accuracy", "loss"], ["time", "bits", "energy", "rounds"]))


def test_who_never_reached_the_target_is_a_failure_and_no_zero(story, document):
    """Size 2 stops at 0.4: no mean, no value, and in words which runs ended how."""
    view = story
    tdma = document["needed"][1]
    first = document["needed"][0]

    assert (tdma["reached"], tdma["of"], tdma["failures"]) == (0, 3, "2 runs never got there, 1 run failed")
    assert np.isnan(tdma["costs"]["time_to_target_s"]["mean"])
    assert np.isnan(tdma["costs"]["time_to_target_s"]["values"]).all()
    expected = view.runs[(view.runs["access"] == "tdma") & (view.runs["size"] == 1)]["time_to_target_s"]
    assert first["costs"]["time_to_target_s"]["mean"] == pytest.approx(expected.mean())
    assert (first["reached"], first["failures"]) == (3, "")
    assert "2 of 4 settings reached accuracy 0.55 on every seed, 2 on none." in document["words"]
    assert document["words"][1].startswith(
        "Accuracy 0.55 was reached by ofdma, size = 1 in 2 of 2 runs, after 6 s to 6.6 s; tdma, size = 1 in 2 of 2 runs"
    )


def test_a_setting_without_finished_runs_counts_among_those_that_miss_the_target(story):
    """With size 1, all runs of ofdma reach the target, and all runs of tdma failed."""
    view = story.where({"size": 1})
    failed = view.runs["access"] == "tdma"
    lost = view.runs[failed][["access", "seed", "run", "data_set"]].assign(status="failed", reason="")
    words = study_document(replace(view, runs=view.runs[~failed], missing=lost))["words"]

    assert "1 of 2 settings reached accuracy 0.55 on every seed, 1 on none." in words
    assert "Left out, because no run has finished: tdma." in words


def test_failures_are_told_by_kind():
    """Runs that ended without the target, that diverged, that failed, and that have not run."""
    ends = ["done", "done", "diverged", "failed", "waiting"]

    assert failures_text(ends, [True, False, False]) == (
        "1 run never got there, 1 run diverged, 1 run failed, 1 run not run yet"
    )


def test_differences_are_those_of_compare(story, document):
    """The numbers are those of `fednet compare`, and the sentence says on how many seeds."""
    view = story
    expected = {
        (its.where, its.quantity.column): its
        for its in compare(view.where({"access": "tdma"}), view.where({"access": "ofdma"}))
    }
    found = {(its["where"], its["quantity"]): its for its in document["differences"] if its["axis"] == "access"}

    assert found.keys() == expected.keys()
    for key, its in found.items():
        told = (its["mean"], its["low"], its["high"], expected[key].paired.p)
        assert told == pytest.approx(expected[key].paired, nan_ok=True), key
    assert found["size=1", "time_to_target_s"]["sentence"] == (
        "with ofdma, accuracy 0.55 is reached 6 s sooner than with tdma, on 3 of 3 seeds "
        "(mean -6 s): 3 seeds cannot show it, 6 are the fewest that can"
    )


def test_sentences_say_who_never_got_there(document):
    """Size 2 never reaches the target, and with it one seed has no run at all."""
    found = {
        (its["where"], its["quantity"]): its["sentence"] for its in document["differences"] if its["axis"] == "size"
    }

    assert found["access=tdma", "time_to_target_s"] == "accuracy 0.55 is never reached with size = 2"
    assert found["access=tdma", "simulated_s"] == "time of the run is the same with size = 1 and size = 2 on every seed"
    assert found["access=tdma", "total_bit"].startswith(
        "with size = 2, the run sends 10 Mbit more than with size = 1, "
    )


def test_what_is_too_much_to_compare_is_left_out_and_said():
    """Of six levels, each is compared with the first and with the next; of 30 x 20 places, none."""
    small = StudyRecords("small", {"a": list(range(6))}, {}, pd.DataFrame(), pd.DataFrame({"seed": [0] * 6}), [])
    large = replace(small, axes={"a": list(range(30)), "b": list(range(20))}, runs=pd.DataFrame({"seed": [0] * 600}))

    assert level_pairs(small.axes["a"]) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 2), (0, 3), (0, 4), (0, 5)]
    assert compared_axes(small) == ["a"]
    assert left_out(small) == "of more than 5 levels, each is compared with the first and the next"
    assert compared_axes(large) == []
    assert "a, b: more than 300 comparisons; `fednet compare` makes them one by one" in left_out(large)


def test_a_front_is_what_nothing_beats():
    """Compared with the definition on random points, many of which share a coordinate."""
    ways = np.random.default_rng(0)
    for _ in range(50):
        points = ways.integers(0, 6, (12, 2)).astype(float)
        beaten = [((points <= each).all(axis=1) & (points < each).any(axis=1)).any() for each in points]
        assert on_front(*points.T).tolist() == [not lost for lost in beaten]


def test_fronts_leave_out_what_has_learnt_nothing(story, document):
    """The initial model is on no front; ofdma beats tdma in time, and among equal bits neither beats the other."""
    rounds = document["pareto"]["rounds"]
    on = rounds["fronts"]["simulated_s:accuracy"]

    assert rounds["simulated_s"].min() > 0
    assert {document["settings"][int(place)]["levels"]["access"] for place in rounds["setting"][on]} == {"ofdma"}
    assert set(rounds["setting"][rounds["fronts"]["total_bit:accuracy"]]) == {0.0, 2.0}
    view = story
    idle = view.evaluations.assign(accuracy=0.1)
    view = StudyRecords("idle", view.axes, {}, idle, view.runs, view.unfinished, view.missing)
    assert len(study_document(view)["pareto"]["rounds"]["setting"]) == 0


def test_the_page_says_which_points_are_on_no_front():
    """It states the smallest gain in accuracy that counts."""
    assert LEARNT == 0.1
    assert "at most a tenth of the largest gain in accuracy do not count" in browser_file("fronts.js")


def test_data_sets_never_share_a_front(story):
    """The runs of tdma learn another data set: it has a front of its own, although ofdma is faster."""
    view = story
    view.runs["data_set"] = np.where(view.runs["access"] == "tdma", "mnist", "digits")
    told = study_document(view)["pareto"]
    on = told["rounds"]["fronts"]["simulated_s:accuracy"]

    assert told["data_sets"] == ["mnist", "digits"]
    assert set(told["rounds"]["data_set"][on]) == {0.0, 1.0}
    assert set(told["ends"]["setting"][told["ends"]["fronts"]["simulated_s:energy_j"]]) == {0.0, 2.0}


def test_fronts_of_two_costs_are_about_reaching_the_target(story, document):
    """Only settings that reached it on every seed have a point, which is their mean cost."""
    view = story
    ends = document["pareto"]["ends"]
    means = view.runs.groupby(["access", "size"], sort=False)["time_to_target_s"].mean()

    assert ends["setting"].tolist() == [0, 2]
    assert ends["simulated_s"] == pytest.approx([means["tdma", 1], means["ofdma", 1]])
    assert ends["fronts"]["simulated_s:total_bit"].tolist() == [1]


def test_settings_of_which_a_run_diverged_are_on_no_front(story):
    """Its scores before that were good, but who takes the setting may end with nothing."""
    view = story
    view.runs.loc[view.runs["run"] == "ofdma-1-0", "status"] = "diverged"
    told = study_document(view)["pareto"]

    assert 2.0 not in told["rounds"]["setting"]
    assert told["ends"]["setting"].tolist() == [0]


def test_what_is_told_first_keeps_data_sets_apart(story, document):
    """With one data set, the ends of each axis are compared; an axis that changes the data set is not told about."""
    view = story
    view.runs["data_set"] = np.where(view.runs["access"] == "tdma", "mnist", "digits")
    apart = study_document(view)["words"]

    assert "No seed reaches accuracy 0.55 with both tdma and ofdma in every place." in document["words"]
    assert not [text for text in apart if "with both tdma" in text or "with ofdma" in text]
    by_size = view.runs.assign(data_set=np.where(view.runs["size"] == 1, "mnist", "digits"))
    assert not [text for text in study_document(replace(view, runs=by_size))["words"] if "tdma or ofdma" in text]
    assert apart[1].startswith(
        "On mnist: Accuracy 0.55 was reached by tdma, size = 1 in 2 of 2 runs, after 12 s to 12.6 s"
    )


def test_labels_cannot_be_mistaken():
    """Text stands alone unless two axes have it; numbers have the whole name of their axis."""
    axes = {"uplink": ["tdma", "none"], "loss": ["none"], "devices.count": [10]}

    whole = Names.of(axes).whole({"uplink": "tdma", "loss": "none", "devices.count": 10})

    assert whole == "tdma, loss = none, devices.count = 10"
    powers = Names.of({"channel.device.tx_power_dbm": [13.0, 23], "channel.bandwidth_hz": [1e6]})
    levels = {"channel.device.tx_power_dbm": 23, "channel.bandwidth_hz": 1e6}
    assert powers.whole(levels) == "23 dBm, 1 MHz", "a unit says enough"
    two = Names.of({"network.uplink.tx_power_dbm": [13], "network.downlink.tx_power_dbm": [23]})
    assert two.whole({"network.uplink.tx_power_dbm": 13}) == "network.uplink.tx_power_dbm = 13 dBm"


def test_data_sets_are_named_by_what_tells_them_apart():
    """The kind is enough for mnist; the two synthetic ones differ in a parameter."""
    small, large = ({"kind": "synthetic", "classes": number} for number in (2, 9))

    assert data_set_names([small, {"kind": "mnist"}, large, None, small]) == [
        "synthetic (classes: 2)",
        "mnist",
        "synthetic (classes: 9)",
        "",
        "synthetic (classes: 2)",
    ]
