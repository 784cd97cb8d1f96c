"""Reader of a Flower app's folder and its file `pyproject.toml`; neither the app nor Flower is imported."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fednet_emu.errors import did_you_mean, visible

PROJECT = "pyproject.toml"
TABLE = "tool.flwr.app.components"
NOT_SOURCES = {"__pycache__", "build", "node_modules", "site-packages"}
"""Names of folders that are skipped because they contain no code of the app; hidden folders are skipped, too."""

Config = dict[str, bool | int | float | str]
"""A run configuration: a mapping in which the keys of nested tables are joined by dots, as in Flower."""


class NoApp(ValueError):  # noqa: N818  (a property of the folder)
    """A folder that a setting names contains no Flower app. The error text does not name the setting."""


class AppFolder(NamedTuple):
    """Information about a Flower app from the file `pyproject.toml` in its folder.

    Attributes:
        path: the folder of the app.
        server: the location of the `ServerApp`, as `package.module:name`.
        client: the location of the `ClientApp`, as `package.module:name`.
        config: the default run configuration.
        nodes: the number of nodes that the app states for its simulation with Flower; None if not stated.
    """

    path: Path
    server: str
    client: str
    config: Config
    nodes: int | None

    @classmethod
    def read(cls, name: str) -> AppFolder:
        """Read the file `pyproject.toml` in the folder `name`, and return its information about the app.

        Raises:
            NoApp: the folder contains no Flower app.
        """
        path = Path(name).expanduser()
        remedy = f"give the folder of a Flower app, in which {PROJECT} lies"
        if not path.is_dir():
            raise NoApp(f"no such folder, got '{visible(name)}'; {remedy}")
        project = _project(path / PROJECT, name, remedy)
        parts = {part: _table(project, TABLE).get(part) for part in ("serverapp", "clientapp")}
        absent = [part for part, its in parts.items() if not (isinstance(its, str) and its.count(":") == 1)]
        if absent:
            what = f"{PROJECT} names no {' and no '.join(absent)} in [{TABLE}], got '{visible(name)}'"
            raise NoApp(f'{what}; write for example {absent[0]} = "my_app.{absent[0][:6]}_app:app" there')
        config = {key: its for key, its in flat(_table(project, "tool.flwr.app.config")) if its != {}}
        return cls(path.resolve(), str(parts["serverapp"]), str(parts["clientapp"]), config, _nodes(project))

    def sources(self) -> list[Path]:
        """Return the files with the app's code and configuration, sorted; virtual environments are left out."""
        found = []
        for place, folders, names in os.walk(self.path):
            folders[:] = [name for name in folders if not name.startswith(".") and name not in NOT_SOURCES]
            found += [Path(place, name) for name in names if name.endswith((".py", ".toml"))]
        return sorted(found)

    def fused(self, changes: Mapping[str, Any]) -> Config:
        """Return the default run configuration of the app, with the overrides in `changes`."""
        return {**self.config, **dict(flat(changes))}

    def problems(self, changes: Mapping[str, Any]) -> Iterator[str]:
        """Yield an error text for each override in `changes` with an invalid value, or a key unknown to the app."""
        for key, value in flat(changes):
            if key not in self.config:
                hint = did_you_mean(key, self.config, "its settings are:")
                yield f"the app has no such setting, got '{visible(key)}'{hint}"
            elif not isinstance(value, bool | int | float | str):
                yield f"{key} must be a number, a text, true or false, got {value!r}; give one of these"


def _project(file: Path, name: str, remedy: str) -> Mapping[str, Any]:
    if not file.is_file():
        raise NoApp(f"has no {PROJECT}, got '{visible(name)}'; {remedy}")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NoApp(f"{PROJECT} cannot be read ({visible(str(error))}), got '{visible(name)}'; correct it") from error


def _table(project: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    table: Any = project
    for key in path.split("."):
        table = table.get(key, {}) if isinstance(table, Mapping) else {}
    return table if isinstance(table, Mapping) else {}


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (key, value) for each setting of a table, with the keys of nested tables joined by dots.

    An empty nested table counts as a value.
    """
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _nodes(project: Mapping[str, Any]) -> int | None:
    federations = _table(project, "tool.flwr.federations")
    options = _table(federations, f"{federations.get('default')}.options")
    nodes = options.get("num-supernodes")
    return nodes if isinstance(nodes, int) and nodes > 0 else None
