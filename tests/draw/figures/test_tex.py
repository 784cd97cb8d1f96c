"""Figures and tables for LaTeX: names are text whatever is in them, and LaTeX compiles what is written."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fednet_emu.analysis.run import RunRecords
from fednet_emu.draw.figures.page import fit_to_page, latex_text
from fednet_emu.draw.figures.run_figures import TEX, figures, save
from fednet_emu.draw.figures.tex import escaped, label_text
from fednet_emu.draw.style import new_figure, paper_style
from fednet_emu.errors import FednetError

needs_latex = pytest.mark.skipif(not any(map(shutil.which, TEX)), reason="there is no LaTeX")
RUNS = r"\immediate\write16{it was run}"
NAMES = [
    f"50 % & more {RUNS}",
    r"\input{secret} #1 a_b^c",
    "price $5 or $6, {~} <a|b> -- é µs",
    "[[8], [16, 8]]",
    "*",
    "$x^$",
]
"""Names of settings, each of which is trouble as TeX."""


def compiled(folder: Path, *files: str) -> str:
    """The log of LaTeX, which reads these files one after the other into one document."""
    inputs = "\n\n".join(rf"\input{{{name}}}" for name in files)
    document = rf"\documentclass{{article}}\usepackage{{pgf,booktabs}}\begin{{document}}{inputs}\end{{document}}"
    (folder / "paper.tex").write_text(document, encoding="utf-8")
    program = next(filter(shutil.which, reversed(TEX)))
    options = ["-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    done = subprocess.run([program, *options, "paper.tex"], cwd=folder, capture_output=True, check=False, timeout=120)
    log = (folder / "paper.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, log[-2000:]
    return log


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50 % & more", r"50 \% \& more"),
        (r"\input{a}", r"\textbackslash{}input\{a\}"),
        ("a_b^c~#$", r"a\_b\textasciicircum{}c\textasciitilde{}\#\$"),
        ("a--b\n", r"a-{}-b\textbackslash{}n"),
        ("12 ms", "12 ms"),
    ],
)
def test_text_is_escaped(text, expected):
    """What TeX would read as a command is shown as it is, and so is what would end a line or start a paragraph."""
    assert escaped(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$F - F^*$ (J)", "$F - F^*$ (J)"),
        (r"$\mathdefault{2\times10^{-3}}$", r"$\mathdefault{2\times10^{-3}}$"),
        (r"$\input{a}$", r"\$\textbackslash{}input\{a\}\$"),
        (r"$x$ \$5 & $\mathdefaultx$", r"\$x\$ \$5 \& \$\textbackslash{}mathdefaultx\$"),
        (r"$x$ \$5 & y", r"$x$ \$5 \& y"),
    ],
)
def test_only_known_formulas_are_formulas(text, expected):
    """Those of our labels and of Matplotlib's numbers; a name in dollar signs is none because it looks like one."""
    assert label_text(text, formulas=True) == expected


def test_a_label_without_formulas_is_text():
    r"""Matplotlib says which texts hold formulas, and has turned `\$` into `$` in the others."""
    assert label_text("$5 and $6", formulas=False) == r"\$5 and \$6"


def test_a_row_that_begins_like_an_option_is_a_row():
    r"""After `\\` LaTeX takes `[8]` for a distance and `*` for a variant, and after `\midrule` for a width."""
    rows = latex_text(pd.DataFrame({"[a]": ["[8]", "*", "b"], "[b]": ["[8]", "*", ""]})).splitlines()

    assert [rows[2], *rows[4:7]] == [r"{[}a] & [b] \\", r"{[}8] & [8] \\", r"{*} & * \\", r"b &  \\"]


@needs_latex
def test_names_are_text_for_latex_too(tmp_path):
    """A picture with logarithmic numbers, an image and such names, and a table of them, compile; nothing is run."""
    with paper_style():
        figure = new_figure(2.2)
        axes = figure.subplots()
        axes.plot([1e-3, 1e2], [1, 2], label="one")
        axes.imshow(np.eye(2), extent=(1, 2, 1, 2), aspect="auto")
        axes.set(xscale="log", ylabel="$F - F^*$", xlabel="Time (µs)", title=NAMES[1])
        axes.set_yticks(range(2), NAMES[:2])
        figure.legend(axes.get_lines(), [NAMES[2].replace("$", r"\$")])
        fit_to_page(figure, "one-column", NAMES[0])
    table = pd.DataFrame({"[hidden]": NAMES, "loss": [1.0, -2.5, np.nan, 0.0, 3.0, 1e-9]})
    (tmp_path / "table.tex").write_text(latex_text(table), encoding="utf-8")

    assert [path.name for path in save({"a": figure}, tmp_path, ("pgf",))] == ["a.pgf", "a-img0.png"]
    assert [path.name for path in tmp_path.glob(".*")] == []
    log = compiled(tmp_path, "a.pgf", "table.tex")
    assert not re.search("^it was run", log, re.MULTILINE)
    assert re.search("^it was run", compiled_raw(tmp_path), re.MULTILINE), "unescaped, it would have been"


def compiled_raw(folder: Path) -> str:
    """The log for a document that holds the command itself."""
    (folder / "raw.tex").write_text(RUNS, encoding="utf-8")
    return compiled(folder, "raw.tex")


@needs_latex
def test_pgf_is_a_picture_for_latex(make_run, tmp_path):
    """Figures of runs name their axes, compile, and are the same file each time."""
    runs = [RunRecords.opened(make_run(f"run-{seed}", seed=seed), f"seed {seed}") for seed in (1, 2)]
    (first,), (again,) = (
        save({"latency": figures(runs)["round-latency"]}, tmp_path / name, ("pgf",)) for name in ("a", "b")
    )

    assert r"\begin{pgfpicture}" in first.read_text(encoding="utf-8")
    assert "Round latency" in first.read_text(encoding="utf-8")
    assert first.read_bytes() == again.read_bytes()
    compiled(first.parent, "latency.pgf")


@needs_latex
def test_what_latex_cannot_measure_is_a_mistake_in_words(tmp_path, monkeypatch):
    """A character that pdfLaTeX does not know: the error names the picture and what to do; nothing is written."""
    monkeypatch.setattr("fednet_emu.draw.figures.run_figures.TEX", TEX[::-1])
    if shutil.which("pdflatex") is None:
        pytest.skip("there is no pdfLaTeX")
    figure = new_figure(1.0)
    figure.suptitle("中")

    with pytest.raises(
        FednetError, match=r"formats: LaTeX cannot measure the text of a\.pgf, got 'LaTeX Error: Unicode"
    ):
        save({"a": figure}, tmp_path, ("pgf",))
    assert list(tmp_path.iterdir()) == []
