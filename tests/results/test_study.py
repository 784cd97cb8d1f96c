"""Results of studies and searches."""

from __future__ import annotations

import gc
from dataclasses import replace

import pandas as pd
import pytest

import fednet_emu as fe
from fednet_emu.results.study import Search
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL
from tests.commands import fednet

pytestmark = pytest.mark.usefixtures("cells_here")

MAPPING = from_text(SMALL, "small").data
TDMA, OFDMA = "network.uplink.access=tdma", "network.uplink.access=ofdma"
GRID_LEVELS = ["tdma", "ofdma"]
GRID = {"network.uplink.access": GRID_LEVELS}


class Silent(fe.Algorithm):
    """An algorithm that only lets time pass."""

    pause_s: float

    def run(self, fed: fe.Federation) -> fe.Process:
        w = fed.initial_model()
        for _ in fed.rounds():
            yield fed.clock.sleep(self.pause_s)
            fed.end_of_round(w, invited=0, arrived=0)


@pytest.fixture(scope="module")
def study(cells_here):
    """Two access schemes, two seeds; tests only look at it."""
    return fe.sweep(MAPPING, grid=GRID, seeds=2, workers=2, settings={"stop.rounds": 2})


def test_a_sweep_has_a_row_for_each_cell(study):
    """Levels and seeds in the order of the grid; totals are those of the runs by themselves."""
    alone = fe.run(MAPPING, seed=1, settings={"stop.rounds": 2, "network.uplink.access": "ofdma"})

    assert list(study.runs["network.uplink.access"]) == ["tdma", "tdma", "ofdma", "ofdma"]
    assert list(study.runs["seed"]) == [0, 1, 0, 1]
    assert study.runs["simulated_s"].iloc[3] == alone.summary["simulated_s"]
    assert study.run(seed=1, **{"network.uplink.access": "ofdma"}).digest == alone.digest
    assert study.axes == GRID
    assert study.folder is None


def test_a_comparison_reads_and_counts(study):
    """The words of the command, and the numbers behind them; a limit may be a mapping."""
    told = study.compare(TDMA, OFDMA)
    runs = study.runs.set_index(["network.uplink.access", "seed"])["simulated_s"].unstack("seed")

    row = told.frame.set_index("quantity").loc["simulated_s"]
    assert row["difference"] == pytest.approx((runs.loc["ofdma"] - runs.loc["tdma"]).mean())
    assert str(told).splitlines()[:2] == [f"A: {TDMA}", f"B: {OFDMA}"]
    assert told._repr_html_().startswith("<pre>A: ")
    limited = study.compare(TDMA, OFDMA, within={"rounds": 1, "time": 1e9}).frame.set_index("quantity")
    assert limited.loc["energy_j", "a"] < told.frame.set_index("quantity").loc["energy_j", "a"]


def test_a_study_is_a_sequence_of_its_runs(study):
    """As many runs as finished runs, in the order of the table, also counted from the end."""
    assert len(study) == 4
    assert [run.digest for run in study] == [study[place].digest for place in (0, 1, 2, 3)]
    assert study[-1].digest == study.run(seed=1, **{"network.uplink.access": "ofdma"}).digest
    assert [run.seed for run in study] == list(study.runs["seed"])
    with pytest.raises(IndexError, match="no such run, got 4; there are 4, counted from 0"):
        study[4]


def test_a_part_of_a_study_is_a_study(study):
    """It has the runs of its levels, and no folder in which its page would replace that of the whole."""
    part = study[OFDMA]

    assert part.axes == {}
    assert [run.digest for run in part] == [run.digest for run in study][2:]
    assert study[{"network.uplink.access": "ofdma"}].runs.equals(part.runs)
    assert part.folder is None
    assert fe.compare(study[TDMA], part).frame["difference"].equals(study.compare(TDMA, OFDMA).frame["difference"])
    with pytest.raises(fe.FednetError, match=r"no such level of [a-z.]+, got 'ofdm'; did you mean 'ofdma'"):
        study["network.uplink.access=ofdm"]
    with pytest.raises(fe.FednetError, match="expected axis=level, got 'ofdma'"):
        study["ofdma"]


def test_the_folder_of_a_study_lives_as_long_as_its_parts():
    """A study without a folder may be forgotten while a part of it is read."""
    part = fe.sweep(MAPPING, grid=GRID, seeds=1, workers=1, settings={"stop.rounds": 1})[TDMA]
    gc.collect()

    assert part[0].rounds["arrived"].sum() > 0


def test_settings_may_be_mappings(study):
    """Two mappings compare as two texts do; a number is a level however it is written."""
    texts, mappings = study.compare(TDMA, OFDMA), study.compare(*({"network.uplink.access": k} for k in GRID_LEVELS))
    view = replace(study, axes={"band_hz": [1e6, 2e6]}, runs=study.runs.assign(band_hz=[1e6, 2e6, 1e6, 2e6]),
                   evaluations=study.evaluations.assign(band_hz=1e6))  # fmt: skip

    assert str(mappings) == str(texts)
    for text in ("2e6", "2000000", "2e+06", "2.0e6"):
        assert view.where({"band_hz": text}).runs["seed"].tolist() == [1, 1]
    with pytest.raises(fe.FednetError, match="no such level of band_hz, got '2e5'"):
        view.where({"band_hz": "2e5"})


def test_a_part_has_only_its_own_unfinished_cells(study):
    """What the other levels have not finished is none of its concern."""
    waiting = pd.DataFrame([
        {"network.uplink.access": access, "seed": 2, "run": f"{access}-2", "status": "waiting", "reason": ""}
        for access in GRID_LEVELS
    ])  # fmt: skip
    view = replace(study, missing=waiting, unfinished=list(waiting["run"]))

    assert list(view.where({"network.uplink.access": "ofdma"}).unfinished) == ["ofdma-2"]
    assert list(view.where({"network.uplink.access": "ofdma"}).missing["run"]) == ["ofdma-2"]


def test_a_study_reads_and_draws(study):
    """A line of text, a page with the mean of each setting, and a figure."""
    assert repr(study) == "<Study A small federation: 2 network.uplink.access; 4 runs done>"
    assert "<th>ofdma</th>" in study._repr_html_()
    assert len(study.plot("loss", against="energy").axes[0].lines) >= 2
    assert "loss-time" in study.figures()


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda study: study.compare("acess=tdma", OFDMA), "no such axis, got 'acess'"),
        (lambda study: study.compare(TDMA, "network.uplink.access=noma"), "no such level of network.uplink.access"),
        (lambda study: study.run(seed=0), "one run is needed, got 2 of these levels; name seed and levels"),
        (lambda study: study.plot("los"), "no such choice, got 'los'; did you mean 'loss'?"),
        (lambda _: fe.sweep(MAPPING, grid={"seed": [1]}), "give the seeds under 'seeds'"),
        (lambda _: fe.sweep(MAPPING, grid={"algorithm.lrr": [1]}), "algorithm.lrr: no such setting; did you mean 'lr'"),
        (lambda _: fe.sweep(MAPPING, grid={"stop.rounds": [1]}, settings={"stop.rounds": 2}), "is varied by the axis"),
        (lambda _: fe.sweep(MAPPING, seeds=[1, 1]), "seeds: expected a number above 0 or different numbers"),
        (lambda _: fe.sweep("quickstart_access", seeds=2), "seeds and target are in the study's file"),
    ],
)
def test_mistakes_are_told(study, call, problem):
    """The sentences of the command, as exceptions, before anything is run."""
    with pytest.raises(fe.FednetError, match=problem):
        call(study)


def test_a_study_in_a_folder_is_the_ordinary_one(tmp_path):
    """It opens again, its runs are not run again, and a run beside it opens as a run."""
    first = fe.sweep(MAPPING, grid=GRID, seeds=[4], settings={"stop.rounds": 1}, out=tmp_path / "study", workers=1)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")}
    again = fe.sweep(MAPPING, grid=GRID, seeds=[4], settings={"stop.rounds": 1}, out=tmp_path / "study", workers=1)
    opened = fe.open(tmp_path / "study")

    assert len(stamps) == 2
    assert stamps == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")}
    assert isinstance(opened, fe.Study)
    pd.testing.assert_frame_equal(opened.runs, first.runs)
    pd.testing.assert_frame_equal(again.runs, first.runs)
    assert isinstance(fe.open(next(iter(stamps)).parent), fe.Run)
    assert fe.compare(opened, tmp_path / "study").differences[0].is_none


def test_objects_that_only_this_process_has_are_swept_here():
    """A class from inside a function or notebook cannot be imported elsewhere; its runs run all the same."""

    class Local(Silent):
        pass

    study = fe.sweep(MAPPING, algorithm=Local(pause_s=2.0), grid={"stop.rounds": [1, 3]}, seeds=1)

    assert list(study.runs["simulated_s"]) == [2.0, 6.0]


def test_failed_cells_are_warned_of_and_kept():
    """The others count; the reason and what replays the cell are there."""
    with pytest.warns(UserWarning, match="1 of 2 runs failed, first devices.count=100, seed=0: partition: "):
        study = fe.sweep(MAPPING, grid={"devices.count": [4, 100]}, seeds=1, workers=1)

    assert len(study.runs) == 1
    (failure,) = study.failures
    assert failure.replay.startswith("fednet run ")
    assert "1 unfinished" in repr(study)


def test_check_channels_scenarios_and_schema():
    """What the commands tell, as values."""
    assert fe.check("quickstart", seed=5).seed == 5
    assert list(fe.channels(["ideal"])["rate_at_500_m_bps"]) == [1e6]
    assert "quickstart" in fe.scenarios()
    assert "algorithm" in str(fe.schema())


def test_the_package_shows_its_public_names_only():
    """What a user completes after `fe.` is what the documentation lists."""
    assert dir(fe) == sorted([*fe.__all__, "__version__"])
    assert all(hasattr(fe, name) for name in dir(fe))


def test_kinds_are_listed_with_what_they_are():
    """A slot by its name or by a key; all of them; every built-in kind has a sentence; close names are suggested."""
    access = fe.kinds("access")

    assert access["tdma"].startswith("One transmission at a time in a cell, in the order of requests, and always on")
    assert fe.kinds("network.uplink.access") == access == fe.kinds()["access"]
    assert fe.kinds("data").keys() == fe.kinds("dataset").keys()
    assert {"algorithm", "path_loss", "selection", "compression", "model"} <= fe.kinds().keys()
    untold = [(slot, kind) for slot, its in fe.kinds().items() for kind, text in its.items() if not text.endswith(".")]
    assert untold == []
    with pytest.raises(fe.ScenarioError, match="no such slot, got 'acess'; did you mean 'access'"):
        fe.kinds("acess")


SPACE = {"algorithm.lr": {"low": 0.01, "high": 0.2, "log": True}, "algorithm.local_steps": [1, 2, 4]}
ASKED = {"target": {"loss": 0.6}, "seeds": 2, "trials": 6, "settings": {"stop.rounds": 12, "channel": "urban-micro"}}


@pytest.fixture(scope="module")
def found(tmp_path_factory, cells_here):
    """A search in a folder; tests only look at it."""
    return fe.search(MAPPING, SPACE, out=tmp_path_factory.mktemp("search") / "out", workers=2, **ASKED)


def test_a_search_tells_trials_best_and_importance(found):
    """The best settings are by name, in the order of the means of their runs; shares are numbers up to 1."""
    assert isinstance(found, fe.Search)
    assert len(found.trials) == 6
    assert set(found.best[0]) == set(SPACE)
    means = [found.runs[number][:, 0].mean() for number in found.finalists]
    assert means == sorted(means)
    assert set(found.importance) <= set(SPACE)
    assert all(0 <= share <= 1 for share in found.importance.values())


def test_words_name_counts_places_and_files(found):
    """As many settings as were tried, a line for each finalist with its file."""
    lines = found.lines()

    assert lines[0].startswith("A small federation: 6 settings tried: ")
    for place, best in enumerate(found.best, 1):
        line = next(line for line in lines if line.startswith(f" {place}. "))
        assert f"algorithm.local_steps={best['algorithm.local_steps']}" in line
        assert line.endswith(f"best/{place}.yaml")
        again = fe.run(found.folder / "best" / f"{place}.yaml")
        reached = again.evaluations[again.evaluations["loss"] <= 0.6]["simulated_s"].iloc[0]
        assert reached == pytest.approx(found.runs[found.finalists[place - 1]][0, 0])


def test_what_remained_is_a_study(found):
    """With its rankings, figures and page."""
    study = found.study

    assert list(study.axes) == ["setting"]
    assert len(study.axes["setting"]) == len(found.best)
    assert study.best().best[0] == {"setting": found.trials.set_index("trial")["setting"][found.finalists[0]]}
    assert "studySearch" in study.report(found.folder / "page.html").read_text(encoding="utf-8")


def test_the_figure_has_every_trial(found):
    """A point for each that got there, at its cost, and a cross for each other."""
    axes = found.plot().axes[0]
    drawn = {line.get_label(): line.get_xdata() for line in axes.get_lines()}
    known = found.trials["time"].notna()

    assert list(drawn["trial"]) == found.trials["trial"][known].tolist()
    assert list(drawn["not there"]) == found.trials["trial"][~known].tolist()


def test_a_search_without_a_folder_leaves_none_behind():
    """The temporary folder goes with the last object that reads from it: here the study of its finalists."""
    found = fe.search(MAPPING, SPACE, workers=1, minimise=("time", "bits"), **ASKED | {"trials": 3, "seeds": 1})
    folder, study = found.home.path, found.study

    assert found.folder is None
    assert len(found.plot().axes) == 1
    assert "time" in str(found)
    assert "bits" in found._repr_html_()
    del found
    assert folder.exists()
    assert study[0].status == "done"
    del study
    assert not folder.exists()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"space": None}, "a scenario needs a space, got none"),
        ({"space": {}}, "a scenario needs a space, got none"),
        ({"minimise": "tim"}, "minimise"),
        ({"maximise": "accuracy", "within": {"time": 1}}, "target: is not for search.maximise"),
        ({"within": {"energy": 0}}, "within"),
        ({"space": {"algorithm.lrr": [1, 2]}}, "algorithm.lrr: no such setting"),
        ({"settings": {"algorithm.lr": 1}}, "is varied by the axis 'algorithm.lr'"),
        ({"timing_only": True}, "a timing-only run learns nothing"),
    ],
)
def test_mistakes_are_sentences(options, what):
    """Before anything runs."""
    with pytest.raises(fe.FednetError) as caught:
        fe.search(MAPPING, **{"space": SPACE, **ASKED, **options})

    assert what in str(caught.value)


def test_what_a_file_says_is_not_said_again():
    """The file of a study has space, target and seeds."""
    with pytest.raises(fe.FednetError, match="grid, seeds and target are in the study's file"):
        fe.search("quickstart_search", seeds=3)


def test_a_folder_without_a_search_is_a_sentence(tmp_path):
    """It says which command writes one."""
    with pytest.raises(fe.DataError, match="give the folder that `fednet search` wrote"):
        Search.opened(tmp_path)


def test_the_command_ends_with_two_for_a_mistake(tmp_path):
    """And with a sentence, not a traceback."""
    ended = fednet("search", "quickstart_access", "--out", tmp_path / "out")

    assert ended.exit_code == 2
    assert (
        ended.stderr.strip()
        == "quickstart_access: nothing is searched, got no 'search'; fednet sweep quickstart_access"
    )
    assert not (tmp_path / "out").exists()
