"""Counts the floating-point operations of the code in a block, by PyTorch's formulas."""

from __future__ import annotations

from typing import Any, final

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


@final
class FlopCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up matrix products and convolutions, forward and backward; a multiply-add is two operations.

    The same as `torch.utils.flop_counter.FlopCounterMode`, but without loading PyTorch's compiler (75 MB), which a
    small run does not need.

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
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=result)
        return result
