"""The discrete problem with W in {0, 1}: its value for a partition, and a greedy solution.

When the maximum over the multipliers is exact, coupled clients have equal shared parameters, and it remains to minimise

    (1/n) sum over blocks B of cost(B) - (alpha/2) sum over blocks of |B|^2

where cost(B) is the smallest sum of f_i over the clients of B with shared parameters in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

Block = tuple[int, ...]
"""A cluster: its clients, in ascending order."""
Cost = Callable[[Block], float]
"""The smallest sum of the local objectives of a block whose clients have equal shared parameters."""


def value(blocks: Iterable[Block], cost: Cost, n: int, alpha: float) -> float:
    """The objective of the discrete problem for a partition of n clients into blocks."""
    return sum(cost(block) / n - alpha / 2 * len(block) ** 2 for block in blocks)


def profit(a: Block, b: Block, cost: Cost, n: int, alpha: float) -> float:
    """Decrease of the objective when blocks A and B are merged: alpha |A| |B| minus the increase of their cost / n."""
    return alpha * len(a) * len(b) - (cost(_union(a, b)) - cost(a) - cost(b)) / n


def agglomerated(cost: Cost, n: int, alpha: float) -> list[Block]:
    """Partition found by greedy merging: start from single clients and merge the pair that lowers the objective most.

    It stops when no merge lowers the objective. Greedy merging is not exact for every cost; it evaluates the cost of
    O(n^2) different blocks.
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
