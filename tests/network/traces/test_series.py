"""Claims about rate series: what they carry, when it is through, and who has which."""

import math
from bisect import bisect_right
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fednet_emu.errors import DataError
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.traces import CsvTraces
from fednet_emu.network.traces.series import RateSeries, RateTraces, device_rates
from tests.quick import examples

STEPS = RateSeries(np.array([0.0, 1.0, 3.0, 4.0]), np.array([1e6, 0.0, 5e6]))


@st.composite
def series(draw):
    """A series of up to eight segments, some of them silent."""
    lengths = draw(st.lists(st.floats(0.01, 50), min_size=1, max_size=8))
    rates = draw(st.lists(st.sampled_from([0.0, 1.0, 1e3, 2.5e6, 1e9]), min_size=len(lengths), max_size=len(lengths)))
    assume(any(rates))
    return RateSeries(np.append(0.0, np.cumsum(lengths)), np.array(rates))


S = NS_PER_S
instants = st.integers(0, 4 * 10**18)
runs = examples(150)


def test_what_is_carried_follows_the_steps():
    """1 Mbit, nothing for 2 s, then 5 Mbit, again and again: hand-made numbers."""
    assert STEPS.needed_ns(0, 1_500_000_000) == 0
    assert STEPS.bits_between(500_000_000, 3_500_000_000) == 3e6
    assert STEPS.bits_between(3_500_000_000, 4_500_000_000) == 3e6
    assert STEPS.bits_between(S, 401 * S) == 600e6


def test_silence_at_the_end_is_not_waited_for():
    """What is through before the silence ends there; what needs the next turn waits."""
    silent_end = RateSeries(np.array([0.0, 1.0, 3.0]), np.array([1e6, 0.0]))

    assert [silent_end.needed_ns(10**6, 0), silent_end.needed_ns(2 * 10**6, 0)] == [S, 4 * S]
    assert silent_end.needed_ns(2 * 10**6, 3000 * S) == 4 * S


def test_a_rate_holds_from_its_edge_until_the_next():
    """At an edge the new rate counts, also at the end, where the series starts again."""
    assert [STEPS.rate_at_bps(t) for t in (0.0, 0.99, 1.0, 2.9, 3.0, 4.0, 4.999, 403.5)] == [
        1e6, 1e6, 0.0, 0.0, 5e6, 1e6, 1e6, 5e6,
    ]  # fmt: skip


def walked_ns(rates, size_bit, start_ns):
    """The same question, segment by segment and in fractions."""
    edges_ns = [round(edge_s * S) for edge_s in rates.edges_s.tolist()]
    left, now_ns = Fraction(size_bit) * S, start_ns
    while True:
        phase_ns = now_ns % edges_ns[-1]
        segment = bisect_right(edges_ns, phase_ns) - 1
        rate, span_ns = Fraction(rates.rate_bps[segment]), edges_ns[segment + 1] - phase_ns
        if rate and left <= rate * span_ns:
            return now_ns + math.ceil(left / rate) - start_ns
        left, now_ns = left - rate * span_ns, now_ns + span_ns


@runs
@given(series(), instants, st.floats(0.001, 100.0))
def test_the_time_to_carry_is_exact(rates, start_ns, turns):
    """However late in a run, it is what a walk through the segments gives, to the nanosecond."""
    size_bit = max(1, int(turns * rates.mean_bps * rates.period_s))

    assert rates.needed_ns(size_bit, start_ns) == walked_ns(rates, size_bit, start_ns)


@runs
@given(series(), st.lists(instants, min_size=3, max_size=3).map(sorted))
def test_bits_are_conserved(rates, times_ns):
    """Two intervals carry together what their union carries, and an interval a period later carries the same."""
    a, b, c = times_ns
    period_ns = round(rates.period_s * S)

    assert rates.bits_between(a, b) + rates.bits_between(b, c) == pytest.approx(rates.bits_between(a, c), rel=1e-15)
    assert rates.bits_between(a + period_ns, b + period_ns) == rates.bits_between(a, b)


@runs
@given(series(), st.floats(0.05, 500))
def test_averaging_keeps_the_bits_of_every_window(rates, window_s):
    """A coarser series has the same period, and carries the same in each of its own windows."""
    coarse = rates.averaged(window_s)

    assert coarse.period_s == rates.period_s
    assert np.diff(coarse.edges_s).max() <= window_s * (1 + 1e-6)
    for start_s, end_s in list(zip(coarse.edges_s, coarse.edges_s[1:], strict=False))[:20]:
        ends_ns = round(start_s * S), round(end_s * S)
        expected = rates.bits_between(*ends_ns) if end_s < rates.period_s else None
        if expected is not None:
            tolerance = 1e-9 * rates.mean_bps * rates.period_s + 4e-9 * rates.rate_bps.max()
            assert coarse.bits_between(*ends_ns) == pytest.approx(expected, abs=tolerance)
    assert coarse.mean_bps == pytest.approx(rates.mean_bps, rel=1e-9)


def csv_folder(folder, rates_bps):
    """One CSV file of two rows per rate; traces are constant."""
    for index, rate_bps in enumerate(rates_bps):
        (folder / f"t{index:03}.csv").write_text(f"time_s,rate_bps\n0,{rate_bps}\n10,{rate_bps}\n")
    return folder


def test_devices_have_traces_in_turn(tmp_path):
    """Device k has trace k modulo their number, in the order of names, and `scale` multiplies its rates."""
    source = CsvTraces(path=str(csv_folder(tmp_path, [1e6, 2e6, 3e6])), scale=10)
    rates = device_rates(source, 5, Streams(1))

    assert rates.names == ("t000.csv", "t001.csv", "t002.csv")
    assert rates.rates_bps(np.arange(5), 77.0).tolist() == [1e7, 2e7, 3e7, 1e7, 2e7]
    assert rates.needed_ns(4, 2 * 10**7, 5 * S) == S
    assert rates.bits_between(1, 3 * S, 4 * S + S // 2) == 3e7


def test_random_traces_are_keyed_by_device(tmp_path):
    """Ten devices have the same traces and starts alone and among a hundred; another seed gives others."""
    source = CsvTraces(path=str(csv_folder(tmp_path, range(1, 51))), assignment="random")
    few, many, other = (device_rates(source, n, Streams(seed)) for n, seed in ((10, 1), (100, 1), (100, 2)))

    assert np.array_equal(few.trace, many.trace[:10])
    assert np.array_equal(few.offset_s, many.offset_s[:10])
    assert np.mean(many.trace == other.trace) < 0.2
    assert len(np.unique(many.trace)) > 30


def test_a_device_starts_in_the_middle_of_its_trace_or_at_its_beginning(tmp_path):
    """Offsets are uniform over the period; with start: beginning they are 0. All questions are shifted alike."""
    (tmp_path / "steps.csv").write_text("time_s,rate_bps\n0,1e6\n10,4e6\n20,2e6\n")
    source = CsvTraces(path=str(tmp_path))
    shifted = device_rates(source, 400, Streams(1))
    plain = device_rates(source.model_copy(update={"start": "beginning"}), 2, Streams(1))

    assert 0 <= shifted.offset_s.min() < 1
    assert 29 < shifted.offset_s.max() < 30
    assert shifted.offset_s.mean() == pytest.approx(15, abs=4 * 30 / np.sqrt(12 * 400))
    assert plain.offset_s.tolist() == [0, 0]
    assert plain.rate_bps(1, 10.0) == 4e6

    offset_s = shifted.offset_s[3]
    assert shifted.rate_bps(3, 12.0) == plain.rate_bps(0, 12.0 + offset_s)
    offset_ns = round(offset_s * S)
    assert shifted.bits_between(3, S, 50 * S) == plain.bits_between(0, S + offset_ns, 50 * S + offset_ns)
    assert shifted.needed_ns(3, 10**8, 2 * S) == plain.needed_ns(0, 10**8, 2 * S + offset_ns)


def test_a_source_without_traces_is_refused():
    """A third-party source that finds nothing is an error, not a device without a link."""

    class Nothing(RateTraces):
        def load(self, data_dir=None):
            return {}

    with pytest.raises(DataError, match="holds no trace"):
        device_rates(Nothing(), 1, Streams(1))
