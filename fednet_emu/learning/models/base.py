"""Base class of models: components that build a PyTorch module for samples of a given shape."""

from __future__ import annotations

from abc import abstractmethod

from torch import nn

from fednet_emu.component.component import Component


class Model(Component):
    """A recipe for a PyTorch module."""

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
