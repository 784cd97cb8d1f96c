"""Claims about access schemes, against the worked example of orthogonal sharing."""

import numpy as np
import pytest
from pydantic import ValidationError

from fednet_emu.network.access import ACCESSES, Ofdma, Tdma


@pytest.mark.parametrize("access", [Tdma(), Ofdma(), Ofdma(subchannels=4)])
@pytest.mark.parametrize("active", [1, 2, 3, 4])
def test_nobody_gets_more_than_the_band(access, active):
    """Shares of all who may be on the air at once add up to one at most."""
    together = min(active, access.capacity or active)

    assert 0 < access.share(active) * together <= 1


def test_noise_shrinks_with_the_share_and_power_does_not():
    """SNRs 10, 3, 1 on thirds of the band: 3.4254 bit/s/Hz in sum, against 2.1531 when they take turns in time."""
    sinr = Ofdma().sinr(np.array([[10.0], [3.0], [1.0]]), 3)

    assert sinr[:, 0].tolist() == pytest.approx([30.0, 9.0, 3.0])
    assert (np.log2(1 + sinr) / 3).sum() == pytest.approx(3.4254, abs=5e-5)
    assert (np.log2(1 + Tdma().sinr(np.array([10.0, 3.0, 1.0]), 1)) / 3).sum() == pytest.approx(2.1531, abs=5e-5)


def test_only_turns_limit_how_many_send():
    """TDMA one, OFDMA all, or as many as there are subchannels."""
    assert [Tdma().capacity, Ofdma().capacity, Ofdma(subchannels=3).capacity] == [1, None, 3]


def test_no_subchannels_is_not_a_number_of_subchannels():
    """Zero parts of a band are refused."""
    with pytest.raises(ValidationError, match="greater than 0"):
        Ofdma(subchannels=0)


def test_every_kind_is_in_the_table_under_its_name():
    """The table and the classes agree."""
    assert {kind: access().kind for kind, access in ACCESSES.items()} == {kind: kind for kind in ACCESSES}
