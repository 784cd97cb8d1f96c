"""Products of many small matrices at once, by the library that is faster for their size.

PyTorch reaches half the peak speed of a core when one side of the matrices is short, such as the number of classes;
OpenBLAS, which comes with NumPy, has kernels for small matrices that reach nearly all of it. For larger ones they are
equal. The choice depends on the sizes only, so that runs are bit-identical.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_SMALL = 10**6
"""Largest number of multiplications in one product for which OpenBLAS has special kernels."""

_OF_NUMPY = (torch.float32, torch.float64)


def product(a: Tensor, b: Tensor) -> Tensor:
    """The products [A, n, m] of the matrices a [A, n, k] and b [A, k, m]."""
    return _by_openblas(a, b) if _is_small(a, b) else torch.bmm(a, b)


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Adds the products of the matrices a [A, n, k] and b [A, k, m] to total [A, n, m], in place."""
    if _is_small(a, b):
        total.add_(_by_openblas(a, b))
    else:
        total.baddbmm_(a, b)


def _by_openblas(a: Tensor, b: Tensor) -> Tensor:
    y = a.new_empty(len(a), a.shape[1], b.shape[2])
    with np.errstate(all="ignore"):  # values that are not finite are detected at the end of the job
        np.matmul(a.numpy(), b.numpy(), out=y.numpy())
    return y


def _is_small(a: Tensor, b: Tensor) -> bool:
    on_cpu = a.device.type == "cpu" and a.dtype in _OF_NUMPY
    return on_cpu and a.shape[1] * a.shape[2] * b.shape[2] <= _SMALL
