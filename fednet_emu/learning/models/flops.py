"""Counts the floating-point operations of the code in a block, by PyTorch's formulas."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


def _recurrent_flop(x: Tensor, w_input: Tensor, w_hidden: Tensor, *_: Any, out_val: Any) -> int:
    """Operations of a recurrent layer on x [length, n, inputs], whose products multiply each step by both weights."""
    return int(2 * x.shape[0] * x.shape[1] * (w_input.numel() + w_hidden.numel()))


def _recurrent_backward_flop(*args: Any, out_val: Any) -> int:
    return 2 * _recurrent_flop(*args, out_val=out_val)


_FORMULAS = {
    **flop_registry,
    torch.ops.aten.mkldnn_rnn_layer: _recurrent_flop,
    torch.ops.aten.mkldnn_rnn_layer_backward: _recurrent_backward_flop,
}
"""Those of PyTorch, and those of the recurrent layers that run as one operation on a CPU, which it counts as none."""


@final
class FlopCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up matrix products and convolutions, forward and backward; a multiply-add is two operations.

    The same as `torch.utils.flop_counter.FlopCounterMode`, but without loading PyTorch's compiler (75 MB), which a
    small run does not need, and with the recurrent layers that run as one operation.

    Attributes:
        total: operations so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing here is compiled, so PyTorch need not load its compiler to skip it."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        formula = _FORMULAS.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=result)
        return result
