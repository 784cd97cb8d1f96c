"""What all results have in common that are read as text."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod


class TextResult(ABC):
    """A result as lines of text, which Python, the command line and a notebook show alike."""

    @abstractmethod
    def lines(self) -> list[str]:
        """The result as lines of text."""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
