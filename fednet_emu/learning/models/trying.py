"""Trial calls that check whether a module accepts a batch, mixes its samples, and keeps its buffers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from fednet_emu.errors import ScenarioError


@torch.no_grad()
def passes(module: nn.Module, x: Tensor) -> bool:
    """Return True if the module accepts the batch `x`."""
    try:
        module(x)
    except (RuntimeError, ValueError):
        return False
    return True


@torch.no_grad()
def mixes(module: nn.Module, pair: Tensor) -> bool:
    """Return True if the output for a sample depends on other samples of the batch.

    The output for the first of two samples is compared with that for the first sample alone. If the call with a single
    sample fails, the result is True.
    """
    try:
        alone = module(pair[:1])
    except (RuntimeError, ValueError):
        return True
    return not np.allclose(module(pair)[:1], alone, rtol=1e-3, atol=1e-5)


def common_dtype(parameters: Mapping[str, nn.Parameter]) -> torch.dtype:
    """Return the dtype that all parameters have. Raise a `ScenarioError` if they have different dtypes."""
    dtypes = sorted({str(p.dtype) for p in parameters.values()})
    if not dtypes:
        raise ScenarioError("model: nothing to train, got no parameter that requires a gradient; use another model")
    if len(dtypes) > 1:
        raise ScenarioError(f"model: parameters of several types, got {', '.join(dtypes)}; use one type throughout")
    return next(iter(parameters.values())).dtype


def check_call(module: nn.Module, x: Tensor, loss: str, items: str) -> None:
    """Call a module with a batch [B, ...], and check that its outputs fit the `loss`.

    Error messages refer to the samples as `items`.
    """
    before, shape = x.clone(), tuple(x.shape)
    try:
        outputs = module(x)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ScenarioError(
            f"model: cannot take a batch of {items}, got shape {shape} and {error}; "
            f"choose a model for {items} of shape {shape[1:]}"
        ) from error
    if not torch.equal(x, before):
        raise ScenarioError(
            "model: writes into its input, got another batch after the call; have its first layer make a new tensor"
        )
    if loss == "cross-entropy" and outputs.ndim != 2:
        raise ScenarioError(
            f"model: outputs are not one score per class, got shape {tuple(outputs.shape)}; "
            f"cross-entropy needs [batch, classes]"
        )
    if loss == "next-token" and outputs.shape[:-1] != x.shape:
        raise ScenarioError(
            f"model: outputs are not scores at every position, got shape {tuple(outputs.shape)}; next-token needs "
            f"[batch, {x.shape[1]}, tokens]"
        )


def check_kept(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
    """Raise an error if a call has replaced a buffer by another tensor, which is not a view into the flat vector."""
    lost = [name for name, buffer in before.items() if after.get(name) is not buffer]
    if lost:
        raise ScenarioError(
            f"model: a new tensor takes the place of a buffer in training, got {', '.join(lost)}; "
            "change it in place, as with `copy_`"
        )


def owner(buffer: str) -> str:
    """Return the name of the layer to which a buffer belongs."""
    return buffer.rpartition(".")[0]
