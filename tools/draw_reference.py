"""Draw figures of reference results anew from their committed tables: python tools/draw_reference.py [NAME...].

Reads `results/reference/NAME/runs.csv` and `NAME.yaml` in `scenarios/studies` or `examples`, and writes those figures
of the study that need nothing else: costs of the target, differences, final scores, cycle times. Curves and fronts need
the runs themselves: `fednet sweep NAME`, or `make reproduce`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from fednet_emu.analysis.scales import TO_TARGET, TRADED
from fednet_emu.analysis.study import StudyRecords
from fednet_emu.draw.figures.run_figures import save
from fednet_emu.draw.figures.series import groups_figure
from fednet_emu.draw.figures.study_curves import Layout
from fednet_emu.draw.figures.study_rows import bar_figure, difference_figure, final_figure
from fednet_emu.draw.style import paper_style
from fednet_emu.study.file import StudyFile
from fednet_emu.study.reproduce import is_reference

REFERENCE = Path(__file__).parents[1] / "results/reference"
EXAMPLES = Path(__file__).parents[1] / "examples"


def view_of(study: StudyFile, runs: pd.DataFrame) -> StudyRecords:
    """A study without evaluations, from the table of its runs."""
    axes = {axis.name: [level.columns[axis.name] for level in axis.levels] for axis in study.axes}
    wanted = study.target.model_dump(exclude_none=True) if study.target else {}
    known = runs.reindex(columns=[*runs.columns, *(name for name in TO_TARGET if name not in runs)])
    return StudyRecords(study.name, axes, wanted, pd.DataFrame(), known.assign(status="done"), ())


def figures_of(view: StudyRecords) -> Iterator[tuple[str, Figure | None]]:
    """The figures that need only the table of runs, by name."""
    layout = Layout.of(view, None)
    for name, cost in TRADED.items():
        yield f"{name}-to-target", bar_figure(view, cost, layout)
    yield "differences", difference_figure(view, next(iter(view.target), "accuracy"), layout)
    yield "final", final_figure(view, layout.names)
    yield "cycle-groups", groups_figure(view)


def main(names: list[str]) -> None:
    """Draw the figures of these studies, or of all whose tables are committed."""
    for name in names or sorted({path.parent.name for path in REFERENCE.glob("*/runs.csv")} - {"peers"}):
        study = StudyFile.read(next(EXAMPLES.glob(f"*/{name}.yaml"), name))
        texts = [axis.name for axis in study.axes if isinstance(axis.levels[0].columns[axis.name], str)]
        view = view_of(study, pd.read_csv(REFERENCE / name / "runs.csv", dtype=dict.fromkeys(texts, str)))
        with paper_style():
            drawn = {what: figure for what, figure in figures_of(view) if figure and is_reference(what, study.figures)}
        for path in save(drawn, REFERENCE / name):
            print(path.relative_to(REFERENCE))


if __name__ == "__main__":
    main(sys.argv[1:])
