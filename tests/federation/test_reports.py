"""What devices tell beside what they upload: asked for, counted in bits, and of their latest training."""

from __future__ import annotations

import pytest

from fednet_emu.federation import Federation, SgdPlan
from fednet_emu.testing import small_federation

PLAN = SgdPlan(lr=0.1, steps=2, batch_size=8)


def told_by(fed: Federation, *asked, plan: SgdPlan = PLAN):
    """Ask for this, have device 0 train and upload; the size of the upload, and what was told."""
    fed.reports.ask(*asked)

    def server():
        k, w = fed.device(0), fed.initial_model()
        got = yield fed.downlink(k, w)
        trained = yield k.compute(fed.train(k, got.payload, plan, 0))
        sent = yield fed.uplink(k, trained.params)
        return sent

    sent = fed.clock.run_process(server())
    return sent.size_bit, fed.reports.of(0)


def test_nothing_is_told_unless_it_is_asked_for() -> None:
    """A model of ten parameters is 320 bit."""
    assert told_by(small_federation()) == (320, {})


@pytest.mark.parametrize(("asked", "bit"), [(("loss",), 352), (("square", "samples"), 384)])
@pytest.mark.parametrize("timing_only", [False, True])
def test_every_number_is_32_bit(asked, bit, timing_only) -> None:
    """With and without training."""
    size_bit, told = told_by(small_federation(timing_only=timing_only), *asked)

    assert size_bit == bit
    assert tuple(told) == asked


def test_samples_count_once() -> None:
    """Of 20 samples, two steps of 8 have seen 16, and ten epochs 20."""
    assert told_by(small_federation(), "samples")[1] == {"samples": 16}
    assert told_by(small_federation(), "samples", plan=SgdPlan(lr=0.1, epochs=10))[1] == {"samples": 20}


def test_the_loss_is_that_of_the_steps() -> None:
    """What is told is the value that the training job gives."""
    fed = small_federation()
    _, told = told_by(fed, "loss", "square")

    assert fed.read(told["square"]) >= fed.read(told["loss"]) ** 2


def test_asking_anew_forgets() -> None:
    """What was told in an earlier round is not told again."""
    fed = small_federation()
    told_by(fed, "samples")
    fed.reports.ask("samples")

    assert fed.reports.of(0) == {}
    assert fed.reports.bit(0) == 0
