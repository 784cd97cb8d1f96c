"""How long a lost message is sent again: a setting of algorithms that need every device's answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Patience = Annotated[float, Field(gt=0)]
"""Type of a setting `patience_s`: how long a lost message is sent again before its device is given up (s)."""

ROUND_S = 60.0
"""Default patience when all others wait for the device: one minute."""
ALONE_S = 604_800.0
"""Default patience when the others continue meanwhile and a device that is given up never returns: one week."""
