"""Graphs whose spectra are known, and a sidelink on which a given one is used."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np

from fednet_emu.network.topology import Digraph

Pairs = list[tuple[int, int]]

EVERYBODY = "clusters: {kind: equal, count: 1}"
ACCESS = "access: {kind: spatial-reuse, interference: false}"


def ring(n: int) -> Pairs:
    return [(i, (i + 1) % n) for i in range(n)]


def torus(side: int) -> Pairs:
    cells = [(row, column) for row in range(side) for column in range(side)]
    right = [(row * side + column, row * side + (column + 1) % side) for row, column in cells]
    return right + [(row * side + column, (row + 1) % side * side + column) for row, column in cells]


def hypercube(n: int) -> Pairs:
    return [(i, i ^ (1 << bit)) for i in range(n) for bit in range(n.bit_length() - 1) if i < i ^ (1 << bit)]


def star(n: int) -> Pairs:
    return [(0, i) for i in range(1, n)]


def path(n: int) -> Pairs:
    return ring(n)[:-1]


def complete(n: int) -> Pairs:
    return [(i, j) for i in range(n) for j in range(i)]


def graph_of(n: int, pairs: Iterable[tuple[int, int]], *, directed: bool = False) -> Digraph:
    """One cluster with these edges, both ways unless directed."""
    ends = np.array(list(pairs), np.int64).reshape(-1, 2)
    both = ends if directed else np.concatenate((ends, ends[:, ::-1]))
    return Digraph.of(np.zeros(n, np.int64), both[:, 0], both[:, 1])


def sidelink(pairs: Pairs, *, directed: bool = False, more: str = "") -> str:
    """The setting of a sidelink at 1 Mbit/s with these edges."""
    edges = f"{{kind: list, pairs: {json.dumps(pairs)}, directed: {str(directed).lower()}}}"
    topology = f"topology: {{edges: {edges}, {EVERYBODY}}}"
    return f"network.sidelink={{channel: {{include: ideal}}, {ACCESS}, {topology}, {more}}}"
