"""Claims about the figure of FedUL's own records."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fednet_emu.draw.figures.papers.series import SERIES_FIGURES, fedul_figure


def table(supervised: float) -> pd.DataFrame:
    """Two rounds of a run."""
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
