"""The store of learned values: a later run with the same learning operations reads them instead of training again.

A learning program is the sequence of a run's learning operations. An entry of the store is a file without code. Its
first line has `fednet_emu learning`, the version of the format, and a hash of all following bytes. A safetensors file
follows, whose tensor `content` is JSON and contains the entry's name. Entries never change. An entry is written under a
temporary name and then renamed, so that any number of runs may write to a folder. A damaged, truncated or misplaced
entry counts as missing.

A folder of entries has a sub-folder for each head. A head is the set of inputs of the learning: data, model, seed,
software and host. A file `*.known` contains the computed values, such as scores, that the run has read; about one file
is written per second of host time. It also contains the rolling digests (hashes of all learning operations so far) of
the training wavefronts that the run has completed. A file `*.snapshot` contains the values in the deferred graph that
are still needed. A file `*.reply` contains values of an algorithm that implements its own learning.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import textwrap
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
from fednet_emu.files.data_folder import expanded
from fednet_emu.files.writing import PART, file_errors, write_text

LOG = logging.getLogger("fednet_emu")

MAGIC, FORMAT = b"fednet_emu learning", b"3"
KNOWN, SNAPSHOT, REPLY, HEAD = ".known", ".snapshot", ".reply", "head.json"
CHAPTER_S = 1.0
"""Minimum host time in s between two writes of files `*.known`, which contain the values that a run has read."""
MOST_BYTE = 1_000_000
"""Maximum size in bytes of the tensors of a value that is stored in a file `*.known`."""
MOST_SNAPSHOTS = 16
"""Maximum number of shared snapshots of one run; when there are more, every second one is removed."""
LARGEST_BYTE = 2**36
"""Maximum size in bytes of an entry; larger entries are not read."""
MOST_HEADS = 100
"""Maximum number of heads (inputs of other runs) that are compared to explain why no values can be reused."""


class Refused(ValueError):  # noqa: N818  (states what happens to the entry)
    """An entry of the store cannot be used; the error text states the reason."""


class Damaged(Refused):
    """An entry of the store cannot be used by any run."""


def to_bytes(name: str, content: Any, tensors: dict[str, Tensor]) -> bytes:
    """Return the bytes of an entry's file; `tensors` are those that a `Writer` has collected for `content`."""
    body = packed({"name": name, "content": content}, tensors)
    return b"%b %b %b\n%b" % (MAGIC, FORMAT, _hash(body), body)


def from_bytes(name: str, data: bytes) -> tuple[Any, dict[str, Tensor]]:
    """Return the content and the tensors of an entry from the bytes that `to_bytes` returned, or raise `Refused`."""
    end = data.find(b"\n", 0, 200)
    first, body = data[: max(end, 0)].split(b" "), data[end + 1 :]
    if len(first) != 4 or b" ".join(first[:2]) != MAGIC:
        raise Damaged("is no entry")
    if first[2] != FORMAT:
        raise Refused("is of another version")
    if first[3] != _hash(body):
        raise Damaged("is damaged")
    content, tensors = unpacked(body)
    if content["name"] != name:
        raise Damaged("is another entry")
    return content["content"], tensors


def read_entry(path: Path) -> tuple[Any, dict[str, Tensor]]:
    """Return an entry's content and tensors from its file, whose time of use is updated, or raise `Refused`."""
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
    """The inputs of a run's learning (data, model, seed, software, host), by name, as hashes or versions."""

    items: Mapping[str, str]

    @property
    def digest(self) -> bytes:
        """Hash of all inputs, 16 bytes."""
        return blake2b(json.dumps(dict(self.items), sort_keys=True).encode(), digest_size=16).digest()


def is_own(path: Path, *, folder: bool = False) -> bool:
    """Return True if `path` is a file (a folder if `folder` is True) of this user, and not a link."""
    try:
        found = path.lstat()
    except OSError:
        return False
    kind = stat.S_ISDIR if folder else stat.S_ISREG
    return kind(found.st_mode) and (not hasattr(os, "getuid") or found.st_uid == os.getuid())


@final
class Shelf:
    """The stored values of learning programs with the same `head` (inputs of the run's learning).

    The folder `own` has the entries of the run, and is used until the run is finished. The folder `shared` has entries
    that all runs read and write. Each of them is None if no such entries are written. `passed` are the rolling digests
    of the training wavefronts that earlier runs have completed, and `snapshots` their snapshot files by rolling digest.
    """

    def __init__(self, own: Path | None, shared: Path | None, head: Head) -> None:
        self.head, self._name = head, head.digest.hex()
        self._own = None if own is None else own / self._name
        self._shared = None if shared is None else shared / self._name
        self.passed: set[bytes] = set()
        self.snapshots: dict[bytes, Path] = {}
        self._entries: dict[bytes, tuple[Any, dict[str, Tensor]]] = {}
        self._noted: list[str] = []
        self._read: list[list[Any]] = []
        self._tensors: dict[str, Tensor] = {}
        self._written_s = time.monotonic()
        self._ended, self._said = "", False
        self._my_snapshots: list[str] = []
        for folder in filter(None, (self._own, self._shared)):
            if is_own(folder, folder=True):
                with suppress(OSError):
                    self._open(folder)
            elif folder.parent.is_dir() and (name := differing(folder.parent, head)):
                why = "the content belongs to" if folder == self._own else "why not shared: all that is there is of"
                LOG.info("%s: %s another %s; everything is computed", folder.parent, why, name)

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
        if not os.path.lexists(path):
            return None
        try:
            return read_entry(path)
        except Exception as error:
            reason = str(error) if isinstance(error, Refused) else f"cannot be read ({_text(error)})"
            if not self._said:
                self._said = True
                LOG.warning("%s: %s; its values are computed", path, reason)
            if isinstance(error, Damaged):
                with suppress(OSError):
                    path.unlink()  # so that it is written again
            return None

    # ---- reading -----------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> Any:
        """Return the stored value of `key`; raise a `KeyError` if no value is stored."""
        plain, tensors = self._entries[key]
        try:
            return Reader(dict(tensors)).value(plain)
        except (ValueError, KeyError, TypeError):  # of a class that is not loaded
            raise KeyError(key) from None

    def put(self, key: bytes, value: Any) -> None:
        """Record the computed value of `key`; the next write stores it if it can be serialised and is small."""
        if self.is_open:
            writer = Writer(first=len(self._tensors), copies=True)  # callers may change the value later
            with suppress(NotPlain):
                self._read.append([key.hex(), writer.small(value, MOST_BYTE)])
                self._tensors |= writer.tensors
        self._write_in_time()

    def note(self, rolling: bytes) -> None:
        """Record that the run has completed the training wavefront with the digest `rolling`."""
        if rolling not in self.passed:
            self._noted.append(rolling.hex())
            self._write_in_time()

    def load(self, rolling: bytes) -> dict[bytes, Any]:
        """Return the values of the snapshot `rolling` by the digest of the graph node; empty if it cannot be used."""
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
        """Write the values so far, then stop writing to the shared folder, because `name` cannot be serialised."""
        self.write()
        self._ended = name

    # ---- writing -----------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True if entries are written to a folder."""
        return self._own is not None or (self._shared is not None and not self._ended)

    def finish(self) -> None:
        """Stop writing to the folder of the run, which has ended."""
        self._own = None

    def _write_in_time(self) -> None:
        if time.monotonic() - self._written_s >= CHAPTER_S:
            self.write()

    def write(self) -> None:
        """Write all values and digests recorded since the latest write; raise a `DataError` if this is impossible."""
        self._written_s = time.monotonic()
        noted, read, tensors = self._noted, self._read, self._tensors
        self._noted, self._read, self._tensors = [], [], {}
        if not self.is_open:
            return
        if noted or read:
            content = {"passed": noted, "read": read}
            named = blake2b(json.dumps(content).encode(), digest_size=16)
            for tensor in tensors.values():
                named.update(tensor.contiguous().numpy().tobytes())
            self._put(named.hexdigest() + KNOWN, content, tensors)

    def keep(self, rolling: bytes, values: Mapping[bytes, Any]) -> None:
        """Store graph values as a snapshot named `rolling`, which replaces earlier snapshots in the run's folder.

        `NotPlain` is raised if a value cannot be stored without code, a `DataError` if the folder is not writable.
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
                else:  # a hard link to the run's own file, if the file system allows one
                    with suppress(OSError):
                        os.link(written, shared)
                if not shared.exists():
                    _write(shared, data)
            except (OSError, DataError) as error:
                LOG.warning("learnt values are not shared: %s", _text(error))
                self._shared = None
        return written

    def tidy(self) -> None:
        """Delete old entries of the shared folder until its size is within the limit."""
        if self._shared is not None:
            bound(self._shared.parent, limit_of(self._shared.parent))


def _write(path: Path, data: bytes) -> None:
    """Write an entry atomically, even if several processes write it at once; raise a `DataError` if writing fails."""
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
    if not (folder / HEAD).exists():
        with file_errors(folder, "written"):
            folder.parent.mkdir(parents=parents, exist_ok=True)
            folder.mkdir(exist_ok=True)
        _write(folder / HEAD, json.dumps(dict(head.items), indent=1).encode())


def _text(error: Exception) -> str:
    return textwrap.shorten(str(error), 240, placeholder=" ...")


COST = 1 / 64
"""Maximum share of the run's host time that writing snapshots may take."""
LAST_BYTE = 2**26
"""Maximum size in bytes of a run's last snapshot up to which it is written regardless of `COST`."""
SLOWEST_BYTE_PER_S = 100e6
"""Assumed writing speed in bytes per second before the first snapshot."""


class Saver:
    """Observer that saves snapshots at the ends of rounds.

    At least `every_s` seconds of host time lie between two snapshots. A snapshot is skipped if all snapshots, including
    the next one, would take more than the share `COST` of the run's host time. The next snapshot is assumed to take as
    long as the last one. Host time decides when snapshots are written, but never affects the simulation.
    """

    def __init__(self, shelf: Shelf, every_s: float | None) -> None:
        self._shelf, self._every_s = shelf, every_s
        self._began = self._saved = time.monotonic()
        self._took_s = self._spent_s = 0.0
        self._over, self._plain = False, True

    def __call__(self, fed: Federation) -> None:
        """Save a snapshot if the last one is at least `every_s` seconds old and the time limit `COST` permits it."""
        if self._every_s is not None and time.monotonic() - self._saved >= self._every_s:
            self.save_cheaply(fed)

    def save_cheaply(self, fed: Federation) -> None:
        """Save a snapshot if all snapshots together then take at most the share `COST` of the host time."""
        next_s = self._took_s or fed.graph.known_byte() / SLOWEST_BYTE_PER_S
        if self._spent_s + next_s <= COST * (time.monotonic() - self._began):
            self.save(fed)

    def save(self, fed: Federation) -> None:
        """Write the recorded values, and save a snapshot if possible; raise a `DataError` if they cannot be written.

        No snapshot is saved while a computation or a sum is in progress. Before the end of the run, snapshots are saved
        only if an interval (`every_s`) is given and the graph has no postponed values.
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
        """Write the learned values of a run that has ended to the shared folder."""
        self._over = True
        self._shelf.finish()
        self._shelf.write()
        program = fed.graph.program
        if program is not None and self._shelf.is_open and program.passed not in self._shelf.snapshots:
            (self.save if fed.graph.known_byte() <= LAST_BYTE else self.save_cheaply)(fed)
        self._shelf.tidy()


@final
class Replies(Kept):
    """Store of an algorithm with its own learning. Each value is written at once, by its key, to the run's folder."""

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
        writer, path = Writer(), self._path(key)
        data = to_bytes(path.stem, writer.plain(value), writer.tensors)
        _make(self._folder, self._head, parents=False)
        _write(path, data)

    def _path(self, key: str) -> Path:
        return self._folder / (blake2b(key.encode(), digest_size=16).hexdigest() + REPLY)


# ---- folders of entries ----------------------------------------------------------------------------------------------

VARIABLE, LIMIT, MOST = "FEDNET_CACHE", "limit.txt", 2_000_000_000


def cache_folder() -> Path | None:
    """Return the folder shared by all runs: FEDNET_CACHE (None if empty), or a folder in the user's cache."""
    named = os.environ.get(VARIABLE)
    if named is None:
        return user_cache_path("fednet_emu", appauthor=False) / "learning"
    return expanded(Path(named)) if named else None


def usable(folder: Path | None) -> Path | None:
    """Return `folder`; None if the folder belongs to another user or is a link."""
    if folder is None or is_own(folder, folder=True):
        return folder
    try:
        folder.lstat()
    except FileNotFoundError:
        return folder
    except (OSError, ValueError) as error:
        LOG.info("learnt values are not shared: %s", _text(error))
        return None
    LOG.info("%s: is no folder, a link, or of another user, and is not used; learnt values are not shared", folder)
    return None


def limit_of(folder: Path) -> int:
    """Return the maximum size in bytes of a folder of entries."""
    with suppress(OSError, ValueError):
        if (found := int((folder / LIMIT).read_text(encoding="ascii"))) >= 0:
            return found
    return MOST


def set_limit(folder: Path, max_byte: int) -> None:
    """Set the maximum size in bytes of a folder of stored values."""
    with file_errors(folder, "made"):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / LIMIT, f"{max_byte}\n")


def differing(folder: Path, head: Head) -> str:
    """Return the first input in which `head` differs from the most similar head in a folder; empty if none."""
    found: list[list[str]] = []
    for path in [own / HEAD for own in heads_in(folder)][:MOST_HEADS]:
        with suppress(OSError, ValueError, AttributeError):
            other = json.loads(path.read_text(encoding="utf-8")) if is_own(path) else {}
            found.append([name for name, its in head.items.items() if other.get(name) != its])
    return min(found, key=len, default=[""])[0]


def heads_in(folder: Path) -> list[Path]:
    """Return the sub-folders of the heads in a folder of entries; other sub-folders are left alone."""
    found = [path for path in folder.glob("*") if re.fullmatch("[0-9a-f]{32}", path.name)]
    return sorted(path for path in found if is_own(path, folder=True))


class Entry(NamedTuple):
    """An entry in a folder: time of its last use, size in bytes, and path."""

    used_s: float
    byte: int
    path: Path


def entries_in(folder: Path) -> Iterator[Entry]:
    """Yield the entries of a folder, and the partial files of interrupted writes."""
    for path in (its for own in heads_in(folder) for its in own.iterdir()):
        ours = path.suffix in (KNOWN, SNAPSHOT, REPLY) or path.name == HEAD or path.name.endswith(PART)
        if ours and is_own(path):
            with suppress(OSError):
                found = path.stat()
                yield Entry(found.st_mtime, found.st_size, path)


def bound(folder: Path, max_byte: float) -> int:
    """Delete the least recently used entries until at most `max_byte` bytes remain; return the freed bytes."""
    entries = sorted(entries_in(folder))
    left = sum(entry.byte for entry in entries)
    freed = 0
    for entry in entries:
        if left - freed <= max_byte:
            break
        if entry.path.name != HEAD or max_byte == 0:
            with suppress(OSError):
                entry.path.unlink()
                freed += entry.byte
    for own in heads_in(folder):  # heads without entries
        with suppress(OSError):
            if [path.name for path in own.iterdir()] == [HEAD]:
                (own / HEAD).unlink()
            own.rmdir()
    return freed
