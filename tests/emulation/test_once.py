"""A command reads each file once, validates a scenario once, and estimates its cost and its links once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fednet_emu as fe
from fednet_emu.cli.app import app
from fednet_emu.emulation import outlook
from fednet_emu.emulation.outlook import Cost
from fednet_emu.scenario.model import Scenario
from fednet_emu.study.file import StudyFile

RUN = ["--timing-only", "--no-plots", "--set", "stop.rounds=1"]
ONE_ROUND = {"stop.rounds": 1}
STUDY = "base: quickstart\ngrid: {algorithm.lr: [0.1]}\nseeds: 1\n"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter[str]:
    """How often each file of settings has been opened, and each kind of work has been done, since the test began."""
    count = Counter[str]()

    def counting(owner: Any, name: str, what: Callable[..., str]) -> None:
        before = getattr(owner, name)

        def do(*args: Any, **options: Any) -> Any:
            count[what(*args, **options)] += 1
            return before(*args, **options)

        monkeypatch.setattr(owner, name, do)

    counting(Path, "open", lambda path, *_, **__: path.name)
    counting(Cost, "of", lambda *_: "cost")
    counting(outlook, "links_at_start", lambda *_: "links")
    for model in (Scenario, StudyFile):
        counting(model, "model_validate", lambda *_, name=model.__name__: f"validated {name}")
    monkeypatch.chdir(tmp_path)
    return count


def only(count: Counter[str]) -> dict[str, int]:
    """The counts of settings' files, those of the run's records aside, and of work."""
    named = {its: times for its, times in count.items() if its.endswith(".yaml") or its in ONCE or "validated" in its}
    named.pop("scenario.yaml", None)
    return named


ONCE = {
    "quickstart.yaml": 1,
    "urban-micro.yaml": 1,
    "cortex-m4.yaml": 1,
    "validated Scenario": 1,
    "cost": 1,
    "links": 1,
}


@pytest.mark.parametrize("command", [["run", "quickstart", *RUN, "--out", "out"], ["check", "quickstart"]])
def test_a_command_does_everything_once(command: list[str], counted: Counter[str]) -> None:
    """Two file reads for two files and a profile, one validation, one estimate of the cost, one look at the links."""
    told = CliRunner().invoke(app, command)

    assert told.exit_code == 0, told.output
    assert only(counted) == ONCE


def test_python_does_everything_once(counted: Counter[str]) -> None:
    """In `fe.run` as in the command."""
    fe.run("quickstart", settings=ONE_ROUND, timing_only=True)

    assert only(counted) == ONCE


def test_a_scenario_that_was_checked_is_not_validated_again(counted: Counter[str]) -> None:
    """It is valid from the moment that it exists; a changed one is validated as a whole."""
    scenario = fe.check("quickstart", settings=ONE_ROUND)
    counted.clear()

    fe.run(scenario, timing_only=True)
    assert only(counted) == {"cost": 1, "links": 1}
    fe.run(scenario, seed=3, timing_only=True)
    assert counted["validated Scenario"] == 1


def test_a_study_is_read_and_validated_once(counted: Counter[str], tmp_path: Path) -> None:
    """Its file and the files of its base are read once; its only run is one scenario, whose cost is asked twice."""
    (tmp_path / "mine.yaml").write_text(STUDY)
    counted.clear()

    told = CliRunner().invoke(app, ["check", "mine"])

    assert told.exit_code == 0, told.output
    assert only(counted) == {**ONCE, "mine.yaml": 1, "validated StudyFile": 1, "cost": 2}


def test_what_contradicts_itself_is_found_in_a_scenario_of_python() -> None:
    """Its keys were validated when it was made; whether its parts go together is checked by the run."""
    scenario = fe.check("quickstart")
    few = scenario.devices.model_copy(update={"count": 3})

    with pytest.raises(
        fe.ScenarioError, match=r"^scenario  algorithm.cohort: .*, got 10; must be at most devices.count"
    ):
        fe.run(scenario.model_copy(update={"devices": few}))
