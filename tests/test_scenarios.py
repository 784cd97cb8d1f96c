"""Every file in scenarios/ runs, in a smoke mode that takes seconds."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.play import play
from fednet_emu.learning.data.datasets.base import Dataset, Samples
from fednet_emu.network.topology.contacts import Contacts

ROOT = Path(__file__).parents[1]
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))
SMOKE = ["stop={rounds: 1}"]
STAND_INS = {
    "chest-accelerometer": "data={kind: synthetic, features: [3, 52], n_samples: 3000, n_test: 300, classes: 7}",
    "hugging-face": "data={kind: synthetic, features: [1, 28, 28], n_samples: 20000, n_test: 100, classes: 62}",
    "mnist": "data={kind: synthetic, features: [1, 28, 28], n_samples: 8000, n_test: 100}",
    "fashion-mnist": "data={kind: synthetic, features: [1, 28, 28], n_samples: 8000, n_test: 100}",
    "torchvision": "data={kind: synthetic, features: [3, 32, 32], n_samples: 1000, n_test: 100}",
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
    """Where real data sets may be."""
    return Path(os.environ.get("FEDNET_DATA", ROOT.parent / "shared" / "data"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
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
