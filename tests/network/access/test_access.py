"""Claims about access schemes in general, and the worked example of orthogonal sharing."""

import numpy as np
import pytest
from pydantic import ValidationError

from fednet_emu.network.access.contention import Noma, Shared, SlottedAloha, SpatialReuse
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.sharing import Active, RateInputs
from fednet_emu.network.ethernet import Switch
from fednet_emu.network.lora.access import Lora
from fednet_emu.network.nr.grants import NrGrants
from fednet_emu.network.over_the_air import OverTheAir
from fednet_emu.network.planning import Fedl
from fednet_emu.network.planning.access import Planned
from fednet_emu.network.settings import ACCESSES, Downlink, Sidelink, Uplink
from fednet_emu.network.wifi.dcf import Dcf
from fednet_emu.radio.fading import NoFading
from fednet_emu.radio.rates.shannon import Shannon

ONE_OF_EACH = [
    Tdma(),
    Ofdma(),
    Ofdma(subchannels=4),
    Ofdma(scheduler="proportional-fair"),
    Ofdma(scheduler="equal-finish"),
    Noma(),
    Shared(),
    SlottedAloha(slot_s=0.001),
    SpatialReuse(),
    OverTheAir(),
    Planned(),
    Planned(planner=Fedl()),
    NrGrants(),
    Dcf(),
    Switch(),
    Lora(),
]


def uplink_inputs(*snr):
    """Everybody's burst at one base station, without fading."""
    count = len(snr)
    heard = np.array([[[value] for value in snr]])
    everyone = np.arange(count)
    active = Active(
        burst=everyone,
        receiver=np.zeros(count, np.int64),
        sender=everyone,
        radio=everyone,
        part=np.ones(count),
        left_bit=np.full(count, 1e6),
        mean=heard[:, :, 0],
        deaf=None,
        plain=True,
    )
    law = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
    return RateInputs(active, heard[0], heard, np.ones((1, 1)), np.array([0]), Band.of(1e6, law, NoFading()))


def sum_rate(access, *snr):
    """Sum of log2(1 + SINR) times the share of the band, in bit/s/Hz."""
    inputs = uplink_inputs(*snr)
    got = access.allocate(inputs, access.power(inputs))
    return float((np.log2(1 + got.sinr) * got.share).sum())


@pytest.mark.parametrize("access", [Tdma(), Ofdma(), Ofdma(subchannels=4), Planned(), Planned(planner=Fedl())])
@pytest.mark.parametrize("active", [1, 2, 3, 4])
def test_nobody_gets_more_than_the_band(access, active):
    """Shares of all who may be on the air at once add up to one at most."""
    together = min(active, access.capacity or active)

    assert 0 < access.share(active) * together <= 1


def test_the_worked_example_of_sharing():
    """SNRs 10, 3, 1: in bit/s/Hz 2.1531 in turns, 3.4254 on thirds of the band, 3.9069 = log2(15) with NOMA."""
    turns = sum(sum_rate(Tdma(), snr) for snr in (10.0, 3.0, 1.0)) / 3

    assert turns == pytest.approx(2.1531, abs=5e-5)
    assert sum_rate(Ofdma(), 10.0, 3.0, 1.0) == pytest.approx(3.4254, abs=5e-5)
    assert sum_rate(Noma(), 10.0, 3.0, 1.0) == pytest.approx(np.log2(15), rel=1e-12)


def test_only_turns_limit_how_many_send():
    """TDMA one, others all, or as many as the scheme is told."""
    limited = {place: access.capacity for place, access in enumerate(ONE_OF_EACH) if access.capacity is not None}

    assert limited == {0: 1, 2: 4, 8: 1, 11: 1}
    assert [Noma(max_senders=2).capacity, Shared(max_senders=3).capacity] == [2, 3]


def test_no_subchannels_is_not_a_number_of_subchannels():
    """Zero parts of a band are refused."""
    with pytest.raises(ValidationError, match="greater than 0"):
        Ofdma(subchannels=0)


def test_fixed_parts_and_a_scheduler_exclude_each_other():
    """Subchannels are equal for all; the message names both."""
    with pytest.raises(ValidationError, match="got scheduler proportional-fair with 4"):
        Ofdma(subchannels=4, scheduler="proportional-fair")


def test_every_kind_is_in_the_table_under_its_name():
    """The table and the classes agree, and no kind is left out here."""
    assert {access.kind: type(access) for access in ONE_OF_EACH} == ACCESSES


@pytest.mark.parametrize(
    ("settings", "access", "direction"),
    [(Downlink, "noma", "downlink"), (Sidelink, "noma", "sidelink"), (Downlink, SlottedAloha(slot_s=1.0), "downlink")],
)
def test_a_scheme_for_many_senders_is_refused_where_one_sends(settings, access, direction):
    """The message names the direction and what can go there."""
    with pytest.raises(ValidationError, match=rf"is not for a {direction}, got .*; choose tdma, ofdma, shared"):
        settings.model_validate({"access": access})


def test_an_uplink_takes_every_scheme():
    """By name or as a component."""
    assert Uplink.model_validate({"access": "noma"}).access == Noma()
    assert all(Uplink(access=access).access == access for access in ONE_OF_EACH if "uplink" in access.DIRECTIONS)
