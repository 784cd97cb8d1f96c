"""Claims about access schemes in scenario files: what cannot work is said before the run, and what can runs."""

import pytest

import fednet_emu as fe
from fednet_emu.errors import ScenarioError
from fednet_emu.network.access.contention import Shared
from fednet_emu.records.laws.verify import verify
from fednet_emu.testing import run_small, small_scenario

THRESHOLD = "channel.rate={kind: fixed, bit_rate_bps: 1e6, threshold_db: 3}"


@pytest.mark.parametrize(
    "changes",
    [
        ("network.uplink.access=shared", THRESHOLD),
        ("network.uplink.access={kind: shared, max_senders: 2}", THRESHOLD),
        ("network.uplink.access={kind: shared, threshold_db: 0}",),
    ],
)
def test_a_shared_uplink_that_can_never_deliver_two_at_once_is_refused(changes):
    """One receiver, no cancellation, 0 dB or more: the problem names the key, the threshold and the ways out."""
    [(path, what)] = small_scenario(*changes).contradictions()

    assert path == ("network", "uplink", "access")
    assert "can never decode two at once" in what
    assert ("got shared with a threshold of 3.0 dB" in what) or ("threshold of 0.0 dB" in what)
    assert "max_senders: 1, or choose noma" in what


@pytest.mark.parametrize(
    "changes",
    [
        ("network.uplink.access=shared", "channel.rate={kind: fixed, bit_rate_bps: 1e6, threshold_db: -0.1}"),
        ("network.uplink.access={kind: shared, max_senders: 1}", THRESHOLD),
        ("network.uplink.access=shared", THRESHOLD, "devices.count=1", "algorithm.cohort=1"),
        ("network.uplink.access=shared", THRESHOLD, "network.cells={kind: list, xy_m: [[0, 0], [400, 0]]}"),
        ("network.uplink.access=noma", THRESHOLD),
        ("network.uplink.access=tdma", THRESHOLD),
        ("network.downlink.access=shared", THRESHOLD),
    ],
)
def test_whatever_can_deliver_is_not_refused(changes):
    """A lower threshold, one at a time, a lone device, several receivers, cancellation, turns, one sender."""
    assert list(small_scenario(*changes).contradictions()) == []


@pytest.mark.parametrize("cells", ["single", "{kind: hexagonal, rings: 1, inter_site_distance_m: 60}"])
@pytest.mark.parametrize(
    "access",
    [
        "tdma",
        "{kind: ofdma, scheduler: proportional-fair}",
        "{kind: ofdma, scheduler: equal-finish}",
        "noma",
        "shared",
        "{kind: slotted-aloha, slot_s: 0.0001, capture_db: -20}",
    ],
)
def test_learning_runs_over_every_scheme_in_one_cell_and_in_several(access, cells):
    """Three rounds end, nothing is lost, every law holds."""
    rate = "channel.rate={kind: shannon, min_efficiency_bps_hz: 0}"
    fed = run_small(f"network.uplink.access={access}", f"network.cells={cells}", rate, timing_only=True)
    fed.close()

    assert fed.round == 3
    assert not any(verify(fed.ledger, frozenset()).values())
    assert set(fed.ledger.frames()["transfers"]["lost"]) == {""}


def test_an_access_scheme_that_serves_both_directions_is_judged_on_the_uplink() -> None:
    """One object may be both: what only a base station cannot decode is a problem of the uplink alone."""
    shared = Shared(threshold_db=3)
    scenario = fe.check("quickstart", settings={"network.downlink.access": shared})

    assert scenario.network.downlink.access.kind == "shared"
    with pytest.raises(ScenarioError) as refused:
        fe.check("quickstart", settings={"network.uplink.access": shared, "network.downlink.access": shared})
    (problem,) = refused.value.problems
    assert "network.uplink.access: one receiver without cancellation can never decode two at once" in problem
