"""The directive `measured`: a table of a study's results, made from `results/reference/STUDY/runs.csv`.

    ```{measured} selection
    :by: selection
    :columns: time_to_target_s, bits_to_target, accuracy
    :statistic: interval
    ```

The options of the directive are:

- `by`: columns of the file whose values identify a row of the table; by default all columns before `seed`.
- `columns`: columns of the file that the table shows; `statistic`: `mean`, `interval` (95 %) or `range` over seeds.
- `minus`: a row of the table; the differences of all other rows from this row are shown, too, paired by seed.
- `where`: conditions that select rows of the file, `key=value; key=value`.
- `file`: another file in the folder of the study. If its rows are intervals (`mean`, `low`, `high`), the values of
  the columns `across` are the columns of the table.
- `published`: a file in this folder with published values of the same rows, which are shown next to our values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from markdown_text import table
from measured_table import REFERENCE, STATISTICS, intervals, rows, runs, source
from sphinx.util.docutils import SphinxDirective


class Measured(SphinxDirective):
    """Sphinx directive `measured`, which shows a table of the results of a study."""

    required_arguments = 1
    has_content = True
    option_spec: Mapping[str, Any] = {
        "by": directives.unchanged,
        "columns": directives.unchanged_required,
        "statistic": lambda text: directives.choice(text, tuple(STATISTICS)),
        "minus": directives.unchanged,
        "file": directives.unchanged,
        "across": directives.unchanged,
        "where": directives.unchanged,
        "published": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        """Return the table, and a sentence that names the file with the results."""
        study, statistic = self.arguments[0], self.options.get("statistic", "mean")
        file = self.options.get("file", "runs.csv")
        self.env.note_dependency(str(REFERENCE / study / file))
        try:
            frame = runs(study, self.options.get("where", ""), file)
            if "across" in self.options:
                return self._table(*intervals(frame, _listed(self.options["by"]), _listed(self.options["across"])))
            by = _listed(self.options.get("by", "")) or list(frame)[: list(frame).index("seed")]
            printed = runs(study, file=self.options["published"], dtype=str) if "published" in self.options else None
            columns, minus = _listed(self.options["columns"]), self.options.get("minus", "")
            head, shown = rows(frame, by, columns, statistic, minus, printed)
        except ValueError as error:
            raise self.error(str(error)) from error
        seeds = frame["seed"].nunique() if "seed" in frame else 1
        return self._table(head, shown, source(study, statistic, seeds, file))

    def _table(self, head: list[str], shown: list[list[str]], below: str = "") -> list[nodes.Node]:
        text = [*table(head, shown), below]
        study = self.arguments[0]
        parsed = nodes.Element()
        self.state.nested_parse(StringList(text, source=f"results/reference/{study}"), self.content_offset, parsed)
        return parsed.children


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def setup(app: Any) -> dict[str, bool]:
    """Register this extension with Sphinx."""
    app.add_directive("measured", Measured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
