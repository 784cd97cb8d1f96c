"""Trackers are chosen by name, by import path, as entry points or as objects; cells of a study have their own."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fednet_emu as fe
from fednet_emu.cli.app import app
from fednet_emu.component import plugins
from fednet_emu.errors import FednetError
from fednet_emu.testing import SMALL, small_scenario
from fednet_emu.tracking.tracker import trackers_of

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
