"""Claims about rate series: what they carry, when it is through, and who has which."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fednet_emu.errors import DataError
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.traces import CsvTraces, RateSeries, device_rates
from fednet_emu.network.traces.base import RateTraces

STEPS = RateSeries(np.array([0.0, 1.0, 3.0, 4.0]), np.array([1e6, 0.0, 5e6]))


@st.composite
def series(draw):
    """A series of up to eight segments, some of them silent."""
    lengths = draw(st.lists(st.floats(0.01, 50), min_size=1, max_size=8))
    rates = draw(st.lists(st.sampled_from([0.0, 1.0, 1e3, 2.5e6, 1e9]), min_size=len(lengths), max_size=len(lengths)))
    assume(any(rates))
    return RateSeries(np.append(0.0, np.cumsum(lengths)), np.array(rates))


times = st.floats(0, 1e4)
runs = settings(max_examples=150, deadline=None)


def test_one_megabit_takes_one_second_at_one_megabit_per_second():
    """Bits are bits: exactly 1 s, at any time, within a segment and across ends of the series."""
    constant = RateSeries(np.array([0.0, 0.3]), np.array([1e6]))

    assert STEPS.time_to_carry(1e6, 0.0) == 1.0
    assert STEPS.time_to_carry(5e6, 3.0) == 1.0
    assert constant.time_to_carry(1e6, 0.0) == pytest.approx(1.0, rel=1e-12)
    assert constant.time_to_carry(1e6, 12345.6) == pytest.approx(1.0, rel=1e-9)


def test_a_payload_waits_through_silence_and_over_the_end():
    """Hand-counted: 1 Mbit/s for 1 s, nothing for 2 s, 5 Mbit/s for 1 s, and again."""
    assert STEPS.time_to_carry(2e6, 0.0) == pytest.approx(3.2)
    assert STEPS.time_to_carry(1.0, 1.5) == pytest.approx(1.5 + 2e-7)
    assert STEPS.time_to_carry(6e6, 0.0) == 4.0
    assert STEPS.time_to_carry(6e6 + 5e5, 0.0) == pytest.approx(4.5)
    assert STEPS.time_to_carry(60e6, 8.0) == pytest.approx(40.0)
    assert STEPS.time_to_carry(1e6, 7.9) == pytest.approx(0.6)
    assert STEPS.time_to_carry(0.0, 1.5) == 0.0
    assert STEPS.bits_between(0.5, 3.5) == pytest.approx(3e6)
    assert STEPS.bits_between(3.5, 4.5) == pytest.approx(3e6)
    assert STEPS.bits_between(1.0, 401.0) == pytest.approx(600e6)
    assert (STEPS.period_s, STEPS.mean_bps) == (4.0, 1.5e6)


def test_a_payload_that_ends_with_the_traffic_does_not_wait_for_the_silence():
    """The least time is taken: 1 Mbit is through after 1 s, not at the end of the silent 2 s."""
    silent_end = RateSeries(np.array([0.0, 1.0, 3.0]), np.array([1e6, 0.0]))

    assert silent_end.time_to_carry(1e6, 0.0) == 1.0
    assert silent_end.time_to_carry(2e6, 0.0) == 4.0
    assert silent_end.time_to_carry(2e6, 3000.0) == pytest.approx(4.0)


def test_a_rate_holds_from_its_edge_until_the_next():
    """At an edge the new rate counts, also at the end, where the series starts again."""
    assert [STEPS.rate_at_bps(t) for t in (0.0, 0.99, 1.0, 2.9, 3.0, 4.0, 4.999, 403.5)] == [
        1e6, 1e6, 0.0, 0.0, 5e6, 1e6, 1e6, 5e6,
    ]  # fmt: skip
    assert [STEPS.next_edge_s(t) for t in (0.0, 1.0, 2.0, 3.5, 4.0, 400.0)] == [1.0, 3.0, 3.0, 4.0, 5.0, 401.0]


@runs
@given(series(), times, st.floats(1e-3, 1e12))
def test_time_to_carry_inverts_bits_between(rates, start_s, size_bit):
    """The bits carried in that time are the payload, and a little less time carries less or equal."""
    # beyond a million repetitions rounding of the time itself is what shows
    assume(size_bit < 1e6 * rates.mean_bps * rates.period_s)
    time_s = rates.time_to_carry(size_bit, start_s)
    rounding = 1e-9 * size_bit + 4 * np.spacing(start_s + time_s) * rates.rate_bps.max()

    assert time_s >= 0
    assert rates.bits_between(start_s, start_s + time_s) == pytest.approx(size_bit, abs=rounding)
    assert rates.bits_between(start_s, start_s + 0.999 * time_s) <= size_bit + rounding


@runs
@given(series(), st.lists(times, min_size=3, max_size=3).map(sorted))
def test_bits_are_conserved(rates, instants):
    """Two intervals carry together what their union carries, and an interval a period later carries the same."""
    a, b, c = instants
    rounding = 1e-9 + 16 * np.spacing(c + rates.period_s) * rates.rate_bps.max()
    parts = rates.bits_between(a, b) + rates.bits_between(b, c)

    assert parts == pytest.approx(rates.bits_between(a, c), abs=rounding)
    later = rates.bits_between(a + rates.period_s, b + rates.period_s)
    assert later == pytest.approx(rates.bits_between(a, b), abs=rounding)


@runs
@given(series(), times)
def test_the_rate_is_constant_until_the_next_edge(rates, time_s):
    """What is carried until then is rate x time, and the edge lies ahead."""
    edge_s = rates.next_edge_s(time_s)

    assert edge_s > time_s
    expected = rates.rate_at_bps(time_s) * (edge_s - time_s)
    rounding = 8 * np.spacing(edge_s) * rates.rate_bps.max() + 1e-9 * expected
    assert rates.bits_between(time_s, edge_s) == pytest.approx(expected, abs=rounding)


@runs
@given(series(), st.floats(0.05, 500))
def test_averaging_keeps_the_bits_of_every_window(rates, window_s):
    """A coarser series has the same period, and carries the same in each of its own windows."""
    coarse = rates.averaged(window_s)

    assert coarse.period_s == rates.period_s
    assert np.diff(coarse.edges_s).max() <= window_s * (1 + 1e-6)
    for start_s, end_s in list(zip(coarse.edges_s, coarse.edges_s[1:], strict=False))[:20]:
        expected = rates.bits_between(start_s, end_s) if end_s < rates.period_s else None
        if expected is not None:
            tolerance = 1e-9 * rates.mean_bps * rates.period_s + 1e-9
            assert coarse.bits_between(start_s, end_s) == pytest.approx(expected, abs=tolerance)
    assert coarse.mean_bps == pytest.approx(rates.mean_bps, rel=1e-9)


@pytest.mark.parametrize(
    ("edges", "rates", "problem"),
    [
        ([0, 1], [1, 2], "edges_s"),
        ([1, 2], [1], "edges_s"),
        ([0, 2, 2], [1, 1], "edges_s"),
        ([0, 1], [0], "rate_bps"),
        ([0, 1, 2], [5, -1], "rate_bps"),
        ([0, 1], [np.inf], "rate_bps"),
    ],
)
def test_a_series_that_makes_no_sense_is_refused(edges, rates, problem):
    """Edges rise from 0, and rates are finite, not negative and not all zero."""
    with pytest.raises(ValueError, match=problem):
        RateSeries(np.array(edges, float), np.array(rates, float))


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
    assert rates.time_to_carry(4, 2e7, 5.0) == pytest.approx(1.0)
    assert rates.bits_between(1, 3.0, 4.5) == pytest.approx(3e7)


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
    assert shifted.bits_between(3, 1.0, 50.0) == pytest.approx(plain.bits_between(0, 1 + offset_s, 50 + offset_s))
    assert shifted.time_to_carry(3, 1e8, 2.0) == pytest.approx(plain.time_to_carry(0, 1e8, 2.0 + offset_s))
    assert shifted.next_edge_s(3, 2.0) == pytest.approx(plain.next_edge_s(0, 2.0 + offset_s) - offset_s)


def test_a_source_without_traces_is_refused():
    """A third-party source that finds nothing is an error, not a device without a link."""

    class Nothing(RateTraces):
        def load(self, data_dir=None):
            return {}

    with pytest.raises(DataError, match="holds no trace"):
        device_rates(Nothing(), 1, Streams(1))
