"""The library torchvision, which is imported when a scenario first uses its data sets or models."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from fednet_emu.errors import ScenarioError


def torch_vision(where: str) -> Any:
    """Import the library.

    Its compiled operators, for boxes in images, are made for one build of PyTorch: operators for GPUs do not load with
    PyTorch for CPUs, as pip may install them. Data sets and models do not use them, but the library declares their
    shapes when it is imported, and fails there. It is then imported without these declarations. Errors name `where`.
    """
    try:
        return _imported()
    except (ImportError, RuntimeError, OSError) as error:
        problem = f"torchvision is not installed or incomplete ({' '.join(str(error).split())}), got kind 'torchvision'"
        raise ScenarioError(f"{where}: {problem}; pip install 'fednet-emu[torchvision]'") from error


_DECLARATIONS = "torchvision._meta_registrations"


def _imported() -> Any:
    try:
        return import_module("torchvision")
    except RuntimeError:
        sys.modules[_DECLARATIONS] = ModuleType(_DECLARATIONS)
        return import_module("torchvision")
