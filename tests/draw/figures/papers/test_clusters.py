"""Claims about the pictures of a learned graph."""

from __future__ import annotations

import numpy as np
import pandas as pd
from PIL import Image

from fednet_emu.analysis.run import RunRecords
from fednet_emu.draw.figures.papers.clusters import (
    SNAPSHOTS,
    weight_matrices,
    weights_figure,
    write_weights_animation,
)
from fednet_emu.draw.figures.papers.series import SERIES_FIGURES, save_animations, series_figures


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
