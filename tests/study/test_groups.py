"""Runs of a study that learn the same: how many programs there are, and in which order they run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fednet_emu.scenario.document import from_text
from fednet_emu.study import runners
from fednet_emu.study.file import StudyFile
from fednet_emu.study.runners import Event, Outcome, Queue, run_here, run_locally
from fednet_emu.study.runs import StudyRun, runs_of
from fednet_emu.study.sweep import sweep
from fednet_emu.testing import SMALL

NETWORKS = {"channel.rate.bit_rate_bps": [1e5, 1e6, 1e7], "algorithm.lr": [0.1, 0.2]}


def runs(grid: dict[str, Any], seeds: int = 2, **more: Any) -> list[StudyRun]:
    """The runs of a small study."""
    return runs_of(
        StudyFile.of("small", from_text(SMALL, "small"), {"base": "small", "grid": grid, "seeds": seeds}), **more
    )


def test_networks_are_one_program_and_what_is_learnt_makes_others() -> None:
    """Three rates, two step sizes and two seeds are at least four programs; deadlines may make more."""
    assert len({run.program for run in runs(NETWORKS)}) == 4
    assert len({run.program for run in runs({"algorithm.deadline_s": [0.01, 1.0]}, 1)}) == 1
    assert {run.program for run in runs(NETWORKS, timing_only=True)} == {""}
    (run,) = runs({"algorithm": [{"kind": "fedasync", "alpha": 0.6, "lr": 0.2, "local_steps": 4}]}, 1)
    assert (run.group, bool(run.program)) == ("", True)


class Job:
    """A job of a group."""

    def __init__(self, group: str) -> None:
        self.group = group


def test_the_first_of_a_group_runs_alone_then_the_others_together() -> None:
    """Jobs without a group, and the first of other groups, do not wait."""
    queue = Queue([Job(group) for group in ("a", "a", "b", "", "a", "b")])  # type: ignore[arg-type]

    assert [queue.next() for _ in range(4)] == [0, 2, 3, None]
    queue.ended(2)
    assert [queue.next(), queue.next()] == [5, None]
    queue.ended(0)
    assert [queue.next(), queue.next(), queue.next()] == [1, 4, None]
    assert not queue


def test_workers_wait_for_the_first_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """With four workers: one run, then the three others at once; a failure of the first frees them, too."""
    order: list[str] = []

    class Instant:
        """An attempt that ends at the third look."""

        def __init__(self, job: Any) -> None:
            order.append(f"begin {job.name}")
            self.results, self._looks, self._job = None, 0, job

        def poll(self) -> Outcome | None:
            """Ended, or not yet."""
            self._looks += 1
            if self._looks < 3:
                return None
            order.append(f"end {self._job.name}")
            return Outcome("failed")

        def stop(self) -> None:
            """Nothing."""

    jobs: Any = [Job("a") for _ in range(4)]
    for number, job in enumerate(jobs):
        job.name = number
    monkeypatch.setattr(runners, "Attempt", Instant)
    monkeypatch.setattr(runners.connection, "wait", lambda *_: None)
    events: Iterator[Event] = run_locally(jobs, 4)

    assert len(list(events)) == 8
    assert order[:5] == ["begin 0", "end 0", "begin 1", "begin 2", "begin 3"]


@pytest.mark.parametrize("reuse", ["true", "false"])
def test_a_study_trains_one_seed_per_program(reuse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twelve runs four train, and leave their learning in the study's folder, none in their own."""
    summaries: list[dict[str, Any]] = []
    from fednet_emu.study import runners

    real = runners.play

    def noted(*args: Any, **more: Any) -> Any:
        ended = real(*args, **more)
        summaries.append(ended.summary)
        return ended

    monkeypatch.setattr(runners, "play", noted)
    sweep(runs(NETWORKS, overrides=[f"training.reuse={reuse}"]), tmp_path / "study", run_here)

    trained = sum(summary["trained_jobs"] for summary in summaries)
    assert [len(summaries), trained] == [12, 4 * 12 if reuse == "true" else 12 * 12]
    assert (tmp_path / "study" / "learning").is_dir() == (reuse == "true")
    assert not list((tmp_path / "study").glob("runs/*/learning"))
