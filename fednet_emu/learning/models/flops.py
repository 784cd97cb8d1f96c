"""Count the floating-point operations in a block of code by PyTorch's formulas."""

from __future__ import annotations

from typing import Any, Self, final

import torch
from torch import Tensor
from torch.backends import mha
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


def _recurrent_flop(x: Tensor, w_input: Tensor, w_hidden: Tensor, *_: Any, out_val: Any) -> int:
    """Return the number of operations of a recurrent layer's matrix products, for an input `x` [length, n, d]."""
    return int(2 * x.shape[0] * x.shape[1] * (w_input.numel() + w_hidden.numel()))


def _attention_flop(query: Tensor, key: Tensor, value: Tensor, *_: Any, out_val: Any, **__: Any) -> int:
    """Return the operations of attention's products: queries [..., n, d] with keys [..., m, d], weights with values."""
    return int(2 * query.shape[:-1].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1]))


def _attention_backward_flop(_: Tensor, *args: Any, out_val: Any, **__: Any) -> int:
    """Return the operations of attention's four backward products, without recomputed queries times keys."""
    return 2 * _attention_flop(*args, out_val=out_val)


_ATTENTION = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
_aten = torch.ops.aten
_FORMULAS = {
    **flop_registry,
    _aten.mkldnn_rnn_layer: _recurrent_flop,
    _aten.mkldnn_rnn_layer_backward: lambda *args, out_val: 2 * _recurrent_flop(*args, out_val=out_val),
    **{getattr(_aten, f"_scaled_dot_product_{kernel}"): _attention_flop for kernel in _ATTENTION},
    **{getattr(_aten, f"_scaled_dot_product_{kernel}_backward"): _attention_backward_flop for kernel in _ATTENTION},
}
"""Formulas for the operation counts: the formulas of PyTorch, and further formulas for layers that run as a single
operation on a CPU, which PyTorch does not count. Attention has the same count with every kernel: the count of its
matrix products."""


@final
class FlopCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context manager that adds up, in `total`, the floating-point operations of matrix products and convolutions.

    A multiply-add counts as two operations.

    In contrast to `torch.utils.flop_counter.FlopCounterMode`, this counter does not load PyTorch's compiler (75 MB). It
    also counts recurrent layers and attention that run as a single operation. Inside the block, transformer layers do
    not use their fast path for evaluation, because it would hide their matrix products from the counter.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self._fast_path: list[bool] = []

    def __enter__(self) -> Self:
        self._fast_path.append(mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        mha.set_fastpath_enabled(self._fast_path.pop())

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that PyTorch does not load its compiler. Nothing is compiled here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        formula = _FORMULAS.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=result)
        return result
