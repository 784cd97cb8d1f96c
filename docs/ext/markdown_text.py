"""Plain docstrings as Markdown: nothing in them is markup but `code` in backticks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence

_MARKUP = re.compile(r"([\\*_|<>\[\]$#])")
_REFERENCE = re.compile(r"https?://|arXiv|et al\.|\b(19|20)\d\d\b|\bT[RS] \d|\bIEEE\b|\bITU\b|3GPP")


def code(text: str) -> str:
    """Text in the font of code."""
    return f"`{text}`"


def span(path: str) -> str:
    """An anchor of exactly this name; Sphinx itself would change the dots."""
    return f'<span id="{path}"></span>'


def link(page: str, path: str, words: str) -> str:
    """A link to an anchor, of this page if it is empty; in HTML, since these anchors are HTML too."""
    return f'<a href="{page and page + ".html"}#{path}">{words}</a>'


def code_in(module: str) -> str:
    """The file of a module in dots, from the top of the repository."""
    return code(f"{module.replace('.', '/')}.py")


def escaped(text: str) -> str:
    """Text without markup but code, on one line."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(part.replace("|", "\\|") if part[:1] == "`" else _MARKUP.sub(r"\\\1", part) for part in parts)


def paragraphs(docstring: str) -> Iterator[str]:
    """The paragraphs of a docstring; what is indented, such as a formula, stays as it is."""
    for part in inspect.cleandoc(docstring).split("\n\n"):
        if part.startswith("    "):
            yield f"```text\n{inspect.cleandoc(part)}\n```\n"
        elif part.startswith("- "):
            yield "\n".join(f"- {escaped(item)}" for item in re.split(r"^- ", part, flags=re.MULTILINE)[1:]) + "\n"
        elif part:
            yield f"{escaped(part)}\n"


def sentence_of(docstring: str | None) -> str:
    """The first line of a docstring, which is a sentence."""
    return escaped(inspect.cleandoc(docstring or "").split("\n\n")[0])


def sources_of(docstring: str | None) -> Iterator[str]:
    """The paragraphs of a module's docstring that name a paper, a standard or a web page."""
    for part in inspect.cleandoc(docstring or "").split("\n\n"):
        if _REFERENCE.search(part) and not part.startswith(("    ", "- ", "Differences")):
            yield re.sub(r"(https?://[^\s,;)]*[^\s,;).])", r"<\1>", " ".join(part.split()).replace("*", "\\*"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown, with an empty line after it."""
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    yield from (f"| {' | '.join(cell.strip().replace(chr(10), ' ') for cell in row)} |" for row in rows)
    yield ""
