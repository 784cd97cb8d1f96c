"""The users outside the federation in a run: their positions, the keys of their random streams, and their files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.devices.placement import Listed, Placement
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.lines import LONGEST_S, header_rows, number, refused, whole
from fednet_emu.kernel.clock import all_to_ns, to_ns
from fednet_emu.kernel.streams import Streams, mix, uniforms
from fednet_emu.network.slices import OTHERS
from fednet_emu.network.traffic.laws import Law
from fednet_emu.network.traffic.settings import Traffic
from fednet_emu.records.ledger import SERVER
from fednet_emu.records.rows import KINDS

_BATCH = 256
"""Maximum number of files whose sizes and gaps are drawn in one call."""

Files = Iterator[tuple[int, int]]
"""Iterator over files. Each item is (gap in ns before the arrival of the file, size in bits)."""


@dataclass
class Source:
    """Source of the files of one user, or of a class whose files use several radios in turn.

    Attributes:
        of: index of the user class.
        kind: code of the direction, 0 for uplink or 1 for downlink.
        user: index of the first user within the class.
        radio: index of the first user's radio, counted after all devices.
        places: number of radios that the files use in turn.
        slice: index of the network slice that carries the files.
        files: iterator over the future files.
        follows: True if a gap begins at the end of the previous file.
        queues: True if a file waits until the previous file has ended.
        waiting: sizes in bits and arrival times in ns of files that wait.
        busy: True while a medium carries a file of the source.
        sent: number of files sent.
        size_bit: size in bits of the file that arrives next.
        order: index of the source among all sources.
    """

    of: int
    kind: int
    user: int
    radio: int
    files: Files
    places: int = 1
    slice: int = 0
    follows: bool = False
    queues: bool = True
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    busy: bool = False
    sent: int = 0
    size_bit: int = 0
    order: int = 0


class Users(NamedTuple):
    """The users outside the federation, of all classes.

    Attributes:
        xy_m: coordinates [users, 2] in m.
        numbers: [users] keys of random streams, each of which depends only on the class name and the index of the user.
        sources: the sources of the users' files.
    """

    xy_m: Array
    numbers: IntArray
    sources: list[Source]


def users_of(
    classes: Sequence[Traffic],
    placement: Placement,
    devices: int,
    streams: Streams,
    wire_bit: Callable[[int], int],
    data_dir: Path | None = None,
    slices: Sequence[str] = (OTHERS,),
) -> Users:
    """Return the users of all classes; their radio numbers begin after the device numbers.

    Args:
        placement: placement of users whose class sets no placement.
        devices: number of devices.
        wire_bit: function that adds headers to a size in bits.
        slices: names of the network slices.

    Raises:
        DataError: a trace of files cannot be read or contains no files.
    """
    places, numbers, sources = [np.empty((0, 2))], [np.empty(0, np.int64)], list[Source]()
    radio = devices
    for of, its in enumerate(classes):
        key, kind = streams.key("traffic", its.name), KINDS.index(its.direction)
        flows = list(_flows(its, streams, wire_bit, data_dir))
        count = its.users if its.trace is None else len(flows)
        places.append(_places_m(its.placement or placement, its.name, count, streams))
        numbers.append(np.array([mix(key, user) >> 1 for user in range(count)], np.int64))
        alone = its.place == "per-file"
        for user, files in enumerate(flows):
            source = Source(of, kind, user, radio + user, files, queues=not alone, follows=its.after == "end")
            source.places, source.slice = count if alone else 1, slices.index(its.slice or OTHERS)
            sources.append(source)
        radio += count
    return Users(np.concatenate(places), np.concatenate(numbers), sources)


def _places_m(placement: Placement, name: str, count: int, streams: Streams) -> Array:
    """Return the coordinates [count, 2] in m of a class's users, drawn separately for each user.

    Listed positions are repeated cyclically.
    """
    if isinstance(placement, Listed):
        listed_m = placement.positions_m(count, streams("placement", "traffic", name))
        return listed_m[np.arange(count) % len(listed_m)]
    each = (placement.positions_m(1, streams("placement", "traffic", name, user)) for user in range(count))
    return np.concatenate([place_m[:, :2] for place_m in each])


def _flows(its: Traffic, streams: Streams, wire_bit: Callable[[int], int], data_dir: Path | None) -> Iterator[Files]:
    """Yield an iterator over the files of each source of a user class."""
    if its.trace is not None:
        for rows in _recorded(its, locate(its.trace, data_dir)).values():
            gaps = [later - earlier for earlier, later in pairwise([0, *(start_ns for start_ns, _ in rows)])]
            yield iter([(gap, wire_bit(size_bit)) for gap, (_, size_bit) in zip(gaps, rows, strict=True)])
        return
    size, gap = its.size, its.gap
    assert size is not None, "without a trace there are laws"
    assert gap is not None, "without a trace there are laws"
    for user in range(1 if its.place == "per-file" else its.users):
        keys = streams.key("traffic", its.name, user, "size"), streams.key("traffic", its.name, user, "gap")
        yield drawn_files(size, gap, keys, wire_bit)


def drawn_files(size: Law, gap: Law, keys: tuple[int, int], wire_bit: Callable[[int], int]) -> Files:
    """Yield (gap in ns, size in bits) of an infinite sequence of files, drawn from distributions of sizes and gaps."""
    first, batch = 0, 4
    while True:
        numbers = np.arange(first, first + batch)
        size_byte = np.maximum(np.rint(size.quantiles(uniforms(keys[0], numbers))), 1.0).astype(np.int64)
        gaps_ns = all_to_ns(gap.quantiles(uniforms(keys[1], numbers)))
        for gap_ns, byte in zip(gaps_ns.tolist(), size_byte.tolist(), strict=True):
            yield gap_ns, wire_bit(8 * byte)
        first, batch = first + batch, min(2 * batch, _BATCH)


_HOW = "write a first line that names the columns user, start_s and size_byte, and a line for each file, in their order"
_CELLS: dict[str, Callable[[str], Any]] = {
    "user": str,
    "start_s": lambda text: number(text, 0.0, LONGEST_S),
    "size_byte": lambda text: whole(text, 1, 10**15),
}


def _recorded(its: Traffic, path: Path) -> dict[Any, list[tuple[int, int]]]:
    """Return, for each user, the start times in ns and the sizes in bits of the recorded files."""
    rows = _of_run(path, KINDS.index(its.direction)) if path.is_dir() else _of_csv(path)
    flows: dict[Any, list[tuple[int, int]]] = {}
    for user, start_s, size_bit in rows:
        flows.setdefault(user, []).append((to_ns(start_s), size_bit))
    if not flows:
        raise DataError(str(path), f"has no files on the {its.direction}", "name a trace that has")
    return flows


def _of_csv(path: Path) -> Iterator[tuple[str, float, int]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(str(path), f"cannot be read ({error})", _HOW) from error
    before_s = 0.0
    for count, (user, start_s, size_byte) in header_rows(str(path), text, _CELLS, _HOW):
        if start_s < before_s:
            raise refused(str(path), count, f"start_s falls, {start_s:g} after {before_s:g}", f"{start_s:g}", _HOW)
        before_s = start_s
        yield user, start_s, 8 * size_byte


def _of_run(folder: Path, kind: int) -> Iterator[tuple[int, float, int]]:
    """Yield the device, the request time in s and the size in bits of each message in one direction of an earlier run.

    Messages are sorted by request time.
    """
    import pandas as pd

    try:
        table = pd.read_parquet(
            folder / "transfers.parquet", columns=["direction", "sender", "receiver", "requested_s", "size_bit"]
        )
    except (OSError, ValueError) as error:
        raise DataError(
            str(folder), f"is no folder of a run ({str(error).splitlines()[0]})", "name a run folder or a CSV file"
        ) from error
    own = table[table["direction"] == KINDS[kind]].sort_values("requested_s", kind="stable")
    device = own["receiver" if kind else "sender"].clip(lower=SERVER)
    yield from zip(device.tolist(), own["requested_s"].tolist(), own["size_bit"].tolist(), strict=True)
