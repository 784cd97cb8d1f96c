"""For how long a lost message is sent again: a setting of algorithms that cannot do without a device's answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Patience = Annotated[float, Field(gt=0)]
"""Type of a setting `patience_s`: for how long a lost message is sent again before its device is given up."""

ROUND_S = 60.0
"""Patience where everybody waits for the device: a minute."""
ALONE_S = 604_800.0
"""Patience where others go on meanwhile, and who is given up does not come back: a week."""
