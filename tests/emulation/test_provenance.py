"""The manifest says what a run was made of: versions, the commit, plug-ins and data."""

import json
import subprocess
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.emulation.provenance import commit
from fednet_emu.files.data_folder import checksum, locate, noting
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL

MAPPING = from_text(SMALL, "small").data
ROOT = Path(__file__).parents[2]


class Pause(fe.Algorithm):
    """An algorithm that is none of the package's."""

    def run(self, fed: fe.Federation) -> fe.Process:
        """Nothing happens."""
        fed.initial_model()
        yield fed.clock.sleep(1.0)


def manifest(folder):
    """What the run in a folder says of itself."""
    return json.loads((folder / "manifest.json").read_text())


@pytest.fixture
def data(tmp_path):
    """A data folder with one file of samples."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 2)), np.arange(40) % 2
    np.savez(tmp_path / "own.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    return tmp_path


def test_data_files_are_in_the_manifest_with_their_checksums(data):
    """By the name that the scenario has for them; other content, other checksum; embedded data need none."""
    own = {**MAPPING, "data": {"kind": "npz", "path": "own.npz"}, "model": "softmax"}
    fe.run(own, data_dir=data, out=data / "run")
    fe.run(MAPPING, out=data / "embedded")

    whole = blake2b((data / "own.npz").read_bytes(), digest_size=16).hexdigest()
    assert manifest(data / "run")["data"] == {"own.npz": whole}
    assert manifest(data / "embedded")["data"] == {}


def test_a_folder_has_the_checksum_of_all_that_is_in_it(tmp_path):
    """Names and contents count, the order in which files were made does not."""
    for folder, names in (("a", "xy"), ("b", "yx"), ("c", "xz")):
        (tmp_path / folder / "inner").mkdir(parents=True)
        for name in names:
            (tmp_path / folder / "inner" / name).write_text("same", encoding="utf-8")

    assert checksum(tmp_path / "a") == checksum(tmp_path / "b") != checksum(tmp_path / "c")


def test_only_what_is_read_inside_is_noted(tmp_path):
    """Two notings inside each other do not mix."""
    for name in "ab":
        (tmp_path / name).write_text(name, encoding="utf-8")
    with noting() as outer:
        locate("a", tmp_path)
        with noting() as inner:
            locate("b", tmp_path)
    locate("a", tmp_path)

    assert (set(outer), set(inner)) == ({"a"}, {"b"})


def test_plug_ins_are_in_the_manifest(tmp_path):
    """A class outside of the package is named, with its package and version or the checksum of its file."""
    fe.run(MAPPING, algorithm=Pause(), out=tmp_path / "run")
    fe.run(MAPPING, out=tmp_path / "other")

    (told,) = manifest(tmp_path / "run")["plugins"].items()
    assert told[0] == f"{Pause.__module__}:Pause"
    assert told[1] == f"file {checksum(Path(__file__))}"
    assert manifest(tmp_path / "other")["plugins"] == {}


def test_version_and_commit_are_in_the_manifest(tmp_path):
    """In a checkout the commit is that of the source, marked where files differ from it."""
    commit.cache_clear()  # which is asked for once in a process
    fe.run(MAPPING, out=tmp_path / "run")
    told = manifest(tmp_path / "run")["fednet_emu"]

    assert told["version"] == fe.__version__
    assert told["commit"] == commit()
    if (ROOT / ".git").exists():
        head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        assert str(told["commit"]).startswith(head.stdout.strip())
