"""Samples passed as a Python object; a YAML scenario cannot name them."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, field_serializer, field_validator
from torch import Tensor

from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples
from fednet_emu.learning.data.datasets.npz import checked_samples

_ARRAYS = ("train_x", "train_y", "test_x", "test_y", "train_group", "test_group")


def _array(values: Any) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.array(values)


class GivenSamples(Dataset):
    """Samples given as tensors or arrays, with the same checks as samples from a file."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    given: Samples

    def extent(self, data_dir: Path | None) -> Extent | None:
        """The shapes of the arrays, where these are as they should be."""
        shapes = [tuple(getattr(x, "shape", ())) for x in (self.given.train_x, self.given.test_x)]
        if not all(shapes):
            return None
        return Extent(
            shapes[0][1:],
            self.given.outputs,
            sum(shape[0] for shape in shapes),
            4 if self.given.vocabulary is None else 8,
        )

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        """The checked samples; the data folder and the random stream are not used."""
        samples = checked_samples(self._arrays(), self.given.classes, "data", self.given.vocabulary)
        return replace(samples, optimum=self.given.optimum)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        named = {name: getattr(self.given, name) for name in _ARRAYS}
        return {name: _array(value) for name, value in named.items() if value is not None}

    @field_validator("given", mode="before")
    @classmethod
    def _no_text(cls, given: Any) -> Any:
        if isinstance(given, str):
            raise ValueError(  # noqa: TRY004  (pydantic takes it for a problem of the value)
                f"was an object of Python, which no file holds, got '{given}'; hand it over again"
            )
        return given

    @field_serializer("given")
    def _described(self, given: Samples) -> str:
        """Description for the records of a run, because a scenario file cannot name a Python object."""
        digest, arrays = blake2b(digest_size=8), self._arrays()
        for name, array in arrays.items():
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return f"{len(arrays['train_x'])} training and {len(arrays['test_x'])} test samples {digest.hexdigest()}"
