"""Text of many writers, for models that predict the next character or word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from fednet_emu.arrays import IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.learning.data.datasets.base import Dataset, Extent, Samples, last_of_each
from fednet_emu.learning.data.text import (
    CHARACTERS,
    characters,
    frequent_words,
    paragraphs,
    roles,
    windows,
    without_licence,
    word_tokens,
    words,
)

Owner = Literal["role", "file", "paragraph"]

_TOKEN_BYTE = 8


class Text(Dataset):
    """Windows of `length` tokens and the token that follows, from a text file or the .txt files of a folder.

    Tokens are LEAF's 80 characters (Caldas et al., 2018) or the most frequent words. Groups are the owners, numbered in
    the order of their first words; all that an owner says is one text, cut into windows. The last windows of each owner
    are for testing, as in McMahan et al. (AISTATS 2017), who took the roles of Shakespeare's plays.
    """

    path: str
    """The text file in UTF-8, or the folder of .txt files; a relative path is looked up in the data folder first, then
    in the current folder. What stands before and behind Project Gutenberg's marks of begin and end is left out."""
    owner: Owner = "role"
    """Who owns a piece of text. role: each role of a play (a name on a line of its own in capitals with a full stop, or
    behind two spaces, as in the editions of Project Gutenberg); file: each file; paragraph: each paragraph between
    blank lines."""
    level: Literal["characters", "words"] = "characters"
    """What a token is: one of LEAF's 80 characters, or a word or punctuation mark in lower case."""
    length: int = Field(80, gt=0, le=10_000)
    """Tokens in a window."""
    stride: int | None = Field(None, gt=0)
    """Tokens between the starts of two successive windows of an owner; null takes `length`, for no gaps and no overlap.
    LEAF takes 1."""
    vocabulary: int = Field(10_000, gt=0, le=1_000_000)
    """With `level: words`, number of different words, the most frequent ones of all owners; every other word is one
    more token."""
    min_samples: int = Field(2, ge=2)
    """Owners with fewer windows are left out."""
    test_share: float = Field(0.2, gt=0, lt=1)
    """Share of each owner's windows, the last ones, that is for testing."""

    @property
    def _tokens(self) -> int:
        return CHARACTERS if self.level == "characters" else self.vocabulary + 1

    def extent(self, data_dir: Path | None) -> Extent:
        """The shape of a window; how many there are depends on the text."""
        return Extent((self.length,), self._tokens, value_byte=_TOKEN_BYTE)

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        """Read the text and cut it into windows; the random stream is not used."""
        path = locate(self.path, data_dir)
        owned = _OWNED[self.owner]([without_licence(text) for text in _read(path)])
        if not owned:
            remedy = "give a play in which each speech begins with the role's name, or `owner: file` or `paragraph`"
            raise DataError(str(path), f"nobody owns anything, got no {self.owner} with words", remedy)
        x, y, group = windows(self._in_tokens(owned), np.arange(len(owned)), self.length, self.stride or self.length)
        enough = np.bincount(group, minlength=len(owned)) >= self.min_samples
        if not enough.any():
            longest = np.bincount(group, minlength=1).max()
            problem = f"no {self.owner} has {self.min_samples} windows of {self.length} tokens, got {longest} at most"
            raise DataError(str(path), problem, "give more text, or a smaller length, stride or min_samples")
        kept = enough[group]
        x, y, group = x[kept], y[kept], (np.cumsum(enough) - 1)[group[kept]]
        test = last_of_each(group, np.arange(len(group)), self.test_share)
        if not test.any():
            problem = f"test_share leaves nobody a test window, got {self.test_share}"
            raise DataError(str(path), problem, "give a larger share, or a larger min_samples")
        train_x, test_x = torch.from_numpy(x[~test]), torch.from_numpy(x[test])
        train_y, test_y = torch.from_numpy(y[~test]), torch.from_numpy(y[test])
        tokens = self._tokens
        return Samples(train_x, train_y, test_x, test_y, tokens, group[~test], group[test], vocabulary=tokens)

    def _in_tokens(self, texts: list[str]) -> list[IntArray]:
        if self.level == "characters":
            return [characters(text) for text in texts]
        spoken = [words(text) for text in texts]
        known = frequent_words(spoken, self.vocabulary)
        return [word_tokens(text, known) for text in spoken]


_OWNED: Mapping[Owner, Callable[[Iterable[str]], list[str]]] = {
    "role": roles,
    "file": lambda texts: [text for text in texts if text.strip()],
    "paragraph": paragraphs,
}


def _read(path: Path) -> list[str]:
    """The texts of a file, or of the .txt files in a folder in the order of their paths."""
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not files:
        raise DataError(
            str(path), "no text here, got a folder without files named *.txt", "put the text into such files"
        )
    try:
        return [file.read_text(encoding="utf-8-sig") for file in files]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(str(path), f"cannot be read as text ({error})", "save it in UTF-8") from error
