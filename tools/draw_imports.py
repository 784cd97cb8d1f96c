"""Draw the imports of the package, folder by folder, into CONTRIBUTING.md; fail on upward or circular imports.

    python tools/draw_imports.py            # update the drawing
    python tools/draw_imports.py --check    # fail if the drawing is not up to date

All imports count, including those inside functions and those for types only. The rooms of a folder are its sub-folders
and its own files. Circular imports are forbidden between files, and between the rooms of a folder. `LAYERS` fixes the
order of the parts of the package; within a part the drawing shows the order of the rooms in floors, so that an import
that changes this order changes the drawing.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]
NAME = "fednet_emu"
BEGIN, END = "<!-- imports: begin -->\n", "<!-- imports: end -->\n"
LAYERS = [
    {"arrays"},
    {"errors", "units"},
    {"host", "limits"},
    {"component", "files"},
    {"radio", "kernel", "records", "compression"},
    {"devices"},
    {"network", "learning", "tracking"},
    {"federation"},
    {"algorithms"},
    {"scenario", "analysis"},
    {"emulation", "draw"},
    {"study"},
    {"screen"},
    {"results"},
    {"cli", "testing"},
    {"__init__", "__main__"},
]
"""Parts of the package from the lowest to the highest layer; parts of the same layer do not import each other."""
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
OUTSIDE = ("__init__", "__main__", "__version__")
"""Modules of the package itself that belong to no part."""

File = tuple[str, ...]
"""The path of a module inside the package, for example `("network", "medium", "air")`; `__init__` counts as a file."""


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names of the modules that a file imports; `from a import b` counts as `a.b`.

    Raises:
        ValueError: the file has a relative import.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"imports are absolute, got a relative one in line {node.lineno}")
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def graph_of(sources: dict[File, str]) -> nx.DiGraph:
    """Return the graph with an edge from each file to every file of the package that it imports."""
    graph = nx.DiGraph()
    graph.add_nodes_from(sources)
    for file, text in sources.items():
        for module in imported(ast.parse(text)):
            path = tuple(module.split("."))
            if path[0] == NAME and (target := _file(path[1:], sources)) is not None and target != file:
                graph.add_edge(file, target)
    return graph


def _file(path: File, sources: Iterable[File]) -> File | None:
    """Return the file that an import refers to: a module, the `__init__` of a folder, or the module with that name."""
    for way in (path, (*path, "__init__"), path[:-1], (*path[:-1], "__init__")):
        if way in sources and way != ("__init__",):
            return way
    return None


def sources_in(package: Path) -> dict[File, str]:
    """Return the text of every Python file of a package, by its path."""
    return {
        path.relative_to(package).with_suffix("").parts: path.read_text(encoding="utf-8")
        for path in sorted(package.rglob("*.py"))
    }


def rooms(graph: nx.DiGraph, folder: File) -> nx.DiGraph:
    """Return the graph of the rooms of a folder, with an edge where a file of one room imports a file of another."""
    depth = len(folder)
    inside = [file for file in graph if file[:depth] == folder]
    found = nx.DiGraph()
    found.add_nodes_from(file[depth] for file in inside)
    for file, target in graph.edges(inside):
        if target[:depth] == folder and file[depth] != target[depth]:
            found.add_edge(file[depth], target[depth])
    return found


def folders(graph: nx.DiGraph) -> list[File]:
    """Return every folder of the package, each before its sub-folders; `()` is the package itself."""
    return sorted({file[:depth] for file in graph for depth in range(len(file))})


def circles(graph: nx.DiGraph) -> list[list[str]]:
    """Return one short cycle of imports for each group of rooms or files that import each other in a circle."""
    found = []
    for group in nx.strongly_connected_components(graph):
        if len(group) > 1:
            whole = graph.subgraph(group)
            start = min(group)
            back = min((nx.shortest_path(whole, first, start) for first in whole[start]), key=len)
            found.append([start, *back])
    return sorted(found)


def problems(graph: nx.DiGraph) -> list[str]:
    """Describe every import from a part to one that is not below it, and every circle between files or rooms."""
    found = [
        f"{'/'.join(file)}.py imports {'/'.join(target)}.py, which is not below it"
        for file, target in graph.edges
        if file[0] != target[0] and not {file[0], target[0]} & set(OUTSIDE) and RANK[target[0]] >= RANK[file[0]]
    ]
    found += [f"files in a circle: {' -> '.join(map('/'.join, way))}" for way in circles(graph)]
    for folder in folders(graph):
        name = "/".join((NAME, *folder))
        found += [f"rooms of {name} in a circle: {' -> '.join(way)}" for way in circles(rooms(graph, folder))]
    return found


def floors(graph: nx.DiGraph) -> list[list[str]]:
    """Group rooms into floors, from the highest to the lowest.

    A room imports only from floors below its own; rooms that import each other in a circle are on the same floor.
    """
    knots = nx.condensation(graph)
    height: dict[int, int] = {}
    for knot in reversed(list(nx.topological_sort(knots))):
        height[knot] = max((height[below] + 1 for below in knots[knot]), default=0)
    levels = {level: list[str]() for level in sorted(height.values(), reverse=True)}
    for knot, level in height.items():
        levels[level] += knots.nodes[knot]["members"]
    return [sorted(names) for names in levels.values()]


def drawing(graph: nx.DiGraph) -> str:
    """Return the drawing: the floors of every folder, the highest first, with the imports of each room beside it."""
    lines = []
    for folder in folders(graph):
        house = rooms(graph, folder)
        house.remove_nodes_from([name for name in OUTSIDE if name in house and not (folder and house[name])])
        storeys = floors(house)
        if len(storeys) <= 1:
            continue
        width = max(map(len, house))
        lines += ["", f"{'/'.join((NAME, *folder))}/"]
        for height, floor in zip(range(len(storeys) - 1, 0, -1), storeys, strict=False):
            lines += [_line(f"{height}  {room:<{width}}  ", house[room]) for room in floor]
        lines.append(_line("0  ", storeys[-1]))
    return "\n".join(["```text", *lines[1:], "```", ""])


def _line(head: str, names: Iterable[str]) -> str:
    return textwrap.fill(" ".join(sorted(names)), 120, initial_indent=head, subsequent_indent=" " * len(head))


def drawn(text: str, graph: nx.DiGraph) -> str:
    """Return a document in which the text between the two marks is replaced by the drawing of a graph."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}{drawing(graph)}{END}{rest.split(END)[1]}"


def main(arguments: list[str]) -> int:
    """Update the drawing, or with `--check` only compare it; return the exit code, 1 if there is a problem."""
    graph = graph_of(sources_in(ROOT / NAME))
    found = problems(graph)
    page = ROOT / "CONTRIBUTING.md"
    text = page.read_text(encoding="utf-8")
    if "--check" not in arguments:
        page.write_text(drawn(text, graph), encoding="utf-8")
    elif drawn(text, graph) != text:
        found.append("CONTRIBUTING.md: the drawing of imports is not current; run python tools/draw_imports.py")
    sys.stderr.writelines(f"{problem}\n" for problem in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
