"""Claims about shadowing."""

import numpy as np
import pytest

from fednet_emu.radio.propagation.shadowing import SHADOWINGS, LogNormalShadowing, NoShadowing, ShadowingOfPathLoss


def test_no_shadowing_adds_nothing():
    """Zero dB in the shape of the draws."""
    np.testing.assert_array_equal(NoShadowing().loss_db(np.array([[-2.0, 0.5], [1.0, 3.0]])), np.zeros((2, 2)))


def test_one_standard_deviation_costs_sigma_db():
    """A positive draw is a loss: +1 costs 7.82 dB, -2 wins 15.64 dB."""
    loss_db = LogNormalShadowing(sigma_db=7.82).loss_db(np.array([1.0, 0.0, -2.0]))

    assert loss_db == pytest.approx([7.82, 0.0, -15.64])


def test_the_linear_mean_gain_is_higher_than_the_median():
    """By sigma^2 ln(10) / 20 dB, 7.37 dB for 8 dB: the mean of dB is not the dB of the mean."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)

    gains = 10 ** (-LogNormalShadowing(sigma_db=8.0).loss_db(nodes) / 10)
    mean_db = 10 * np.log10(gains @ weights / weights.sum())

    assert mean_db == pytest.approx(7.3683, abs=1e-4)


def test_the_path_loss_may_state_the_deviation():
    """Each link has its own: one draw of +1 costs 4 dB here and 7.82 dB there, over its own distance."""
    law = ShadowingOfPathLoss()

    assert law.loss_db(np.ones(2), np.array([4.0, 7.82])) == pytest.approx([4.0, 7.82])
    np.testing.assert_array_equal(law.correlation_m(np.array([10.0, 13.0])), [10.0, 13.0])


def test_a_deviation_of_its_own_overrides_what_the_path_loss_states():
    """So does its own correlation distance, and no shadowing never changes."""
    law = LogNormalShadowing(sigma_db=8.0, decorrelation_m=20.0)

    np.testing.assert_array_equal(law.loss_db(np.ones(2), np.array([4.0, 7.82])), [8.0, 8.0])
    np.testing.assert_array_equal(law.correlation_m(np.array([10.0, 13.0])), [20.0, 20.0])
    assert np.all(np.isinf(NoShadowing().correlation_m(np.ones(2))))


def test_every_kind_takes_a_draw_per_link():
    """The shape of the loss is the shape of the draws, for every kind in the table."""
    laws = [NoShadowing(), LogNormalShadowing(sigma_db=8.0), ShadowingOfPathLoss()]

    assert [law.kind for law in laws] == list(SHADOWINGS)
    assert [law.loss_db(np.zeros((3, 4))).shape for law in laws] == 3 * [(3, 4)]
