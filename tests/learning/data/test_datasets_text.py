"""Data sets of text."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets import Text
from fednet_emu.learning.data.datasets.base import last_of_each
from fednet_emu.learning.data.datasets.text import (
    CHARACTERS,
    LETTERS,
    UNKNOWN_CHARACTER,
    UNKNOWN_WORD,
    characters,
    frequent_words,
    paragraphs,
    roles,
    windows,
    without_licence,
    word_tokens,
    words,
)
from fednet_emu.learning.data.partitions.rules import Shards

NEW_LAYOUT = """\
The Project Gutenberg eBook of two plays
HAMLET.
Not in the book.
*** START OF THE PROJECT GUTENBERG EBOOK ***
Dramatis Person\u00e6

ACT I
SCENE I. Elsinore. A platform before the Castle.

 Enter Francisco and Barnardo.

BARNARDO.
Who's there?
I see.

FRANCISCO.
Nay, answer me.

 [_Exit._]

BARNARDO.
Long live the King!

Dramatis Person\u00e6

BARNARDO.
Another one.
*** END OF THE PROJECT GUTENBERG EBOOK ***
FRANCISCO.
Nor this.
"""

OLD_LAYOUT = """\
DRAMATIS PERSONAE

  Ham, a prince

ACT I. SCENE I.
Elsinore.

Enter Ghost.

  Ber. Who's there?
  Fran. Nay, answer me. Stand and unfold
    yourself.
                                                   Exit
  Ber. Long live the King!
THE END
"""


def _text(folder, content, **settings):
    (folder / "play.txt").write_text(content, encoding="utf-8")
    return Text(path=str(folder / "play.txt"), **settings).load(None, np.random.default_rng(0))


def test_a_role_says_what_follows_its_name_in_capitals():
    """The same name in another play is another role; directions and the licence belong to nobody."""
    assert roles([without_licence(NEW_LAYOUT)]) == [
        "Who's there?\nI see.\nLong live the King!",
        "Nay, answer me.",
        "Another one.",
    ]


def test_a_role_says_what_follows_its_name_behind_two_spaces():
    """The next line goes on behind four."""
    said = roles([OLD_LAYOUT])
    assert said[0] == "Who's there?\nLong live the King!"
    assert said[1].startswith("Nay, answer me. Stand and unfold\nyourself.")


def test_paragraphs_are_parted_by_blank_lines():
    """Lines within one stay together."""
    assert paragraphs(["\n\na\nb\n \n\nc\n", "d"]) == ["a\nb", "c", "d"]


def test_windows_of_roles_are_theirs_and_the_last_are_for_testing(tmp_path):
    """A window and the character after it give back what the role says."""
    samples = _text(tmp_path, NEW_LAYOUT, length=4, stride=1, test_share=0.25)
    said = roles([without_licence(NEW_LAYOUT)])
    assert (samples.classes, samples.vocabulary, samples.train_x.dtype.is_floating_point) == (80, 80, False)
    for owner, text in enumerate(said):
        x = np.concatenate([samples.train_x[samples.train_group == owner], samples.test_x[samples.test_group == owner]])
        y = np.concatenate([samples.train_y[samples.train_group == owner], samples.test_y[samples.test_group == owner]])
        assert ["".join(LETTERS[token] for token in row) for row in x] == [
            text[at : at + 4] for at in range(len(text) - 4)
        ]
        assert "".join(LETTERS[token] for token in y) == text[4:]
        assert (samples.test_group == owner).sum() == round(0.25 * (len(text) - 4))


def test_every_token_of_a_window_has_the_one_that_follows(tmp_path):
    """They are no classes, so that who deals by class refuses them."""
    last, every = (_text(tmp_path, NEW_LAYOUT, length=4, stride=1, predict=predict) for predict in ("last", "every"))

    assert (every.task, every.outputs, every.classes) == ("next-token", 80, None)
    for part in ("train", "test"):
        x, y = getattr(every, f"{part}_x"), getattr(every, f"{part}_y")
        assert np.array_equal(x, getattr(last, f"{part}_x"))
        assert np.array_equal(y[:, :-1], x[:, 1:])
        assert np.array_equal(y[:, -1], getattr(last, f"{part}_y"))
    with pytest.raises(
        ScenarioError, match="partition: shards deals by class, got data for next-token without classes"
    ):
        Shards().split(every, 2, np.random.default_rng(0))


def test_roles_with_few_windows_are_left_out(tmp_path):
    """Those that stay are numbered without gaps."""
    samples = _text(tmp_path, NEW_LAYOUT, length=4, stride=1, min_samples=10)
    assert len(roles([without_licence(NEW_LAYOUT)])) == 3
    assert np.unique(samples.train_group).tolist() == [0, 1]


def test_each_file_of_a_folder_has_an_owner(tmp_path):
    """They come in the order of their paths, and without a stride their windows do not overlap."""
    for name, text in (("b.txt", "b" * 9), ("a.txt", "a" * 13), ("c.md", "c" * 9)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    samples = Text(path=str(tmp_path), owner="file", length=4, test_share=0.5).load(None, np.random.default_rng(0))
    assert samples.train_group.tolist() == [0, 1]
    assert samples.test_group.tolist() == [0, 0, 1]
    assert set(samples.train_x.unique().tolist()) == {LETTERS.index("a"), LETTERS.index("b")}


def test_rare_words_are_one_token(tmp_path):
    """With two words of vocabulary there are three tokens."""
    samples = _text(tmp_path, "the cat the dog the cat sat", owner="file", level="words", vocabulary=2, length=2,
                    stride=1, test_share=0.4)  # fmt: skip
    assert samples.classes == samples.vocabulary == 3
    assert samples.train_x.tolist() == [[1, 2], [2, 1], [1, 0]]
    assert (samples.train_y.tolist(), samples.test_y.tolist()) == ([1, 0, 1], [2, 0])


def test_the_last_of_each_kind_are_those_that_a_loop_finds():
    """For any kinds, order and share."""
    rng = np.random.default_rng(3)
    for share in (0.0, 0.2, 0.5, 0.9):
        kind, order = rng.integers(7, size=50) * 3, rng.permutation(50)
        expected = np.zeros(50, np.bool_)
        for value in np.unique(kind):
            members = [row for row in order if kind[row] == value]
            expected[members[len(members) - round(share * len(members)) :]] = True
        assert last_of_each(kind, order, share).tolist() == expected.tolist()


TEXTS = st.lists(st.text(st.sampled_from("ab Z\n\u00e9~"), max_size=12), max_size=4)


def test_the_alphabet_of_leaf_has_80_different_letters():
    """LEAF's models for Shakespeare have 80 outputs."""
    assert CHARACTERS == len(set(LETTERS)) == 80


@given(st.lists(st.sampled_from(LETTERS) | st.integers(0, sys.maxunicode).map(chr)).map("".join))
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
