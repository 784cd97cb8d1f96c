"""Shipped scenarios, studies and channels, and the small federation."""

from __future__ import annotations

import importlib
import os
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fednet_emu.emulation.build import build
from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.play import play
from fednet_emu.errors import FednetError
from fednet_emu.learning.data.datasets.base import Dataset, Samples
from fednet_emu.network.topology.contacts import Contacts
from fednet_emu.records.laws import verify
from fednet_emu.scenario.library import STUDIES, names
from fednet_emu.study.file import StudyFile
from fednet_emu.study.reproduce import fitting_studies
from fednet_emu.study.runs import runs_of
from fednet_emu.study.search.search import load_search
from fednet_emu.testing import run_small

ROOT = Path(__file__).parents[1]
SCENARIOS = [path for folder in ("scenarios", "scenarios/papers") for path in sorted((ROOT / folder).glob("*.yaml"))]
SMOKE = ["stop={rounds: 1}"]
STAND_INS = {
    "chest-accelerometer": "data={kind: synthetic, features: [3, 52], n_samples: 3000, n_test: 300, classes: 7}",
    "hugging-face": "data={kind: synthetic, features: [1, 28, 28], n_samples: 20000, n_test: 100, classes: 62}",
    "mnist": "data={kind: synthetic, features: [1, 28, 28], n_samples: 8000, n_test: 100}",
    "fashion-mnist": "data={kind: synthetic, features: [1, 28, 28], n_samples: 8000, n_test: 100}",
    "torchvision": "data={kind: synthetic, features: [3, 32, 32], n_samples: 1000, n_test: 10}",
}
FOLDERS = {
    "chest-accelerometer": "chest_accelerometer",
    "fashion-mnist": "fashion_mnist",
    "hugging-face": "hugging_face/flwrlabs___femnist",
    "mnist": "mnist",
    "text": "shakespeare.txt",
    "torchvision": "cifar10",
}
"""Where each kind of data lies that is not embedded."""
ONE_OF_EACH = {"aspire_fashion_mnist", "cifar10", "clustered_mnist", "femnist", "shakespeare"}
"""A scenario for each of them but the recordings of the chest, which take seconds to read; the others are slow."""
LIKE_ANOTHER = {"fedul_mnist_gpu"}
"""A scenario that is `fedul_mnist` on another device."""
NATURAL = {kind: ["partition=iid"] for kind in ("chest-accelerometer", "hugging-face", "torchvision")}
"""What a stand-in needs beside, where the real data are dealt out by owner, or are many more."""


NO_GPU = "training.device=cpu"


def needs_a_gpu(path: Path) -> bool:
    """Whether a scenario asks for a GPU that is not here; its training would then take hours."""
    return load_scenario(path).training.device == "cuda" and not torch.cuda.is_available()


FEW_SAMPLES = ["partition.samples_per_device=200", "server.samples=200", "server.validation_samples=200"]


def smoke(path: Path) -> list[str]:
    """What makes a scenario short: one round, of two devices where the algorithm draws a cohort, of one epoch each.

    Devices that share their samples out among sets have few, and their server has few.
    """
    scenario = load_scenario(path)
    cohort = ["algorithm.cohort=2"] if hasattr(scenario.algorithm, "cohort") else []
    epochs = ["algorithm.local_epochs=1"] if getattr(scenario.algorithm, "local_epochs", None) else []
    few = FEW_SAMPLES if scenario.partition.kind == "surrogate-sets" else []
    return [*SMOKE, *cohort, *epochs, *few]


def contacts_stand_in(path: Path, folder: Path) -> list[str]:
    """In place of recorded contacts, a chain of devices that have met."""
    scenario = load_scenario(path)
    side = scenario.network.sidelink
    if side is None or side.topology is None or not isinstance(side.topology.edges, Contacts):
        return []
    trace = folder / "contacts.txt"
    trace.write_text("".join(f"0 CONN {device} {device + 1} up\n" for device in range(scenario.devices.count - 1)))
    return [f"network.sidelink.topology.edges.path={trace}"]


def text_stand_in(path: Path, folder: Path) -> list[str]:
    """In place of a text, a play in which as many roles as there are devices speak, each long enough."""
    scenario = load_scenario(path)
    if scenario.data.kind != "text":
        return []
    speech = "And so to bed, and dream of plays. " * 8
    roles = [f"ROLE {number}.\n{speech}\n\n" for number in range(scenario.devices.count)]
    play = folder / "play.txt"
    play.write_text("".join(roles), encoding="utf-8")
    return [f"data.path={play}", "data.min_samples=2", "model.units=8"]


FEW = 200
"""Test samples of a real data set; a model is the slower to evaluate, the more there are, and no other for it."""


def with_few_tests(dataset: type[Dataset], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a data set be read as it is, and have its first test samples only."""
    load = dataset.load

    def few(self: Dataset, folder: Path | None, rng: np.random.Generator) -> Samples:
        whole = load(self, folder, rng)
        groups = None if whole.test_group is None else whole.test_group[:FEW]
        return replace(whole, test_x=whole.test_x[:FEW], test_y=whole.test_y[:FEW], test_group=groups)

    monkeypatch.setattr(dataset, "load", few)


def data_dir() -> Path:
    return Path(os.environ.get("FEDNET_DATA", ROOT.parent / "shared" / "data"))


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.slow if path.stem in LIKE_ANOTHER else []) for path in SCENARIOS],
    ids=lambda path: path.stem,
)
def test_scenario_runs(path: Path, tmp_path: Path) -> None:
    """One round ends, every conservation law holds; data that must be fetched has a synthetic stand-in of its shape.

    What asks for a GPU is played without training where there is none.
    """
    kind = load_scenario(path).data.kind
    stand_in = [STAND_INS[kind], *NATURAL.get(kind, [])] if kind in STAND_INS else []
    changes = [*smoke(path), *contacts_stand_in(path, tmp_path), *text_stand_in(path, tmp_path), *stand_in]
    timing_only = needs_a_gpu(path)
    scenario = load_scenario(path, [*changes, NO_GPU] if timing_only else changes)

    summary = play(scenario, path.stem, tmp_path / "run", timing_only=timing_only).summary

    assert summary["status"] == "done"
    assert summary["rounds"] == 1
    assert summary["verified"] is True


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem in ONE_OF_EACH else pytest.mark.slow) for path in SCENARIOS],
    ids=lambda path: path.stem,
)
def test_scenario_runs_on_its_own_data(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One round on the real data set, where it is present."""
    if needs_a_gpu(path):
        pytest.skip("no CUDA device here: the other test plays its time plane")
    scenario = load_scenario(path, smoke(path))
    folder = FOLDERS.get(scenario.data.kind)
    if folder is None:
        pytest.skip("its data is embedded: covered by the other test")
    if not (data_dir() / folder).exists():
        pytest.skip(f"no {folder} in {data_dir().name}: set FEDNET_DATA to a folder that has it")

    with_few_tests(type(scenario.data), monkeypatch)
    summary = play(scenario, path.stem, tmp_path / "run", data_dir=data_dir()).summary

    assert summary["status"] == "done"


def test_names_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scenario and its channel are found by name, whatever the working folder."""
    monkeypatch.chdir(tmp_path)

    assert load_scenario("quickstart").channel.carrier_hz == 3.5e9


def test_the_example_recordings_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's recordings need neither a data folder nor the working folder of the checkout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDNET_DATA", raising=False)

    summary = play(load_scenario("recorded_links", SMOKE), "recorded", tmp_path / "run", timing_only=True).summary

    assert summary["verified"] is True


FOLDER = Path(__file__).parents[1] / "scenarios" / "studies"
FILES = sorted(FOLDER.glob("*.yaml"))
SEARCHED = {path for path in FILES if "\nsearch:" in path.read_text(encoding="utf-8")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_header_says_command_time_and_what_to_see(path: Path) -> None:
    """The first line reads `# fednet sweep NAME ...; TIME on ...; WHAT TO SEE.`, or search for sweep."""
    command, time, sight = path.read_text(encoding="utf-8").splitlines()[0].split("; ")

    assert command.split()[:4] == ["#", "fednet", "search" if path in SEARCHED else "sweep", path.stem]
    assert " on " in time
    assert sight.endswith(".")


@pytest.mark.parametrize("path", sorted(set(FILES) - SEARCHED), ids=lambda path: path.stem)
def test_cells_are_possible(path: Path) -> None:
    """Every run is a valid scenario, no two are the same, and each has a title to be drawn under."""
    if "kind: flower" in path.read_text(encoding="utf-8"):
        pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")
    runs = runs_of(path)

    assert len({run.digest for run in runs}) == len(runs)
    assert runs[0].study.title


@pytest.mark.parametrize("path", sorted(SEARCHED), ids=lambda path: path.stem)
def test_searches_are_possible(path: Path) -> None:
    """The space is sound, and the scenarios at its ends are."""
    study = load_search(StudyFile.read(path)).study

    assert study.search
    assert study.title


def test_studies_are_found_by_name_and_are_no_scenarios() -> None:
    """`fednet sweep NAME` knows them, and scenarios are not listed with them."""
    assert "quickstart_access" in names(STUDIES)
    assert not [name for name in names("scenarios") if "studies" in name]


def test_reproduction_takes_what_fits() -> None:
    """The cheapest studies that say their cost come first, and together they stay within the time."""
    hour = fitting_studies(60.0)
    costs = list(hour.values())

    assert "quickstart_access" in hour
    assert costs == sorted(costs)
    assert sum(costs) <= 60
    with pytest.raises(FednetError, match=r"no study of the library fits, got 0\.4"):
        fitting_studies(0.4)
    with pytest.raises(FednetError, match="no study of the library fits, got nan"):
        fitting_studies(float("nan"))


def test_a_table_that_the_code_no_longer_makes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make stale` plays runs of a table again: one second more of simulated time, and the table is stale."""
    root = FOLDER.parents[1]
    monkeypatch.syspath_prepend(root / "tools")
    stale = importlib.import_module("stale")
    table = pd.read_csv(root / "results/reference/quickstart_access/runs.csv")
    monkeypatch.setattr(stale, "REFERENCE", tmp_path)
    (tmp_path / "quickstart_access").mkdir()
    verdicts = []
    for further_s in (0.0, 1.0):
        changed = table.assign(simulated_s=table["simulated_s"] + further_s)
        changed.to_csv(tmp_path / "quickstart_access/runs.csv", index=False)
        verdicts.append(stale.verdict("quickstart_access", 1))

    assert verdicts[0] == "as measured"
    assert verdicts[1].startswith("stale: access=tdma, devices.count=10, seed=0: simulated_s 32.692, now 31.692")


def test_tables_that_are_said_to_be_old_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page about the reference tables names them; those that were mended are not among them."""
    monkeypatch.syspath_prepend(FOLDER.parents[1] / "tools")
    old = importlib.import_module("stale").said_to_be_old()

    assert old >= {"flower_strategies", "aspire_chest_table", "fedul_full"}
    assert not old & {"fedul_table", "niid_bench", "quickstart_access"}


CHANNELS = sorted((ROOT / "channels").glob("*.yaml"))
BETWEEN_DEVICES = ("d2d-sidelink", "v2v")
NEAR = [
    "devices.count=4",
    "devices.placement={kind: disc, radius_m: 40, inner_radius_m: 10}",
    "algorithm.cohort=4",
    "stop={rounds: 1}",
]
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"


@pytest.mark.parametrize("path", CHANNELS, ids=lambda path: path.stem)
def test_channel_carries_a_round(path: Path, tmp_path: Path) -> None:
    """Everybody within 40 m gets the model and answers, and every conservation law holds."""
    scenario = load_scenario(QUICKSTART, [*NEAR, f"channel={path.stem}"])

    summary = play(scenario, path.stem, tmp_path / "run", timing_only=True).summary

    assert summary["status"] == "done"
    assert summary["verified"] is True
    assert summary["transfers"] == 1 + 4  # one broadcast and four uplinks
    assert summary["uplink_bit"] == 4 * summary["downlink_bit"] > 0


@pytest.mark.parametrize("name", BETWEEN_DEVICES)
def test_channel_carries_a_sidelink(name: str) -> None:
    """Neighbours in a ring who send each other 1 Mbit at once all get it, and every conservation law holds."""
    own = "algorithm={kind: colrel, cohort: 4, lr: 0.1, batch_size: 10, local_steps: 1}"
    scenario = load_scenario(QUICKSTART, [*NEAR[:2], NEAR[3], own, f"network.sidelink={{channel: {name}}}"])
    fed = build(scenario, timing_only=True)
    devices = list(fed.devices())

    def send(index: int) -> Generator[Any, Any, list[Any]]:
        return (yield fed.sidelink(devices[index], [devices[(index + 1) % 4]], None, size_bit=10**6))

    def ring() -> Generator[Any, Any, list[Any]]:
        return (yield fed.gather(send(index) for index in range(4)))

    arrived = fed.clock.run_process(ring())
    fed.close()

    assert [delivery.lost for (delivery,) in arrived] == [""] * 4
    assert fed.ledger.sent_bit == [0, 0, 4 * 10**6]
    assert not any(verify(fed.ledger, frozenset({"sidelink"})).values())


def test_the_numbers_in_the_documentation_hold() -> None:
    """Four devices with 20 samples, 10 parameters, 36 FLOP per sample, 320 us per model and 720 us per step."""
    fed = run_small("stop.rounds=1")
    frames = fed.ledger.frames()
    spans = {name: (frames[name]["ended_s"] - frames[name]["started_s"]) for name in ("transfers", "computes")}

    assert (fed.n_devices, fed.task.n_samples.tolist()) == (4, [20] * 4)
    assert (fed.task.model.size, fed.task.model.flop_per_sample) == (10, 36)
    assert spans["transfers"].tolist() == pytest.approx([320e-6] * 5)
    assert spans["computes"].tolist() == pytest.approx([720e-6] * 4)
    assert set(frames["transfers"]["loss_reason"]) == {""}


def test_timing_only_leaves_out_training() -> None:
    """Without training there is no engine and no evaluation, and the clock runs on all the same."""
    fed = run_small(timing_only=True)

    assert fed.graph.engine is None
    assert fed.clock.now_s == pytest.approx(3 * 2.32e-3)
