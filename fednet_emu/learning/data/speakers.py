"""Whose text is whose: the roles of plays, files, and paragraphs."""

from __future__ import annotations

import re
from collections.abc import Iterable

_BEGIN = re.compile(r"^\*\*\* ?START OF .*$", re.MULTILINE)
_END = re.compile(r"^\*\*\* ?END OF ", re.MULTILINE)
_NEW_PLAY = re.compile(r"\s*dramatis person", re.IGNORECASE)
_ROLE_IN_CAPITALS = re.compile(r"([^\W\d_](?:[^\W_]|[ '\u2019,-])*)\.")
_ROLE_BEFORE_WORDS = re.compile(r"  ([A-Za-z][A-Za-z ]*)\. (.*)")
_GOES_ON = re.compile(r"    (\s*\S.*)")
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")
_LONGEST_NAME = 40


def without_licence(text: str) -> str:
    """The text between the lines with which Project Gutenberg marks its beginning and its end; all without them."""
    begin, end = _BEGIN.search(text), _END.search(text)
    return text[begin.end() if begin else 0 : end.start() if end else len(text)]


def roles(plays: Iterable[str]) -> list[str]:
    """What each role says, one speech per line group, in the order of their first words.

    A role is a name within a play; a text begins a play, and so does a line "Dramatis Personae" in it. Speeches are
    found in the two layouts of Project Gutenberg: after a line with the name in capitals and a full stop, up to the
    next blank line; or after the name behind two spaces, as in "  Ham. Words", with lines behind four spaces.
    """
    said: dict[tuple[int, int, str], list[str]] = {}
    for number, text in enumerate(plays):
        play, lines = 0, None
        for line in text.splitlines():
            capitals = _ROLE_IN_CAPITALS.fullmatch(line.rstrip())
            named = _ROLE_BEFORE_WORDS.fullmatch(line)
            if _NEW_PLAY.match(line):
                play, lines = play + 1, None
            elif capitals and line.isupper() and len(line) <= _LONGEST_NAME:
                lines, of_verse = said.setdefault((number, play, capitals[1]), []), False
            elif named and len(named[1]) <= _LONGEST_NAME:
                lines, of_verse = said.setdefault((number, play, named[1]), []), True
                lines.append(named[2])
            elif lines is not None:
                more = _GOES_ON.fullmatch(line) if of_verse else line.strip()
                if more:
                    lines.append(line.strip())
                else:
                    lines = None
    return ["\n".join(lines) for lines in said.values()]


def paragraphs(texts: Iterable[str]) -> list[str]:
    """The parts of texts between blank lines."""
    return [part for text in texts for part in _BLANK_LINES.split(text.strip()) if part]
