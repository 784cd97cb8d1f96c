"""Trackers: which are chosen, and what they hear."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import fednet_emu as fe
from fednet_emu.cli.app import app
from fednet_emu.component import plugins
from fednet_emu.emulation.play import play
from fednet_emu.errors import FednetError
from fednet_emu.federation.federation import Federation
from fednet_emu.testing import SMALL, run_small, small_scenario
from fednet_emu.tracking import Costs, Outcome, RunInfo
from fednet_emu.tracking.tracker import trackers_of
from fednet_emu.tracking.tracking import Listener, flat, metrics_of

COSTS = ["simulated_s", "uplink_bit", "downlink_bit", "sidelink_bit", "energy_j"]
CLASSES = ("data=digits", "evaluation.per_device=true")
"""Settings with which a model has all the scores."""


class Diary:
    """A tracker of one's own, which remembers what it hears."""

    def __init__(self) -> None:
        self.runs: list[RunInfo] = []
        self.points: list[tuple[Costs, dict[str, float]]] = []
        self.outcomes: list[Outcome] = []

    def start(self, run: RunInfo) -> None:
        """Note the run; one that is resumed will be told again from the start."""
        self.runs.append(run)
        self.points.clear()

    def log(self, metrics: Mapping[str, float], costs: Costs) -> None:
        self.points.append((costs, dict(metrics)))

    def end(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def table(self, *names: str) -> pd.DataFrame:
        """The points that have all these metrics, as rows with their costs."""
        rows = [{**costs._asdict(), **values} for costs, values in self.points if set(names) <= values.keys()]
        return pd.DataFrame(rows)[["round", *COSTS, *names]].reset_index(drop=True)


class Interruption(Diary):
    """A diary whose writer presses Ctrl-C when it hears of a round."""

    def __init__(self, round_: int) -> None:
        super().__init__()
        self.round = round_

    def log(self, metrics: Mapping[str, float], costs: Costs) -> None:
        super().log(metrics, costs)
        if costs.round == self.round:
            raise KeyboardInterrupt


def assert_equal(got: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Both have the same numbers in the same order, to the last bit."""
    pd.testing.assert_frame_equal(got, expected.reset_index(drop=True), check_dtype=False, rtol=0, atol=0)


def test_every_evaluation_and_round_is_heard_once_with_its_costs():
    """What a tracker hears are the run's own tables, among them evaluations between the rounds."""
    diary = Diary()
    run = fe.run(small_scenario(*CLASSES, "stop.rounds=5", "evaluation.every_s=0.2"), track=diary)

    evaluations, rounds = run.evaluations, run.rounds
    scores = ["loss", "accuracy", "worst_accuracy", "std_accuracy"]
    assert len(evaluations) > len(rounds) + 1
    assert_equal(diary.table(*scores), evaluations[["round", *COSTS, *scores]])
    heard = diary.table("rounds/duration_s", "rounds/invited", "rounds/arrived")
    assert heard["round"].tolist() == rounds["round"].tolist()
    assert heard["simulated_s"].tolist() == rounds["ended_s"].tolist()
    assert heard["rounds/duration_s"].tolist() == pytest.approx((rounds["ended_s"] - rounds["started_s"]).tolist())
    assert heard["rounds/arrived"].tolist() == rounds["arrived"].tolist()
    assert diary.table("loss")["uplink_bit"].iloc[-1] == run.summary["uplink_bit"]


def test_start_and_end_say_what_was_run_and_what_came_of_it(tmp_path):
    """Settings have their paths, and at the end all files of the run folder are there."""
    diary = Diary()
    run = fe.run(small_scenario("stop.rounds=2"), out=tmp_path / "run", seed=7, track=[diary])

    (info,), (outcome,) = diary.runs, diary.outcomes
    assert (info.seed, info.name, info.folder, info.resumed) == (7, run.name, tmp_path / "run", False)
    assert info.parameters["stop.rounds"] == 2
    assert info.parameters == flat(run.scenario.model_dump(mode="json"))
    assert (outcome.status, outcome.reason) == ("done", "")
    assert outcome.summary["event_digest"] == run.digest
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == outcome.summary
    assert {path.name for path in outcome.files} >= {"scenario.yaml", "summary.json", "evaluations.parquet", "log.txt"}


def test_a_run_is_the_same_with_and_without_trackers(tmp_path):
    """Neither the digest nor a table differs."""
    scenario = small_scenario("stop.rounds=4", "evaluation.every_s=0.2")
    fe.run(scenario, out=tmp_path / "with", track=Diary())
    fe.run(scenario, out=tmp_path / "without")

    digests = [fe.open(tmp_path / name).digest for name in ("with", "without")]
    assert digests[0] == digests[1]
    tables = sorted(path.name for path in (tmp_path / "without").glob("*.parquet"))
    assert len(tables) >= 6
    for name in tables:
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()


def test_a_timing_only_run_has_rounds_but_no_scores():
    """Costs and rounds need no training."""
    diary = Diary()
    fe.run(small_scenario("stop.rounds=3"), timing_only=True, track=diary)

    assert {name for _, values in diary.points for name in values} == {
        "rounds/duration_s",
        "rounds/invited",
        "rounds/arrived",
    }
    assert [costs.round for costs, _ in diary.points] == [1, 2, 3]


def test_what_belongs_to_one_moment_is_told_together():
    """The end of a round, its evaluation and a series make one row; a second row of the series makes another."""
    fed = run_small("stop.rounds=1")
    told: list[tuple[dict[str, float], int]] = []
    listener = Listener(fed.ledger, fed.clock, lambda metrics, costs: told.append((dict(metrics), costs.round)))
    fed.ledger.record("gap", step=1, simulated_s=1.0, gap=0.5, kind="text", nothing=math.nan)
    fed.ledger.record("size", round=1, members=3)
    fed.ledger.record("size", round=1, members=4)
    listener.close()
    fed.ledger.record("size", round=1, members=5)

    assert told == [({"gap/gap": 0.5, "size/members": 3.0}, 1), ({"size/members": 4.0}, 1)]


@pytest.mark.parametrize("row", [{"device": 3, "staleness": 1}, {"i": 0, "j": 1, "weight": 0.5}, {"members": [1, 2]}])
def test_rows_about_single_devices_stay_in_their_tables(row: dict[str, Any]):
    """A thousand devices make one table, not a thousand metrics."""
    assert dict(metrics_of("series", row)) == {}


def test_a_resumed_run_tells_everything_again_under_its_id(tmp_path):
    """After Ctrl-C the same call has the same id, and what it tells is the whole of an undisturbed run."""
    scenario = small_scenario("stop.rounds=6", "training.checkpoint_s=1.0e-9")
    whole = Diary()
    fe.run(scenario, track=whole)
    diary = Interruption(3)
    with pytest.raises(KeyboardInterrupt):
        fe.run(scenario, out=tmp_path / "run", track=diary)
    again = Diary()
    fe.run(scenario, out=tmp_path / "run", track=again)

    assert [outcome.status for outcome in diary.outcomes] == ["interrupted"]
    assert diary.points == whole.points[: len(diary.points)]
    assert (again.runs[0].id, again.runs[0].resumed) == (diary.runs[0].id, True)
    assert again.points == whole.points


def test_a_forced_run_is_another_one(tmp_path):
    """`--force` gives a new id; the folder that trackers write to is the final one from the start."""
    scenario, diary = small_scenario("stop.rounds=1"), Diary()
    fe.run(scenario, out=tmp_path / "run", track=diary)
    fe.run(scenario, out=tmp_path / "run", track=diary, force=True)

    first, second = diary.runs
    assert first.id != second.id
    assert (second.folder, second.resumed) == (tmp_path / "run", False)
    assert {path.parent for path in diary.outcomes[1].files} == {tmp_path / "run"}


def test_a_crash_is_told():
    """A tracker hears of a failure and its reason."""
    diary = Diary()

    def crash(fed: Federation) -> None:
        raise ZeroDivisionError("no way")

    with pytest.raises(ZeroDivisionError):
        play(small_scenario("stop.rounds=2"), "small", None, on_round=crash, track=[diary])

    assert [(end.status, end.reason) for end in diary.outcomes] == [("failed", "ZeroDivisionError: no way")]


@pytest.mark.parametrize("method", ["log", "end"])
def test_a_tracker_that_fails_does_not_disturb_the_run(method: str, monkeypatch: pytest.MonkeyPatch):
    """The run is done, one warning says what happened, and the other tracker hears everything."""
    broken, diary, calls = Diary(), Diary(), []

    def fail(*_given: object) -> None:
        calls.append(method)
        raise OSError("no room")

    monkeypatch.setattr(broken, method, fail)
    with pytest.warns(UserWarning, match="track: Diary failed, got OSError: no room; the run continues without it"):
        run = fe.run(small_scenario("stop.rounds=3"), track=[broken, diary])

    assert run.summary["status"] == "done"
    assert calls == [method]
    assert len(diary.table("loss")) == len(run.evaluations)


def test_a_tracker_that_cannot_start_ends_the_run_before_it_begins(monkeypatch: pytest.MonkeyPatch):
    """Those that have started hear that the run has failed."""
    broken, diary = Diary(), Diary()
    monkeypatch.setattr(broken, "start", lambda _run: {}["url"])
    with pytest.raises(FednetError, match="track: Diary cannot start, got KeyError: 'url'; correct it, or omit it"):
        fe.run(small_scenario("stop.rounds=3"), track=[diary, broken])

    assert [outcome.status for outcome in diary.outcomes] == ["failed"]
    assert diary.points == []


def test_the_folder_keeps_the_id(tmp_path: Path):
    """The id is in a file of its own, named in the manifest; damage to it makes another run, not a failure."""
    diary = Interruption(1)
    scenario = small_scenario("stop.rounds=2")
    with pytest.raises(KeyboardInterrupt):
        fe.run(scenario, out=tmp_path / "run", track=diary)
    note = tmp_path / "run" / "tracking.json"
    assert json.loads(note.read_text()) == {"id": diary.runs[0].id}
    note.write_text("[]")
    again = Diary()
    fe.run(scenario, out=tmp_path / "run", track=again)

    assert (again.runs[0].resumed, again.runs[0].id == diary.runs[0].id) == (False, False)
    assert "tracking.json" in json.loads((tmp_path / "run" / "manifest.json").read_text())["files"]


NOTING = """
import json


class Noting:
    def start(self, run):
        self.run, self.points = run, 0

    def log(self, metrics, costs):
        self.points += 1

    def end(self, outcome):
        told = {"group": self.run.group, "name": self.run.name, "seed": self.run.seed, "points": self.points}
        (self.run.store / f"note-{self.run.id}.json").write_text(json.dumps({**told, "status": outcome.status}))


class Demanding(Noting):
    def __init__(self, url):
        self.url = url
"""


@pytest.fixture
def noting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The import path of a tracker that writes what it has heard into the study's folder."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "noting.py").write_text(NOTING)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"), prepend=":")
    return "noting:Noting"


def test_an_import_path_is_a_tracker(noting: str, tmp_path: Path):
    """A class of one's own needs no more than its path, also on the command line."""
    (tmp_path / "small.yaml").write_text(SMALL)
    out = tmp_path / "run"
    command = ["run", str(tmp_path / "small.yaml"), "--out", str(out), "--quiet", "--no-plots", "--track", noting]
    told = CliRunner().invoke(app, command)

    assert told.exit_code == 0, told.output
    (note,) = [json.loads(path.read_text()) for path in out.glob("note-*.json")]
    assert note == {"group": "small", "name": "small", "seed": 0, "points": 4, "status": "done"}


@pytest.mark.usefixtures("cells_here")
def test_every_cell_of_a_study_is_a_run_of_its_own(noting: str, tmp_path: Path):
    """The group is the study, whose folder all trackers share."""
    study = fe.sweep(small_scenario("stop.rounds=2"), seeds=3, out=tmp_path / "study", workers=1, track=noting)

    notes = [json.loads(path.read_text()) for path in (tmp_path / "study").glob("note-*.json")]
    assert sorted(note["seed"] for note in notes) == [0, 1, 2]
    assert {(note["group"], note["points"], note["status"]) for note in notes} == {("A small federation", 3, "done")}
    assert len({note["name"] for note in notes}) == 3
    assert not study.failures


def test_an_installed_package_may_offer_a_tracker(noting: str, monkeypatch: pytest.MonkeyPatch):
    """An entry point `tracker.<name>` gives it a short name."""
    point = EntryPoint("tracker.notes", noting, plugins.GROUP)
    monkeypatch.setattr(plugins, "offers", lambda: {"tracker": {"notes": (point,)}})
    monkeypatch.setattr("fednet_emu.tracking.tracker.offers", plugins.offers)

    assert type(trackers_of("notes")[0]).__name__ == "Noting"


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ("tensorbord", "track: no such tracker, got 'tensorbord'; did you mean 'tensorboard'?"),
        ("neptune", "track: no such tracker, got 'neptune'; give one of tensorboard, mlflow, wandb, or package"),
        (["noting:Noting", "noting:Noting"], "track: each tracker once, got 'noting:Noting' 2 times; leave one"),
        (3, "track: expected a tracker or several, got 3; see docs/guides/trackers.md"),
        ([3], "track: expected a tracker, got one without start, log, end (3); see docs/guides/trackers.md"),
        ([dict], "track: expected a tracker, got a class (<class 'dict'>); see docs/guides/trackers.md"),
        ("noting:Demanding", "track: 'noting:Demanding' cannot be made without arguments, got TypeError: "),
    ],
)
def test_what_is_no_tracker_is_refused(chosen: object, problem: str, noting: str):
    """One sentence says what was wrong, before anything runs."""
    with pytest.raises(FednetError) as error:
        fe.run(small_scenario(), track=chosen)

    assert str(error.value).startswith(problem)


def test_the_command_ends_with_exit_code_2_before_it_runs(tmp_path: Path):
    """A mistake costs no time and leaves no folder."""
    told = CliRunner().invoke(app, ["run", "quickstart", "--out", str(tmp_path / "run"), "--track", "neptune"])

    assert told.exit_code == 2
    assert "track: no such tracker, got 'neptune'" in told.stderr
    assert not (tmp_path / "run").exists()
