"""Local intersphinx inventories of the external classes in our signatures, so that a build needs no network."""

from __future__ import annotations

import zlib
from pathlib import Path

PROJECTS: dict[str, tuple[str, dict[str, str]]] = {
    "python": (
        "https://docs.python.org/3",
        {
            **dict.fromkeys(("pathlib.Path",), "library/pathlib.html#$"),
            **dict.fromkeys(
                (
                    f"collections.abc.{name}"
                    for name in ("Callable", "Generator", "Iterable", "Iterator", "Mapping", "Sequence", "Set")
                ),
                "library/collections.abc.html#$",
            ),
            "enum.Enum": "library/enum.html#$",
            "argparse.Namespace": "library/argparse.html#$",
        },
    ),
    "numpy": (
        "https://numpy.org/doc/stable",
        {
            **dict.fromkeys(("numpy.ndarray", "numpy.dtype"), "reference/generated/$.html#$"),
            **dict.fromkeys(("numpy.int64", "numpy.float64", "numpy.bool"), "reference/arrays.scalars.html#$"),
            "numpy.random.Generator": "reference/random/generator.html#$",
        },
    ),
    "pandas": (
        "https://pandas.pydata.org/docs",
        dict.fromkeys(("pandas.DataFrame", "pandas.Series"), "reference/api/$.html#$"),
    ),
    "matplotlib": ("https://matplotlib.org/stable", {"matplotlib.figure.Figure": "api/_as_gen/$.html#$"}),
    "torch": (
        "https://docs.pytorch.org/docs/stable",
        {
            "torch.Tensor": "tensors.html#$",
            "torch.nn.Module": "generated/torch.nn.Module.html#$",
            "torch.device": "tensor_attributes.html#$",
        },
    ),
    "simpy": (
        "https://simpy.readthedocs.io/en/latest",
        dict.fromkeys(("simpy.events.Event", "simpy.events.Process"), "api_reference/simpy.events.html#$"),
    ),
}
"""Web address of each project, and the page of each class; `$` stands for the name of the class."""


def write(folder: Path) -> dict[str, tuple[str, str]]:
    """Write an inventory file for each project into a folder; return the setting `intersphinx_mapping` of Sphinx."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for project, (address, places) in PROJECTS.items():
        path = folder / f"{project}.inv"
        head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        note = "# The remainder of this file is compressed using zlib.\n"
        body = "".join(f"{name} py:class 1 {place} -\n" for name, place in places.items())
        path.write_bytes((head + note).encode() + zlib.compress(body.encode()))
        mapping[project] = (address, str(path))
    return mapping
