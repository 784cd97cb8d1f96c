"""Claims about the random numbers of links: where they change with the place of a device, and how fast."""

import numpy as np
import pytest
from scipy import special

from fednet_emu.kernel.streams import Streams, mix, uniform
from fednet_emu.network.links.draws import moving_draws, still_draws
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.propagation.link import Hop
from fednet_emu.radio.propagation.shadowing import WAVES, shadow_normals

COUNT = 3000
TERMINAL = {"tx_power_dbm": 20, "noise_figure_db": 5}
PLACES = {
    "3gpp-rma": ({"kind": "3gpp-rma"}, 35.0, 60.0),
    "3gpp-uma": ({"kind": "3gpp-uma"}, 25.0, 50.0),
    "3gpp-umi": ({"kind": "3gpp-umi"}, 10.0, 50.0),
    "3gpp-inh": ({"kind": "3gpp-inh"}, 3.0, 10.0),
    "3gpp-inf": ({"kind": "3gpp-inf", "hall": "SL"}, 1.5, 5.0),
}


def in_sight_normals(path_loss, height_m, east_m):
    """Standard normals behind the line of sight of many devices at 50 m, after a step to the east."""
    channel = Channel.model_validate(
        {
            "carrier_hz": 2e9,
            "bandwidth_hz": 1e6,
            "path_loss": path_loss,
            "device": {**TERMINAL, "height_m": 1.5},
            "base_station": {**TERMINAL, "height_m": height_m},
        }
    )
    xy_m = np.tile([[50.0 + east_m, 0.0]], (COUNT, 1))
    devices_m = np.column_stack([xy_m, np.full(COUNT, 1.5)])
    hop = Hop.between(devices_m, np.array([0.0, 0.0, height_m]))
    return special.ndtri(moving_draws(channel, hop, xy_m, Streams(2)).los)


@pytest.mark.parametrize("kind", PLACES)
def test_line_of_sight_is_correlated_over_the_distance_of_its_environment(kind):
    """After the distance of TR 38.901 Table 7.6.3.1-2 the correlation over devices is 1/e, after a third exp(-1/3)."""
    path_loss, height_m, correlation_m = PLACES[kind]
    here = in_sight_normals(path_loss, height_m, 0.0)

    for part in (1.0, 1 / 3):
        there = in_sight_normals(path_loss, height_m, part * correlation_m)
        assert np.corrcoef(here, there)[0, 1] == pytest.approx(np.exp(-part), abs=0.04)


def test_cells_see_a_device_differently_but_in_the_same_building():
    """Line of sight and shadowing belong to the link, what surrounds the device to the device."""
    first, second, third = (still_draws(Streams(2), 5, cell) for cell in (0, 1, 2))

    for here, there in ((first, second), (second, third)):
        assert not np.any(here.los == there.los)
        assert not np.any(here.shadowing == there.shadowing)
        np.testing.assert_array_equal(here.building, there.building)


@pytest.mark.parametrize(
    ("shadowing", "in_sight_m", "hidden_m"),
    [({"kind": "of-path-loss"}, 10.0, 13.0), ({"kind": "log-normal", "sigma_db": 4, "decorrelation_m": 0.5}, 0.5, 0.5)],
)
def test_shadowing_is_correlated_over_the_distance_of_the_state_of_the_link(shadowing, in_sight_m, hidden_m):
    """TR 38.901 Table 7.5-6, UMi: 10 m with line of sight, 13 m without, which each device's own draw decides."""
    ends = {"device": {**TERMINAL, "height_m": 1.5}, "base_station": {**TERMINAL, "height_m": 10.0}}
    bands = {"carrier_hz": 2e9, "bandwidth_hz": 1e6, "path_loss": {"kind": "3gpp-umi"}}
    channel, streams = Channel.model_validate({**bands, **ends, "shadowing": shadowing}), Streams(2)
    xy_m = np.column_stack([np.linspace(20.0, 200.0, 40), np.linspace(0.0, 30.0, 40)])
    hop = Hop.between(np.column_stack([xy_m, np.full(40, 1.5)]), np.array([0.0, 0.0, 10.0]))

    draws = moving_draws(channel, hop, xy_m, streams)

    d_m = np.hypot(*xy_m.T)
    in_sight = draws.los < np.minimum(18 / d_m + np.exp(-d_m / 36) * (1 - 18 / d_m), 1.0)
    assert 5 < in_sight.sum() < 35
    for name, values, correlation_m in (
        ("los", special.ndtri(draws.los), np.full(40, 50.0)),
        ("shadowing", draws.shadowing, np.where(in_sight, in_sight_m, hidden_m)),
    ):
        key = streams.key("waves", name, 0)
        uniforms = [[uniform(mix(key, device), n) for n in range(3 * WAVES)] for device in range(40)]
        waves = np.array(uniforms).reshape(40, WAVES, 3)
        assert values == pytest.approx(shadow_normals(xy_m, correlation_m, waves), abs=1e-6)
