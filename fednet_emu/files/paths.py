"""Paths that users give: each question about one has an answer, whatever was given."""

from __future__ import annotations

from pathlib import Path

from fednet_emu.errors import FednetError
from fednet_emu.limits import is_unicode


def is_file(path: Path) -> bool:
    """Whether there is a file at a path; False, not an error, for a name that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def exists(path: Path) -> bool:
    """Whether there is a file or folder at a path; devices and pipes, which may have no end, do not count."""
    try:
        return path.is_file() or path.is_dir()
    except (OSError, ValueError):
        return False


def expanded(path: Path) -> Path | None:
    """Return a path with its leading `~` or `~user` replaced by a home folder; None if there is no such user."""
    try:
        return path.expanduser()
    except RuntimeError:
        return None


def folder_to_write(path: Path | str, option: str) -> Path:
    """Return the folder that a user names for results, with `~` replaced.

    Raises:
        FednetError: no folder can have this name; the text begins with `option`.
    """
    found = expanded(Path(path))
    if found is None:
        raise FednetError(f"{option}: no such user, got '{path}'; write the path of the folder")
    if not is_unicode(str(found)) or "\0" in str(found):
        raise FednetError(f"{option}: must be text, got {str(path)!r}; choose another name")
    try:
        found.exists()
    except OSError as error:
        raise FednetError(
            f"{option}: cannot be a folder ({error.strerror}), got '{path}'; choose another name"
        ) from error
    return found
