"""Claims about availability: windows with exact edges, and phases that belong to their device."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from fednet_emu.devices.availability import Always, Periodic, Presence, Windows
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.records.ledger import SERVER
from tests.quick import examples

KEY = 12


def test_always_is_always():
    """No end, and no waiting for a return."""
    assert Always().until_ns(3, 7, KEY) == FOREVER_NS
    assert Always().returns_ns(3, 7, KEY) == 7


@examples(100)
@given(device=st.integers(0, 50), now_ns=st.integers(0, 10**11))
def test_a_periodic_device_comes_and_goes_on_time(device, now_ns):
    """From its return it is there for exactly `on_s`, and from its leaving away for exactly `off_s`."""
    law = Periodic(on_s=3.0, off_s=7.0)
    back_ns = law.returns_ns(device, now_ns, KEY)
    leaves_ns = law.until_ns(device, back_ns, KEY)

    assert now_ns <= back_ns < now_ns + 7 * NS_PER_S + 1
    assert back_ns < leaves_ns <= back_ns + 3 * NS_PER_S
    assert law.until_ns(device, leaves_ns, KEY) == leaves_ns
    assert law.returns_ns(device, leaves_ns, KEY) == leaves_ns + 7 * NS_PER_S
    assert law.until_ns(device, leaves_ns + 7 * NS_PER_S, KEY) == leaves_ns + 10 * NS_PER_S


def test_phases_are_spread_evenly():
    """At any instant 30 % of the devices are there, and their phases are uniform."""
    law = Periodic(on_s=3.0, off_s=7.0)
    presence = Presence(law, KEY, 10_000)
    returns_s = np.array([law.returns_ns(device, law.until_ns(device, 0, KEY), KEY) for device in range(5000)]) / 1e9

    assert len(presence.present(0)) / 10_000 == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 10_000))
    assert stats.kstest(returns_s % 10.0 / 10.0, "uniform").pvalue > 1e-3


def test_more_devices_shift_nobodys_phase():
    """A device's windows belong to its number."""
    law = Periodic(on_s=1.0, off_s=1.0)
    few, more = Presence(law, KEY, 10).present(0), Presence(law, KEY, 1000).present(0)

    assert more[more < 10].tolist() == few.tolist()


def test_windows_are_half_open():
    """There from the first instant on, gone at the last; not there before, between and after."""
    law = Windows(devices={1: ((1.0, 2.0), (5.0, 6.0))})
    there_ns = {at_s: law.until_ns(1, int(at_s * NS_PER_S), KEY) for at_s in (0.0, 1.0, 1.5, 2.0, 5.5, 6.0)}

    assert there_ns == {0.0: 0, 1.0: 2e9, 1.5: 2e9, 2.0: 2e9, 5.5: 6e9, 6.0: 6e9}
    returns_ns = [law.returns_ns(1, at_s * NS_PER_S, KEY) for at_s in (0, 1, 2, 5, 6)]
    assert returns_ns == [1e9, 1e9, 5e9, 5e9, FOREVER_NS]


def test_a_device_without_windows_is_always_there_and_one_with_none_never():
    """Not listed is not the same as an empty list."""
    law = Windows(devices={1: ()})

    assert law.until_ns(0, 5, KEY) == FOREVER_NS
    assert law.returns_ns(0, 5, KEY) == 5
    assert law.until_ns(1, 5, KEY) == 5
    assert law.returns_ns(1, 5, KEY) == FOREVER_NS


@pytest.mark.parametrize("windows", [[(2.0, 1.0)], [(0.0, 2.0), (1.0, 3.0)], [(5.0, 6.0), (1.0, 2.0)], [(-1.0, 2.0)]])
def test_crossed_windows_are_refused(windows):
    """Backwards, overlapping, out of order or before the start: the text names the device and shows its windows."""
    with pytest.raises(ValidationError, match=r"device 4: windows must be \[from, to\) .*, in order and apart, got \("):
        Windows(devices={4: windows})


@pytest.mark.parametrize(("on_s", "off_s"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_phases_have_a_length(on_s, off_s):
    """A phase of no duration is refused."""
    with pytest.raises(ValidationError, match="greater than 0"):
        Periodic(on_s=on_s, off_s=off_s)


def test_presence_lists_who_is_there_and_who_is_next():
    """Devices in order, the server always; the next return is the first of all."""
    presence = Presence(Windows(devices={0: ((2.0, 3.0),), 2: ((1.0, 3.0),)}), KEY, 3)

    assert presence.present(0).tolist() == [1]
    assert presence.present(NS_PER_S).tolist() == [1, 2]
    assert presence.present(2 * NS_PER_S).tolist() == [0, 1, 2]
    assert presence.until_ns(SERVER, 0) == FOREVER_NS
    assert Presence(Windows(devices={0: ((2.0, 3.0),)}), KEY, 1).next_return_ns(0) == 2 * NS_PER_S
    assert Presence(Always(), KEY, 4).present(0).tolist() == [0, 1, 2, 3]


@examples(50)
@given(now_ms=st.integers(0, 20_000), key=st.integers(0, 2**64 - 1))
@pytest.mark.parametrize(
    "law", [Always(), Periodic(on_s=1.3, off_s=0.7), Windows(devices={0: ((0.0, 5.0),), 2: ((1.0, 2.0), (3.0, 9.0))})]
)
def test_all_at_once_are_as_one_by_one(law, now_ms, key):
    """The vectorised answer is that of asking each device how long it stays."""
    now_ns = now_ms * 1_000_000

    one_by_one = [law.until_ns(device, now_ns, key) > now_ns for device in range(5)]
    assert law.present(5, now_ns, key).tolist() == one_by_one
