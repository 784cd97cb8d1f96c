"""Write the page of the profiles of real devices, radios and base stations, from the files in `profiles/`."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

from generated import writes
from markdown_text import code, escaped, table

from fednet_emu.results.library import LEGEND, profile_rows

LEAD = f"""# Profiles

What `fednet profiles` prints, written from the files in `profiles/`; each of these names the source of every number.
[Devices that exist](../guides/devices.md) says how they are used. Letters behind the numbers: {LEGEND}.
"""
KEYS = {"device": "devices.profile", "radio": "channel.device.profile", "station": "channel.base_station.profile"}


def page() -> str:
    """Return the page of profiles as MyST Markdown."""
    lines = [LEAD]
    for filled, part in groupby(profile_rows(None)[:-1], bool):
        if filled:
            head, *cells = (re.split(r"  +", line) for line in part)
            lines += [f"## {head[0].capitalize()}s\n", f"Names for {code(KEYS[head[0]])}.\n"]
            lines += table(head, ((code(name), *map(escaped, others)) for name, *others in cells))
    return "\n".join(lines)


def setup(app: Any) -> dict[str, bool]:
    """Register this extension with Sphinx."""
    return writes(app, "reference/profiles.md", page)
