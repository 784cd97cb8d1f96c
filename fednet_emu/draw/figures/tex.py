r"""Escape text for TeX, and write PGF figures whose labels may contain any character.

A document that includes a PGF figure executes it as TeX code. A name such as `50 % & more` must therefore not break the
figure, and `\input{...}` in a name must not read a file.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from matplotlib import cbook
from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.backends.backend_pgf import FigureCanvasPgf, LatexError, RendererPgf

from fednet_emu.errors import FednetError, visible

_SPECIAL = {c: rf"\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "µ": r"\textmu{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "-": "-{}",
}  # fmt: skip
_MATH = re.compile(r"(?:[\w .,+*/=()^{}-]|\\(?:mathdefault|times)(?![a-zA-Z]))*", re.ASCII)
"""Pattern of formulas that remain unescaped in labels and tick labels. Other text between dollar signs is escaped."""
_HEAD = r"""%% Include this picture with \input; the preamble needs \usepackage{pgf}, and often \usepackage{lmodern}.
\begingroup%%
\makeatletter%%
\everymath=\expandafter{\the\everymath\displaystyle}%%
\def\mathdefault#1{#1}%%
\begin{pgfpicture}%%
\pgfpathrectangle{\pgfpointorigin}{\pgfqpoint{%fin}{%fin}}%%
\pgfusepath{use as bounding box, clip}%%
"""
_END = r"""\end{pgfpicture}%
\makeatother%
\endgroup%
"""


def escaped(text: str) -> str:
    r"""Return text as TeX source that prints every character.

    Non-printing characters are shown as escapes such as `\x1b`.
    """
    return re.sub(r"[\\&%$#_{}~^µ<>|]|-(?=-)", lambda found: _SPECIAL[found[0]], visible(text))


def label_text(text: str, *, formulas: bool) -> str:
    """Return a label as TeX source. If `formulas` is True, simple formulas between dollar signs are not escaped."""
    parts = re.split(r"(?<!\\)\$", text) if formulas else [text]
    if not all(map(_MATH.fullmatch, parts[1::2])):
        parts = [text]
    parts[::2] = [escaped(part.replace(r"\$", "$")) for part in parts[::2]]
    return "$".join(parts)


@contextmanager
def measured(name: str) -> Iterator[None]:
    """Context manager that converts errors of LaTeX, which measures the text of the figure `name`.

    Raises:
        FednetError: LaTeX does not run, or its fonts lack a character. The message contains the name of the figure.
    """
    try:
        yield
    except (LatexError, ValueError, RuntimeError) as error:
        text = str(error)
        complaint = re.search(r"^! (.*)", text, re.MULTILINE)
        got = visible(complaint[1] if complaint else text.partition("\n")[0])
        raise FednetError(
            f"formats: LaTeX cannot measure the text of {name}, got '{got}'; change the text, or take svg or pdf"
        ) from error


class FigureCanvas(FigureCanvasPgf):
    """Matplotlib's PGF canvas with escaped labels. `Figure.savefig` finds the canvas by the name of this class."""

    def get_renderer(self) -> Any:
        return _Renderer(self.figure, None)

    def print_pgf(self, fname_or_fh: Any, *, bbox_inches_restore: Any = None, **_: Any) -> None:
        """Write the figure to a path, or to a stream of text or bytes."""
        size_in = self.figure.get_size_inches()
        head = _HEAD % tuple(size_in)
        with cbook.open_file_cm(fname_or_fh, "w", encoding="utf-8") as file:
            stream = file if cbook.file_requires_unicode(file) else codecs.getwriter("utf-8")(file)
            stream.write(head)
            lines: Any = _Renderer(self.figure, stream)
            mixed: Any = MixedModeRenderer
            self.figure.draw(
                mixed(self.figure, *size_in, self.figure.dpi, lines, bbox_inches_restore=bbox_inches_restore)
            )
            stream.write(_END)


class _Renderer(RendererPgf):
    """Renderer that writes PGF with escaped text."""

    def __init__(self, figure: Any, fh: Any) -> None:
        super().__init__(figure, fh)  # type: ignore[no-untyped-call]

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False, mtext: Any = None
    ) -> None:
        text = label_text(s, formulas=bool(ismath))
        super().draw_text(gc, x, y, text, prop, angle, ismath, mtext)  # type: ignore[no-untyped-call]

    def get_text_width_height_descent(self, s: str, prop: Any, ismath: Any) -> Any:
        text = label_text(s, formulas=bool(ismath))
        return super().get_text_width_height_descent(text, prop, ismath)  # type: ignore[no-untyped-call]
