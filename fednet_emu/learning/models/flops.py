"""Counts the floating-point operations of whatever runs inside, by the formulas that PyTorch keeps for them."""

from __future__ import annotations

from typing import Any, final

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


@final
class FlopCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up matrix products and convolutions, forward and backward; a multiply-add is two operations.

    As `torch.utils.flop_counter.FlopCounterMode` does, which loads PyTorch's compiler on the way: 75 MB that a small
    run has no use for.

    Attributes:
        total: operations so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is ever compiled, so the compiler need not be loaded to leave it alone."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=result)
        return result
