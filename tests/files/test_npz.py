"""Archives of arrays and written files."""

from __future__ import annotations

import csv
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fednet_emu.devices.mobility.walks import load_walks
from fednet_emu.errors import DataError
from fednet_emu.files.npz import read_arrays, read_shapes
from fednet_emu.files.writing import checksum, csv_text, flaw, read_csv
from fednet_emu.learning.data.datasets import Npz
from tests.quick import share

HOW = "write it again"
SAMPLES = {
    "train_x": np.arange(24.0, dtype=np.float32).reshape(6, 2, 2),
    "train_y": np.array([0, 1, 2, 0, 1, 2]),
    "test_x": np.zeros((3, 2, 2), np.float32),
    "test_y": np.array([2, 0, 1]),
}
WALKS = {"east": np.array([[0.0, 0.0, 0.0], [10.0, 10.0, 0.0]]), "north": np.array([[0.0, 5.0, 5.0], [9.0, 5.0, 6.0]])}
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
MUTATED = share(2000)


def packed(arrays: dict[str, Any], compressed: bool = False) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of these members, with their right checksums."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def one(member: bytes) -> bytes:
    return zipped({"train_x.npy": member})


def array_bytes(array: Any) -> bytes:
    """The content of a member that holds this array."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def with_header(text: str, data: bytes = bytes(24), version: int = 1) -> bytes:
    """A member of this header, and data behind it."""
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + data


def shaped(shape: str, descr: str = "<f8", **more: Any) -> bytes:
    """A member whose header states a shape and a type."""
    return with_header(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n", **more)


def flagged(content: bytes, local: int, central: int, value: int) -> bytes:
    """An archive of one member in whose two headers, at these places, another byte stands."""
    changed = bytearray(content)
    changed[content.index(b"PK\x03\x04") + local] = value
    changed[content.index(b"PK\x01\x02") + central] = value
    return bytes(changed)


ONE = one(array_bytes(np.ones(3)))
DAMAGED = {
    "an encrypted member": (flagged(ONE, 6, 8, 1), "encrypted"),
    "an unknown method": (flagged(ONE, 8, 10, 77), "compression method"),
    "an unknown version": (flagged(ONE, 4, 6, 99), "zip file version"),
    "a shape beyond int64": (one(shaped(f"({2**64 + 1},)")), "x.npy holds 24 bytes, which is not float64"),
    "a product beyond int64": (one(shaped("(4294967296, 4294967296, 3)")), "x.npy holds 24 bytes, which is not"),
    "a huge shape": (one(shaped("(1000000000000,)")), "which is not float64"),
    "nothing of a huge size": (one(shaped(f"(0, {2**70})", data=b"")), "dimension"),
    "truth in a shape": (one(shaped("(True, 3)")), "x.npy is no array of numbers"),
    "5,000 signs": (one(shaped(f"({'-' * 5000}3,)")), "x.npy is no array of numbers"),
    "9,000 tildes": (one(shaped(f"({'~' * 9000}3,)")), "x.npy is no array of numbers"),
    "a number of 9,000 digits": (one(shaped(f"({'9' * 9000},)")), "x.npy is no array of numbers"),
    "a header of 60,000 bytes": (one(shaped(" " * 60000 + "(3,)")), "x.npy is no array of numbers"),
    "a type with parts": (one(array_bytes(np.ones(3, "f8,i4"))), "x.npy is no array of numbers"),
    "a type of no size": (one(shaped("(3,)", "<f99")), ""),
    "Python objects": (one(shaped("(3,)", "|O")), "objects"),
    "an unknown format": (one(shaped("(3,)", version=9)), "x.npy is no array of numbers"),
    "too little data": (one(shaped("(3,)", data=bytes(23))), "x.npy holds 23 bytes, which is not"),
    "too much data": (one(shaped("(3,)", data=bytes(25))), "x.npy holds 25 bytes, which is not"),
    "a text": (zipped({"a.txt": b"read me"}), "a.txt is no array of numbers"),
    "nothing in a member": (one(b""), "x.npy is no array of numbers"),
    "a bare array": (array_bytes(np.ones(3)), "not a zip file"),
}


def tried(call: Callable[[], Any], path: Path) -> bool:
    """Whether a reader is content with a file; if not, it says so in a sentence that names it."""
    try:
        call()
    except DataError as error:
        if str(error).startswith(f"{path}: "):
            return False
        raise
    return True


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("ending", [".npz", ".npz.gz", ".npz.xz"])
def test_what_numpy_writes_comes_back(tmp_path, compressed, ending):
    """All types and orders, of any number of axes, none of them and no entries included; arrays can be written to."""
    import gzip
    import lzma

    given: dict[str, Any] = {
        **SAMPLES,
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(3, dtype=">i2"),
        "scalar": np.float16(2.5),
        "empty": np.zeros((0, 4)),
        "words": np.array(["a", "bc"]),
        "truth": np.array([True, False]),
        "complex": np.array([1 + 2j]),
    }
    content = packed(given, compressed)
    path = tmp_path / f"a{ending}"
    path.write_bytes({".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)(content))
    found = read_arrays(path, HOW)

    assert list(found) == list(given)
    for name, array in given.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
        assert found[name].flags.writeable
    assert found["fortran"].flags.f_contiguous
    assert read_shapes(path, HOW) == {name: np.shape(array) for name, array in given.items()}
    assert list(read_arrays(path, HOW, ("big", "none"))) == ["big"]


def test_versions_of_the_format_that_other_programs_write(tmp_path):
    """Version 2 with its longer header, and a header without the blanks and the comma that NumPy writes."""
    tight = with_header("{'descr':'<f8','fortran_order':True,'shape':(3,1)}", version=2)
    (tmp_path / "a.npz").write_bytes(zipped({"a.npy": tight}))

    assert read_arrays(tmp_path / "a.npz", HOW)["a"].tolist() == [[0.0], [0.0], [0.0]]


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_wrong_is_said(tmp_path, what):
    """In one sentence with the file and what would be right, whoever reads it; nothing of a huge size is made."""
    content, problem = DAMAGED[what]
    path = tmp_path / "own.npz"
    path.write_bytes(content)

    for read in (read_arrays, read_shapes):
        if read is read_shapes and what == "nothing of a huge size":
            continue  # its header is sound
        with pytest.raises(DataError, match=rf"own\.npz: cannot be read as an \.npz file .*{problem}.*; {HOW}"):
            read(path, HOW)
    with pytest.raises(DataError, match=r"own\.npz: "):
        load_walks(path)
    with pytest.raises(DataError, match=r"own\.npz: "):
        Npz(path=str(path)).load(None, np.random.default_rng(0))
    assert Npz(path=str(path)).extent(None) is None


def test_a_sound_array_of_another_kind_is_left_to_its_reader(tmp_path):
    """Of a file that holds more than was asked for, only what was asked for is read."""
    path = tmp_path / "own.npz"
    path.write_bytes(zipped({"a.npy": array_bytes(np.ones(3)), "notes.txt": b"read me"}))

    assert list(read_arrays(path, HOW, ("a",))) == ["a"]


def mutated(rng: np.random.Generator, content: bytes) -> bytes:
    """A content with some bytes changed, put in, taken out or cut off."""
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(len(changed) or 1))
        match int(rng.integers(5)):
            case 0:
                del changed[place:]
            case 1:
                changed[place:place] = rng.bytes(int(rng.integers(1, 9)))
            case 2:
                del changed[place : place + int(rng.integers(1, 9))]
            case _:
                changed[place : place + 1] = rng.bytes(1)
    return bytes(changed)


def test_mutated_files_are_read_or_refused(tmp_path):
    """Of 2,000: whole files, and headers in archives whose checksums are right; any other error is a bug."""
    rng, path, sound = np.random.default_rng(37), tmp_path / "own.npz", 0
    readers: list[tuple[dict[str, Any], Callable[[], Any]]] = [
        (SAMPLES, lambda: (Npz(path=str(path)).extent(None), Npz(path=str(path)).load(None, rng))),
        (WALKS, lambda: load_walks(path)),
    ]
    for number in range(MUTATED):
        arrays, read = readers[number % 2]
        members = {f"{name}.npy": array_bytes(array) for name, array in arrays.items()}
        if number % 3:
            name = str(rng.choice(list(members)))
            mutant = zipped({**members, name: mutated(rng, members[name][:128]) + members[name][128:]})
        else:
            mutant = mutated(rng, zipped(members, METHODS[number % len(METHODS)]))
        path.write_bytes(mutant)
        sound += tried(read, path)

    assert 0 < sound < MUTATED / 2


def test_a_file_is_missing_sound_or_damaged(tmp_path):
    """Without a checksum to compare with, a file that is there is sound."""
    path = tmp_path / "table.csv"
    assert flaw(path, None) == "no such file"
    path.write_text("1,2")
    expected = checksum(path)

    assert flaw(tmp_path, expected) == "no such file"
    assert flaw(path, None) == flaw(path, expected) == ""
    path.write_text("1,3")
    assert flaw(path, expected) == "damaged, its content has changed since it was written"


def test_no_text_in_a_csv_file_is_a_formula(tmp_path):
    """An apostrophe keeps a spreadsheet from running it; numbers, and texts that are numbers, are left alone."""
    risky = ['=HYPERLINK("x")', "+1+cmd", "-1-1", "@SUM(A1)", "\ttab", "'quoted'", "- 5"]
    harmless = ["-0.5", "+1e6", "a=b", "50 % & more", "", "-inf"]
    names = [*risky, *harmless]
    levels = [-0.5, "-x", *[None] * (len(names) - 2)]
    table = pd.DataFrame({"=name": names, "loss": -np.arange(len(names)), "level": levels, "-b": -1.5})
    table["kind"] = pd.Categorical(names)
    text = csv_text(table, 6)
    rows = list(csv.reader(io.StringIO(text)))
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    again = read_csv(tmp_path / "a.csv", keep_default_na=False)

    assert rows[0] == ["'=name", "loss", "level", "'-b", "kind"]
    assert [row[0] for row in rows[1:]] == [f"'{name}" for name in risky] + harmless == [row[4] for row in rows[1:]]
    assert [row[1:4] for row in rows[1:3]] == [["0", "-0.5", "-1.5"], ["-1", "'-x", "-1.5"]]
    assert list(again) == list(table)
    assert again["=name"].tolist() == names
    assert again["loss"].tolist() == table["loss"].tolist()
    assert again["level"].tolist() == ["-0.5", "-x", *[""] * 11]
