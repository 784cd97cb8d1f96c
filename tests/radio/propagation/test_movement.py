"""Claims about shadowing on the move, against Gudmundson's correlation."""

import numpy as np
import pytest

from fednet_emu.radio.propagation.shadowing import WAVES, shadow_normals

LINKS = 20_000


def uniforms(coordinates, links=LINKS, waves=16):
    """Fixed uniforms of many links."""
    return np.random.default_rng(4).uniform(size=(links, waves, 1 + coordinates))


@pytest.mark.parametrize("moved_m", [0.0, 1.0, 5.0, 10.0, 20.0, 40.0])
def test_correlation_over_links_falls_exponentially(moved_m):
    """Variance 1, and exp(-d / 10 m) between places d apart in any direction, for any number of waves."""
    luck = uniforms(2)
    here = shadow_normals(np.array([30.0, -7.0]), 10.0, luck)
    there = shadow_normals(np.array([30.0 + 0.6 * moved_m, -7.0 + 0.8 * moved_m]), 10.0, luck)

    assert here.mean() == pytest.approx(0.0, abs=0.03)
    assert here.var() == pytest.approx(1.0, abs=0.03)
    assert (here * there).mean() == pytest.approx(np.exp(-moved_m / 10), abs=0.03)


def test_correlation_of_two_moving_ends_multiplies():
    """Both ends of a link between handsets move: exp(-d_a / 13) exp(-d_b / 13)."""
    luck = uniforms(4)
    here = shadow_normals(np.zeros(4), 13.0, luck)
    there = shadow_normals(np.array([3.0, 4.0, 0.0, 6.0]), 13.0, luck)

    assert (here * there).mean() == pytest.approx(np.exp(-11 / 13), abs=0.03)


def test_correlation_along_the_path_of_one_link():
    """On a walk of 40 km one link shows the correlation itself, with the recommended number of waves."""
    luck = uniforms(2, links=1, waves=WAVES)[0]
    path_m = np.column_stack([np.arange(0, 40_000, 2.0), np.zeros(20_000)])
    walk = shadow_normals(path_m, 20.0, luck)

    for lag, expected in ((5, np.exp(-0.5)), (10, np.exp(-1.0)), (20, np.exp(-2.0))):
        assert np.corrcoef(walk[:-lag], walk[lag:])[0, 1] == pytest.approx(expected, abs=0.15)


def test_values_are_nearly_normal():
    """Over links the fourth moment is 3 - 1.5 / N and the quantiles are those of the normal law."""
    values = shadow_normals(np.array([12.0, 3.0]), 10.0, uniforms(2, waves=WAVES))

    assert np.quantile(values, [0.023, 0.159, 0.5, 0.841, 0.977]) == pytest.approx([-2, -1, 0, 1, 2], abs=0.06)
    assert (values**4).mean() == pytest.approx(3 - 1.5 / WAVES, abs=0.15)


def test_a_place_looks_the_same_whenever_it_is_visited():
    """A function of position: any order, one by one or together, gives the same numbers."""
    luck = uniforms(2, links=3)
    places_m = np.array([[5.0, 5.0], [80.0, 2.0], [-4.0, 9.0]])

    together = shadow_normals(places_m, np.array([10.0, 13.0, 50.0]), luck)
    alone = [float(shadow_normals(places_m[i], d, luck[i])) for i, d in ((2, 50.0), (0, 10.0), (1, 13.0))]

    assert together[[2, 0, 1]] == pytest.approx(alone, rel=1e-12)
