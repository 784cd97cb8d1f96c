"""Claims about random loss of whole transfers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fednet_emu.network.faults import NoLoss, RandomLoss


@given(
    uniform=st.floats(0.0, 1.0, exclude_min=True, exclude_max=True), probability=st.floats(0.0, 1.0, exclude_max=True)
)
def test_a_transfer_is_erased_below_its_probability(uniform, probability):
    """Quantile by quantile: more loss only ever adds to what is lost."""
    assert RandomLoss(probability=probability).fate(None, uniform) == ("erased" if uniform < probability else "")
    assert NoLoss().fate(None, uniform) == ""


@pytest.mark.parametrize("probability", [-0.1, 1.0, 30.0])
def test_a_probability_is_below_one(probability):
    """A link that loses everything, or 30 for 30 %, is refused."""
    with pytest.raises(ValidationError, match="probability"):
        RandomLoss(probability=probability)
