"""The discrete problem, W in {0, 1}: its value for a partition, and the partition that greedy merging finds.

With an exact maximum over the multipliers every tied pair has equal shared parameters, so what remains is to minimise

    (1/n) sum over blocks B of cost(B) - (alpha/2) sum over blocks of |B|^2

where cost(B) is the smallest sum of f_i over the clients of B with shared parameters in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

Block = tuple[int, ...]
"""Clients of one cluster, in rising order."""
Cost = Callable[[Block], float]
"""The smallest sum of the local objectives of a block whose shared parameters are tied."""


def value(blocks: Iterable[Block], cost: Cost, n: int, alpha: float) -> float:
    """The objective of a partition of n clients."""
    return sum(cost(block) / n - alpha / 2 * len(block) ** 2 for block in blocks)


def profit(a: Block, b: Block, cost: Cost, n: int, alpha: float) -> float:
    """By how much merging two blocks lowers the objective: alpha |A| |B| less the loss of fit."""
    return alpha * len(a) * len(b) - (cost(_union(a, b)) - cost(a) - cost(b)) / n


def agglomerated(cost: Cost, n: int, alpha: float) -> list[Block]:
    """Blocks, from single clients on, after merging the two whose merger pays most, while one pays.

    Greedy, and so not exact for every cost; the number of different blocks it asks the cost of is of order n^2.
    """
    known: dict[Block, float] = {}

    def remembered(block: Block) -> float:
        if block not in known:
            known[block] = cost(block)
        return known[block]

    blocks: list[Block] = [(client,) for client in range(n)]
    while len(blocks) > 1:
        best, a, b = max((profit(a, b, remembered, n, alpha), a, b) for a, b in combinations(blocks, 2))
        if best <= 0:
            break
        blocks = sorted([*(block for block in blocks if block not in (a, b)), _union(a, b)])
    return blocks


def _union(a: Block, b: Block) -> Block:
    return tuple(sorted((*a, *b)))
