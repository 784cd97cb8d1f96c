"""The law by which bits are released: numbers by hand, and the closed form against the bursts one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.network.transport.slow_start import Window

MS = 1_000_000


def test_a_transfer_by_hand() -> None:
    """Bursts of 1, 2 and 4 kbit at 100 kbit/s take 10, 20 and 40 ms; the round trip is 30 ms; 3 kbit are left then."""
    window = Window(1000, 10**9, 30 * MS)
    assert window.duration_s(10_000, 1e5) == pytest.approx(0.03 + 0.03 + 0.04 + 0.03)
    assert window.gaps(10_000) == 3
    assert window.gaps(7000) == 2


def test_a_receive_window_is_a_rate() -> None:
    """2 kbit in each round trip of 30 ms, on a line that could carry ten times that."""
    window = Window(1000, 2000, 30 * MS)
    assert window.duration_s(21_000, 1e6) == pytest.approx(10 * 0.03 + 0.002)
    assert window.gaps(21_000) == 10


@pytest.mark.parametrize(
    ("idle_s", "window_bit"),
    [(0.0, 4000), (0.25, 4000), (0.2500001, 2000), (0.5, 2000), (0.51, 1000), (0.76, 600), (9.0, 600), (1e9, 600)],
)
def test_an_idle_window_is_halved_at_each_timeout(idle_s: float, window_bit: int) -> None:
    """The timeout of a path of 50 ms is 250 ms; a window of 4000 bits is never below the initial one of 600."""
    assert Window(600, 10**9, 50 * MS).next_bit(4000, 0.0, 1.0, idle_s) == window_bit


@given(
    st.integers(1, 10**5),
    st.integers(1, 10**6),
    st.integers(0, 10**9),
    st.integers(1, 10**7),
    st.integers(10**3, 10**9),
)
def test_the_closed_form_is_the_sum_of_its_bursts(first: int, most: int, rtt_ns: int, size: int, rate: int) -> None:
    """Each burst lasts its bits or a round trip, until one lasts longer; there are as many gaps at most as `gaps`."""
    most = max(most, first, size // 1000)
    window = Window(first, most, rtt_ns)
    now_s, left, burst, gaps = 0.0, size, first, 0
    while left > burst and burst / rate < rtt_ns / 1e9:
        now_s, left, burst, gaps = now_s + rtt_ns / 1e9, left - burst, min(2 * burst, most), gaps + 1

    assert window.duration_s(size, rate) == pytest.approx(now_s + left / rate)
    assert gaps <= window.gaps(size)


@given(st.integers(1, 10**6), st.floats(1.0, 1e9), st.floats(1e3, 1e10))
def test_a_window_grows_as_far_as_acknowledgements_say(first: int, size_bit: float, rate_bps: float) -> None:
    """By no more than was carried; once it fills the path by no more than the next power of two of a half of that."""
    grown = Window(first, 10**15, 50 * MS).next_bit(first, size_bit, rate_bps, 0.0)
    path_bit = rate_bps * 0.05
    assert first <= grown <= first + size_bit + 1
    assert grown <= max(first, path_bit) + path_bit / 2 + 1
    assert grown >= min(first + size_bit, path_bit) - 1
