"""Find settings files by name, next to the including file, in the working folder, and in the library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Literal

from fednet_emu.errors import ScenarioError, did_you_mean
from fednet_emu.files.data_folder import exists, expanded, is_file
from fednet_emu.limits import problem_of
from fednet_emu.scenario.tree import Node, shortened, show

Folder = Literal["scenarios", "channels", "profiles", "traffic", "scenarios/studies"]

STUDIES: Folder = "scenarios/studies"
CELLS = "scenarios/cells"
"""Folder with settings of existing networks, which scenarios can include."""
PAPERS = "scenarios/papers"
"""Folder with scenarios of published papers, which are found by their names like those in `scenarios`."""
_ONE = {
    "scenarios": "scenario",
    "channels": "channel",
    "profiles": "profile",
    "traffic": "class of traffic",
    STUDIES: "study",
}

SUFFIXES = (".yaml", ".yml")
"""Suffixes of settings files; a file name may be given without suffix."""

MAX_NAME = 4096
"""Maximum length of a file name in characters; longer names are not looked up."""

_PACKAGE = Path(__file__).resolve().parents[1]


def find(name: str, folder: Folder = "scenarios", beside: Path | None = None) -> Path:
    """Return the path of the settings file called `name`, which may lack the suffix.

    The name is first tried as a path, relative to the folder of the file `beside`, or to the working folder if `beside`
    is not given. It is then looked up in `./<folder>`, in the library inside the package, and in the source checkout
    around the package.

    Raises:
        ScenarioError: no file has this name; the message suggests similar names.
    """
    path = locate(name, folder, beside)
    if path is None:
        raise ScenarioError(f"{shortened(name)}: {no_such(name, folder, beside)}")
    return path


def locate(name: str, folder: Folder, beside: Path | None = None) -> Path | None:
    """Return the path of the settings file called `name`, as `find` does, or None if the name is unknown.

    The file `beside` itself is returned only if no other file has the name.
    """
    if len(name) > MAX_NAME or problem_of(name):
        return None
    inside = name.removeprefix(f"{folder}/")
    tries = [*_as_path(name, beside), *(place / inside for place in _places(folder))]
    named = [path.with_name(path.name + suffix) if path.name else path for path in tries for suffix in ("", *SUFFIXES)]
    files = (path for path in named if path.suffix in SUFFIXES and is_file(path))
    found = [path for path in files if path.resolve().suffix in SUFFIXES]  # a link must lead to a settings file
    others = [path for path in found if beside is None or not path.samefile(beside)]
    return next(iter(others or found), None)


def names(folder: Folder = "scenarios") -> list[str]:
    """Return the sorted names of all settings files in a library folder; files in subfolders are `subfolder/name`.

    Scenarios of papers have no prefix. The subfolders of `scenarios` with studies and networks are left out.
    """
    known = {
        path.relative_to(place).with_suffix("").as_posix()
        for place in _places(folder)
        for path in place.rglob("*")
        if path.suffix in SUFFIXES and path.is_file()
    }
    below = tuple(part.removeprefix(f"{folder}/") + "/" for part in (STUDIES, CELLS, PAPERS))
    return sorted(name for name in known if not name.startswith(below))


def no_such(name: str, folder: Folder, beside: Path | None = None) -> str:
    """Return the error message for an unknown name, such as `no such channel, got 'x'; did you mean 'y'?`."""
    one = _ONE[folder]
    if len(name) > MAX_NAME:
        return f"no such {one}, got {show(name)}; give a name or path of at most {MAX_NAME} characters"
    if any(is_file(path) for path in _as_path(name, beside)):
        return f"no such {one}, got {show(name)}, a file of another kind; its name must end in .yaml or .yml"
    if name and any(exists(path) for path in _as_path(name, beside)):
        return f"no such {one}, got {show(name)}, a folder; give the file in it"
    other: Folder = "scenarios" if folder == STUDIES else STUDIES
    if folder != "channels" and locate(name, other) is not None:
        return another_kind(name, _ONE[other])
    known = names(folder)
    near = did_you_mean(Path(name).stem, known)
    if PurePath(name).suffix in SUFFIXES or len(PurePath(name).parts) > 1:
        return f"no such file, got {show(name)}{near or f'; give the path of a {one}, or the name of one in {folder}/'}"
    remedy = near or (f"; known: {', '.join(known)}" if known else "; give a path")
    return f"no such {one}, got {show(name)}{remedy}"


def another_kind(name: str, what: str) -> str:
    """Return the error message for a study given instead of a scenario, or a scenario instead of a study.

    `what` is the type of the file that was given, "study" or "scenario".
    """
    file = shortened(name)
    if what == "study":
        remedy = f"fednet sweep {file}, or fe.sweep; for one of its runs, fednet run {file} --where AXIS=LEVEL"
        return f"is a study, not a scenario, got {show(name)}; {remedy}"
    return f"is a scenario, not a study, got {show(name)}; fednet run {file}, or fe.run"


def is_study(root: Node) -> bool:
    """Return True if a file contains a study rather than a scenario. Only studies have the key `base`."""
    return isinstance(root.value, dict) and "base" in root.value


def run_name(path: Path) -> str:
    """Return the name of a run of this file: the file name, without suffix if that is a valid folder name."""
    return path.name if path.stem in ("", ".", "..") else path.stem


def _as_path(name: str, beside: Path | None) -> Iterator[Path]:
    path = expanded(Path(name))
    if path is not None:
        yield (beside.parent if beside else Path()) / path


def _places(folder: Folder) -> Iterator[Path]:
    for root in (Path(), _PACKAGE / "library", _PACKAGE.parent):
        yield root / folder
        if folder == "scenarios":
            yield root / PAPERS
