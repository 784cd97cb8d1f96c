"""Claims about the run folder: whole files or none, and nothing is overwritten by accident."""

import json
import math
import os
from pathlib import Path

import pandas as pd
import pytest

from fednet_emu.errors import DataError
from fednet_emu.records.store import FINISHED, LOCK, STATUSES, RunFolder

TEXT = "title: the scenario\n"
FRESH = ["manifest.json", "scenario.yaml"]


def names(path):
    """What is in a folder, but for its lock."""
    return sorted(entry.name for entry in path.iterdir() if entry.name != LOCK)


def create(path, text=TEXT, **kwargs):
    """A folder for a run of a scenario."""
    return RunFolder.create(path, text, **kwargs)


def check(path, text=TEXT, **kwargs):
    """Whether that would be allowed."""
    RunFolder.check(path, text, **kwargs)


def run_in(path, status, **kwargs):
    """A folder that a run left."""
    folder = create(path, **kwargs)
    folder.write_text("log.txt", "old")
    folder.write_manifest(status, seed=3, timing_only=False)
    folder.release()


def test_a_table_comes_back_as_it_was(tmp_path):
    """Values, types and words survive the file."""
    table = pd.DataFrame({"ended_s": [0.5, math.nan], "lost": pd.Categorical(["", "end"]), "size_bit": [1, 2]})
    create(tmp_path / "run").write_table("transfers", table)

    again = pd.read_parquet(tmp_path / "run" / "transfers.parquet")
    assert again["ended_s"].tolist() == pytest.approx([0.5, math.nan], nan_ok=True)
    assert again["lost"].tolist() == ["", "end"]
    assert again["size_bit"].dtype == "int64"


def test_the_manifest_says_what_ran(tmp_path):
    """Status, facts, versions and host; all readable as JSON."""
    run_in(tmp_path / "run", "done")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))

    assert (manifest["status"], manifest["seed"]) == ("done", 3)
    assert {"fednet-emu", "torch", "numpy", "simpy"} <= manifest["versions"].keys()
    assert {"system", "python", "cores"} == manifest["host"].keys()


def test_what_is_not_a_number_is_null(tmp_path):
    """Every JSON reader reads the summary, NaN and infinities and all."""
    content = {"accuracy": math.nan, "nested": {"best": [1.5, math.inf]}, "rounds": 3, "name": "x", "verified": True}
    create(tmp_path / "run").write_json("summary.json", content)

    text = (tmp_path / "run" / "summary.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == {
        "accuracy": None,
        "nested": {"best": [1.5, None]},
        "rounds": 3,
        "name": "x",
        "verified": True,
    }


class UnpluggedError(Exception):
    """The writer dies in the middle."""


def test_a_failing_write_leaves_the_old_file(tmp_path, monkeypatch):
    """Whoever dies while writing leaves what was there before, and no half file."""
    folder = create(tmp_path / "run")
    folder.write_json("summary.json", {"rounds": 1})
    folder.write_table("rounds", pd.DataFrame({"round": [1]}))

    def die(*args, **_kwargs):
        path = next(arg for arg in args if isinstance(arg, os.PathLike))
        with open(path, "wb") as half:
            half.write(b"half")
        raise UnpluggedError

    monkeypatch.setattr("pathlib.Path.write_text", die)
    monkeypatch.setattr("pyarrow.parquet.write_table", die)
    with pytest.raises(UnpluggedError):
        folder.write_json("summary.json", {"rounds": 2})
    with pytest.raises(UnpluggedError):
        folder.write_table("rounds", pd.DataFrame({"round": [1, 2]}))

    assert names(tmp_path / "run") == [FRESH[0], "rounds.parquet", FRESH[1], "summary.json"]
    assert json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8")) == {"rounds": 1}
    assert len(pd.read_parquet(tmp_path / "run" / "rounds.parquet")) == 1


def test_a_value_that_json_cannot_hold_leaves_the_old_file(tmp_path):
    """The content is checked before anything is touched."""
    folder = create(tmp_path / "run")
    folder.write_json("summary.json", {"rounds": 1})

    with pytest.raises(TypeError):
        folder.write_json("summary.json", {"rounds": object()})
    assert json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8")) == {"rounds": 1}


def test_a_finished_run_is_kept(tmp_path):
    """Without force it is an error that says what to do; with force it is replaced."""
    run_in(tmp_path / "run", "done")

    with pytest.raises(DataError) as caught:
        create(tmp_path / "run")
    assert str(caught.value) == (
        f"{tmp_path / 'run'}: holds a finished run; pass --force to overwrite it, or choose another --out"
    )
    assert names(tmp_path / "run") == ["log.txt", *FRESH]

    create(tmp_path / "run", force=True)
    assert names(tmp_path / "run") == FRESH


@pytest.mark.parametrize("status", [status for status in STATUSES if status not in FINISHED])
def test_an_unfinished_run_is_replaced(tmp_path, status):
    """A run that died may be started again, and nothing of it is left."""
    run_in(tmp_path / "run", status)
    check(tmp_path / "run")

    create(tmp_path / "run")
    assert names(tmp_path / "run") == FRESH


def test_checking_touches_nothing(tmp_path):
    """The folder appears only when it is created, and what is there stays until then."""
    check(tmp_path / "new" / "run")
    run_in(tmp_path / "run", "failed")
    check(tmp_path / "run")

    assert names(tmp_path) == ["run"]
    assert names(tmp_path / "run") == ["log.txt", *FRESH]


def test_an_empty_folder_will_do(tmp_path):
    """Parents are made as needed, and an empty folder is nobody's."""
    (tmp_path / "empty").mkdir()

    assert create(tmp_path / "empty").path.is_dir()
    assert create(tmp_path / "a" / "b").path.is_dir()


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "manifest",
    [
        None,
        "{",
        "[]",
        '{"name": "a web page", "version": "1"}',
        '{"status": "running"}',
        '{"status": 3, "versions": {}}',
    ],
)
def test_somebody_elses_folder_is_never_deleted(tmp_path, manifest, force):
    """Not even with force, and not when it holds a manifest of its own, as web pages do."""
    (tmp_path / "thesis.tex").write_text("three years of work", encoding="utf-8")
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest, encoding="utf-8")

    with pytest.raises(DataError, match="exists and is not a run folder; choose another --out"):
        create(tmp_path, force=force)
    assert (tmp_path / "thesis.tex").read_text(encoding="utf-8") == "three years of work"


def test_a_file_is_no_folder(tmp_path):
    """A file of that name, or above it, is an error and stays."""
    (tmp_path / "file").write_text("x", encoding="utf-8")

    with pytest.raises(DataError, match="exists and is not a run folder"):
        create(tmp_path / "file")
    with pytest.raises(DataError, match=r"cannot be made \(Not a directory\); choose another --out"):
        create(tmp_path / "file" / "run")


def test_a_link_stands_for_its_folder(tmp_path):
    """The run is written where the link leads, and the link stays."""
    run_in(tmp_path / "run", "failed")
    (tmp_path / "link").symlink_to(tmp_path / "run")

    create(tmp_path / "link")
    assert names(tmp_path / "run") == FRESH
    assert (tmp_path / "link").is_symlink()


def test_the_working_folder_will_do(tmp_path, monkeypatch):
    """`--out . --force` replaces the run in it, and the folder itself stays."""
    run_in(tmp_path / "run", "done")
    monkeypatch.chdir(tmp_path / "run")

    create(Path(), force=True)
    assert names(tmp_path / "run") == FRESH


def test_two_runs_never_share_a_folder(tmp_path):
    """While a run writes, a second one is refused, with force too; afterwards the folder is free again."""
    first = create(tmp_path / "run")
    with pytest.raises(DataError, match="is being written by another run"):
        create(tmp_path / "run", force=True)

    first.release()
    assert create(tmp_path / "run").path == tmp_path / "run"


@pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
def test_an_unfinished_run_of_another_scenario_is_kept(tmp_path, status):
    """What it has measured goes only when told so."""
    run_in(tmp_path / "run", status)

    with pytest.raises(DataError, match="holds an unfinished run of another scenario; pass --force"):
        create(tmp_path / "run", "title: another\n")
    with pytest.raises(DataError, match="holds an unfinished run of another scenario; pass --force"):
        create(tmp_path / "run", timing_only=True)
    assert names(tmp_path / "run") == ["log.txt", *FRESH]

    create(tmp_path / "run", "title: another\n", force=True)
