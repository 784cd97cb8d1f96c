"""Claims about the figures of recorded series."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from fednet_emu.analysis.run import RunRecords
from fednet_emu.draw.figures.papers.series import series_figures


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
