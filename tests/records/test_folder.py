"""The folder of a run, and its manifest."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from fednet_emu.errors import DataError
from fednet_emu.files.writing import PART
from fednet_emu.records.folder import (
    FINISHED,
    LEARNING,
    LOCK,
    STAGED,
    STATUSES,
    RunFolder,
    read_manifest,
    require_sound,
    tidy,
)

TEXT = "title: the scenario\n"
FRESH = ["manifest.json", "scenario.yaml"]


def names(path):
    """What is in a folder, but for its lock."""
    return sorted(entry.name for entry in path.iterdir() if entry.name != LOCK)


def create(path, text=TEXT, **kwargs):
    return RunFolder.create(path, text, **kwargs)


def check(path, text=TEXT, **kwargs):
    RunFolder.check(path, text, **kwargs)


def run_in(path, status, *, rewrite=True, **kwargs):
    folder = create(path, seed=3, **kwargs)
    if rewrite:
        folder.write_text("old.txt", "old")
    folder.end(status)
    if status in FINISHED:
        folder.settle()
    folder.release()


def test_a_table_comes_back_as_it_was(tmp_path):
    """Values, types and words survive the file."""
    table = pd.DataFrame({"ended_s": [0.5, math.nan], "loss_reason": pd.Categorical(["", "end"]), "size_bit": [1, 2]})
    create(tmp_path / "run").write_table("transfers", [table])

    again = pd.read_parquet(tmp_path / "run" / "transfers.parquet")
    assert again["ended_s"].tolist() == pytest.approx([0.5, math.nan], nan_ok=True)
    assert again["loss_reason"].tolist() == ["", "end"]
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
    folder.write_table("rounds", [pd.DataFrame({"round": [1]})])

    def die(*args, **_kwargs):
        args[-1].write(b"half")
        raise UnpluggedError

    monkeypatch.setattr("os.fsync", lambda _file: (_ for _ in ()).throw(UnpluggedError))
    monkeypatch.setattr("pyarrow.parquet.write_table", die)
    with pytest.raises(UnpluggedError):
        folder.write_json("summary.json", {"rounds": 2})
    with pytest.raises(UnpluggedError):
        folder.write_table("rounds", [pd.DataFrame({"round": [1, 2]})])

    assert names(tmp_path / "run") == [FRESH[0], "rounds.parquet", FRESH[1], "summary.json"]
    assert json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8")) == {"rounds": 1}
    assert len(pd.read_parquet(tmp_path / "run" / "rounds.parquet")) == 1


def test_a_finished_run_says_which_settings_differ(tmp_path):
    """Three of them by key, with the old and the new value, and whether training is left out."""
    run_in(tmp_path / "run", "done", text="seed: 1\nstop: {rounds: 3}\nlr: 0.1\nsame: [1, 2]\n")

    def told(text, **more):
        with pytest.raises(DataError) as caught:
            create(tmp_path / "run", text, **more)
        return str(caught.value).partition("finished run, with ")[2].partition(";  pass")[0].partition("; pass")[0]

    same = "seed: 1\nstop: {rounds: 3}\nlr: 0.1\nsame: [1, 2]\n"
    assert told(same) == "the same settings"
    assert told(same, timing_only=True) == "other settings (timing_only False, now True)"
    assert told(same.replace("3", "4")) == "other settings (stop.rounds 3, now 4)"
    assert told("seed: 2\nsame: [1]\n") == (
        "other settings (seed 1, now 2; same [1, 2], now [1]; lr 0.1, now None; ...)"
    )
    (tmp_path / "run" / "scenario.yaml").write_text("{")
    assert told("seed: 2\n") == "other settings (the notes of the run cannot be read)"


def test_a_finished_run_is_kept(tmp_path):
    """Without force it is an error that says what to do; with force it is replaced."""
    run_in(tmp_path / "run", "done")

    with pytest.raises(DataError) as caught:
        create(tmp_path / "run")
    assert str(caught.value) == (
        f"{tmp_path / 'run'}: holds a finished run, with the same settings; "
        "pass --force to replace it, or choose another --out"
    )
    assert names(tmp_path / "run") == [FRESH[0], "old.txt", FRESH[1]]

    run_in(tmp_path / "run", "done", force=True, text="title: the new one\n")
    assert names(tmp_path / "run") == [FRESH[0], "old.txt", FRESH[1]]
    assert (tmp_path / "run" / "scenario.yaml").read_text() == "title: the new one\n"


@pytest.mark.parametrize("status", STATUSES)
def test_a_folder_says_how_its_run_ended(tmp_path, status):
    """The status is that of the manifest; a folder without a run has none."""
    run_in(tmp_path / "run", status)

    assert RunFolder.status(tmp_path / "run") == status
    assert RunFolder.status(tmp_path) is None


@pytest.mark.parametrize("status", [status for status in STATUSES if status not in FINISHED])
def test_an_unfinished_run_is_replaced(tmp_path, status):
    """A run that died may be started again, and nothing of the first attempt is left when the second has ended."""
    run_in(tmp_path / "run", status)
    check(tmp_path / "run")

    folder = create(tmp_path / "run")
    assert names(tmp_path / "run") == [FRESH[0], "old.txt", FRESH[1]]
    folder.end("done")
    assert names(tmp_path / "run") == FRESH


def test_force_replaces_a_run_only_when_the_new_one_has_ended(tmp_path):
    """Until then the old one is there as it was, beside files of the user; these stay, and files of the old run go."""
    run, before = tmp_path / "run", {}
    run_in(run, "done")
    (run / "thesis.tex").write_text("three years of work", encoding="utf-8")
    before = {path.name: path.read_bytes() for path in run.iterdir()}

    folder = create(run, "title: another\n", force=True)
    folder.write_text("new.txt", "new")
    folder.end("failed")
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file() and path.name != LOCK} == before
    assert RunFolder.latest(run) == run / STAGED

    folder.end("done")
    folder.settle()
    folder.release()
    assert names(run) == [FRESH[0], "new.txt", FRESH[1], "thesis.tex"]
    assert RunFolder.latest(run) == run


def test_a_file_of_a_run_that_the_user_has_changed_is_the_users(tmp_path):
    """What an earlier attempt wrote is deleted only as it was written."""
    for name, text, kept in (("same", "old", False), ("changed", "a comment", True)):
        run_in(tmp_path / name, "failed")
        (tmp_path / name / "old.txt").write_text(text, encoding="utf-8")
        run_in(tmp_path / name, "done", text=TEXT, rewrite=False)
        assert ("old.txt" in names(tmp_path / name)) == kept


def test_a_manifest_may_name_no_files(tmp_path):
    """That of a run that has only begun: it is ours, and has none."""
    versions, status = {"fednet-emu": "0.1.0"}, next(iter(STATUSES))
    (tmp_path / "manifest.json").write_text(json.dumps({"versions": versions, "status": status}))

    assert read_manifest(tmp_path) == {"versions": versions, "status": status, "files": {}}


def test_a_manifest_cannot_reach_out_of_its_folder(tmp_path):
    """Names in it that lead elsewhere are left out: nothing there is deleted."""
    run_in(tmp_path / "run", "failed")
    (tmp_path / "thesis.tex").write_text("three years of work", encoding="utf-8")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    manifest["files"].update({"../thesis.tex": None, str(tmp_path / "thesis.tex"): None})
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))

    run_in(tmp_path / "run", "done")
    assert (tmp_path / "thesis.tex").exists()
    assert set(read_manifest(tmp_path / "run")["files"]) == {"old.txt", "scenario.yaml"}


@pytest.mark.parametrize("trace", [LOCK, f".manifest.json{PART}"])
def test_the_traces_of_a_killed_start_are_no_obstacle(tmp_path, trace):
    """A folder with nothing but a lock, or half a file of ours, is nobody's."""
    (tmp_path / trace).write_bytes(b"{")

    run_in(tmp_path, "done")
    assert names(tmp_path) == [FRESH[0], "old.txt", FRESH[1]]


def test_checking_touches_nothing(tmp_path):
    """The folder appears only when it is created, and what is there stays until then."""
    check(tmp_path / "new" / "run")
    run_in(tmp_path / "run", "failed")
    check(tmp_path / "run")

    assert names(tmp_path) == ["run"]
    assert names(tmp_path / "run") == [FRESH[0], "old.txt", FRESH[1]]


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


def test_a_link_stands_for_its_folder(tmp_path):
    """The run is written where the link leads, and the link stays."""
    run_in(tmp_path / "run", "failed")
    (tmp_path / "link").symlink_to(tmp_path / "run")

    run_in(tmp_path / "link", "done", rewrite=False)
    assert names(tmp_path / "run") == FRESH
    assert (tmp_path / "link").is_symlink()


def test_the_working_folder_will_do(tmp_path, monkeypatch):
    """`--out . --force` replaces the run in it, and the folder itself stays."""
    run_in(tmp_path / "run", "done")
    monkeypatch.chdir(tmp_path / "run")

    run_in(Path(), "done", force=True, rewrite=False)
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
    assert names(tmp_path / "run") == [FRESH[0], "old.txt", FRESH[1]]

    create(tmp_path / "run", "title: another\n", force=True)


def test_a_run_is_not_replaced_over_what_is_no_run(tmp_path):
    """With force the place where the new run is prepared must be free, or hold what another such run left there."""
    path = tmp_path / "run"
    run_in(path, "done")
    (path / STAGED).mkdir()
    (path / STAGED / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=f"{STAGED}: exists and is not a run folder"):
        check(path, force=True)

    (path / STAGED / "manifest.json").write_bytes((path / "manifest.json").read_bytes())
    check(path, force=True)


def test_a_run_that_cannot_begin_leaves_its_folder_to_others(tmp_path, monkeypatch):
    """The error is the disk's own, and the folder is unlocked again for whoever tries next."""

    def full(*_args):
        raise DataError("scenario.yaml", "cannot be written", "make room")

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "write_text", full)
        with pytest.raises(DataError, match="cannot be written; make room"):
            create(tmp_path / "run")

    assert not (tmp_path / "run" / LOCK).exists()
    create(tmp_path / "run").release()


def test_files_are_announced_while_the_run_goes_on(tmp_path):
    """Names are in the manifest before the files are there, and the run is still running."""
    folder = create(tmp_path / "run")
    folder.announce(["rounds.csv", "model.bin"])
    manifest = read_manifest(tmp_path / "run")

    assert manifest["status"] == "running"
    assert {"rounds.csv": None, "model.bin": None}.items() <= manifest["files"].items()


def test_what_a_run_has_learnt_goes_at_the_end(tmp_path):
    """A finished run has none of it; a link in its place is left alone, and what it leads to."""
    folder, elsewhere = create(tmp_path / "run"), tmp_path / "elsewhere"
    (tmp_path / "run" / LEARNING / "head").mkdir(parents=True)
    (tmp_path / "run" / LEARNING / "head" / "0.known").write_bytes(b"x")
    folder.end("done")
    folder.settle()
    assert not (tmp_path / "run" / LEARNING).exists()

    elsewhere.mkdir()
    (elsewhere / "mine").write_text("x")
    (tmp_path / "run" / LEARNING).symlink_to(elsewhere)
    tidy(tmp_path / "run")
    assert (elsewhere / "mine").exists()


def test_a_run_that_has_no_room_to_say_how_it_ended_has_failed(tmp_path, monkeypatch):
    """Where the manifest cannot be written anew, its status is changed in its place, and nothing else."""
    folder = create(tmp_path / "run", seed=3)
    before = read_manifest(tmp_path / "run")

    def full(*_args, **_kwargs):
        raise DataError("manifest.json", "cannot be written", "make room")

    monkeypatch.setattr(folder, "write_manifest", full)
    with pytest.raises(DataError, match="cannot be written; make room"):
        folder.end("interrupted")

    assert read_manifest(tmp_path / "run") == {**before, "status": "failed"}


def test_a_file_that_was_changed_or_deleted_is_refused(tmp_path):
    """The first file that is not what the run has written is named, and what to do about it."""
    folder = RunFolder.create(tmp_path, "title: the scenario\n")
    for name in ("a.txt", "b.txt"):
        folder.write_text(name, name)
    folder.end("done")
    require_sound(tmp_path, ["a.txt", "b.txt"])

    (tmp_path / "b.txt").write_text("something else")
    with pytest.raises(DataError, match=r"b\.txt: damaged, its content has changed since it was written; pray"):
        require_sound(tmp_path, ["a.txt", "b.txt"], "pray")
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError, match=r"a\.txt: no such file; run it again"):
        require_sound(tmp_path, ["a.txt", "b.txt"], "run it again")
