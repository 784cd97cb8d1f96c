"""Base class of models: components that build a PyTorch module for samples of a given shape.

Torch's global random generator is seeded for one block of code and restored afterwards: layer initialisation and
dropout take no generator of their own, so they run inside `torch_seed`. Nothing else in the package seeds torch, except
for code of Flower apps (`flower/host.py`). Without a GPU `torch.manual_seed` would take milliseconds: for each kind of
absent device it records a deferred seed with a stack trace.
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
    """A recipe for a PyTorch module."""

    def located(self, data_dir: Path | None) -> Model:
        """This recipe with the full paths of its files; None means the folder in FEDNET_DATA.

        Raises:
            DataError: a file is missing.
        """
        return self

    @property
    def own_loss(self) -> str | None:
        """Name of the loss instead of the usual loss of the data; None for the usual loss."""
        return None

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """A module that maps a batch [n, *input_shape] to [n, outputs], with PyTorch's default initialisation.

        The parameters come from PyTorch's global random state: the caller seeds it, and restores it afterwards.

        Args:
            input_shape: Shape of one sample.
            outputs: Number of classes or labels (the outputs are logits), or of targets of a regression.

        Raises:
            ScenarioError: The model cannot be built, or not for samples of this shape.
        """


_ALONE = threading.RLock()
"""Lock of the generator, which all threads of the process share."""


@contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    """Random operations inside the block are a function of `seed`; operations outside are not affected."""
    gpus = list(range(torch.cuda.device_count()))
    with _ALONE, torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        if gpus:
            torch.cuda.manual_seed_all(seed)
        yield


def seeded_module(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """The module that `build` makes, with initial parameters that depend on `seed` only."""
    with torch_seed(seed):
        return build()
