"""The drawing of imports: it sees what is forbidden, and that in CONTRIBUTING.md is current."""

from __future__ import annotations

import pytest
from draw_imports import ROOT, drawing, drawn, floors, graph_of, imported, main, problems, rooms, sources_in

BELOW = {("kernel", "clock"): "", ("network", "__init__"): "", ("network", "band"): "", ("network", "air", "ends"): ""}


def graph(**changed: str):
    """A small package, with the text of some files changed: `network_band="import ..."`."""
    return graph_of(BELOW | {tuple(name.split("_")): text for name, text in changed.items()})


def test_imports_of_the_package_run_down_and_in_no_circle() -> None:
    """No file, and no room of any folder, is imported by what it imports; types count."""
    assert problems(graph_of(sources_in(ROOT / "fednet_emu"))) == []


def test_the_drawing_is_current() -> None:
    """CONTRIBUTING.md shows the floors as they are."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

    assert drawn(text, graph_of(sources_in(ROOT / "fednet_emu"))) == text


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (
            {"kernel_clock": "from fednet_emu.network.band import Band"},
            ["kernel/clock.py imports network/band.py, which is not below it"],
        ),
        (
            {
                "network_band": "import fednet_emu.network.air.ends",
                "network_air_ends": "import fednet_emu.network.band",
            },
            [
                "files in a circle: network/air/ends -> network/band -> network/air/ends",
                "rooms of fednet_emu/network in a circle: air -> band -> air",
            ],
        ),
        (
            {
                "network_band": "def f():\n    from fednet_emu.network.air.ends import End",
                "network_air_ends": "if TYPE_CHECKING:\n    from fednet_emu.network import band",
            },
            [
                "files in a circle: network/air/ends -> network/band -> network/air/ends",
                "rooms of fednet_emu/network in a circle: air -> band -> air",
            ],
        ),
        (
            {
                "network_band": "import fednet_emu.network.air.ends",
                "network_air_other": "import fednet_emu.network.band",
            },
            ["rooms of fednet_emu/network in a circle: air -> band -> air"],
        ),
    ],
)
def test_circles_and_ways_up_are_told(changed: dict[str, str], found: list[str]) -> None:
    """An import upwards, a circle of files, one for types or inside a function, and one of folders only."""
    assert problems(graph(**changed)) == found


def test_imports_down_are_no_problem() -> None:
    """What is imported from below, from a sibling and from a package's own `__init__` is right."""
    code = "import simpy\nfrom fednet_emu.kernel.clock import Clock\nfrom fednet_emu.network import LAWS"

    assert problems(graph(network_band=code)) == []
    assert list(rooms(graph(network_band=code), ("network",))["band"]) == ["__init__"]


def test_floors_are_above_what_they_stand_on() -> None:
    """A room is one floor above the highest of those that it imports; the ground floor is one line."""
    house = rooms(
        graph(
            network_band="import fednet_emu.network.air.ends",
            network_top="import fednet_emu.network.band, fednet_emu.network.air.ends",
        ),
        ("network",),
    )

    assert floors(house) == [["top"], ["band"], ["__init__", "air"]]


def test_a_stale_drawing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--check` fails until the drawing is made anew, and changes nothing."""
    (tmp_path / "fednet_emu" / "network").mkdir(parents=True)
    (tmp_path / "fednet_emu" / "network" / "band.py").write_text("import fednet_emu.network.loss", encoding="utf-8")
    (tmp_path / "fednet_emu" / "network" / "loss.py").write_text("", encoding="utf-8")
    page = tmp_path / "CONTRIBUTING.md"
    page.write_text("A\n<!-- imports: begin -->\nold\n<!-- imports: end -->\nB\n", encoding="utf-8")
    monkeypatch.setattr("draw_imports.ROOT", tmp_path)

    assert main(["--check"]) == 1
    assert "is not current" in capsys.readouterr().err
    assert "old" in page.read_text(encoding="utf-8")
    assert main([]) == 0
    assert "1  band  loss\n0  loss\n" in page.read_text(encoding="utf-8")
    assert main(["--check"]) == 0


def test_relative_imports_are_refused() -> None:
    """Imports are absolute, so that the drawing can read them."""
    import ast

    with pytest.raises(ValueError, match="line 1"):
        list(imported(ast.parse("from . import x")))
    assert drawing(graph(network_band="import fednet_emu.network.air.ends")).count("fednet_emu/network/") == 1
