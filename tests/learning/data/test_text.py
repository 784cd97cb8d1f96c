"""Tokens and windows of texts, against slow second implementations."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.learning.data.datasets.text import (
    CHARACTERS,
    LETTERS,
    UNKNOWN_CHARACTER,
    UNKNOWN_WORD,
    characters,
    frequent_words,
    windows,
    word_tokens,
    words,
)

TEXTS = st.lists(st.text(st.sampled_from("ab Z\n\u00e9~"), max_size=12), max_size=4)


def test_the_alphabet_of_leaf_has_80_different_letters():
    """LEAF's models for Shakespeare have 80 outputs."""
    assert CHARACTERS == len(set(LETTERS)) == 80


@given(st.text())
def test_a_character_is_its_place_in_the_alphabet(text):
    """Every other character, of any script, is the unknown one."""
    places = [LETTERS.find(character) for character in text]
    assert characters(text).tolist() == [UNKNOWN_CHARACTER if place < 0 else place for place in places]


def test_half_a_character_is_an_unknown_one():
    """A lone surrogate, which Python puts in place of bytes that are no text, has a token like any other character."""
    assert characters("a\udce9b").tolist() == [LETTERS.index("a"), UNKNOWN_CHARACTER, LETTERS.index("b")]


def test_words_keep_their_apostrophes_and_lose_their_capitals():
    """Punctuation marks are words of their own."""
    assert words("O'er the Hill\u2014don't, quoth he!") == [
        "o'er",
        "the",
        "hill",
        "\u2014",
        "don't",
        ",",
        "quoth",
        "he",
        "!",
    ]


@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=8), max_size=4), st.integers(1, 6))
def test_the_vocabulary_holds_the_most_frequent_words(texts, size):
    """No word outside is more frequent than one inside, and ties go by the alphabet."""
    count = Counter(word for text in texts for word in text)
    known = frequent_words(texts, size)
    assert list(known.values()) == list(range(1, min(size, len(count)) + 1))
    inside = list(known)
    for earlier, later in pairwise(inside):
        assert (-count[earlier], earlier) < (-count[later], later)
    for word in set(count) - set(known):
        assert (-count[word], word) > (-count[inside[-1]], inside[-1])


def test_a_word_that_is_not_in_the_vocabulary_is_unknown():
    """Its token is 0."""
    tokens = word_tokens(["the", "whale", "the"], {"the": 1})
    assert tokens.tolist() == [1, UNKNOWN_WORD, 1]
    assert tokens.dtype == np.int64


@given(TEXTS, st.integers(1, 5), st.integers(1, 6))
def test_windows_are_those_that_a_loop_finds(texts, length, stride):
    """Each window has the token that follows it, and the owner of its text."""
    owners = [7 * number % 3 for number in range(len(texts))]
    x, y, group = [], [], []
    for text, owner in zip(texts, owners, strict=True):
        for start in range(0, len(text) - length, stride):
            x.append([min(LETTERS.find(c) % CHARACTERS, UNKNOWN_CHARACTER) for c in text[start : start + length]])
            y.append(LETTERS.find(text[start + length]) % CHARACTERS)
            group.append(owner)

    found = windows([characters(text) for text in texts], owners, length, stride)

    assert found.x.shape == (len(y), length)
    assert (found.x.tolist(), found.y.tolist(), found.group.tolist()) == (x, y, group)
    assert {part.dtype for part in found} == {np.dtype(np.int64)}
    every = windows([characters(text) for text in texts], owners, length, stride, predict="every")
    assert every.y.shape == (len(y), length)
    assert np.array_equal(every.x, found.x)
    assert np.array_equal(every.y[:, :-1], found.x[:, 1:])
    assert every.y[:, -1].tolist() == y


@pytest.mark.parametrize("n_tokens", [0, 1, 4])
def test_a_text_as_short_as_a_window_has_none(n_tokens):
    """There is no token that follows."""
    assert len(windows([np.zeros(n_tokens, np.int64)], [0], 4).y) == 0
