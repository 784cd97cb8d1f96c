"""Checkpoints in the run folder, from which an interrupted or killed run continues when it is started again.

The file is one line of text, `fednet_emu checkpoint`, the version of the format and a hash of all that follows; then a
safetensors file whose tensor `content` is JSON: what the checkpoint belongs to, and the values. It holds no code.

Answers of clients are in a file of their own, each written as it comes, so that a run that was cut off need not train
again: a first line, `fednet_emu replies` and the version of the format; then entries, each a line with the length
and a hash of what follows, and that: a safetensors file with JSON, as in checkpoints. The first entry says what the
others belong to, each other one has a key and a value. No code is kept. An entry that was cut off, and all after it,
count as not written.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, final

from fednet_emu.emulation.serialise import NotPlain, Reader, Writer, packed, unpacked
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.learner import Checkpoint, Kept
from fednet_emu.files.writing import file_errors
from fednet_emu.learning.graph.graph import Snapshot
from fednet_emu.records.folder.store import CHECKPOINT, REPLIES, RunFolder

LOG = logging.getLogger("fednet_emu")

MAGIC = b"fednet_emu checkpoint"
FORMAT = b"2"
COST = 1 / 64
"""Largest part of the host time that checkpoints may take."""
SLOWEST_BYTE_PER_S = 100e6
"""How fast a checkpoint is taken to be written before one has been written."""


class Refused(ValueError):  # noqa: N818  (what happens to the checkpoint)
    """A checkpoint cannot be used; the text says why."""


def to_bytes(checkpoint: Checkpoint, belongs: Mapping[str, Any]) -> bytes:
    """Return the content of a checkpoint file.

    `belongs` are the names of what it depends on, with their versions or hashes, as JSON holds them.

    Raises:
        NotPlain: a value cannot be saved without code.
    """
    writer, snapshot = Writer(), checkpoint.snapshot
    content = {
        "belongs": belongs,
        "counts": [snapshot.created, snapshot.wavefronts, snapshot.jobs, snapshot.pending_byte],
        "jobs": [sorted(snapshot.begun), sorted(snapshot.unbegun)],
        "values": [[number, writer.plain(value)] for number, value in snapshot.values.items()],
        "readings": [writer.plain(value) for value in checkpoint.readings],
    }
    body = packed(content, writer.tensors)
    return b"%b %b %b\n%b" % (MAGIC, FORMAT, _format_hash(body), body)


def from_bytes(data: bytes, belongs: Mapping[str, Any]) -> Checkpoint:
    """Return the checkpoint in the content of a file; the arguments are as for `to_bytes`.

    Raises:
        Refused: the content is damaged, of another format, or belongs to something else.
    """
    end = data.find(b"\n", 0, 200)
    first, body = data[: max(end, 0)].split(b" "), data[end + 1 :]
    if len(first) != 4 or b" ".join(first[:2]) != MAGIC:
        raise Refused("is no checkpoint")
    if first[2] != FORMAT:
        raise Refused("is of another version")
    if first[3] != _format_hash(body):
        raise Refused("is damaged")
    content, tensors = unpacked(body)
    check(content["belongs"], belongs)
    reader, (created, *counted) = Reader(tensors), content["counts"]
    values = {number: reader.value(plain) for number, plain in content["values"]}
    snapshot = Snapshot(created, values, *counted, *map(frozenset, content["jobs"]))
    return Checkpoint(snapshot, [reader.value(plain) for plain in content["readings"]])


def check(saved: Mapping[str, Any], belongs: Mapping[str, Any]) -> None:
    """Check that what was saved belongs to this run.

    Raises:
        Refused: it belongs to something else.
    """
    for name in sorted(saved.keys() | belongs.keys()):
        if saved.get(name) != belongs.get(name):
            raise Refused(f"belongs to another {name}")


def _format_hash(body: bytes) -> bytes:
    return blake2b(body, digest_size=16, person=FORMAT).hexdigest().encode()


def load_checkpoint(folder: Path, belongs: Mapping[str, Any]) -> Checkpoint | None:
    """Read the checkpoint of an unfinished run from its folder.

    Returns:
        None if the folder has no checkpoint, or, with a warning, one that cannot be used.
    """
    path = folder / CHECKPOINT
    try:
        return from_bytes(path.read_bytes(), belongs)
    except FileNotFoundError:
        return None
    except Exception as error:
        reason = str(error) if isinstance(error, Refused) else f"cannot be read ({' '.join(str(error).split())[:120]})"
        LOG.warning("%s: %s; the run starts anew", path, reason)
        return None


class Saver:
    """Observer that saves checkpoints at the ends of rounds.

    At least `every_s` seconds of host time lie between two of them, and so many that writing them takes no more than
    the part `COST` of the run's host time, if the next one takes as long as the last one did. Host time decides when a
    checkpoint is written, but never what is simulated.
    """

    def __init__(self, folder: RunFolder, every_s: float | None, belongs: Mapping[str, Any]) -> None:
        self._folder, self._every_s, self._belongs = folder, every_s, belongs
        self._began = self._saved = time.monotonic()
        self._took_s = self._spent_s = 0.0

    def __call__(self, fed: Federation) -> None:
        """Save a checkpoint if the last one is old enough."""
        if self._every_s is None:
            return
        now = time.monotonic()
        if now - self._saved >= self._every_s:
            next_s = self._took_s or fed.graph.known_byte() / SLOWEST_BYTE_PER_S
            if self._spent_s + next_s <= COST * (now - self._began):
                self.save(fed)

    def save(self, fed: Federation) -> None:
        """Save a checkpoint now.

        Nothing is saved in a timing-only run, without a checkpoint interval, in the middle of a computation or a sum,
        or while a resumed run has not yet caught up with the checkpoint that it started from.

        Raises:
            DataError: the checkpoint cannot be written.
        """
        if fed.timing_only or self._every_s is None or not (fed.graph.caught_up and fed.graph.at_rest()):
            return
        started = time.monotonic()
        with fed.graph.host.part("records"):
            try:
                self.write(fed.learner.checkpoint())
            except NotPlain as error:
                LOG.warning("no checkpoints are saved: a value of the run is %s; use tensors and named tuples", error)
                self._every_s = None
        self._saved = time.monotonic()
        self._took_s = self._saved - started
        self._spent_s += self._took_s

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint atomically: the file is either complete or unchanged."""
        data = to_bytes(checkpoint, self._belongs)
        self._folder.write_checkpoint(data)


FIRST = b"fednet_emu replies 1\n"
LINE_BYTE = 64
"""Length of the line before an entry."""


@final
class Replies(Kept):
    """Values by their keys, in a file open for reading and writing; in memory are only their places in it."""

    def __init__(self, file: IO[bytes], belongs: Mapping[str, Any]) -> None:
        self._file = file
        self._places: dict[str, int] = {}
        self._end = 0
        try:
            self._scan(belongs)
        except Refused as problem:
            LOG.warning("%s: %s; the run starts anew", file.name, problem)
        if not self._end:
            self._places.clear()
            self._append(FIRST + _entry(packed({"belongs": belongs}, {})))

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: str) -> Any:
        """The value of this key; None if there is none."""
        place = self._places.get(key)
        if place is None:
            return None
        body = self._read(place)
        assert body is not None, "an entry was sound when it was found or written"
        content, tensors = unpacked(body)
        return Reader(tensors).value(content["value"])

    def put(self, key: str, value: Any) -> None:
        """Keep a value (see `scenario.plain`) of this key.

        Raises:
            DataError: the file cannot be written.
        """
        writer = Writer()
        content = {"key": key, "value": writer.plain(value)}
        self._places[key] = self._append(_entry(packed(content, writer.tensors)))

    def _scan(self, belongs: Mapping[str, Any]) -> None:
        """Find the entries; raises `Refused` if they are of no use here."""
        self._file.seek(0)
        start = self._file.read(len(FIRST))
        if not start:
            return
        body = self._read(len(FIRST)) if start == FIRST else None
        if body is None:
            raise Refused("is damaged, or of another version")
        check(unpacked(body)[0]["belongs"], belongs)
        place = self._file.tell()
        while (body := self._read(place)) is not None:
            self._places[unpacked(body)[0]["key"]] = place
            place = self._file.tell()
        self._end = place

    def _read(self, place: int) -> bytes | None:
        """What an entry holds, or None if it was not written whole."""
        self._file.seek(place)
        line = self._file.read(LINE_BYTE).split()
        whole_byte = os.fstat(self._file.fileno()).st_size
        if len(line) != 2 or not line[0].isdigit() or int(line[0]) > whole_byte:
            return None
        body = self._file.read(int(line[0]))
        return body if line[1] == _hash(body) else None

    def _append(self, data: bytes) -> int:
        """Write at the end, over what was cut off there; return where it begins."""
        place = self._end
        with file_errors(Path(self._file.name), "written"):
            self._file.seek(place)
            self._file.truncate()
            self._file.write(data)
            self._file.flush()
        self._end = place + len(data)
        return place


@contextmanager
def kept_replies(folder: Path, belongs: Mapping[str, Any]) -> Iterator[Replies]:
    """The answers of clients that a run folder holds.

    Raises:
        DataError: the file cannot be written.
    """
    path = folder / REPLIES
    with file_errors(path, "opened"):
        path.touch()
        file = path.open("r+b")
    with file:
        replies = Replies(file, belongs)
        if len(replies):
            LOG.info("going on: %d replies of clients are known", len(replies))
        yield replies


def _entry(body: bytes) -> bytes:
    return b"%d %b" % (len(body), _hash(body)) + b" " * (LINE_BYTE - 34 - len(str(len(body)))) + b"\n" + body


def _hash(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).hexdigest().encode()
