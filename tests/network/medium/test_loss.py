"""Claims about random loss of whole transfers."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fednet_emu.devices.availability import Always, Presence
from fednet_emu.network.air.transfer import Grant
from fednet_emu.network.faults import Faults, NoLoss, RandomLoss


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


@pytest.mark.parametrize(("probability", "error", "lost"), [(0.0, 0.3, 0.3), (0.5, 0.5, 0.75), (0.4, 0.0, 0.4)])
def test_the_error_of_a_plan_and_random_loss_are_independent(probability, error, lost):
    """Of 4,000 delivered uploads of a link those are lost that either takes: 1 - (1 - p)(1 - e), to within 3 %."""
    loss = RandomLoss(probability=probability) if probability else NoLoss()
    faults = Faults(Presence(Always(), 0, 2), loss, 7)
    upload = SimpleNamespace(sender=0, receiver=-1, grant=Grant(1.0, 1.0, 1.0, 0.0, 1.0, error))
    fates = [faults.fate(upload) for _ in range(4000)]

    assert set(fates) == {"", "erased"}
    assert fates.count("erased") / len(fates) == pytest.approx(lost, abs=0.03)
