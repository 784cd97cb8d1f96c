"""Answers of clients in the run folder, each written as it comes, so that a run that was cut off need not train again.

The file is a first line, `fednet_emu replies` and the version of the format; then entries, each a line with the length
and a hash of what follows, and that: a safetensors file with JSON, as in checkpoints. The first entry says what the
others belong to, each other one has a key and a value. No code is kept. An entry that was cut off, and all after it,
count as not written.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, final

from fednet_emu.emulation.checkpoints import Refused, check
from fednet_emu.emulation.serialise import Reader, Writer, packed, unpacked
from fednet_emu.federation.learner import Kept
from fednet_emu.files.writing import told
from fednet_emu.records.folder.store import REPLIES

LOG = logging.getLogger("fednet_emu")

FIRST = b"fednet_emu replies 1\n"
LINE_BYTE = 64
"""Length of the line before an entry."""


@final
class Replies(Kept):
    """Values by their keys. In memory are only the places where they lie in the file.

    Args:
        file: the file, open for reading and writing.
        belongs: what the values depend on, as JSON holds it.
    """

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
        """Find the entries.

        Raises:
            Refused: they are of no use here.
        """
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
        with told(Path(self._file.name), "written"):
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
    with told(path, "opened"):
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
