"""The studies of examples/adapters, with a small GPT and small texts in the place of those that pretrain.py makes."""

from __future__ import annotations

import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

import fednet_emu as fe
from fednet_emu.learning.data.datasets.text import CHARACTERS
from fednet_emu.study.runs import run_of, runs_of

if find_spec("transformers") is None:
    pytest.skip("needs transformers: pip install 'fednet-emu[transformers]'", allow_module_level=True)

FOLDER = Path(__file__).parents[3] / "examples/adapters"
TINY = {
    "devices.count": 4,
    "algorithm.cohort": 4,
    "algorithm.local_steps": 2,
    "algorithm.batch_size": 4,
    "stop.rounds": 3,
}
WIDTH, LENGTH = 8, 64
LAYERS = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
"""Inputs n and outputs m of the dense layers of a block: c_attn, c_proj of attention, c_fc, c_proj behind it."""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A folder like that of pretrain.py: a GPT of one block with random weights, and four owners."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    folder = tmp_path_factory.mktemp("data")
    (folder / "modules").mkdir()
    for place, word in enumerate(("sea", "shells", "on the shore", "she sells")):
        (folder / "modules" / f"owner{place}.txt").write_text(f"{word} " * 200, encoding="utf-8")
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=CHARACTERS,
        n_embd=WIDTH,
        n_layer=1,
        n_head=2,
        n_positions=LENGTH,
        bos_token_id=None,
        eos_token_id=None,
    )
    GPT2LMHeadModel(config).save_pretrained(folder / "gpt")
    return folder


@pytest.mark.parametrize(("name", "runs"), [("adapters", 26), ("adapters_choices", 36)])
def test_the_studies_are_valid(name, runs, data):
    """Every run of theirs: 13 settings with two seeds, 12 with three."""
    assert len(runs_of(FOLDER / f"{name}.yaml", data_dir=data)) == runs


@pytest.mark.parametrize(
    ("trained", "numbers"),
    [
        ("FedIT, rank 4", sum(4 * (n + m) for n, m in LAYERS)),
        ("FFA-LoRA, rank 4", sum(4 * m for _, m in LAYERS)),
        ("FedSA-LoRA, rank 4", sum(4 * n for n, _ in LAYERS)),
        ("all weights", sum((n + 1) * m for n, m in LAYERS) + (CHARACTERS + LENGTH + 6) * WIDTH),
    ],
)
def test_an_upload_has_the_numbers_that_travel(trained, numbers, data):
    """A and B, B alone, A alone, or all weights, biases, embeddings and three norms, 32 bits each."""
    cell = run_of(
        FOLDER / "adapters.yaml", {"trained": trained}, [f"{key}={value}" for key, value in TINY.items()], data_dir=data
    )
    run = fe.run(cell.scenario, data_dir=data, progress=False)

    assert set(run.transfers["size_bit"]) == {32 * numbers}
    assert run.evaluations["loss"].iloc[-1] < run.evaluations["loss"].iloc[0]


def test_a_choice_of_rank_compression_and_selection_runs(data):
    """An upload has 8 bits of each number, the norm, and the loss that the selection asks for."""
    levels = {"model.adapters.rank": "2", "compression": "qsgd", "selection": "power of choice"}
    tiny = ["devices.count=4", "algorithm.local_steps=1", "stop.rounds=1"]
    cell = run_of(FOLDER / "adapters_choices.yaml", levels, tiny, data_dir=data)
    run = fe.run(cell.scenario, data_dir=data, progress=False)
    uploads = run.transfers.loc[run.transfers["direction"] == "uplink", "size_bit"]

    assert set(uploads) == {8 * sum(2 * (n + m) for n, m in LAYERS) + 32 + 32}


def test_other_bands_are_timed_without_training(data, tmp_path):
    """What a loss costs on the study's band is what its run has counted, on another what a run with training counts."""
    grid = {"trained": {"FedIT, rank 2": {"model.adapters.rank": 2}}}
    scenario, options = FOLDER / "scenario.yaml", {"data_dir": data, "progress": False}
    study = fe.sweep(scenario, grid=grid, seeds=1, settings=TINY, out=tmp_path / "study", **options)
    study = study.aiming_at(loss=study.evaluations["loss"].iloc[2])
    rates = runpy.run_path(str(FOLDER / "rates.py"))
    table = rates["timed"](study, data).set_index("band_mhz")

    assert list(table.index) == list(rates["BANDS_MHZ"])
    assert set(table["rounds_to_target"]) == {2}
    for name in ("time_to_target_s", "bits_to_target", "energy_to_target_j"):
        assert table.loc[1.0, name] == study.runs[name].iloc[0]
    settings = {**TINY, "model.adapters.rank": 2, "channel.bandwidth_hz": 2e5}
    other = fe.run(scenario, settings=settings, **options).evaluations
    assert other["loss"].tolist() == study.evaluations["loss"].tolist()
    assert table.loc[0.2, "time_to_target_s"] == other["simulated_s"].iloc[2]
