"""Claims about the frame of pages: what is put in comes out of it, in few bytes, and nothing is loaded."""

import re

import numpy as np
import pandas as pd
import pytest

from fednet_emu.draw.page.document import CORE, browser_file, page
from fednet_emu.draw.page.packing import Packer

ARRAYS = {
    "nothing": np.array([], np.int64),
    "truth": np.array([True, False, True]),
    "small": np.array([0, 255, 3]),
    "negative": np.array([-1, 300, -32768]),
    "rising": np.arange(1_000_000_000_000, 1_000_000_050_000, 7),
    "large": np.array([2**53, -(2**53), 5]),
    "floats": np.array([0.1, np.nan, -np.inf]),
    "singles": np.array([0.1, 2.5], np.float32),
    "column": pd.Series([4, 5, 6], dtype="int8"),
}


def test_arrays_come_out_as_they_went_in(read_page):
    """A browser gets every number of every array, whatever its type."""
    told = read_page(page("x", {"deep": [ARRAYS]}, ()))["deep"][0]

    assert told.keys() == ARRAYS.keys()
    for name, numbers in ARRAYS.items():
        np.testing.assert_array_equal(told[name], numbers)


def test_times_take_little_room():
    """A million rising times in ns, a second apart and known to the ns, take less than half of their 8 bytes each."""
    packer = Packer()
    packer.plain(np.sort(np.random.default_rng(1).integers(0, 10**15, 1_000_000)))

    assert len(packer.block()) < 5.5e6


def test_texts_and_numbers_stay_and_what_is_no_number_is_null(read_page):
    """JSON has no NaN, and a text may hold what would end a script."""
    content = {"a": "</script><b>é\u2028", "b": [1, 0.5, None, float("nan"), np.float64("inf"), np.int64(3)], "c": {}}

    told = read_page(page("x", content, ()))

    assert told == {"a": "</script><b>é\u2028", "b": [1, 0.5, None, None, None, 3], "c": {}}


@pytest.mark.parametrize("wrong", [{1, 2}, np.zeros((2, 2)), np.zeros(2, complex), b"x"])
def test_other_things_are_refused(wrong):
    """What a browser could not read is a mistake of the page's author."""
    with pytest.raises(TypeError, match="page: "):
        Packer().plain(wrong)


def test_a_page_loads_nothing():
    """No address of the network is in a page, its policy forbids to load any, and its parts are all there."""
    whole = page("a <title>", {}, ())

    assert not re.findall(r"https?://", whole)
    assert "default-src 'none'" in whole
    assert "<title>a &lt;title&gt;</title>" in whole
    assert all(browser_file(name) in whole for name in (*CORE, "style.css"))
    assert "{{" not in whole.replace(browser_file("table.js"), "")
    assert len(whole) < 2.2e6
