"""Write the page of plausible values, from the bounds with which `fednet check` compares settings."""

from __future__ import annotations

from typing import Any

from generated import writes

from fednet_emu.emulation.plausibility import as_table

LEAD = """# Plausible values

`fednet check` and `fednet run` warn of devices, radios and messages that could not exist, with the bound and its
source; `fe.check` and `fe.run` do so as `ScenarioWarning`. A warning changes nothing.
[Devices](../guides/devices.md#what-is-plausible) says how settings are judged.

Written from `fednet_emu/emulation/plausibility.py`. Bounds lie around the numbers of their source. What no source was
read for says so: "from memory", or "assumed".

"""


def setup(app: Any) -> dict[str, bool]:
    """Register this extension with Sphinx."""
    return writes(app, "reference/plausible.md", lambda: LEAD + as_table() + "\n")
