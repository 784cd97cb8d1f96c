"""Plug-ins: component classes from other packages, found by entry point or by import path.

An installed package provides kinds of components by entry points of the group `fednet_emu.components`. Each entry point
is named `<slot>.<kind>`, and is imported only when a scenario uses the kind. A class given by its import path,
`package.module:Class`, needs no entry point. The logger `fednet_emu.plugins` reports each import before it happens.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from fednet_emu.errors import ScenarioError, described, did_you_mean

GROUP = "fednet_emu.components"
"""Name of the entry point group of plug-ins. Its entry points have names such as `fading.nakagami`."""

_NAME = r"[A-Za-z_]\w*"
PATH_PATTERN = rf"^{_NAME}(\.{_NAME})*:{_NAME}(\.{_NAME})*$"
"""Pattern of an import path: `package.module:Class`."""

LOG = logging.getLogger("fednet_emu.plugins")


def is_import_path(text: str) -> bool:
    """Return True if `text` has the form of an import path, `package.module:Class`."""
    return re.match(PATH_PATTERN, text) is not None


@cache
def offers() -> Mapping[str, Mapping[str, tuple[EntryPoint, ...]]]:
    """Return the entry points of installed packages by slot and kind; several packages may provide the same kind."""
    found: dict[str, dict[str, tuple[EntryPoint, ...]]] = {}
    for point in dict.fromkeys(entry_points(group=GROUP)):
        slot, _, kind = point.name.partition(".")
        kinds = found.setdefault(slot, {})
        kinds[kind] = (*kinds.get(kind, ()), point)
    return found


def offered(slot: str, kind: str) -> Any:
    """Import the class of the kind `kind` in the slot `slot` from the package that provides it, and return the class.

    A `ScenarioError` is raised if the import fails, or if several packages provide the kind.
    """
    points = offers()[slot][kind]
    if len(points) > 1:
        told = " and ".join(f"{_package(point)} ({point.value})" for point in points)
        raise ScenarioError(f"the kind '{kind}' is offered by several packages, got {told}; uninstall all but one")
    (point,) = points
    if point.module not in sys.modules:
        LOG.info("imports %s for %s '%s' of %s", point.module, slot, kind, _package(point))
    try:
        return point.load()
    except Exception as error:
        what = f"the plug-in '{kind}' of {_package(point)} cannot be imported ({described(error, 200)})"
        raise ScenarioError(f"{what}, got {point.value}; repair or uninstall that package") from error


def imported(path: str) -> Any:
    """Import and return the object at an import path `package.module:Class`.

    A `ScenarioError` is raised if the import fails, or if the module is found only in the current folder.
    """
    module_name, _, name = path.partition(":")
    if module_name not in sys.modules:
        _refuse_current_folder(path)
        LOG.info("imports %s for '%s'", module_name, path)
    try:
        module = import_module(module_name)
    except Exception as error:
        what = f"importing {module_name} failed ({described(error, 200)}), got {path!r}"
        raise ScenarioError(f"{what}; the module must be installed or lie in a folder of PYTHONPATH") from error
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        own = ((name, its) for name, its in vars(module).items() if inspect.isclass(its))
        classes = [name for name, its in own if its.__module__ == module_name]
        hint = did_you_mean(name, classes, "its classes are:")
        raise ScenarioError(f"{module_name} has no such name, got {name!r}{hint}")
    return found


@cache
def kind_of(slot: str, component: type) -> str:
    """Return the name of an external class in scenario files: its kind as a plug-in if any, else its import path."""
    top = component.__module__.partition(".")[0]
    for kind, points in offers().get(slot, {}).items():
        if len(points) == 1 and points[0].module.partition(".")[0] == top:
            try:
                if points[0].load() is component:
                    return kind
            except Exception as error:
                LOG.debug("%s cannot be imported: %s", points[0].value, error)
    return f"{component.__module__}:{component.__qualname__}"


def _refuse_current_folder(path: str) -> None:
    """Raise a `ScenarioError` if Python finds a module only because the current folder is on `sys.path`."""
    top = path.partition(":")[0].partition(".")[0]
    here = [*sys.path, str(Path.cwd())]
    if top not in sys.modules and _place(top, here) != _place(top, list(_deliberate_folders())):
        what = f"{top} is in the current folder, which is not searched for modules, got {path!r}"
        raise ScenarioError(f"{what}; install it, or add its folder to PYTHONPATH if you trust it")


def _place(top: str, folders: list[str]) -> tuple[str | None, list[str]] | None:
    """Return the file and the folders of the module `top`, searched in `folders` instead of `sys.path`, or None."""
    for finder in sys.meta_path:
        searches_folders = getattr(finder, "__name__", "") == "PathFinder"
        spec = finder.find_spec(top, folders if searches_folders else None)
        if spec is not None:
            return spec.origin, list(spec.submodule_search_locations or ())
    return None


def _deliberate_folders() -> Iterator[str]:
    """Yield the folders of `sys.path`.

    The current folder is included only if PYTHONPATH or the running script adds it.
    """
    current = Path.cwd()
    asked = {Path(folder).resolve() for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder}
    main = sys.modules.get("__main__")
    runs_a_script = getattr(main, "__spec__", None) is None and hasattr(main, "__file__")
    for folder in sys.path:
        is_current = folder in ("", os.curdir) or Path(folder) == current
        if not is_current or current in asked or (folder and runs_a_script):
            yield folder


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
