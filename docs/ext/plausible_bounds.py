"""Write the page of what counts as plausible, from the bounds that `fednet check` judges settings by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fednet_emu.emulation.plausibility import as_table

LEAD = """# Plausible values

`fednet check` and `fednet run` warn of devices, radios and messages that could not exist, with the bound and its
source; `fe.check` and `fe.run` do so as `ScenarioWarning`. A warning changes nothing.
[Devices](../guides/devices.md#what-is-plausible) says how settings are judged.

Written from `fednet_emu/emulation/plausibility.py`. Bounds lie around the numbers of their source. What no source was
read for says so: "from memory", or "assumed".

"""


def write(app: Any) -> None:
    """Write the page into the sources of the site if it has changed."""
    path, text = Path(app.srcdir) / "reference/plausible.md", LEAD + as_table() + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Register this extension with Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
