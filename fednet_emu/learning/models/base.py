"""Base class of models: components that build a PyTorch module for samples of a given shape.

Torch's global random generator is seeded for one block of code and restored afterwards. Layer initialisation and
dropout accept no other generator, so they run inside `torch_seed`. Nothing else in the package seeds torch, except code
for Flower apps (`flower/host.py`). `torch.manual_seed` is avoided: without a GPU it takes milliseconds, because it
records a deferred seed with a stack trace for each kind of absent device.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from fednet_emu.component.component import Component


class Model(Component):
    """A recipe that builds a PyTorch module."""

    def located(self, data_dir: Path | None) -> Model:
        """Return the recipe with the full paths of its files, looked up in `data_dir`, or else in FEDNET_DATA.

        Raises:
            DataError: a file is missing.
        """
        return self

    @property
    def own_loss(self) -> str | None:
        """Name of the loss that replaces the usual loss of the data; None for the usual loss."""
        return None

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """Build a module that maps a batch [n, *input_shape] to [n, outputs], with PyTorch's default initialisation.

        The parameters are drawn from PyTorch's global random generator. The caller must seed and restore the generator.

        Args:
            input_shape: Shape of one sample.
            outputs: Number of classes or labels (the outputs are logits), or of targets of a regression.

        Raises:
            ScenarioError: The model cannot be built, or does not fit samples of this shape.
        """


_ALONE = threading.RLock()
"""Lock of torch's generator, which all threads of the process share."""


@contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    """Context manager in which random operations depend only on `seed`. Operations outside are not affected."""
    gpus = list(range(torch.cuda.device_count()))
    with _ALONE, torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        if gpus:
            torch.cuda.manual_seed_all(seed)
        yield


def seeded_module(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return the module that `build` makes, with initial parameters that depend only on `seed`."""
    with torch_seed(seed):
        return build()
