"""Claims about the pictures of device-to-device learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection
from matplotlib.patches import FancyArrowPatch
from PIL import Image

from fednet_emu.draw.figures.papers.d2d import (
    circles,
    clusters_figure,
    connectivity_figure,
    one_way,
    places_of,
    true_places,
    write_clusters_animation,
)


def cluster(number: int, **changes: Any) -> dict[str, Any]:
    """A round's cluster of three in a line, 10 m apart, whose first edge is one-way."""
    row = {
        "round": number,
        "simulated_s": float(number),
        "cluster": 0,
        "devices": [0, 1, 2],
        "x_m": [0.0, 10.0, 20.0],
        "y_m": [0.0, 0.0, 0.0],
        "sampled": [1],
        "sender": [0, 1, 2],
        "receiver": [1, 2, 1],
    }
    return {**row, **changes}


def far(number: int) -> dict[str, Any]:
    """Another cluster, a kilometre away."""
    places = {"x_m": [1000.0, 1010.0, 1020.0], "devices": [3, 4, 5], "sender": [3], "receiver": [4], "sampled": []}
    return cluster(number, cluster=1, **places)


def rounds(*numbers: int) -> pd.DataFrame:
    """Two clusters in each of these rounds."""
    return pd.DataFrame([row for number in numbers for row in (cluster(number), far(number))])


def test_devices_stand_where_they_are_when_edges_are_short() -> None:
    """Clusters a kilometre apart keep their places; edges across everything put them on circles."""
    mixed = pd.DataFrame([cluster(1, x_m=[0.0, 2900.0, 5.0]), far(1)])

    assert true_places(rounds(1))
    assert not true_places(mixed)
    assert places_of(rounds(1), true=True)[5].tolist() == [1020.0, 0.0]
    assert max(abs(place).max() for place in places_of(mixed, true=False).values()) < 3


def test_circles_keep_clusters_apart() -> None:
    """Two devices of one cluster are nearer to each other than to any of another one; a lone one is in the middle."""
    places = circles([[0, 1, 2], [3, 4], [5]])

    assert np.linalg.norm(places[0] - places[1]) < 0.8 < np.linalg.norm(places[0] - places[5])
    assert places[5].tolist() == [0.0, -1.0]


def test_an_edge_without_one_back_is_one_way() -> None:
    """1 and 2 send to each other."""
    assert one_way({(0, 1), (1, 2), (2, 1)}) == {(0, 1)}


def test_three_rounds_are_shown() -> None:
    """First, middle and last of five, each with its edges; of two, both."""
    figure = clusters_figure([("run", rounds(1, 3, 5, 7, 9))])
    edges = [c for c in figure.axes[0].collections if isinstance(c, LineCollection)]

    assert [axes.get_title().split(",")[0] for axes in figure.axes] == ["round 1", "round 5", "round 9"]
    assert sum(len(lines.get_segments()) for lines in edges) == 1
    assert sum(isinstance(patch, FancyArrowPatch) for patch in figure.axes[0].patches) == 2
    assert {(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes} == {
        (figure.axes[0].get_xlim(), figure.axes[0].get_ylim())
    }
    assert [axes.get_xlabel() for axes in figure.axes] == ["x (m)"] * 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "uploads",
        "does not",
        "both ways",
        "one way",
    ]
    assert len(clusters_figure([("run", rounds(1, 3))]).axes) == 2


def test_an_animation_has_a_frame_for_every_round(tmp_path: Path) -> None:
    """Four recorded rounds, four frames."""
    path = tmp_path / "clusters.gif"
    write_clusters_animation(rounds(1, 2, 3, 4), path)

    with Image.open(path) as picture:
        assert picture.n_frames == 4  # type: ignore[attr-defined]


def test_the_factor_is_drawn_with_its_bound_and_limit() -> None:
    """Two runs: uploads above; below measured, bound and limit of each."""
    columns = {"round": [1, 2], "sampled": [70, 35], "phi": [0.0, 0.01], "psi": [0.0, 0.05], "phi_max": [0.06] * 2}
    figure = connectivity_figure([("a", pd.DataFrame(columns)), ("b", pd.DataFrame(columns))])
    above, below = figure.axes

    assert [line.get_ydata().tolist() for line in above.get_lines()] == [[70, 35]] * 2  # type: ignore[union-attr]
    assert [line.get_ydata()[-1] for line in below.get_lines()] == [0.01, 0.05, 0.06] * 2  # type: ignore[index]
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == ["a", "b", "factor: measured", "factor: bound", "factor: limit"]
