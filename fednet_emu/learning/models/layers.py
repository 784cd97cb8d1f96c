"""Divide the parameters of a model into shared ones and private ones, which stay on the device."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import final

import torch
from torch import Tensor

from fednet_emu.errors import ScenarioError, did_you_mean
from fednet_emu.learning.models.flat import FlatModel

LayerName = str | int
"""A parameter name or pattern, such as `3.weight`, `body.*` or `*.bias`, or the index of a layer, where -1 is the last
one."""


@final
class Layers:
    """Division of a flat parameter vector [size] into a shared and a private part.

    The layers or parameters listed in `private` stay on the device. The `n_shared` other scalars are sent and received;
    the last `n_statistics` of them are running statistics. The masks `shared` and `private` [size] are 1 in the part.
    """

    def __init__(self, model: FlatModel, private: Sequence[LayerName]) -> None:
        places = model.unflatten(torch.arange(model.size))
        names = [name for entry in private for name in _matches(entry, list(places))]
        self.size = model.size
        self.shared = torch.ones(model.size, dtype=model.dtype)
        for name in names:
            self.shared[places[name].reshape(-1)] = 0.0
        self.private = 1.0 - self.shared
        self._places = self.shared.nonzero().squeeze(1)
        self.n_shared = len(self._places)
        self.n_statistics = int((self._places >= model.n_trainable).sum())
        if not self.n_shared:
            raise ScenarioError(f"private: nothing is left to share, got {list(private)}; choose the algorithm local")

    def take(self, vector: Tensor) -> Tensor:
        return vector[self._places.to(vector.device)]

    def put(self, vector: Tensor, shared: Tensor) -> Tensor:
        return vector.index_copy(0, self._places.to(vector.device), shared)

    def pad(self, shared: Tensor) -> Tensor:
        """Return a vector [size] with the scalars `shared` [n_shared] at their positions, and zeros elsewhere."""
        return self.put(shared.new_zeros(self.size), shared)


def _matches(entry: LayerName, names: list[str]) -> list[str]:
    """Return the names of the parameters to which an entry refers, in the order of the model."""
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    if isinstance(entry, int):
        if not -len(layers) <= entry < len(layers):
            raise ScenarioError(
                f"private: no such layer, got {entry}; the model has {len(layers)} layers with parameters"
            )
        return [name for name in names if name.rpartition(".")[0] == layers[entry]]
    found = [name for name in names if fnmatchcase(name, entry)]
    if not found:
        hint = did_you_mean(entry, names) or f"; its parameters are {', '.join(names)}"
        raise ScenarioError(f"private: no parameter has such a name, got '{entry}'{hint}")
    return found
