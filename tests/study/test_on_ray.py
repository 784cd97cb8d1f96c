"""The same runs on Ray: `pip install 'fednet-emu[ray]'`, then `make test-ray`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from fednet_emu.errors import FednetError
from fednet_emu.study.file import StudyFile
from fednet_emu.study.runners import run_locally, run_on_ray
from fednet_emu.study.runs import runs_of
from fednet_emu.study.search.search import load_search, search
from fednet_emu.study.sweep import sweep

with_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'fednet-emu[ray]'")


def test_a_missing_ray_is_told_with_its_remedy(study_file, monkeypatch):
    """The error names the extra that brings it."""
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(FednetError, match=r"Ray is not installed; pip install 'fednet-emu\[ray\]'"):
        next(run_on_ray([], None, 1))


@with_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_tables_are_those_of_a_local_sweep(study_file, moods, tmp_path, monkeypatch):
    """Good runs give tables equal to the byte; bad ones, also one that never ends, fail for the same reasons.

    Three minutes are a hundred times what the good ones take.
    """
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    path = study_file(moods("calm", "raises", "hangs") + "seeds: 1\nlimits: {time_s: 180, memory_mb: 2000}\n")
    sweep(runs_of(path), tmp_path / "local", lambda tasks: run_locally(tasks, 2))
    progress = sweep(runs_of(path), tmp_path / "ray", lambda tasks: run_on_ray(tasks, None, 2))

    assert progress.failures == {1: "ZeroDivisionError: no way", 2: "took longer than limits.time_s, 180 s"}
    for name in ("study.parquet", "runs.parquet"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


@with_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_search_is_that_of_one_worker_here(study_file, tmp_path, monkeypatch):
    """Trials, proposals that follow from them, and the race are equal to the byte."""
    pytest.importorskip("optuna")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    space = "{algorithm.local_steps: {low: 1, high: 5}, algorithm.lr: {low: 0.01, high: 0.2, log: true}}"
    path = study_file(f"target: {{loss: 0.6}}\nseeds: 3\nsearch: {{space: {space}, trials: 6, finalists: 2}}\n")
    loaded = load_search(StudyFile.read(path))
    search(loaded, tmp_path / "local", lambda tasks: run_locally(tasks, 1))
    search(loaded, tmp_path / "ray", lambda tasks: run_on_ray(tasks, None, 2))

    for name in ("trials.csv", "search.json", "study.parquet", "runs.parquet"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


@with_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_wrong_address_is_a_mistake():
    """A cluster that is not there is an error in one sentence."""
    with pytest.raises(FednetError, match="--ray: no cluster can be used"):
        next(run_on_ray([], "nowhere:nothing", None))
