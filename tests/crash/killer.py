"""Kills a run or a sweep before each of its file operations in turn, gives the same command again, and compares.

    python killer.py STORY FOLDER [EVERY] [SEED]

A story is a folder to begin with and a command. It is told once undisturbed, and then once for each operation that
changes the folder (every `EVERY`-th, from a random one on): a child is killed by SIGKILL before the operation, and
another gives the same command again. With a SEED, one in two is killed a second time on its way. Prints one line of
JSON for each kill: the operation, and what is wrong afterwards. Children are forked from this process, which has
imported everything and runs nothing itself.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fednet_emu.emulation import store
from fednet_emu.emulation.play import play
from fednet_emu.errors import DataError
from fednet_emu.federation.federation import Federation
from fednet_emu.files.data_folder import checksum
from fednet_emu.records.folder import FINISHED, LEARNING, read_manifest
from fednet_emu.scenario.document import from_text
from fednet_emu.study.file import StudyFile
from fednet_emu.study.runners import run_here
from fednet_emu.study.runs import runs_of
from fednet_emu.study.sweep import sweep
from fednet_emu.testing import SMALL, small_scenario

Act = Callable[[Path], Any]

CHANGES = ("stop.rounds=6", "evaluation.every_rounds=2", "training.checkpoint_s=1e-9")
BESIDE = (
    "traffic=[{name: phones, users: 3, size: {kind: fixed, byte: 20}, gap: {kind: exponential, mean_s: 0.002}}, {name: "
    "pages, direction: downlink, size: {kind: fixed, byte: 20}, gap: {kind: fixed, mean_s: 0.001}, after: end}]",
    "network.slices={fl: {priority: 1, min: 0.2}, others: {max: 0.9}}",
    *("network.uplink.access=ofdma", "network.downlink.access=ofdma"),
)
"""Other users, and slices."""
CHANGING = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "shutil.rmtree"}
HOST = ("host_s", "host_parts", "trained_jobs", "known_jobs")
NOTES = "notes of the user.txt"
LONGEST_S = 300.0
"""Time in s on the host after which a child, which takes about a second, is taken to hang: it reports its stack."""


# ---- stories ---------------------------------------------------------------------------------------------------------


def run(folder: Path, *settings: str, **options: Any) -> None:
    play(small_scenario(*CHANGES, *settings), "small", folder, keep_model=True, **options)


def beside(folder: Path) -> None:
    """A run beside other users, in slices."""
    run(folder, *BESIDE)


def forced(folder: Path) -> None:
    run(folder, force=True)


def swept(folder: Path) -> None:
    """The command `fednet sweep`, with its runs in this process."""
    settings = {"base": "small", "grid": {"stop.rounds": [2, 3]}, "seeds": 1, "target": {"loss": 1.0}}
    ended = sweep(runs_of(StudyFile.of("small", from_text(SMALL, "small"), settings), CHANGES[1:]), folder, run_here)
    if ended.failures:
        raise RuntimeError(f"runs failed: {ended.failures}")


def nothing(folder: Path) -> None:
    """A folder that is not there yet."""


def interrupted(folder: Path) -> None:
    """A run that was interrupted in its fourth round."""

    def interrupt(fed: Federation) -> None:
        if fed.round == 4:
            raise KeyboardInterrupt

    try:
        play(small_scenario(*CHANGES), "small", folder, on_round=interrupt)
    except KeyboardInterrupt:
        (folder / NOTES).write_text("look at round 3")


def finished(folder: Path) -> None:
    """Another run, which has ended, and which has a series that the new one lacks."""

    def record(fed: Federation) -> None:
        fed.ledger.record("moods", step=fed.round, mood=1.0)

    play(small_scenario("stop.rounds=3", "seed=5"), "other", folder, on_round=record)
    (folder / NOTES).write_text("the best run so far")


def stopped_sweep(folder: Path) -> None:
    """A sweep that was interrupted in its second run."""
    told = 0

    def stop(_progress: Any) -> None:
        nonlocal told
        told += 1
        if told == 4:
            raise KeyboardInterrupt

    settings = {"base": "small", "grid": {"stop.rounds": [2, 3]}, "seeds": 1, "target": {"loss": 1.0}}
    study = runs_of(StudyFile.of("small", from_text(SMALL, "small"), settings), CHANGES[1:])
    try:
        sweep(study, folder, run_here, on_event=stop)
    except KeyboardInterrupt:
        (folder / NOTES).write_text("it was late")


STORIES: dict[str, tuple[Act, Act]] = {
    "fresh": (nothing, run),
    "beside-others": (nothing, beside),
    "resumed": (interrupted, run),
    "forced": (finished, forced),
    "sweep": (nothing, swept),
    "resumed-sweep": (stopped_sweep, swept),
}


# ---- kills -----------------------------------------------------------------------------------------------------------


def die_before(operation: int, folder: Path) -> None:
    """From now on, count the operations of this process that change a folder, and die before one of them."""
    counted = 0

    def look(event: str, args: tuple[Any, ...]) -> None:
        nonlocal counted
        changes = event in CHANGING or (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if changes and isinstance(args[0], str | os.PathLike) and os.fspath(args[0]).startswith(str(folder)):
            counted += 1
            if counted == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def child(act: Act, folder: Path, operation: int | None = None) -> str:
    """Do something in a child; returns `ended`, `killed`, or what went wrong."""
    report = folder.with_name("report.txt")
    pid = os.fork()
    if pid == 0:
        code = 1
        faulthandler.dump_traceback_later(LONGEST_S, exit=True, file=report.open("w"))
        try:
            store.COST = float("inf")  # a snapshot in every round
            if operation is not None:
                die_before(operation, folder)
            act(folder)
            code = 0
        except DataError as error:
            report.write_text(str(error))
        except BaseException:
            report.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return "killed"
    return "ended" if os.WEXITSTATUS(status) == 0 else report.read_text()


def found(folder: Path) -> dict[str, str]:
    """What is in a folder, to the byte, but for host times, logs, manifests and what was learnt."""
    files = {}
    for path in sorted(its for its in folder.rglob("*") if its.is_file()):
        name = str(path.relative_to(folder))
        if path.name == "summary.json":
            summary = json.loads(path.read_text())
            files[name] = json.dumps({key: value for key, value in summary.items() if key not in HOST})
        elif LEARNING not in path.parts and path.name not in ("log.txt", "manifest.json", "hosts.parquet", ".lock"):
            files[name] = checksum(path)
    return files


def differences(got: dict[str, str], expected: dict[str, str]) -> list[str]:
    return [f"{name} differs" for name in sorted(got.keys() | expected.keys()) if got.get(name) != expected.get(name)]


def after_a_kill(story: str, folder: Path, before: dict[str, str], expected: dict[str, str]) -> list[str]:
    """What is wrong after a kill, and after the same command again."""
    wrong = []
    if NOTES in before and (folder / NOTES).read_text() == "":
        wrong.append("notes are lost")
    if story == "forced" and not read_manifest(folder):
        wrong.append("no run is there any more")
    again = child(STORIES[story][1], folder)
    ended_before = again.endswith(
        "holds a finished run, with the same settings; pass --force to replace it, or choose another --out"
    )
    if again != "ended" and not ended_before:
        wrong.append(again)
    manifest = read_manifest(folder)
    if manifest is not None and manifest["status"] not in FINISHED:
        wrong.append(f"status {manifest['status']}")
    if not ended_before and any((path.parent / LEARNING).exists() for path in folder.rglob("summary.json")):
        wrong.append("learning is left")
    return wrong + differences(found(folder), expected)


def main(story: str, room: str, every: int = 1, seed: int | None = None) -> None:
    """Tell a story, and once more for each kill."""
    begin, act = STORIES[story]
    folder, template = Path(room) / "work" / "run", Path(room) / "template"
    folder.parent.mkdir(parents=True)
    assert child(begin, folder) == "ended"
    before = found(folder)
    if folder.exists():
        shutil.copytree(folder, template)
    assert child(act, folder) == "ended"
    expected, rng = found(folder), random.Random(seed)
    assert ("traffic.parquet" in expected) == (story == "beside-others")
    operation = rng.randint(1, every)
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        if template.exists():
            shutil.copytree(template, folder)
        if child(act, folder, operation) != "killed":
            break
        if seed is not None and rng.random() < 0.5:
            child(act, folder, rng.randint(1, 40))
        wrong = after_a_kill(story, folder, before, expected)
        print(json.dumps({"operation": operation, "wrong": wrong}), flush=True)
        operation += every
    print(json.dumps({"operations": operation - 1}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
