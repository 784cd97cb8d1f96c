"""Write a page that shows, for each folder of the package, the imports between its files and sub-folders.

A file or sub-folder is called a room. A room imports only from rooms on lower floors; imports for types count, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import grimp
import networkx as nx
from generated import writes

PACKAGE = "fednet_emu"
LEAD = f"""# The house

Written from the imports of `{PACKAGE}/`: each folder from its top floor to the bottom, with what each room imports from
the same folder. Imports run downward only; the contracts in `pyproject.toml` hold that (`make lint`).
"""


def page() -> str:
    """Return the page of imports as MyST Markdown."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    lines = [LEAD]
    for folder in sorted(module for module in graph.modules if len(graph.find_children(module)) > 1):
        lines += [f"## {folder.replace('.', '/')}/", "", _first_line(folder), ""]
        lines += ["| Floor | Room | Imports |", "|---|---|---|", *_rows(_rooms(graph, folder)), ""]
    return "\n".join(lines)


def _first_line(folder: str) -> str:
    return (import_module(folder).__doc__ or "").strip().partition("\n")[0]


def _rooms(graph: grimp.ImportGraph, folder: str) -> nx.DiGraph:
    """Return the graph of imports between the files and sub-folders of a folder."""
    rooms = nx.DiGraph()
    for room in graph.find_children(folder):
        rooms.add_node(room)
        for module in (room, *graph.find_descendants(room)):
            for other in graph.find_modules_directly_imported_by(module):
                target = ".".join(other.split(".")[: folder.count(".") + 2])
                if target.startswith(f"{folder}.") and target != room:
                    rooms.add_edge(room, target)
    return rooms


def _rows(rooms: nx.DiGraph) -> list[str]:
    """Return a table row for each room, highest floor first; rooms that import each other in a cycle share a floor."""
    circles = nx.condensation(rooms)
    floor: dict[int, int] = {}
    for circle in reversed(list(nx.topological_sort(circles))):
        floor[circle] = max((floor[below] + 1 for below in circles[circle]), default=0)
    height = {room: floor[circle] for room, circle in circles.graph["mapping"].items()}
    return [
        f"| {height[room]} | `{_short(room)}` | {' '.join(f'`{_short(below)}`' for below in sorted(rooms[room]))} |"
        for room in sorted(rooms, key=lambda room: (-height[room], room))
    ]


def _short(module: str) -> str:
    return module.rpartition(".")[2]


def setup(app: Any) -> dict[str, bool]:
    """Register this extension with Sphinx."""
    return writes(app, "project/house.md", page)
