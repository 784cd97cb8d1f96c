"""Import the library torchvision when a scenario first uses one of its data sets or models."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from fednet_emu.errors import ScenarioError


def torch_vision(where: str) -> Any:
    """Import the library torchvision. Errors begin with `where`, the key path of the setting that needs it.

    pip may install torchvision with compiled operators for GPUs, which cannot be loaded with a build of PyTorch for
    CPUs. The import then fails where torchvision declares the output shapes of these operators. In this case,
    torchvision is imported without the declarations, because data sets and models do not use the operators.
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
