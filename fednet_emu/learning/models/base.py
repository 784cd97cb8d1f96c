"""Base class of models, which are components that build a PyTorch module for samples of a given shape.

Layer initialisation and dropout accept no generator other than torch's global one. They therefore run inside
`torch_seed`, which seeds this generator for one block of code and restores it afterwards. Nothing else in the package
seeds torch, except code for Flower apps (`flower/host.py`). The function `torch.manual_seed` is not used, because
without a GPU it takes milliseconds: it records a deferred seed with a stack trace for each type of absent device.
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
from fednet_emu.errors import ScenarioError


class Model(Component):
    """A recipe that builds a PyTorch module."""

    def located(self, data_dir: Path | None) -> Model:
        """Return the settings of the model with full paths of its files, which are looked up in the data folder.

        The data folder is `data_dir` or, if it is None, the folder that the environment variable FEDNET_DATA names.

        Raises:
            DataError: a file is missing.
        """
        return self

    @property
    def own_loss(self) -> str | None:
        """Name of the loss that is used instead of the default loss for the type of data; None for the default loss."""
        return None

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """Build a module that maps a batch [n, *input_shape] to [n, outputs], with PyTorch's default initialisation.

        The parameters are drawn from PyTorch's global random generator, which the caller must seed and restore.

        Args:
            input_shape: Shape of one sample.
            outputs: Number of classes or labels, for which the outputs are logits, or number of regression targets.

        Raises:
            ScenarioError: The model cannot be built, or does not fit samples of this shape.
        """


def check_images(kind: str, input_shape: tuple[int, ...]) -> None:
    """Raise a `ScenarioError` unless samples of shape `input_shape` are images; `kind` is the kind of the model."""
    if len(input_shape) != 3:
        wanted = f"samples must be images [channels, height, width] for {kind}"
        raise ScenarioError(f"model: {wanted}, got shape {list(input_shape)}; use image data, or mlp or softmax")


_ALONE = threading.RLock()
"""Lock for torch's global generator, because all threads of the process share it."""


@contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    """Context manager in which torch's random numbers depend only on `seed`. Code outside is not affected."""
    gpus = list(range(torch.cuda.device_count()))
    with _ALONE, torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        if gpus:
            torch.cuda.manual_seed_all(seed)
        yield


def seeded_module(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return the module that `build` creates, with initial parameters that depend only on `seed`."""
    with torch_seed(seed):
        return build()
