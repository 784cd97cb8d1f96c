"""Text: characters and words as numbers, windows of them, and whose text is whose."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fednet_emu.arrays import IntArray

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's Shakespeare data (Caldas et al., 2018); a character's token is its place here."""

CHARACTERS = len(LETTERS)
"""Number of different tokens of `characters`."""

UNKNOWN_CHARACTER = CHARACTERS - 1
"""Token of every other character; LEAF's code puts the last letter there as well (place -1)."""

UNKNOWN_WORD = 0
"""Token of a word that is not in the vocabulary."""

_ASCII = 128
_TOKEN_OF = np.full(_ASCII + 1, UNKNOWN_CHARACTER, dtype=np.int64)
_TOKEN_OF[[ord(letter) for letter in LETTERS]] = np.arange(CHARACTERS)
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*|[^\w\s]")


def characters(text: str) -> IntArray:
    """The token [len(text)] of each character."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    tokens: IntArray = _TOKEN_OF[np.minimum(points, _ASCII)]
    return tokens


def words(text: str) -> list[str]:
    """The words and punctuation marks of a text in lower case; a word may have apostrophes in it."""
    return _WORD.findall(text.lower())


def frequent_words(texts: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    """The `size` most frequent words and their tokens 1, 2, ...; of equally frequent words the first in the alphabet.

    Token 0 is left for unknown words, so that there are `len(result) + 1` different tokens.
    """
    count = Counter(word for text in texts for word in text)
    ranked = sorted(count, key=lambda word: (-count[word], word))[:size]
    return {word: token for token, word in enumerate(ranked, UNKNOWN_WORD + 1)}


def word_tokens(text: Sequence[str], vocabulary: Mapping[str, int]) -> IntArray:
    """The token [len(text)] of each word, `UNKNOWN_WORD` where the vocabulary lacks it."""
    return np.array([vocabulary.get(word, UNKNOWN_WORD) for word in text], dtype=np.int64)


class Windows(NamedTuple):
    """Windows of texts, in the order of the texts and of their places in them.

    Attributes:
        x: int64 [n, length], successive tokens.
        y: int64 [n], the token after each window.
        group: int64 [n], the owner of its text.
    """

    x: IntArray
    y: IntArray
    group: IntArray


def windows(texts: Sequence[IntArray], owners: Sequence[int] | IntArray, length: int, stride: int = 1) -> Windows:
    """Cut texts into windows of `length` tokens, each with the token that follows.

    Args:
        texts: tokens of each text [its length]; no window reaches from one text into the next, and a text of `length`
            tokens or fewer has none.
        owners: owner of each text, a number from 0.
        length: tokens in a window.
        stride: tokens between the starts of successive windows of a text; `length` leaves no gaps and no overlap.
    """
    cut = [
        sliding_window_view(text, length + 1)[::stride] if len(text) > length else np.empty((0, length + 1), np.int64)
        for text in texts
    ]
    whole = np.concatenate([np.empty((0, length + 1), np.int64), *cut])
    group = np.repeat(np.asarray(owners, dtype=np.int64), [len(its) for its in cut])
    return Windows(whole[:, :-1], whole[:, -1], group)


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
