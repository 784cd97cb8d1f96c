"""Sizes of payloads, counted or given."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fednet_emu.federation.payload import n_scalars, whole_bit
from fednet_emu.testing import small_federation


def test_nothing_is_a_size_too() -> None:
    """An empty message has 0 bits, as an integer or as a float; the smallest other one has 1."""
    assert [whole_bit(size_bit) for size_bit in (0, 0.0, 1, 1.0)] == [0, 0, 1, 1]
    assert all(type(whole_bit(size_bit)) is int for size_bit in (0.0, 1.0))


def test_scalars_of_payloads_are_counted() -> None:
    """Numbers count one, arrays and deferred values their length, tuples and lists the sum, nothing counts zero."""
    model = small_federation().initial_model()

    assert n_scalars(model) == 10
    assert n_scalars((model, 3, [0.5, np.float32(1)], np.zeros((2, 3)), None)) == 10 + 1 + 2 + 6
    assert n_scalars(None) == n_scalars(()) == 0


def test_a_payload_of_unknown_size_needs_its_size() -> None:
    """A type that carries no known number of scalars is an error that names the remedy."""
    with pytest.raises(TypeError, match="the size is unknown of a dict; give size_bit"):
        n_scalars({"w": 1})


@pytest.mark.parametrize("size_bit", [0.5, -1, math.inf, math.nan])
def test_a_size_is_a_whole_number_of_bits(size_bit: float) -> None:
    """What cannot be a size is an error where it is given, not where it is written down."""
    with pytest.raises(ValueError, match="no whole number of bits, got "):
        small_federation().uplink(small_federation().device(0), None, size_bit)  # type: ignore[arg-type]
