"""Figures of the records of single papers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from PIL import Image

from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.study import cycle_columns, cycle_times
from fednet_emu.draw.figures.series import (
    SERIES_FIGURES,
    SNAPSHOTS,
    aspire_figure,
    bound_figure,
    circles,
    clusters_figure,
    connectivity_figure,
    cycle_figure,
    fedul_figure,
    one_way,
    places_of,
    save_animations,
    series_figures,
    true_places,
    weight_matrices,
    weights_figure,
    write_clusters_animation,
    write_weights_animation,
)


def test_a_series_is_drawn_from_the_runs_that_have_it(tmp_path, write_run):
    """Of three runs, two recorded the series: its figure gets those two tables; a series that nobody has gets none."""
    planes = pd.DataFrame({"simulated_s": [0.0, 1.0], "planes": [1, 2]})
    runs = [RunRecords.opened(write_run(tmp_path / f"run-{place}", {})) for place in range(3)]
    planes.to_parquet(runs[0].folder / "planes.parquet")
    (planes * 2).to_parquet(runs[2].folder / "planes.parquet")
    seen = []

    def draw(tables):
        seen.extend((label, table["planes"].tolist()) for label, table in tables)
        return Figure()

    drawn = series_figures(runs, ["a", "b", "c"], {"planes": draw, "clusters": draw})

    assert list(drawn) == ["planes"]
    assert seen == [("a", [1, 2]), ("c", [2, 4])]


def test_active_workers_and_planes_are_drawn_over_time() -> None:
    """Two runs: two panels that share the time, two lines each, which show what was recorded."""
    table = pd.DataFrame({"simulated_s": [1.0, 2.0, 4.0], "active": [3, 1, 3], "planes": [1, 1, 2]})
    active, planes = aspire_figure([("ADP", table), ("EASE", table.assign(active=1))]).axes

    assert (active.get_ylabel(), planes.get_ylabel()) == ("Active workers", "Planes")
    assert [line.get_ydata().tolist() for line in active.get_lines()] == [[3, 1, 3], [1, 1, 1]]
    assert planes.get_lines()[0].get_xdata().tolist() == [1.0, 2.0, 4.0]
    assert SERIES_FIGURES["aspire"] is aspire_figure


def test_a_number_that_never_changes_has_no_panel() -> None:
    """With one active worker throughout, only planes are drawn, and the axis says the other."""
    table = pd.DataFrame({"simulated_s": [1.0, 2.0, 4.0], "active": [1, 1, 1], "planes": [1, 1, 2]})
    (planes,) = aspire_figure([("EASE", table)]).axes

    assert planes.get_ylabel() == "Planes"
    assert planes.get_xlabel() == "Time (s)\n(active workers: 1 throughout)"


def weights(rounds: int = 3) -> pd.DataFrame:
    """Devices 0, 2, 3 and 7: in the end 0 is tied to 3 and 2 to 7, and the weights across fall round by round."""
    pairs = [(0, 2), (0, 3), (0, 7), (2, 3), (2, 7), (3, 7)]
    tied = {(0, 3), (2, 7)}
    return pd.DataFrame(
        [
            {"round": 10 * t, "i": i, "j": j, "weight": 1.0 if (i, j) in tied else 1 - t / (rounds - 1)}
            for t in range(rounds)
            for i, j in pairs
        ]
    )


def test_matrices_are_symmetric_with_clusters_as_blocks() -> None:
    """Devices come in the order 0, 3, 2, 7; the last matrix has two blocks of ones, the first is all ones."""
    rounds, matrices = weight_matrices(weights())

    assert rounds == [0, 10, 20]
    assert (matrices[0] == 1).all()
    assert matrices[2].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    assert matrices[1][0].tolist() == [1, 1, 0.5, 0.5]


def test_the_figure_shows_first_last_and_between() -> None:
    """One row of heat maps per run; a run with fewer records than panels leaves the rest empty."""
    figure = weights_figure([("long", weights(10)), ("short", weights(2))])
    titles = [axes.get_title() for axes in figure.axes[: 2 * SNAPSHOTS]]

    assert titles == ["Round 0", "Round 30", "Round 60", "Round 90", "Round 0", "Round 10", "", ""]
    assert np.array_equal(figure.axes[3].images[0].get_array(), weight_matrices(weights(10))[1][-1])
    assert figure.axes[4].get_ylabel() == "short"


def test_the_animation_has_a_frame_per_record(tmp_path) -> None:
    """The GIF has as many frames as there are records, and they differ."""
    write_weights_animation(weights(4), tmp_path / "weights.gif")

    with Image.open(tmp_path / "weights.gif") as picture:
        assert picture.n_frames == 4
        first = np.asarray(picture.convert("RGB"))
        picture.seek(3)
        assert not np.array_equal(np.asarray(picture.convert("RGB")), first)


def test_runs_with_a_graph_get_both_pictures(tmp_path, write_run) -> None:
    """The series `weights` is in the table of figures; of two runs, the one that recorded it is animated."""
    runs = [RunRecords.opened(write_run(tmp_path / name, {})) for name in ("plain", "graph")]
    weights().to_parquet(runs[1].folder / "weights.parquet")

    assert list(series_figures(runs, ["a", "b"], SERIES_FIGURES)) == ["weights"]
    assert [path.name for path in save_animations(runs, tmp_path / "figures")] == ["weights-2.gif"]
    assert [path.name for path in save_animations(runs[1:], tmp_path / "figures")] == ["weights.gif"]


def turns(groups, turn_s, count, structure="random", access="tdma"):
    """The series of a run whose turns all take `turn_s`."""
    number = np.arange(count)
    return pd.DataFrame(
        {
            "cycle": number // groups,
            "group": number % groups,
            "groups": groups,
            "structure": structure,
            "access": access,
            "started_s": number * turn_s,
            "ended_s": (number + 1) * turn_s,
        }
    )


def test_cycle_times_are_of_complete_cycles():
    """Ten turns of 0.5 s in groups of 4 are two cycles of 2 s; the two turns left over do not count."""
    times = cycle_times([turns(4, 0.5, 10), turns(4, 0.5, 3)])

    assert times.values.tolist() == [["random, tdma", 4.0, 2.0]]


def test_a_run_without_a_complete_cycle_tells_no_cycle_time():
    """Three turns of four are not a cycle: the way of grouping is known, numbers are not."""
    columns = cycle_columns(turns(4, 0.5, 3))

    assert columns["grouping"] == "random, tdma"
    assert np.isnan([columns["groups_formed"], columns["cycle_s"]]).all()


def test_ways_are_lines_and_seeds_are_averaged():
    """Three runs of one way and one of another are two lines; equal numbers of groups are one point of a line."""
    tables = [turns(2, 1.0, 8), turns(2, 2.0, 8), turns(4, 1.0, 8), turns(1, 5.0, 8, "interference", "shared")]
    (axes,) = cycle_figure([(str(place), table) for place, table in enumerate(tables)]).get_axes()
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}

    assert lines == {"random, tdma": [[2.0, 3.0], [4.0, 4.0]], "interference, shared": [[1.0, 5.0]]}


def test_the_bound_is_drawn_over_the_measured_distance():
    """Each run has a solid line and a dashed one of its colour; infinite bounds are left out."""
    rows = pd.DataFrame({"cycle": [0, 1], "gap": [1.0, 0.5], "bound": [1.0, np.inf]})
    (axes,) = bound_figure([("run", rows)]).get_axes()
    measured, bound = axes.get_lines()

    assert axes.get_yscale() == "log"
    assert measured.get_color() == bound.get_color()
    assert measured.get_ydata() == pytest.approx([1.0, 0.5])
    assert np.isnan(bound.get_ydata()[1])


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
    places = {"x_m": [1000.0, 1010.0, 1020.0], "devices": [3, 4, 5], "sender": [3], "receiver": [4], "sampled": []}
    return cluster(number, cluster=1, **places)


def rounds(*numbers: int) -> pd.DataFrame:
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


def table(supervised: float) -> pd.DataFrame:
    rows = {"round": [1, 2], "validation_error": [0.2, 0.1], "surrogate_loss": [2.2, 2.1]}
    return pd.DataFrame({**rows, "supervised_loss": [supervised, supervised]})


def test_every_measure_has_a_panel_with_a_line_for_each_run() -> None:
    """Two runs, of which one is supervised: three panels, and the lines show what was recorded."""
    axes = fedul_figure([("FedUL", table(np.nan)), ("M1", table(0.5))]).axes

    assert [panel.get_ylabel() for panel in axes] == ["Validation error", "Surrogate loss", "Supervised loss"]
    assert [len(panel.get_lines()) for panel in axes] == [2, 2, 2]
    assert axes[0].get_lines()[1].get_ydata().tolist() == [0.2, 0.1]
    assert [panel.get_yscale() for panel in axes] == ["log", "linear", "linear"]


def test_what_nobody_measured_has_no_panel() -> None:
    """FedUL alone has no supervised loss; the series is drawn whenever a run has recorded it."""
    axes = fedul_figure([("FedUL", table(np.nan))]).axes

    assert [panel.get_ylabel() for panel in axes] == ["Validation error", "Surrogate loss"]
    assert SERIES_FIGURES["fedul"] is fedul_figure
