"""Training samples that no device gets: the server's labelled samples and the validation samples."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples


@dataclass(frozen=True, eq=False)
class Held:
    """Labelled samples x [n, ...] and y [n]."""

    x: Tensor
    y: Tensor


def hold_out(
    samples: Samples, n_server: int, n_validation: int, rng: np.random.Generator
) -> tuple[Samples, Held, Held]:
    """Draw the server's and the validation samples out of the training samples.

    Returns:
        The remaining samples for the devices, in their order; the server's samples; the validation samples.

    Raises:
        ScenarioError: nothing is left for the devices.
    """
    n_all = len(samples.train_y)
    if n_server + n_validation >= n_all:
        raise ScenarioError(
            f"server: samples and validation_samples leave the devices none, got {n_server} and {n_validation}; "
            f"there are {n_all} training samples"
        )
    none = Held(samples.train_x[:0], samples.train_y[:0])
    if n_server + n_validation == 0:
        return samples, none, none
    parts = np.split(rng.permutation(n_all), [n_server, n_server + n_validation])
    server, validation, rest = (
        Held(samples.train_x[rows], samples.train_y[rows]) for rows in map(torch.from_numpy, map(np.sort, parts))
    )
    group = None if samples.train_group is None else samples.train_group[np.sort(parts[2])]
    left = replace(samples, train_x=rest.x, train_y=rest.y, train_group=group, optimum=None)
    return left, server, validation
