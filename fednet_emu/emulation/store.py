"""The store of learning programs, in folders: scores and other values that were read, and snapshots of values.

An entry is a file: one line of text, `fednet_emu learning`, the version of the format and a hash of the rest; then a
safetensors file whose tensor `content` is JSON, with the name of the entry. It contains no code. Entries never change.
They are written under another name and renamed, so that any number of runs may write to a folder, and a damaged,
truncated or misplaced entry counts as missing.

A folder of entries has a sub-folder for each head: data, model, seed, software and host. A chapter, `*.known`, has the
values that were read in about a second of host time, and the rolling digests of wavefronts that the run has passed; a
`*.snapshot` has the live values of the deferred graph; a `*.reply` has values of a program with its own learning.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, final

from platformdirs import user_cache_path
from torch import Tensor
from typing_extensions import override

from fednet_emu.emulation.serialise import NotPlain, Reader, Writer, packed, unpacked
from fednet_emu.errors import DataError
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.learner import Kept
from fednet_emu.files.writing import PART, file_errors, write_text

LOG = logging.getLogger("fednet_emu")

MAGIC, FORMAT = b"fednet_emu learning", b"3"
KNOWN, SNAPSHOT, REPLY, HEAD = ".known", ".snapshot", ".reply", "head.json"
CHAPTER_S = 1.0
"""Host time after which read values are written."""
MOST_BYTE = 1_000_000
"""Largest size of a stored read value."""
MOST_SNAPSHOTS = 16
"""Largest number of shared snapshots of one run; of more, every second one is removed."""
LARGEST_BYTE = 2**36
"""Largest size of an entry that is read."""
MOST_HEADS = 100
"""Largest number of heads that are compared to explain why nothing is shared."""


class Refused(ValueError):  # noqa: N818  (what happens to the entry)
    """An entry cannot be used; the text is the reason."""


def to_bytes(name: str, content: Any, tensors: dict[str, Tensor]) -> bytes:
    """Return the content of an entry's file; a `Writer` collected the tensors."""
    body = packed({"name": name, "content": content}, tensors)
    return b"%b %b %b\n%b" % (MAGIC, FORMAT, _hash(body), body)


def from_bytes(name: str, data: bytes) -> tuple[Any, dict[str, Tensor]]:
    """Return the arguments of `to_bytes`.

    Raises:
        Refused: the file is damaged, of another format, or another entry.
    """
    end = data.find(b"\n", 0, 200)
    first, body = data[: max(end, 0)].split(b" "), data[end + 1 :]
    if len(first) != 4 or b" ".join(first[:2]) != MAGIC:
        raise Refused("is no entry")
    if first[2] != FORMAT:
        raise Refused("is of another version")
    if first[3] != _hash(body):
        raise Refused("is damaged")
    content, tensors = unpacked(body)
    if content["name"] != name:
        raise Refused("is another entry")
    return content["content"], tensors


def read_entry(path: Path) -> tuple[Any, dict[str, Tensor]]:
    """Return the content of an entry, and mark it as used.

    Raises:
        Refused: it cannot be used.
    """
    if not is_own(path):
        raise Refused("is a link, no file, or belongs to another user")
    if path.stat().st_size > LARGEST_BYTE:
        raise Refused("is too large")
    found = from_bytes(path.stem, path.read_bytes())
    with suppress(OSError):
        os.utime(path)
    return found


def _hash(body: bytes) -> bytes:
    return blake2b(body, digest_size=16, person=FORMAT).hexdigest().encode()


class Head(NamedTuple):
    """The inputs of a learning program: names with hashes or versions."""

    items: Mapping[str, str]

    @property
    def digest(self) -> bytes:
        """The digest of all inputs."""
        return blake2b(json.dumps(dict(self.items), sort_keys=True).encode(), digest_size=16).digest()


def is_own(path: Path, *, folder: bool = False) -> bool:
    """Whether a path is a file or folder of this user, and no link."""
    try:
        found = path.lstat()
    except OSError:
        return False
    kind = stat.S_ISDIR if folder else stat.S_ISREG
    return kind(found.st_mode) and (not hasattr(os, "getuid") or found.st_uid == os.getuid())


@final
class Shelf:
    """The known values of the programs with one head, in the folder of a run and in a shared one.

    Args:
        own: the folder of the run's entries until it is finished; None for none.
        shared: the folder that all runs read and write; None for none.
        head: the inputs of the programs.

    Attributes:
        passed: rolling digests that an earlier run has passed.
        snapshots: the files with the values of earlier runs, by rolling digest.
    """

    def __init__(self, own: Path | None, shared: Path | None, head: Head) -> None:
        self.head, self._name = head, head.digest.hex()
        self._own = None if own is None else own / self._name
        self._shared = None if shared is None else shared / self._name
        self.passed: set[bytes] = set()
        self.snapshots: dict[bytes, Path] = {}
        self._entries: dict[bytes, tuple[Any, dict[str, Tensor]]] = {}
        self._noted: list[str] = []
        self._read: list[tuple[bytes, Any]] = []
        self._written_s = time.monotonic()
        self._ended, self._said = "", False
        self._my_snapshots: list[str] = []
        for folder in self._folders():
            if is_own(folder, folder=True):
                with suppress(OSError):
                    self._open(folder)
            elif folder.parent.is_dir() and (name := differing(folder.parent, head)):
                why = "the content belongs to" if folder == self._own else "why not shared: all that is there is of"
                LOG.info("%s: %s another %s; everything is computed", folder.parent, why, name)

    def _folders(self) -> list[Path]:
        return [folder for folder in (self._own, self._shared) if folder is not None]

    def _open(self, folder: Path) -> None:
        with suppress(OSError):
            os.utime(folder / HEAD)
        for path in sorted(folder.iterdir()):
            if path.suffix == SNAPSHOT and len(path.stem) == 32 and is_own(path):
                with suppress(ValueError):
                    self.snapshots.setdefault(bytes.fromhex(path.stem), path)
            elif path.suffix == KNOWN and (found := self._load(path)) is not None:
                content, tensors = found
                self.passed.update(map(bytes.fromhex, content["passed"]))
                self._entries.update((bytes.fromhex(key), (plain, tensors)) for key, plain in content["read"])

    def _load(self, path: Path) -> Any:
        """The content of an entry; None, with one warning for all, if it cannot be used."""
        if not os.path.lexists(path):
            return None
        try:
            return read_entry(path)
        except Exception as error:
            reason = str(error) if isinstance(error, Refused) else f"cannot be read ({_text(error)})"
            if not self._said:
                self._said = True
                LOG.warning("%s: %s; its values are computed", path, reason)
            return None

    # ---- reading -----------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> Any:
        """The value that was read under this key; `KeyError` if it is unknown."""
        plain, tensors = self._entries[key]
        try:
            return Reader(dict(tensors)).value(plain)
        except (ValueError, KeyError, TypeError):  # of a class that is not loaded
            raise KeyError(key) from None

    def put(self, key: bytes, value: Any) -> None:
        """Store a value that was read under this key, if it is plain and small."""
        self._read.append((key, value))
        self._write_in_time()

    def note(self, rolling: bytes) -> None:
        """Record that a run has passed this rolling digest."""
        if rolling not in self.passed:
            self._noted.append(rolling.hex())
            self._write_in_time()

    def load(self, rolling: bytes) -> dict[bytes, Any]:
        """The values of a snapshot by the digests of their nodes; none if it cannot be used."""
        found = self._load(self.snapshots.pop(rolling))
        if found is None:
            return {}
        content, tensors = found
        reader = Reader(tensors)
        try:
            values = {bytes.fromhex(digest): reader.value(plain) for digest, plain in content["values"]}
        except (ValueError, KeyError, TypeError) as error:
            LOG.warning("a snapshot cannot be read (%s); its values are computed", _text(error))
            return {}
        LOG.info("going on from a checkpoint of %d values", len(values))
        return values

    def part_ways(self, name: str) -> None:
        """Record that sharing ends here, and its cause."""
        self.write()
        self._ended = name

    # ---- writing -----------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether entries are written to a folder."""
        return self._own is not None or (self._shared is not None and not self._ended)

    def finish(self) -> None:
        """Continue without the folder of the run, which has ended."""
        self._own = None

    def _write_in_time(self) -> None:
        if time.monotonic() - self._written_s >= CHAPTER_S:
            self.write()

    def write(self) -> None:
        """Write the values that were read and not yet written.

        Raises:
            DataError: the folder of the run cannot be written to.
        """
        self._written_s = time.monotonic()
        noted, read, self._noted, self._read = self._noted, self._read, [], []
        if not self.is_open:
            return
        writer = Writer()
        plain: list[Any] = []
        for key, value in read:
            with suppress(NotPlain):
                plain.append([key.hex(), writer.small(value, MOST_BYTE)])
        if noted or plain:
            content = {"passed": noted, "read": plain}
            named = blake2b(json.dumps(content).encode(), digest_size=16)
            for tensor in writer.tensors.values():
                named.update(tensor.contiguous().numpy().tobytes())
            self._put(named.hexdigest() + KNOWN, content, writer.tensors)

    def keep(self, rolling: bytes, values: Mapping[bytes, Any]) -> None:
        """Store the values of a graph at this rolling digest, instead of earlier ones of this run.

        Raises:
            NotPlain: a value cannot be stored without code.
            DataError: the folder of the run cannot be written to.
        """
        self.write()
        writer = Writer()
        content = {"values": [[digest.hex(), writer.plain(value)] for digest, value in values.items()]}
        path = self._put(rolling.hex() + SNAPSHOT, content, writer.tensors)
        mine = [*(its for its in self._my_snapshots if its != path.name), path.name]
        if self._own is not None:
            for old in self._own.glob(f"*{SNAPSHOT}"):
                if old.name != path.name:
                    old.unlink(missing_ok=True)
        if len(mine) > MOST_SNAPSHOTS and self._shared is not None:
            for name in mine[1::2]:
                (self._shared / name).unlink(missing_ok=True)
            mine = mine[::2]
        self._my_snapshots = mine

    def _put(self, name: str, content: Any, tensors: dict[str, Tensor]) -> Path:
        data, written = to_bytes(Path(name).stem, content, tensors), Path(name)
        if self._own is not None:
            _make(self._own, self.head, parents=False)
            written = self._own / name
            _write(written, data)
        if self._shared is not None and not self._ended:
            try:
                _make(self._shared, self.head)
                shared = self._shared / name
                if self._own is None:
                    written = shared
                else:  # another name of the run's own file, where that is possible
                    with suppress(OSError):
                        os.link(written, shared)
                if not shared.exists():
                    _write(shared, data)
            except (OSError, DataError) as error:
                LOG.warning("%s: cannot be written (%s); learnt values are not shared", self._shared, _text(error))
                self._shared = None
        return written

    def tidy(self) -> None:
        """Reduce the shared folder to its limit."""
        if self._shared is not None:
            bound(self._shared.parent, limit_of(self._shared.parent))


def _write(path: Path, data: bytes) -> None:
    """Write an entry atomically, also if several processes write it at the same time.

    Raises:
        DataError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}{PART}")
    with file_errors(path, "written"):
        try:
            part.write_bytes(data)
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise


def _make(folder: Path, head: Head, *, parents: bool = True) -> None:
    """Make the folder of a head, and write its description."""
    if not (folder / HEAD).exists():
        with file_errors(folder, "written"):
            folder.parent.mkdir(parents=parents, exist_ok=True)
            folder.mkdir(exist_ok=True)
        _write(folder / HEAD, json.dumps(dict(head.items), indent=1).encode())


def _text(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


COST = 1 / 64
"""Largest part of the host time for snapshots."""
LAST_BYTE = 2**26
"""Size of the snapshot at the end of a run up to which `COST` does not limit it."""
SLOWEST_BYTE_PER_S = 100e6
"""Assumed speed of writing before the first snapshot."""


class Saver:
    """Observer that saves snapshots at the ends of rounds.

    At least `every_s` seconds of host time lie between two snapshots, and enough that writing takes at most the part
    `COST` of the run's host time, if the next one takes as long as the last one. Host time decides when a snapshot is
    written, but never the simulation.
    """

    def __init__(self, shelf: Shelf, every_s: float | None) -> None:
        self._shelf, self._every_s = shelf, every_s
        self._began = self._saved = time.monotonic()
        self._took_s = self._spent_s = 0.0
        self._over, self._plain = False, True

    def __call__(self, fed: Federation) -> None:
        """Save a snapshot if the last one is old enough."""
        if self._every_s is not None and time.monotonic() - self._saved >= self._every_s:
            self.save_cheaply(fed)

    def save_cheaply(self, fed: Federation) -> None:
        """Save a snapshot if it takes little of the host time."""
        next_s = self._took_s or fed.graph.known_byte() / SLOWEST_BYTE_PER_S
        if self._spent_s + next_s <= COST * (time.monotonic() - self._began):
            self.save(fed)

    def save(self, fed: Federation) -> None:
        """Save a snapshot now, and the values that were read.

        No snapshot is saved in the middle of a computation or a sum; none before the end without an interval, or while
        values are deferred.

        Raises:
            DataError: it cannot be written.
        """
        program = fed.graph.program
        if program is None:
            return
        started = time.monotonic()
        with fed.graph.host.part("records"):
            self._shelf.write()
            wanted = self._plain and (self._over or self._every_s is not None)
            if not wanted or not (fed.graph.at_rest() or (self._over and fed.graph.puts_off)):
                return
            try:
                self._shelf.keep(program.passed, fed.graph.snapshot())
            except NotPlain as error:
                LOG.warning("no checkpoints are saved: a value of the run is %s; use tensors and named tuples", error)
                self._plain = False
        self._saved = time.monotonic()
        self._took_s = self._saved - started
        self._spent_s += self._took_s

    def finish(self, fed: Federation) -> None:
        """Share the learnt values of a run that has ended."""
        self._over = True
        self._shelf.finish()
        self._shelf.write()
        program = fed.graph.program
        if program is not None and self._shelf.is_open and program.passed not in self._shelf.snapshots:
            (self.save if fed.graph.known_byte() <= LAST_BYTE else self.save_cheaply)(fed)
        self._shelf.tidy()


@final
class Replies(Kept):
    """Values by their keys, each in a file of the run's folder, written at once."""

    def __init__(self, folder: Path, head: Head) -> None:
        self._folder, self._head = folder / head.digest.hex(), head
        self._shelf = Shelf(folder, None, head)
        if count := sum(1 for _ in self._folder.glob(f"*{REPLY}")):
            LOG.info("going on: %d replies of clients are known", count)

    @override
    def get(self, key: str) -> Any:
        found = self._shelf._load(self._path(key))
        return None if found is None else Reader(found[1]).value(found[0])

    @override
    def put(self, key: str, value: Any) -> None:
        """Store a value (see `serialise`) of this key.

        Raises:
            DataError: the file cannot be written.
        """
        writer, path = Writer(), self._path(key)
        data = to_bytes(path.stem, writer.plain(value), writer.tensors)
        _make(self._folder, self._head, parents=False)
        _write(path, data)

    def _path(self, key: str) -> Path:
        return self._folder / (blake2b(key.encode(), digest_size=16).hexdigest() + REPLY)


# ---- folders of entries ----------------------------------------------------------------------------------------------

VARIABLE, LIMIT, MOST = "FEDNET_CACHE", "limit.txt", 2_000_000_000


def cache_folder() -> Path | None:
    """The shared folder of single runs: from FEDNET_CACHE, or the user's cache; None for an empty FEDNET_CACHE."""
    named = os.environ.get(VARIABLE)
    if named is None:
        return user_cache_path("fednet_emu", appauthor=False) / "learning"
    return Path(named).expanduser() if named else None


def usable(folder: Path | None) -> Path | None:
    """The folder, unless it belongs to another user, or is a link."""
    if folder is None or not os.path.lexists(folder) or is_own(folder, folder=True):
        return folder
    LOG.info("%s: is a link, or belongs to another user, and is not used; learnt values are not shared", folder)
    return None


def limit_of(folder: Path) -> int:
    """Largest size of a folder of entries in bytes."""
    with suppress(OSError, ValueError):
        return int((folder / LIMIT).read_text(encoding="ascii"))
    return MOST


def set_limit(folder: Path, most_byte: int) -> None:
    """Set the largest size of a folder of entries in bytes."""
    with file_errors(folder, "made"):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / LIMIT, f"{most_byte}\n")


def differing(folder: Path, head: Head) -> str:
    """The first item that differs between this head and the most similar one in a folder; empty without any."""
    found: list[list[str]] = []
    for path in sorted(folder.glob(f"*/{HEAD}"))[:MOST_HEADS]:
        with suppress(OSError, ValueError, AttributeError):
            other = json.loads(path.read_text(encoding="utf-8")) if is_own(path) else {}
            found.append([name for name, its in head.items.items() if other.get(name) != its])
    return min(found, key=len, default=[""])[0]


class Entry(NamedTuple):
    """An entry in a folder."""

    used_s: float
    byte: int
    path: Path


def entries_in(folder: Path) -> Iterator[Entry]:
    """The entries of a folder, and remains of interrupted writing."""
    for path in folder.glob("*/*"):
        ours = path.suffix in (KNOWN, SNAPSHOT, REPLY) or path.name == HEAD or path.name.endswith(PART)
        if ours and is_own(path):
            with suppress(OSError):
                found = path.stat()
                yield Entry(found.st_mtime, found.st_size, path)


def bound(folder: Path, most_byte: float) -> int:
    """Delete the least recently used entries until the others have at most this size; return the bytes."""
    entries = sorted(entries_in(folder))
    left = sum(entry.byte for entry in entries)
    freed = 0
    for entry in entries:
        if left - freed <= most_byte:
            break
        if entry.path.name != HEAD or most_byte == 0:
            with suppress(OSError):
                entry.path.unlink()
                freed += entry.byte
    for own in (path for path in folder.glob("*") if is_own(path, folder=True)):  # heads without entries
        with suppress(OSError):
            if [path.name for path in own.iterdir()] == [HEAD]:
                (own / HEAD).unlink()
            own.rmdir()
    return freed
