"""The data set of text files, and the functions that divide text into owners, tokens and windows of tokens."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from pydantic import Field

from fednet_emu.arrays import IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples, divided, last_of_each

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's Shakespeare data (Caldas et al., 2018). The token of a character is its index in this
string."""

CHARACTERS = len(LETTERS)
"""Number of different tokens of characters."""

UNKNOWN_CHARACTER = CHARACTERS - 1
"""Token of every character that is not in `LETTERS`. The last letter has this token, too, as in LEAF's code, where
unknown characters have the index -1."""

UNKNOWN_WORD = 0
"""Token of a word that is not in the vocabulary."""

_ASCII = 128
_TOKEN_OF = np.full(_ASCII + 1, UNKNOWN_CHARACTER, dtype=np.int64)
_TOKEN_OF[[ord(letter) for letter in LETTERS]] = np.arange(CHARACTERS)
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*|[^\w\s]")


def characters(text: str) -> IntArray:
    """Return the tokens [len(text)] of the characters of a text, which are their indices in `LETTERS`."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return np.asarray(_TOKEN_OF[np.minimum(points, _ASCII)])


def words(text: str) -> list[str]:
    """Return the words and punctuation marks of a text, in lower case. Words may contain apostrophes."""
    return _WORD.findall(text.lower())


def frequent_words(texts: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    """Return the `size` most frequent words, with their tokens 1, 2, and so on.

    Words of equal frequency are in alphabetical order. Token 0 is reserved for unknown words.
    """
    count = Counter(word for text in texts for word in text)
    ranked = sorted(count, key=lambda word: (-count[word], word))[:size]
    return {word: token for token, word in enumerate(ranked, UNKNOWN_WORD + 1)}


def word_tokens(text: Sequence[str], vocabulary: Mapping[str, int]) -> IntArray:
    """Return the token of each word of a text, as an array. Words outside the vocabulary become `UNKNOWN_WORD`."""
    return np.array([vocabulary.get(word, UNKNOWN_WORD) for word in text], dtype=np.int64)


Level = Literal["characters", "words"]


def in_tokens(level: Level, vocabulary: int, tables: Sequence[Sequence[str]]) -> tuple[list[list[IntArray]], int]:
    """Return each table's texts as tokens of the first one's most frequent words, and the number of tokens."""
    if level == "characters":
        return [[characters(text) for text in table] for table in tables], CHARACTERS
    spoken = [[words(text) for text in table] for table in tables]
    known = frequent_words(spoken[0], vocabulary)
    return [[word_tokens(text, known) for text in table] for table in spoken], vocabulary + 1


Predict = Literal["last", "every"]
"""What a model predicts: the token after a window (`last`), or the next token after each token of the window
(`every`)."""


class Windows(NamedTuple):
    """Windows of tokens, in the order of the texts and of their positions within a text."""

    x: IntArray  # int64 [n, length], successive tokens
    y: IntArray  # int64 [n], the token after each window; or int64 [n, length], the token after each token
    group: IntArray  # int64 [n], the owner of each window's text


def windows(
    texts: Sequence[IntArray], owners: Sequence[int] | IntArray, length: int, stride: int = 1, predict: Predict = "last"
) -> Windows:
    """Cut texts into windows of `length` tokens, each with the token or tokens to be predicted.

    Successive windows of a text start `stride` tokens apart. No window reaches from one text into the next. A text of
    at most `length` tokens yields no window.
    """
    cut = [
        sliding_window_view(text, length + 1)[::stride] if len(text) > length else np.empty((0, length + 1), np.int64)
        for text in texts
    ]
    whole = np.concatenate([np.empty((0, length + 1), np.int64), *cut])
    group = np.repeat(np.asarray(owners, dtype=np.int64), [len(its) for its in cut])
    return Windows(whole[:, :-1], whole[:, -1] if predict == "last" else whole[:, 1:], group)


_BEGIN = re.compile(r"^\*\*\* ?START OF .*$", re.MULTILINE)
_END = re.compile(r"^\*\*\* ?END OF ", re.MULTILINE)
_NEW_PLAY = re.compile(r"\s*dramatis person", re.IGNORECASE)
_ROLE_IN_CAPITALS = re.compile(r"([^\W\d_](?:[^\W_]|[ '\u2019,-])*)\.")
_ROLE_BEFORE_WORDS = re.compile(r"  ([A-Za-z][A-Za-z ]*)\. (.*)")
_GOES_ON = re.compile(r"    (\s*\S.*)")
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")
_LONGEST_NAME = 40


def without_licence(text: str) -> str:
    """Return the text between Project Gutenberg's begin and end lines, or all text if there are no such lines."""
    begin, end = _BEGIN.search(text), _END.search(text)
    return text[begin.end() if begin else 0 : end.start() if end else len(text)]


def roles(plays: Iterable[str]) -> list[str]:
    """Return the speeches of each role, joined by newlines, in the order of the roles' first words.

    Roles with the same name in different plays are different roles. A new play begins at the start of a text, and at
    each line "Dramatis Personae". Speeches are found in two layouts of Project Gutenberg. In one layout, a speech
    begins with a line that consists of the name in capitals and a full stop, and ends at a blank line. In the other
    layout, the first line of a speech is indented by two spaces and begins with the name, as in " Ham. Words"; further
    lines of the speech are indented by four spaces.
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
    """Return the paragraphs of the texts, which are separated by blank lines."""
    return [part for text in texts for part in _BLANK_LINES.split(text.strip()) if part]


Owner = Literal["role", "file", "paragraph"]

_TOKEN_BYTE = 8


class Text(Dataset):
    """Windows of consecutive tokens from text files; a model predicts the next token.

    Tokens are LEAF's 80 characters (Caldas et al., 2018) or the most frequent words. Every passage of the text has an
    owner. The owners are the groups of the data, and are numbered in the order of their first words. All passages of an
    owner form one text, which is cut into windows. The last windows of each owner are for testing, as in McMahan et al.
    (AISTATS 2017), where owners are the roles of Shakespeare's plays.
    """

    path: str
    """The text file in UTF-8, or the folder of .txt files. A relative path is looked up in the data folder first, then
    in the current folder. Text outside the begin and end lines of Project Gutenberg is ignored."""
    owner: Owner = "role"
    """Owner of a passage of text. role: the role in a play that speaks it; file: the file that contains it; paragraph:
    the paragraph between blank lines. Roles are recognised by a name on a separate line in capitals with a full stop,
    or after two spaces, as in the editions of Project Gutenberg."""
    level: Level = "characters"
    """Kind of token: one of LEAF's 80 characters, or a word or punctuation mark in lower case."""
    length: int = Field(80, gt=0, le=10_000)
    """Number of tokens in a window."""
    stride: int | None = Field(None, gt=0)
    """Distance between the starts of two successive windows of an owner, in tokens. Null uses `length`, so that windows
    neither overlap nor leave gaps. LEAF uses 1."""
    predict: Predict = "last"
    """Token that the model predicts. last: the token after the window, which is treated as a class; every: the next
    token after each token of the window, for models that return scores at every position. If `predict` is `every`, loss
    and accuracy are means over the positions."""
    vocabulary: int = Field(10_000, gt=0, le=1_000_000)
    """Number of words in the vocabulary if `level` is `words`: the most frequent words of all owners. All other words
    share one additional token."""
    min_samples: int = Field(2, ge=2)
    """Minimum number of windows of an owner. Owners with fewer windows are left out."""
    test_share: float = Field(0.2, gt=0, lt=1)
    """Share of each owner's windows that is used for testing. The last windows are chosen."""

    def extent(self, data_dir: Path | None) -> Extent:
        tokens = CHARACTERS if self.level == "characters" else self.vocabulary + 1
        return Extent((self.length,), tokens, value_byte=_TOKEN_BYTE)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        path = locate(self.path, data_dir)
        owned = _OWNED[self.owner]([without_licence(text) for text in _read(path)])
        if not owned:
            remedy = "give a play in which each speech begins with the role's name, or `owner: file` or `paragraph`"
            raise DataError(str(path), f"there are no owners, got no {self.owner} with words", remedy)
        ([own], tokens), stride = in_tokens(self.level, self.vocabulary, [owned]), self.stride or self.length
        x, y, group = windows(own, np.arange(len(owned)), self.length, stride, self.predict)
        enough = np.bincount(group, minlength=len(owned)) >= self.min_samples
        if not enough.any():
            longest = np.bincount(group, minlength=1).max()
            problem = f"no {self.owner} has {self.min_samples} windows of {self.length} tokens, got {longest} at most"
            raise DataError(str(path), problem, "give more text, or a smaller length, stride or min_samples")
        kept = enough[group]
        x, y, group = x[kept], y[kept], (np.cumsum(enough) - 1)[group[kept]]
        test = last_of_each(group, np.arange(len(group)), self.test_share)
        if not test.any():
            problem = f"test_share leaves no test windows, got {self.test_share}"
            raise DataError(str(path), problem, "give a larger share, or a larger min_samples")
        classes = tokens if self.predict == "last" else None
        return Samples(*divided(test, x, y), classes, group[~test], group[test], vocabulary=tokens)


_OWNED: Mapping[Owner, Callable[[Iterable[str]], list[str]]] = {
    "role": roles,
    "file": lambda texts: [text for text in texts if text.strip()],
    "paragraph": paragraphs,
}


def _read(path: Path) -> list[str]:
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not files:
        raise DataError(
            str(path), "no text here, got a folder without files named *.txt", "put the text into such files"
        )
    try:
        return [file.read_text(encoding="utf-8-sig") for file in files]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(str(path), f"cannot be read as text ({error})", "save it in UTF-8") from error
