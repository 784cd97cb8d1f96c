"""Claims about links at recorded rates: transfers take what the recording says, whatever the others do."""

from types import SimpleNamespace

import numpy as np
import pytest

from fednet_emu.emulation.build import build
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.air.separate import at_recorded_rates
from fednet_emu.records.ledger import SERVER
from fednet_emu.testing import small_federation, small_scenario

STEPS = "time_s,rate_bps\n0,1000000\n1,500000\n2,2000000\n3,2000000\n"


@pytest.fixture
def trace(tmp_path):
    """A trace of 1 Mbit/s, then 0.5 Mbit/s, then 2 Mbit/s, a second each."""
    path = tmp_path / "steps.csv"
    path.write_text(STEPS)
    return f"network.uplink.trace={{kind: csv, path: {path}, start: beginning}}"


def upload(fed, device, size_bit):
    """A process that sends once."""
    return (yield fed.uplink(fed.device(device), None, size_bit))


def play(fed, *processes):
    """Run processes side by side, and return their results."""

    def everything():
        return (yield fed.gather(processes))

    results = fed.clock.run_process(everything())
    fed.close()
    return results


def test_bits_follow_the_recording(trace):
    """1.75 Mbit need the whole first and second, and 0.125 s of the third second."""
    fed = small_federation(trace)
    (delivery,) = play(fed, upload(fed, 0, 1_750_000))

    assert delivery.ended_s == pytest.approx(2.125, abs=2e-9)
    assert fed.ledger.frames()["transfers"]["air_bit"].tolist() == [1_750_000]


def test_devices_do_not_share_recorded_links(trace):
    """Two devices that send together take as long as one."""
    fed = small_federation(trace)
    deliveries = play(fed, upload(fed, 0, 1_000_000), upload(fed, 1, 1_000_000))

    assert [delivery.ended_s for delivery in deliveries] == pytest.approx([1.0, 1.0], abs=2e-9)


def test_a_timeout_cuts_what_is_under_way(trace):
    """After 1.5 s 1.25 Mbit have flowed; the ledger says so, and the reason."""
    fed = small_federation(trace, "network.uplink.timeout_s=1.5")
    (delivery,) = play(fed, upload(fed, 0, 5_000_000))
    row = fed.ledger.frames()["transfers"].iloc[0]

    assert (delivery.lost, delivery.ended_s) == ("timeout", 1.5)
    assert row["air_bit"] == pytest.approx(1_250_000)


def test_a_missing_recording_is_told_when_it_is_needed(tmp_path):
    """The error names the file."""
    scenario = small_scenario(f"network.uplink.trace={{kind: csv, path: {tmp_path / 'no.csv'}}}")
    with pytest.raises(Exception, match=r"no.csv: not found"):
        build(scenario)


def test_a_federation_runs_over_recorded_links(trace):
    """FedAvg ends, and every law holds."""
    fed = small_federation(trace, "stop.rounds=2")
    fed.run(small_scenario().algorithm)

    assert fed.round == 2
    assert np.isfinite(fed.ledger.frames()["transfers"]["ended_s"]).all()
    assert Streams(0).seed == 0


class Hours:
    """Recorded rates with which every bit takes device k as many ns as k + 1."""

    def needed_ns(self, device, size_bit, start_ns):
        """Time in ns from the start."""
        return (device + 1) * size_bit


@pytest.mark.parametrize("ends", [(2, SERVER), (SERVER, 2)])
def test_the_recording_is_that_of_the_end_that_is_a_device(ends):
    """Device 2 sends or receives 100 bits from 1000 ns on, and needs 300 ns."""
    leg = SimpleNamespace(sender=ends[0], receiver=ends[1], size_bit=100, until_ns=5000, lost="")

    assert at_recorded_rates(Hours())([leg], 1000, 1001) == 1300
    assert (leg.air_bit, leg.lost) == (100.0, "")
