import threading

import torch
from torch import nn

from fednet_emu.learning.models.base import seeded_module, torch_seed
from fednet_emu.learning.models.flat import FlatModel


def test_module_is_a_function_of_the_seed():
    """The same seed builds the same parameters, another seed builds others."""
    a, b, c = (seeded_module(lambda: nn.Linear(3, 2), seed).weight for seed in (7, 7, 8))

    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_seeding_leaves_the_global_generator_alone():
    """Building a module shifts no other draw from torch's global generator."""
    before = torch.get_rng_state()

    seeded_module(lambda: nn.Linear(3, 2), 7)
    with torch_seed(8):
        torch.rand(5)

    assert torch.equal(torch.get_rng_state(), before)


def test_nobody_else_draws_while_a_model_is_tried():
    """Whether a model draws is found by trying it; another thread's draws would be disturbed, and taken for its own."""
    drew, threads = threading.Event(), []

    def draw():
        with torch_seed(8):
            torch.rand(1)
        drew.set()

    class Tried(nn.Linear):
        def forward(self, x):
            if not threads:
                threads.append(threading.Thread(target=draw))
                threads[0].start()
                assert not drew.wait(0.2)
            return super().forward(x)

    FlatModel(Tried(2, 1), "squared-error", (2,))

    threads[0].join()
    assert drew.is_set()
