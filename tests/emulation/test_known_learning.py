"""Runs that share what they learn: who trains, what makes another program, and what is said of it."""

from __future__ import annotations

import importlib
import json
import random
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import fednet_emu as fe
from fednet_emu.emulation import provenance
from fednet_emu.emulation.build import build
from fednet_emu.emulation.given import scenario_of
from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.play import Ended, play
from fednet_emu.emulation.provenance import learning_head
from fednet_emu.files.data_folder import checksum
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.graph.spelling import Speller, own_code
from fednet_emu.testing import small_scenario
from tests.commands import fednet
from tests.test_scenarios import NATURAL, SCENARIOS, STAND_INS, contacts_stand_in, needs_a_gpu, smoke, text_stand_in

FAST = {"progress": False}
SIX = ("stop.rounds=6", "evaluation.every_rounds=2")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("FEDNET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_another_network_trains_nothing(cache: Path) -> None:
    """From Python, as in a notebook: other bandwidth and access, the same scores and model; --no-reuse trains."""
    first = fe.run("quickstart", settings={"stop.rounds": 4}, **FAST)
    changed = {"stop.rounds": 4, "channel.bandwidth_hz": 2e6, "network.uplink.access": "ofdma"}
    other = fe.run("quickstart", settings=changed, **FAST)
    alone = fe.run("quickstart", settings={**changed, "training.reuse": False}, **FAST)

    assert (first.trained_jobs, first.known_jobs) == (alone.trained_jobs, alone.known_jobs) == (40, 0)
    assert (other.trained_jobs, other.known_jobs) == (0, 40)
    assert other.simulated_s != first.simulated_s
    assert other.digest == alone.digest
    assert other.evaluations.equals(alone.evaluations)
    scores = ["round", "loss", "accuracy"]
    assert other.evaluations[scores].equals(first.evaluations[scores])
    assert all(
        torch.equal(one, two)
        for one, two in zip(other.model.state_dict().values(), alone.model.state_dict().values(), strict=True)
    )


def test_rounds_of_arrays_and_rounds_of_events_share_what_they_learn(cache: Path) -> None:
    """In columns, also with a deadline, or job by job for unicast: only the first network trains; equal scores."""
    ways = {"arrays": (), "unicast": ("network.downlink.mode=unicast",), "late": ("algorithm.deadline_s=1000",)}
    for seed, first in enumerate(ways):
        ends = {}
        for name in sorted(ways, key=lambda name: name != first):
            summary = (ended := play(small_scenario(*SIX, f"seed={seed}", *ways[name]), name, None)).summary
            assert (summary["trained_jobs"], summary["known_jobs"]) == ((24, 0) if name == first else (0, 24))
            assert summary["exchanges"]["as_arrays"] == (0 if name == "unicast" else 6)
            ends[name] = ended.ledger.evaluations.frame()[["loss", "accuracy"]].to_numpy().tobytes()
        assert len(set(ends.values())) == 1


def test_the_final_model_is_known_without_checkpoints(cache: Path) -> None:
    """A run without checkpoints keeps its last values, so that another network trains nothing for its final model."""
    settings = (*SIX, "training.checkpoint_s=null")
    first = play(small_scenario(*settings), "small", None, keep_model=True)
    other = play(small_scenario(*settings, "network.downlink.mode=unicast"), "small", None, keep_model=True)

    assert (first.summary["trained_jobs"], other.summary["trained_jobs"]) == (24, 0)
    assert whole(other)[-1] == whole(first)[-1]
    assert len(list(cache.glob("*/*.snapshot"))) == 1


@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1)])
def test_the_number_of_workers_is_no_part_of_the_program(first: int, then: int, cache: Path) -> None:
    """A store that a run with one thread or process has written serves a run with two, and the other way round."""
    ends = []
    for workers in (first, then):
        ended = play(small_scenario(*SIX, "training.engine=batched", f"training.workers={workers}"), "small", None)
        ends.append((ended.summary["event_digest"], ended.ledger.evaluations.digest()))
    assert ended.summary["known_jobs"] == 24
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    "changes", ["evaluation.per_device=true", "evaluation.worst_train_loss=true", "evaluation.metrics=[macro-f1]"]
)
def test_other_scores_of_a_known_model_are_measured(changes: str, cache: Path) -> None:
    """The settings of the evaluation are a part of a score's key: the models are known, the scores are those alone."""
    data = "data={kind: synthetic, features: 9, classes: 3, n_samples: 80, n_test: 60}"
    settings = (data, "model=softmax", *SIX)
    alone = scores_of(*settings, changes, "training.reuse=false")
    plain = scores_of(*settings)

    assert scores_of(*settings, changes) == alone != plain == scores_of(*settings)


def scores_of(*settings: str) -> list[str]:
    """All scores that a run has written."""
    ledger = play(small_scenario(*settings), "small", None).ledger
    return [table.frame().to_csv() for table in (ledger.evaluations, ledger.device_evaluations)]


def test_a_run_that_goes_further_trains_what_comes_after(cache: Path) -> None:
    """Of ten rounds after six, the last four are trained; the first six are known."""
    play(small_scenario(*SIX), "small", None)
    longer = play(small_scenario(*SIX, "stop.rounds=10"), "small", None).summary

    assert (longer["known_jobs"], longer["trained_jobs"]) == (24, 16)


KEPT = """
devices: {count: 8, profile: phone-2019-mid, placement: {kind: disc, radius_m: 200}}
channel: urban-micro
data: digits
partition: {kind: dirichlet, alpha: 0.5}
model: {kind: mlp, hidden: [16]}
algorithm: safa
"""


def test_jobs_of_a_wavefront_that_a_snapshot_knows_in_part(cache: Path, tmp_path: Path) -> None:
    """SAFA, six rounds after four: models that devices keep are known, others of their wavefront train again."""
    path = tmp_path / "kept.yaml"
    path.write_text(KEPT, encoding="utf-8")
    fe.run(path, settings={"stop.rounds": 4}, **FAST)
    after, alone = (fe.run(path, settings={"stop.rounds": 6, "training.reuse": on}, **FAST) for on in (True, False))

    assert after.known_jobs > 0
    assert after.evaluations.equals(alone.evaluations)
    pairs = zip(after.model.state_dict().values(), alone.model.state_dict().values(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)


def head(scenario: Any) -> dict[str, str]:
    """What the learning of a scenario starts from."""
    return learning_head(scenario, build(scenario).task, Speller())


def samples(*, flip: tuple[str, int] | None = None) -> Samples:
    """Given samples, of which one number may be another one."""
    generator = torch.Generator().manual_seed(1)
    parts = {
        "train_x": torch.rand(40, 3, generator=generator), "train_y": torch.arange(40) % 2,
        "test_x": torch.rand(10, 3, generator=generator), "test_y": torch.arange(10) % 2,
    }  # fmt: skip
    if flip is not None:
        name, place = flip
        parts[name].view(-1)[place] = 1 - parts[name].view(-1)[place]
    return Samples(*parts.values(), 2)


GIVEN = ("model=softmax", "algorithm.batch_size=null")


@pytest.mark.parametrize("flip", [("train_x", 7), ("train_y", 7), ("test_x", 3), ("test_y", 3)])
def test_one_other_sample_or_label_makes_another_head(flip: tuple[str, int]) -> None:
    """Of training or of test samples; the same samples made again make the same head."""
    plain, same, other = (
        head(scenario_of(small_scenario(*GIVEN), data=its)[1].scenario)
        for its in (samples(), samples(), samples(flip=flip))
    )
    assert plain == same
    assert [name for name in plain if plain[name] != other[name]] == ["data"]


@pytest.mark.parametrize(
    ("setting", "item"),
    [
        ("seed=1", "seed"),
        ("scene_seed=1", "seed"),
        ("data.n_samples=76", "data"),
        ("devices.count=5", "split"),
        ("server={samples: 8}", "split"),
        ("training.engine=batched", "engine"),
    ],
)
def test_settings_that_decide_what_is_learnt_are_in_the_head(setting: str, item: str) -> None:
    """And those of the network are not."""
    plain, other = head(small_scenario()), head(small_scenario(setting))

    assert plain[item] != other[item]
    assert plain == head(small_scenario("channel.rate.bit_rate_bps=5e6", "network.downlink.mode=unicast"))


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        ("version of fednet_emu", ("source_hash", lambda: "0" * 32)),
        ("version of a package", ("versions", lambda: {"torch": "1.0"})),
        ("processor", ("_cpu", lambda: "another kind")),
    ],
)
def test_software_and_host_are_in_the_head(item: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faked, each makes another head, which is why a run shares nothing, and the log says which it was."""
    scenario = small_scenario(*SIX)
    before, first = head(scenario), play(scenario, "small", None).summary
    monkeypatch.setattr(provenance, *fault)
    after, again = head(scenario), play(scenario, "small", None).summary

    assert [name for name in before if before[name] != after[name]] == [item]
    assert again["trained_jobs"] == first["trained_jobs"] == 24


@pytest.mark.parametrize("what", ["capability", "threads", "environment", "precision", "oneDNN"])
def test_what_decides_how_a_processor_rounds_is_in_the_head(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vector instructions, threads within an operation, variables that steer libraries, and settings of PyTorch."""
    before = head(small_scenario())
    if what == "capability":
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "another")
    elif what == "threads":
        monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    elif what == "precision":
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    elif what == "oneDNN":
        monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    else:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")

    after = head(small_scenario())
    assert [name for name in before if before[name] != after[name]] == ["processor"]


PLUG_IN = """
import numpy as np
import torch
from fednet_emu.learning.data.datasets.base import Dataset, Samples
from {name}.helper import FACTOR

class Mine(Dataset):
    \"\"\"Samples of a file that this class opens itself.\"\"\"

    path: str
    \"\"\"The file.\"\"\"

    def load(self, data_dir, rng):
        x = torch.from_numpy(FACTOR * np.load(self.path))
        y = torch.arange(len(x)) % 2
        return Samples(x, y, x[:9], y[:9], classes=2)
"""


def test_code_and_data_of_a_plug_in_are_in_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another module than that of the named class, and a file that the class opens by itself."""
    package, metadata = tmp_path / "its_plug_in", tmp_path / "its_plug_in-1.0.dist-info"
    for folder in (package, metadata):
        folder.mkdir()
    (package / "__init__.py").write_text(PLUG_IN.format(name=package.name))
    (package / "helper.py").write_text("FACTOR = 1.0")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: its-plug-in\nVersion: 1.0\n")
    (metadata / "top_level.txt").write_text(package.name)
    monkeypatch.syspath_prepend(tmp_path)
    settings = [f"data={{kind: 'its_plug_in:Mine', path: {tmp_path / 'x.npy'}}}", "model=softmax", "partition=iid"]
    heads = []
    for entry, factor in ((1.0, 1.0), (1.0, 1.0), (2.0, 1.0), (2.0, 3.0)):
        np.save(tmp_path / "x.npy", np.full((40, 3), entry, np.float32))
        (package / "helper.py").write_text(f"FACTOR = {factor}")
        heads.append(head(small_scenario(*settings)))

    assert heads[0] == heads[1]
    for one, other in pairwise(heads[1:]):
        assert "data" in [name for name in one if one[name] != other[name]]


def test_own_code_is_told_apart_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All modules that no installer has put in place count; a program without a file is never the same again."""
    (tmp_path / "its_module.py").write_text("STEP = 1")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("its_module")
    program = ModuleType("__main__")
    program.__file__ = str(tmp_path / "its_module.py")
    monkeypatch.setitem(sys.modules, "__main__", program)

    def digest() -> str:
        own_code.cache_clear()
        return own_code()

    first = digest()
    assert digest() == first
    (tmp_path / "its_module.py").write_text("STEP = 2")
    assert digest() != first
    exec("def step(): ...", program.__dict__)  # as a cell of a notebook
    assert digest() != digest()
    del program.__file__
    assert digest() != digest()


def test_the_log_says_why_nothing_is_shared(tmp_path: Path) -> None:
    """The first difference from the most similar program; own code of a notebook, by its name; a Flower app."""
    play(small_scenario(*SIX), "small", None)
    play(small_scenario(*SIX, "seed=3"), "small", tmp_path / "run")
    assert "why not shared: all that is there is of another seed; " in (tmp_path / "run" / "log.txt").read_text()
    play(small_scenario(*SIX), "small", tmp_path / "again")
    assert "training jobs: 0 trained, 24 known" in (tmp_path / "again" / "log.txt").read_text()

    class Own(torch.nn.Linear):
        """A layer of a notebook."""

    own = {"model": Own(9, 1), "settings": {"stop.rounds": 2, "data.features": 9}}
    runs = [fe.run(small_scenario(), out=tmp_path / name, **own, **FAST) for name in ("own", "twice")]
    assert [run.trained_jobs for run in runs] == [8, 8]
    said = "Own cannot be written by value"
    assert (tmp_path / "twice" / "log.txt").read_text().count(said) == 1


def test_a_diverging_run_diverges_at_the_same_event(cache: Path) -> None:
    """Whether what came before is known or not."""
    wild = small_scenario("algorithm.lr=1e30", "stop.rounds=9", "evaluation.every_rounds=5")
    ends = []
    for reuse in (False, True, True):
        training = wild.training.model_copy(update={"reuse": reuse})
        summary = play(wild.model_copy(update={"training": training}), "wild", None).summary
        ends.append([summary[name] for name in ("status", "diverged", "rounds", "simulated_s", "event_digest")])
    assert ends[0] == ends[1] == ends[2]
    assert ends[0][0] == "diverged"


def test_the_cache_is_listed_bounded_and_emptied(cache: Path) -> None:
    """`fednet cache` says what is there; a size without a unit is refused."""
    for seed in range(3):
        play(small_scenario(*SIX, f"seed={seed}"), "small", None)
    assert fednet("cache").stdout.startswith(f"{cache}: 3 groups of learning programs, ")
    assert "of at most 5,000 MB" in fednet("cache", "--most", "5GB").stdout
    assert fednet("cache", "--folder", f"{cache}-", "--empty").exit_code == 2
    assert "of at most 0.4 MB" in fednet("cache", "--most", "400kB").stdout
    assert fednet("cache", "--most", "5").exit_code == fednet("cache", "--most", "-1GB").exit_code == 2
    assert fednet("cache", "--most", "5GB", "--empty").stdout.startswith(f"{cache}: 0 groups of learning programs")
    assert not list(cache.glob("*/"))
    assert play(small_scenario(*SIX), "small", None).summary["known_jobs"] == 0


@pytest.mark.parametrize("text", ["[]", "7", "{{", '{{"{path}": []}}', '{{"{path}": [0, 1, 2]}}'])
def test_checksums_of_data_files_are_in_the_cache(text: str, cache: Path, tmp_path: Path) -> None:
    """Whatever is in their file; nothing is written beside the cache."""
    path = tmp_path / "data.npy"
    path.write_bytes(b"1")
    cache.mkdir()
    (cache / "checksums.json").write_text(text.format(path=path))
    found = [provenance._checksums({"data": path}) for _ in range(2)]

    assert found == [{"data": checksum(path)}] * 2
    assert list(json.loads((cache / "checksums.json").read_text())) == [str(path)]
    assert sorted(its.name for its in tmp_path.iterdir()) == ["cache", "data.npy"]


def whole(ended: Ended) -> tuple[Any, ...]:
    """What a run has come to, to the last bit."""
    ledger = ended.ledger
    tables = [getattr(ledger, name).digest() for name in ("evaluations", "device_evaluations", "rounds")]
    states = [] if ended.model is None else [state.values() for state in ended.model.states]
    return (*tables, ended.summary["event_digest"], [tensor.numpy().tobytes() for own in states for tensor in own])


@pytest.mark.slow
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_shipped_scenario_is_the_same_with_known_learning(path: Path, cache: Path, tmp_path: Path) -> None:
    """Cut to two rounds: with nothing known, all known, a random half of the files, and --no-reuse."""
    if needs_a_gpu(path):
        pytest.skip("training takes hours without a GPU")
    kind = load_scenario(path).data.kind
    stand_in = [STAND_INS[kind], *NATURAL.get(kind, [])] if kind in STAND_INS else []
    changes = [*smoke(path), *contacts_stand_in(path, tmp_path), *text_stand_in(path, tmp_path), *stand_in]
    scenario = load_scenario(path, [*changes, "stop={rounds: 2}", "training.workers=1"])
    plain = scenario.model_copy(update={"training": scenario.training.model_copy(update={"reuse": False})})
    expected = whole(play(plain, "plain", None, keep_model=True))
    for known in ("nothing", "all", "half"):
        if known == "half":
            for file in sorted(cache.glob("*/*")):
                if random.Random(file.name).random() < 0.5:
                    file.unlink()
        ended = play(scenario, known, None, keep_model=True)
        assert whole(ended) == expected, known
        if known == "all" and not scenario.algorithm.own_learning:  # a model is kept only where that costs little
            assert play(scenario, known, None).summary["trained_jobs"] == 0
