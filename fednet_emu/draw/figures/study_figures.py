"""Plot all figures of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from fednet_emu.analysis.scales import METRICS, RECORDED, TRADED
from fednet_emu.analysis.study import StudyRecords
from fednet_emu.draw.figures.series import groups_figure
from fednet_emu.draw.figures.study_curves import Layout, curve_figure
from fednet_emu.draw.figures.study_pareto import cost_front_figure, pareto_figure
from fednet_emu.draw.figures.study_rows import bar_figure, difference_figure, final_figure
from fednet_emu.draw.style import paper_style
from fednet_emu.errors import FednetError, require_known

MOST_LINES = 8
"""Maximum number of lines in a panel that a reader can distinguish. A figure with more lines is plotted only if the
user requests it explicitly."""
OF_DEVICES = ("worst_accuracy", "std_accuracy")


def study_figures(
    view: StudyRecords,
    *,
    metric: str | None = None,
    against: str | None = None,
    panels: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
) -> dict[str, Figure]:
    """Plot all figures of a study, and return the figures by name.

    The curves are `accuracy-time`, `accuracy-bits`, `accuracy-energy` and `accuracy-rounds`; another metric replaces
    `accuracy`. The bar charts are `time-to-target`, `bits-to-target` and `energy-to-target`. The figure `differences`
    compares each setting with the first one, and `pareto` and `front-energy-time` show Pareto fronts. If devices were
    evaluated individually, `final` shows their scores. The figure `cycle-groups` exists for cyclic participation, in
    which groups of devices train in turn.

    Args:
        metric: the metric to plot; by default the metric of the target, else the accuracy, else the loss.
        against: plot only the metric against this cost. By default all figures are plotted, with the metric against all
            four costs unless a panel would have more than 8 lines.
        panels: the axes whose levels have a panel each, at most two; by default the second and third axis.
        rename: display names for axes, levels (`level` or `axis=level`) and metrics.

    Raises:
        FednetError: a metric, cost, axis or level does not exist, or the metric was not measured.
    """
    require_known("--against: no such choice", against, RECORDED)
    layout, measure = Layout.of(view, panels, rename), _metric(view, metric)
    with paper_style():
        drawn = {
            f"{measure.replace('_', '-')}-{cost}": curve_figure(view, measure, cost, layout)
            for cost in ([against] if against else RECORDED if len(layout.lines) <= MOST_LINES else ())
        }
        if against is None and view.target:
            drawn |= {f"{name}-to-target": bar_figure(view, cost, layout) for name, cost in TRADED.items()}
        if against is None:
            drawn["differences"] = difference_figure(view, measure, layout)
            drawn["pareto"] = pareto_figure(view, layout.names)
            drawn["front-energy-time"] = cost_front_figure(view, layout.names)
            drawn |= {"final": final_figure(view, layout.names), "cycle-groups": groups_figure(view)}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _metric(view: StudyRecords, metric: str | None) -> str:
    require_known("--metric: no such choice", metric, METRICS)
    known = list(view.metrics)
    if not known:
        raise FednetError(f"{view.name}: nothing was evaluated, got no figure; finish runs that learn")
    if metric is not None and metric not in known:
        remedy = "set evaluation.per_device: true" if metric in OF_DEVICES else f"choose from {', '.join(known)}"
        raise FednetError(f"--metric: was not measured in {view.name}, got '{metric}'; {remedy}")
    return metric or known[0]
