"""Searches: what is found, at which cost, again and again, and however they were interrupted."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from fednet_emu.analysis.confidence_set import confidence_set
from fednet_emu.analysis.searched import SearchRecords
from fednet_emu.analysis.study import StudyRecords
from fednet_emu.emulation.load import load_scenario
from fednet_emu.errors import DataError, FednetError, ScenarioError
from fednet_emu.results.study import Study
from fednet_emu.study.file import StudyFile
from fednet_emu.study.runners import run_here, run_locally
from fednet_emu.study.runs import runs_of
from fednet_emu.study.search.search import load_search, search
from fednet_emu.study.sweep import study_folder, sweep
from fednet_emu.testing import SMALL

SETTINGS = "set: {channel: urban-micro, stop.rounds: 12}\ntarget: {loss: 0.6}\nseeds: 3\n"
GRID = "algorithm.local_steps: [1, 4], algorithm.cohort: [2, 4]"
FILES = ("trials.csv", "search.json", "study.json", "study.parquet", "runs.parquet", "best/1.yaml")


def searched(path, out, run=run_here, **options):
    search(load_search(StudyFile.read(path), **options), out, run)
    return SearchRecords.opened(out)


def content(out):
    """All that a search leaves, to the byte; host times aside."""
    return {name: (out / name).read_bytes() for name in FILES}


def test_a_search_of_the_whole_space_finds_the_best_of_the_grid(study_file, tmp_path):
    """With as many trials as settings, all seeds and no cap, it ranks as the grid does, at the grid's costs."""
    settings = SETTINGS.replace("seeds: 3", "seeds: 2")
    space = "algorithm.local_steps: [1, 4], algorithm.lr: [0.05, 0.1]"
    path = study_file(
        f"{settings}search: {{space: {{{space}}}, trials: 50, trial_seeds: 2, finalists: 4, cap: null}}\n"
    )
    view = searched(path, tmp_path / "search")
    grid = study_file(f"{settings}grid: {{{space}}}\n")
    sweep(runs_of(grid), tmp_path / "grid", run_here)
    rows = StudyRecords.opened(tmp_path / "grid").runs
    keys = ["algorithm.local_steps", "algorithm.lr"]
    times = rows.groupby(keys)["time_to_target_s"]
    means = times.mean()[times.count() == 2]

    assert len(view.trials) == 4
    found = view.trials.set_index(keys)["time"].dropna()
    assert len(found) == len(means) > 2
    assert found.sort_index().tolist() == pytest.approx(means.sort_index().tolist(), rel=1e-8)
    best = view.trials.set_index("trial").loc[view.finalists[0]]
    assert tuple(best[keys]) == means.idxmin()


SPACE = """
    algorithm.local_steps: {low: 1, high: 5}
    algorithm.lr: {low: 0.01, high: 0.2, log: true}
    access: {tdma: {network.uplink.access: tdma}, ofdma: {network.uplink.access: ofdma}}
"""


@pytest.fixture(scope="module")
def searching(tmp_path_factory):
    """The file of a search over ranges and choices, with caps, a limit and a race."""
    folder = tmp_path_factory.mktemp("searching")
    (folder / "small.yaml").write_text(SMALL, encoding="utf-8")
    path = folder / "study.yaml"
    path.write_text(
        f"base: small\n{SETTINGS}search:\n  trials: 6\n  trial_seeds: 1\n  finalists: 3\n  within: {{rounds: 10}}\n"
        f"  space:{SPACE}"
    )
    return path


@pytest.fixture(scope="module")
def whole(searching):
    """The folder of that search, which nobody has disturbed; tests only look at it."""
    out = searching.parent / "whole"
    searched(searching, out)
    return out


def test_two_searches_do_not_share_a_folder(searching, tmp_path):
    """The second one is refused at once, and says what may be writing there; nothing has been tried then."""
    with study_folder(tmp_path / "out", "search or sweep"):
        with pytest.raises(DataError, match="is being written by another search or sweep; wait for it, or choose"):
            searched(searching, tmp_path / "out")
        assert not list(tmp_path.rglob("runs"))


@pytest.fixture(scope="module")
def shorter(searching):
    """The folder of the first three trials of that search; tests only look at it."""
    out = searching.parent / "shorter"
    searched(searching, out, trials=3)
    return out


def test_an_interrupted_search_goes_on_as_if_nothing_had_been(searching, shorter, tmp_path):
    """Stopped after every fifth run, again and again, it runs nothing twice and ends with the same bytes."""
    begun = []

    def five(tasks):
        for place, news in enumerate(run_here(tasks)):
            if news.outcome is None:
                begun.append(tasks[news.place].folder.name)
            yield news
            if place == 9:
                raise KeyboardInterrupt

    loaded = load_search(StudyFile.read(searching), trials=3)
    for _ in range(40):
        try:
            search(loaded, tmp_path / "parts", five)
            break
        except KeyboardInterrupt:
            assert SearchRecords.opened(tmp_path / "parts").lines()[1].startswith("interrupted before its end: ")
    assert content(tmp_path / "parts") == content(shorter)
    assert len(begun) == len(set(begun)) == len(list((shorter / "runs").iterdir()))


def test_the_result_is_the_same_with_any_number_of_workers(searching, shorter, tmp_path):
    """Trials, tables and best scenarios are equal to the byte."""
    searched(searching, tmp_path / "two", lambda tasks: run_locally(tasks, 2), trials=3)

    assert content(tmp_path / "two") == content(shorter)


@pytest.mark.slow
def test_a_killed_search_goes_on(searching, shorter, tmp_path):
    """Kill -9 after the first runs, then the same command: the bytes of a search that nobody disturbed."""
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "fednet_emu", "search", str(searching), "--out", str(out), "--trials", "3"]
    command += ["--quiet", "--no-plots", "--workers", "1"]
    process = subprocess.Popen(command, cwd=tmp_path)
    while process.poll() is None and len(list(out.glob("runs/*/summary.json"))) < 3:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run(command, cwd=tmp_path, check=True)

    assert content(out) == content(shorter)


def test_more_trials_go_on_from_those_there_are(searching, shorter, whole, tmp_path):
    """The first trials of a longer search are those of a shorter one, whose runs are not run again."""
    out = tmp_path / "out"
    shutil.copytree(shorter, out)
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/summary.json")}
    longer = searched(searching, out)

    pd.testing.assert_frame_equal(longer.trials[:3], SearchRecords.opened(shorter).trials)
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    assert (out / "trials.csv").read_bytes() == (whole / "trials.csv").read_bytes()


def test_trials_after_the_first_end_at_the_cap(whole):
    """None of the later runs costs more than twice what the best before it did, nor breaks the limit."""
    view = SearchRecords.opened(whole)
    known = [float(cost) for cost in view.trials["time"][:4] if not np.isnan(cost)]
    runs = {path.name: json.loads(path.read_text()) for path in (whole / "runs").glob("*/summary.json")}

    assert known
    assert all(summary["rounds"] <= 10 for summary in runs.values())
    for trial, row in view.trials[4:].iterrows():
        best = view.trials["time"][: trial // 4 * 4].min()
        assert not row["time"] > 2 * best


def test_the_best_scenarios_run(whole):
    """Their files are whole scenarios, without the ends that the search had put to them, and cost what was said."""
    view = SearchRecords.opened(whole)
    for place, number in enumerate(view.finalists, 1):
        scenario = load_scenario(whole / "best" / f"{place}.yaml")
        assert scenario.stop.rounds == 12
        assert scenario.stop.simulated_s is None
        row = view.trials.set_index("trial").loc[number]
        assert scenario.algorithm.local_steps == row["algorithm.local_steps"]
        assert scenario.algorithm.lr == row["algorithm.lr"]


def test_files_of_others_stay(searching, shorter, tmp_path):
    """A search that goes on replaces its own scenarios of an earlier one, and touches nothing else."""
    out = tmp_path / "out"
    shutil.copytree(shorter, out)
    mine, stale = out / "best" / "1-mine.yaml", out / "best" / "99.yaml"
    mine.write_text("kept", encoding="utf-8")
    stale.write_text("of an earlier search", encoding="utf-8")
    searched(searching, out, trials=3)

    assert mine.read_text(encoding="utf-8") == "kept"
    assert not stale.exists()
    assert content(out) == content(shorter)


def test_the_folder_is_a_study_of_the_finalists(whole):
    """Figures, comparisons and rankings take it as any other."""
    view = SearchRecords.opened(whole)
    study = StudyRecords.opened(whole)
    labels = view.trials.set_index("trial")["setting"]

    assert study.axes == {"setting": [labels[number] for number in view.finalists]}
    for number in view.finalists:
        costs = study.runs[study.runs["setting"] == labels[number]].sort_values("seed")["time_to_target_s"]
        assert costs.tolist() == pytest.approx(view.runs[number][:, 0].tolist(), nan_ok=True)


def test_the_race_is_that_of_a_slow_one(whole):
    """Seed by seed the settings outside the confidence set leave; the others have all seeds."""
    view = SearchRecords.opened(whole)
    left = sorted(view.runs, key=lambda number: view.trials["time"][number])
    dropped = {}
    for seeds in (2, 3):
        if len(left) < 2:
            break
        costs = np.array([view.runs[number][:seeds, 0] for number in left]).T
        if not np.isfinite(costs).all():
            pytest.skip("a finalist missed the target with another seed")
        mask, p = confidence_set(costs)
        dropped |= {
            number: (seeds, pytest.approx(chance))
            for number, kept, chance in zip(left, mask, p, strict=True)
            if not kept
        }
        left = [number for number, kept in zip(left, mask, strict=True) if kept]

    assert view.dropped == dropped
    assert set(view.finalists) == set(left)


def dominated(own, others):
    """Whether one of several rows is nowhere above another, and somewhere below it."""
    return any((other <= own).all() and (other < own).any() for other in others)


def test_several_costs_give_a_front(study_file, tmp_path):
    """Those that no other trial dominates are in the race, and those that nobody dominates in the end are left."""
    space = "{algorithm.local_steps: {low: 1, high: 5}, algorithm.lr: {low: 0.01, high: 0.2, log: true}}"
    path = study_file(f"{SETTINGS}search: {{space: {space}, trials: 6, minimise: [time, bits], finalists: 3}}\n")
    view = searched(path, tmp_path / "out")
    tried = view.trials.set_index("trial")[["time", "bits"]].dropna()
    means = {number: runs.mean(axis=0) for number, runs in view.runs.items()}

    assert len(means) == 3
    assert all(len(runs) == 3 for runs in view.runs.values())
    first = {number for number, costs in tried.iterrows() if not dominated(costs.to_numpy(), tried.to_numpy())}
    assert first <= set(means) or set(means) <= first
    for number, mean in means.items():
        assert (number in view.dropped) == dominated(mean, list(means.values()))
    assert sorted([*view.finalists, *view.dropped]) == sorted(means)
    assert any("bits" in line and "time" in line for line in view.lines())


def test_a_search_without_a_target_needs_no_training(study_file, tmp_path):
    """Timing-only, the least time of so many rounds: the best of all settings, found by trying all of them."""
    path = study_file(
        "set: {channel: urban-micro}\nseeds: 1\n"
        f"search: {{space: {{{GRID}}}, trials: 6, finalists: 1, minimise: time, cap: null}}\n"
    )
    view = searched(path, tmp_path / "out", timing_only=True)
    grid = study_file(f"set: {{channel: urban-micro}}\nseeds: 1\ngrid: {{{GRID}}}\n")
    sweep(runs_of(grid, timing_only=True), tmp_path / "grid", run_here)
    least = StudyRecords.opened(tmp_path / "grid").runs["simulated_s"].min()

    assert view.trials["time"].min() == pytest.approx(least)
    assert view.trials["time"][view.finalists[0]] == pytest.approx(least)


def test_the_highest_accuracy_within_a_limit(study_file, tmp_path):
    """Of two step sizes, the one that has learnt more by then; its accuracy is that of the last evaluation there."""
    path = study_file(
        "set: {channel: urban-micro, data: {kind: synthetic, n_samples: 200, n_test: 200, features: 9, classes: 2}, "
        "model: softmax, stop.rounds: 12}\nseeds: 2\n"
        "search: {space: {algorithm.lr: [0.000001, 0.05]}, maximise: accuracy, within: {rounds: 5}}\n"
    )
    view = searched(path, tmp_path / "out")
    best = view.trials.set_index("trial").loc[view.finalists[0]]

    assert best["algorithm.lr"] == 0.05
    assert best["accuracy"] == view.trials["accuracy"].max() == best["score"]
    assert (view.runs[view.finalists[0]] < 0).all()  # minimised is minus the accuracy
    assert any("accuracy 0." in line for line in view.lines())


def test_settings_that_are_no_scenario_or_fail_are_told_and_left_out(study_file, tmp_path, moods):
    """One raises while it trains, one asks for more devices than there are; the third is found."""
    path = study_file(
        "set: {training.engine: serial}\ntarget: {loss: 5}\nseeds: 1\nsearch:\n  trials: 3\n  space:\n    mood:\n"
        "      calm: {model: {kind: module, path: 'moody:Net'}}\n"
        "      raises: {model: {kind: module, path: 'moody:Net', args: {mood: raises}}}\n"
    )
    progress = search(load_search(StudyFile.read(path)), tmp_path / "out", run_here)
    view = SearchRecords.opened(tmp_path / "out")

    assert len(progress.failures) == 1
    assert view.lines()[0].endswith(" tried: 1 reach loss 5; 1 failed")
    assert view.trials.set_index("mood")["why_not"].to_dict()["raises"] == "failed"
    assert [view.trials["mood"][number] for number in view.finalists] == ["calm"]


def test_trials_that_diverged_are_counted_and_have_no_best_score():
    """Their accuracy is above the target; the advice names none."""
    rows = {"trial": [0, 1], "setting": ["a", "b"], "runs": [1, 1], "reached": [0, 0], "score": [0.95, 0.4]}
    trials = pd.DataFrame(rows | {"time": np.nan, "why_not": ["diverged", "ended without it"]})
    found = SearchRecords("it", ["time"], {}, {"accuracy": 0.6}, trials, [], {}, {}, {}, ["a"])

    assert found.lines() == [
        "it: 2 settings tried: 0 reach accuracy 0.6; 1 do not, or are ended as too late; 1 diverged",
        "none of them gets there; the highest accuracy was 0.4: lower the target, or widen the space",
    ]


def test_a_limit_that_nobody_keeps_is_a_sentence(study_file, tmp_path):
    """The clock rules all of them out, nothing is trained, and the answer says what to change."""
    space = "{algorithm.local_steps: [1, 2], algorithm.lr: [0.1, 0.2]}"
    path = study_file(f"{SETTINGS}search: {{space: {space}, within: {{bits: 10}}}}\n")
    view = searched(path, tmp_path / "out")
    lines = list(view.lines())

    assert not list((tmp_path / "out").glob("runs/*"))
    assert "4 are too costly by the clock alone" in lines[0]
    assert lines[1].startswith("none of them gets there: raise a limit, ")
    assert view.trials["why_not"].str.contains("after a round, 10 bit allowed").all()
    assert Study.opened(tmp_path / "out").report().is_file(), "a search without finished runs has a page"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("search: {space: {}}", "search.space"),
        (
            "search: {space: {algorithm.lr: [1, 2]}}\ngrid: {algorithm.cohort: [1, 2]}",
            "takes the place of grid, got both",
        ),
        ("search: {space: {algorithm.lr: [1, 2]}, minimise: [time, time]}", "expected different costs"),
        ("search: {space: {algorithm.lr: [1, 2]}, minimise: tim}", "minimise"),
        ("search: {space: {algorithm.lr: [1, 2]}, maximise: accuracy}", "maximise: the limit is missing"),
        ("search: {space: {algorithm.lr: [1, 2]}, behind: 0.3}", "needs a target accuracy"),
        ("search: {space: {algorithm.lr: [1, 2]}, behind: 0.3, cap: null}", "minimise one cost, with a cap"),
        ("search: {space: {algorithm.lr: [1, 2]}, within: {time: -1}}", "within"),
        ("search: {space: {algorithm.lr: [1, x]}}", "algorithm.lr: expected a number, got 'x'"),
        ("search: {space: {algorithm.cohort: {low: 2, high: 90}}}", "must be at most devices.count, 4"),
        ("grid: {algorithm.lr: [1, 2]}", "nothing is searched, got no 'search'"),
    ],
)
def test_mistakes_are_told_before_anything_runs(study_file, text, what):
    """Each in a sentence that says what is wrong."""
    with pytest.raises(FednetError) as caught:
        load_search(StudyFile.read(study_file(f"{text}\n")))

    assert what in str(caught.value)


def test_a_study_that_is_searched_is_not_swept(study_file):
    """The sentence names the command."""
    path = study_file("search: {space: {algorithm.lr: [1, 2]}}\n")
    with pytest.raises(ScenarioError, match="fednet search study"):
        runs_of(path)


def test_a_timing_only_search_has_no_target(study_file):
    """Nothing is learnt that could reach it."""
    path = study_file(f"{SETTINGS}search: {{space: {{algorithm.lr: [1, 2]}}}}\n")
    with pytest.raises(FednetError, match="leave out target"):
        load_search(StudyFile.read(path), timing_only=True)
