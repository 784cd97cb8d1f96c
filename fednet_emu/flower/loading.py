"""Import of the `ServerApp` and the `ClientApp` from an app's folder; the modules are removed after the run."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any, Literal

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fednet_emu.errors import ScenarioError
from fednet_emu.flower.folder import AppFolder

LOG = logging.getLogger("fednet_emu.plugins")
_ALONE = threading.RLock()
"""Lock of `sys.modules`, which all threads share; apps in several threads therefore run one after the other."""


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Make modules of `folder` importable inside the `with` block, in preference to other modules of the same name.

    Each block imports the modules again. No bytecode is written: if a file is edited within a second and keeps its
    size, Python would otherwise use outdated bytecode.
    """
    with _ALONE:
        sys.path.insert(0, str(folder))
        invalidate_caches()
        hidden = {name: sys.modules.pop(name) for name in _names_of(folder)}
        writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            yield
        finally:
            sys.dont_write_bytecode = writes_none
            sys.path.remove(str(folder))
            for name, module in list(sys.modules.items()):
                known = getattr(module, "__dict__", {})
                if _is_from(folder, known.get("__file__"), known.get("__path__", ())):
                    del sys.modules[name]
            sys.modules.update(hidden)


def part_of(folder: AppFolder, part: Literal["server", "client"]) -> Any:
    """Import and return the `ServerApp` or the `ClientApp` of an app.

    Raises:
        ScenarioError: the imported object is no `ServerApp` or `ClientApp`.
    """
    reference, wanted = (folder.server, ServerApp) if part == "server" else (folder.client, ClientApp)
    module_name, _, name = reference.partition(":")
    LOG.info("imports %s for '%sapp' of the app in %s", module_name, part, folder.path)
    found: Any = import_module(module_name)
    for step in name.split("."):
        found = getattr(found, step, None)
    if not isinstance(found, wanted):
        raise ScenarioError(
            f"algorithm.app: {reference} must be a {wanted.__name__}, got {found!r}; "
            f"mend {part}app in pyproject.toml, or the module"
        )
    return found


def _names_of(folder: Path) -> list[str]:
    """Return the names of loaded modules (and their submodules) that have the same name as modules in the folder."""
    entries = {path.stem if path.suffix == ".py" else path.name for path in folder.iterdir()}
    own = {name for name in entries & set(sys.modules) if _found_in(folder, name)}
    return [name for name in sys.modules if name.partition(".")[0] in own]


def _found_in(folder: Path, name: str) -> bool:
    """Return True if an import of `name` would find code in the folder; a folder with only data does not count."""
    specs = (finder.find_spec(name, None) for finder in sys.meta_path)
    spec = next(filter(None, specs), None)
    return spec is not None and _is_from(folder, spec.origin, spec.submodule_search_locations or ())


def _is_from(folder: Path, file: str | None, places: Iterable[str]) -> bool:
    """Return True if the file of a module is in the folder, but not in a virtual environment inside it."""
    paths = [Path(file)] if file is not None else [Path(place) for place in list(places)[:1]]
    return any(path.is_relative_to(folder) and "site-packages" not in path.parts for path in paths)
