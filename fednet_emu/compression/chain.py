"""A chain of compressions: all stages but the last select entries, and the last stage encodes the selected entries."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field
from torch import Tensor

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.compression.base import WHOLE, Compression, Message
from fednet_emu.compression.rounding import BFloat16, Float16, Qsgd, Sign, Uniform
from fednet_emu.compression.sparse import RandomK, Sparse, TopK

STAGES: dict[str, type[Compression]] = kinds(Qsgd, TopK, RandomK, Sign, Uniform, Float16, BFloat16)
"""Kinds of compression that can be stages of a chain."""

AnyStage = Annotated[Compression, Slot("compression stage", STAGES)]


class Chain(Compression):
    """Compression in several stages, each of which encodes the entries that the previous stage selects.

    Sparse ternary compression (Sattler et al., see `top-k`) is top-k followed by sign. Error feedback applies to the
    chain as a whole. With error feedback, the decoded vector C(v) is divided by 1 + omega, an upper bound on E|C(v)|^2
    / |v|^2, as in Basu, Data, Karakus, Diggavi: "Qsparse-local-SGD", NeurIPS 2019, https://arxiv.org/abs/1906.02367.
    The bound is the product of the bounds of all stages; a deterministic stage has the bound 1.
    """

    stages: tuple[AnyStage, ...] = Field((TopK(), Qsgd()), min_length=1)
    """Stages in order; all stages except the last must select entries (`top-k`, `random-k`). The chain has error
    feedback if one of its stages has `error_feedback`."""

    def _check(self) -> None:
        early = [stage.kind for stage in self.stages[:-1] if not isinstance(stage, Sparse)]
        if early:
            raise ValueError(
                f"all stages but the last must choose entries, got {early[0]} before another one; put it last, after "
                "top-k or random-k"
            )

    @property
    def _parts(self) -> tuple[Sparse | None, Compression]:
        """The first stage (None if it does not select entries), and the compression that encodes the entries."""
        first, rest = self.stages[0], self.stages[1:]
        if not isinstance(first, Sparse):
            return None, first
        return first, Chain(stages=rest) if rest else WHOLE

    def bit(self, n: int) -> int:
        sparse, values = self._parts
        return sparse.bit(n, values) if sparse else values.bit(n)

    def compress(self, v: Tensor, rng: np.random.Generator) -> Message:
        sparse, values = self._parts
        return sparse.compress(v, rng, values) if sparse else values.compress(v, rng)

    def growth(self, n: int) -> float:
        sparse, values = self._parts
        return sparse.growth(n, values) if sparse else values.growth(n)

    @property
    def depends_on_values(self) -> bool:
        return self.stages[-1].depends_on_values

    @property
    def feeds_back(self) -> bool:
        return any(stage.feeds_back for stage in self.stages)
