"""One palette and one set of names: figures, page, timeline and trace call and colour the same things alike."""

import itertools
import re

import numpy as np
import pytest

from fednet_emu.draw.figures.timeline import LOOKS
from fednet_emu.draw.page.document import browser_file, page
from fednet_emu.draw.page.run import SCRIPTS
from fednet_emu.draw.palette import ACTIVITIES, DARK_LINE_COLOURS, LINE_COLOURS
from fednet_emu.draw.style import line_style
from fednet_emu.draw.trace.names import fixed_names

SIGHT = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Linear RGB as seen (Machado, Oliveira, Fernandes, IEEE Transactions on Visualization 15(6), 2009, severity 1)."""
XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
WHITE = [0.95047, 1.0, 1.08883]


def lab(colour, sight):
    rgb = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(XYZ @ np.clip(SIGHT[sight] @ linear, 0, 1) / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHT)
def test_activities_can_be_told_apart(sight):
    """Any two differ by 25 in CIELAB on white, and by 15 on dark ground, ten times what is just noticed or more."""
    for one, other in itertools.combinations(ACTIVITIES.values(), 2):
        assert np.linalg.norm(lab(one.colour, sight) - lab(other.colour, sight)) > 24, (one, other)
        assert np.linalg.norm(lab(one.dark, sight) - lab(other.dark, sight)) > 14, (one, other)


def test_a_page_has_the_colours_of_figures():
    """Activities and lines; neither its style sheet nor its scripts bring colours of their own for them."""
    text = page("x", {}, SCRIPTS)
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w+);", line)) for line in re.findall(r"^:root.*}$", text, re.M)[:2])

    assert {name: light[name] for name in LOOKS} == {name: look.colour for name, look in LOOKS.items()}
    assert [light[f"line-{place}"] for place in range(9)] == [line_style(place)["color"] for place in range(9)]
    assert light == {name: its.colour for name, its in ACTIVITIES.items()} | dict(
        zip((f"line-{place}" for place in range(9)), LINE_COLOURS, strict=True)
    )
    assert dark == {name: its.dark for name, its in ACTIVITIES.items()} | dict(
        zip((f"line-{place}" for place in range(9)), DARK_LINE_COLOURS, strict=True)
    )
    assert not re.search(r"#[0-9a-f]{6}", "".join(map(browser_file, SCRIPTS)), re.I)
    assert not {*re.findall(r"--([\w-]+):", browser_file("style.css"))} & {*light}


def test_a_trace_has_the_names_of_the_others():
    """Bars of the timeline and slices of the trace are called alike."""
    told = {name.removesuffix(" out").removesuffix(" in") for _, name in fixed_names()}
    kinds = ("compute", "waiting", "uplink", "downlink", "sidelink")
    assert {ACTIVITIES[kind].title for kind in kinds} <= told
