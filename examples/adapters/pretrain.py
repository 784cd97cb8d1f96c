"""Pretrain a small GPT on English prose, and write a data folder for fine-tuning; run time: minutes.

pip install 'fednet-emu[transformers]'; python examples/adapters/pretrain.py DATA
fednet run examples/adapters/scenario.yaml --data-dir DATA

Nothing is downloaded. The prose is the text of Python's `help()` topics. The owners' texts are the source codes of ten
modules of the standard library. Both differ slightly between versions of Python.
"""

import importlib
import inspect
import sys
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

from fednet_emu.learning.data.datasets.text import CHARACTERS, characters

OWNERS = (
    *("argparse", "doctest", "inspect", "pickle", "subprocess"),
    *("tarfile", "threading", "turtle", "typing", "zipfile"),
)
LENGTH, STEPS, BATCH_SIZE, LR = 64, 400, 24, 3e-3

folder = Path(sys.argv[1])
(folder / "modules").mkdir(parents=True, exist_ok=True)
for owner in OWNERS:
    source = inspect.getsource(importlib.import_module(owner))
    (folder / "modules" / f"{owner}.txt").write_text(source, encoding="utf-8")

torch.manual_seed(0)
config = GPT2Config(
    vocab_size=CHARACTERS, n_embd=64, n_layer=2, n_head=4, n_positions=LENGTH, bos_token_id=None, eos_token_id=None
)
network, prose = GPT2LMHeadModel(config).train(), torch.from_numpy(characters("\n".join(topics.values())))
optimizer = torch.optim.AdamW(network.parameters(), LR)
for step in range(STEPS):
    starts = torch.randint(len(prose) - LENGTH, (BATCH_SIZE, 1))
    windows = prose[starts + torch.arange(LENGTH + 1)]
    loss = cross_entropy(network(input_ids=windows[:, :-1]).logits.flatten(0, 1), windows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if (step + 1) % 100 == 0:
        print(f"step {step + 1}: {loss.item():.3f} nats a character")
network.save_pretrained(folder / "gpt")
