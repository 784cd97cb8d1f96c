"""The common colours and names of figures, pages and timelines."""

from __future__ import annotations

from typing import NamedTuple

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY_BLUE, YELLOW, BLACK = "#E69F00", "#56B4E9", "#F0E442", "#000000"
"""The palette of Okabe and Ito, "Color Universal Design", 2008. Yellow is too light for lines on a white background."""
BROWN, GREY = "#7A4B14", "#8C8C8C"
LINE_COLOURS = (BLUE, VERMILLION, GREEN, BLACK, PURPLE, ORANGE, SKY_BLUE, BROWN, GREY)
DARK_LINE_COLOURS = ("#4AA8E8", "#F08A45", "#33C79B", "#DFE3EA", "#E3A0C8", "#F0B64A", "#8FD0F7", "#C79A63", "#9AA0A8")
"""Colours of the lines of figures and pages, in order, for a white background and for a dark background."""


class Activity(NamedTuple):
    """An activity of a device: its title, and its colours on a white and on a dark background."""

    title: str
    colour: str
    dark: str


ACTIVITIES = {
    "uplink": Activity("uplink", BLUE, "#2F8FE0"),
    "downlink": Activity("downlink", SKY_BLUE, "#A5DAF8"),
    "sidelink": Activity("sidelink", VERMILLION, "#F0803C"),
    "compute": Activity("computing", "#F5C710", "#F5D94A"),
    "waiting": Activity("waiting", "#9A9A9A", "#8C8C8C"),
    "idle": Activity("idle", "#E8EAEE", "#2A2F38"),
    "lost": Activity("lost or stopped", "#7A1020", "#E0455F"),
}
"""The activities of devices, by their names in records and on pages. The colours can be distinguished by readers with
protanopia, deuteranopia or tritanopia. A device that is absent counts as idle."""
