"""Convert docstrings, whose only markup is `code` in backticks, to Markdown."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence

_MARKUP = re.compile(r"([\\*_|<>\[\]$#])")
_ADDRESS = re.compile(r"https?://\S*[\w/]")
"""Pattern of a web address, without the punctuation mark that follows the address in a sentence."""
_VERBATIM = re.compile(rf"(`[^`]+`|{_ADDRESS.pattern})")
_REFERENCE = re.compile(r"https?://|arXiv|et al\.|\b(19|20)\d\d\b|\bT[RS] \d|\bIEEE\b|\bITU\b|3GPP")


def code(text: str) -> str:
    """Return text formatted as code."""
    return f"`{text}`"


def span(path: str) -> str:
    """Return an HTML anchor with the name `path`; an anchor made by Sphinx would not keep the dots of the name."""
    return f'<span id="{path}"></span>'


def link(page: str, path: str, words: str) -> str:
    """Return an HTML link to an anchor.

    Args:
        page: the page of the anchor; empty for the current page.
        path: the name of the anchor.
        words: the text of the link.
    """
    return f'<a href="{page and page + ".html"}#{path}">{words}</a>'


def code_in(module: str) -> str:
    """Return the path of a module's file in the repository as code in backticks, which `code_links` makes a link."""
    is_package = hasattr(sys.modules[module], "__path__")
    return code(f"{module.replace('.', '/')}{'/__init__' if is_package else ''}.py")


def escaped(text: str) -> str:
    """Return text as one line of Markdown: code is unchanged, web addresses become links, other markup is escaped."""
    return "".join(map(_escaped_part, _VERBATIM.split(" ".join(text.split()))))


def _escaped_part(part: str) -> str:
    if part.startswith("`"):
        return part.replace("|", "\\|")
    return f"<{part}>" if _ADDRESS.fullmatch(part) else _MARKUP.sub(r"\\\1", part)


def paragraphs(docstring: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring as Markdown; indented paragraphs, such as formulas, become text blocks."""
    for part in inspect.cleandoc(docstring).split("\n\n"):
        if part.startswith("    "):
            yield f"```text\n{inspect.cleandoc(part)}\n```\n"
        elif part.startswith("- "):
            yield "\n".join(f"- {escaped(item)}" for item in re.split(r"^- ", part, flags=re.MULTILINE)[1:]) + "\n"
        elif part:
            yield f"{escaped(part)}\n"


def sentence_of(docstring: str | None) -> str:
    """Return the first paragraph (the summary) of a docstring as Markdown."""
    return escaped(inspect.cleandoc(docstring or "").split("\n\n")[0])


def sources_of(docstring: str | None) -> Iterator[str]:
    """Yield those paragraphs of a module's docstring, as Markdown, that cite a paper, a standard or a web page."""
    for part in inspect.cleandoc(docstring or "").split("\n\n"):
        if _REFERENCE.search(part) and not part.startswith(("    ", "- ", "Differences")):
            yield escaped(part)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, with an empty line at the end."""
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    yield from (f"| {' | '.join(cell.strip().replace(chr(10), ' ') for cell in row)} |" for row in rows)
    yield ""
