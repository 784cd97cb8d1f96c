"""Claims about the trace formats: the unit of every column, and the published numbers of the real data."""

import gzip
import io
import lzma
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fednet_emu.errors import DataError
from fednet_emu.files import recordings
from fednet_emu.files.recordings import read_texts
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.traces import CsvTraces, Irish5gTraces, Lumos5gTraces, MahimahiTraces, PensieveTraces
from fednet_emu.network.traces.series import device_rates

DATA = Path(os.environ.get("FEDNET_DATA", Path(__file__).parents[4] / "shared" / "data"))


def needs(name):
    """Skip without this file or folder of real data."""
    return pytest.mark.skipif(not (DATA / name).exists(), reason=f"{name} is not in the data folder")


def only(traces):
    (series,) = traces.load().values()
    return series


def rows_mbps(traces):
    """All rates of all traces, one number per segment, in Mbit/s."""
    return np.concatenate([series.rate_bps for series in traces.values()]) / 1e6


def test_csv_columns_are_seconds_and_bits_per_second(tmp_path):
    """Columns go by name; a rate holds until the next row, the last one as long as the one before it."""
    (tmp_path / "mine.csv").write_text("place,rate_bps,time_s\nhome,1000,5\nbus,3000,7\nwork,0,10\n")
    series = only(CsvTraces(path=str(tmp_path / "mine.csv")))

    assert series.edges_s.tolist() == [0, 2, 5, 8]
    assert series.rate_bps.tolist() == [1000, 3000, 0]


def test_a_csv_of_one_row_is_a_constant_rate(tmp_path):
    """A zipped file with one row lasts 1 s and repeats."""
    (tmp_path / "one.csv.gz").write_bytes(gzip.compress(b"time_s,rate_bps\n0,2e6\n"))

    assert only(CsvTraces(path=str(tmp_path))).needed_ns(5_000_000, 0) == 2_500_000_000


def test_rows_of_the_same_time_are_averaged(tmp_path):
    """Two samples within one stamp of a coarse clock count half each."""
    (tmp_path / "t.csv").write_text("time_s,rate_bps\n0,10\n1,20\n1,40\n2,50\n")

    assert only(CsvTraces(path=str(tmp_path))).rate_bps.tolist() == [10, 30, 50]


@pytest.mark.parametrize(
    "text",
    [
        "time_s,rate_bps\n0,1000\n2,3000\n",
        "\ufefftime_s,rate_bps\r\n0,1000\r\n2,3000\r\n",
        "time_s, rate_bps\n0, 1e3\n 2 , 3.e+3\n",
        "time_s;rate_bps\n0;1000\n2;3000\n",
        "rate_bps\ttime_s\n1000\t0\n3000\t2",
        "# an export\n\ntime_s,rate_bps\n# a comment\n0,1000\n\n2,3000\n",
        'time_s,place,rate_bps\n0,"home, here",1000\n2,bus,+3000\n',
        "time_s,rate_bps\r0,1000\r2,3000\r",
        "time_s,rate_bps\n1.7e9,1000\n1700000002,3000\n",
    ],
)
@pytest.mark.parametrize(
    "encoded", [str.encode, lambda text: text.encode("utf-16"), lambda t: gzip.compress(t.encode())]
)
def test_a_csv_is_read_however_it_was_written(tmp_path, text, encoded):
    """Byte order marks, line ends, separators, blanks, comments, exponents, UTF-16, gzip without .gz: one trace."""
    (tmp_path / "mine.csv").write_bytes(encoded(text))
    series = only(CsvTraces(path=str(tmp_path / "mine.csv")))

    assert series.edges_s.tolist() == [0, 2, 4]
    assert series.rate_bps.tolist() == [1000, 3000]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("time,rate_bps\n0,1\n", ": lacks the column time_s, got time, rate_bps"),
        ("", ": lacks the column time_s, rate_bps, got nothing"),
        ("time_s,rate_bps,rate_bps\n0,1,2\n", ":1: has the column rate_bps twice"),
        ("time_s,rate_bps\n0,1\n1,fast\n", ":3: rate_bps is no number, got 'fast'"),
        ("# x\ntime_s,rate_bps\n0,1\n1\n", ":4: has 1 fields for 2 columns"),
        ("time_s,rate_bps\n0,1\n1,1,1\n", ":3: has 3 fields for 2 columns"),
        ("time_s;rate_bps\n0;1,5\n", ":2: rate_bps is no number, got '1,5'"),
        ("time_s,rate_bps\n0,1_000\n", ":2: rate_bps is no number, got '1_000'"),
        ("time_s,rate_bps\n0,\u0661\n", ":2: rate_bps is no number"),
        ("time_s,rate_bps\n", ": has no rows"),
        ("time_s,rate_bps\n0,nan\n", ":2: rate_bps is no number, got 'nan'"),
        ("time_s,rate_bps\n0,1e999\n", ":2: rate_bps is not finite, got '1e999'"),
        ("time_s,rate_bps\n0,1e300\n", ":2: rate_bps is not 0 or within 1e-09 and 1e\\+15 bit/s, got '1e300'"),
        ("time_s,rate_bps\n0,4e-20\n", ":2: rate_bps is not 0 or within"),
        ("time_s,rate_bps\n0,1\n1e16,1\n", ":3: time_s is not within -1e\\+10 and 1e\\+10, got '1e16'"),
        ("time_s,rate_bps\n0,1\n2,1\n1,1\n", ":4: time goes back to 1 after 2"),
        ("time_s,rate_bps\n0,1\n4,-1\n", ":3: rate_bps is negative, got '-1'"),
        ("time_s,rate_bps\n0,0\n4,0\n", ": never carries a bit"),
    ],
)
def test_a_csv_that_makes_no_sense_is_refused(tmp_path, text, problem):
    """The message names the file, the line where there is one, the problem and the value."""
    (tmp_path / "bad.csv").write_text(text)

    with pytest.raises(DataError, match=rf"bad\.csv{problem}.*; .*"):
        CsvTraces(path=str(tmp_path)).load()


def test_a_scaled_trace_stays_within_what_a_clock_can_count(tmp_path):
    """With a factor of 1e-30 no transfer would end, with 1e30 rates would overflow: trace and factor are named."""
    (tmp_path / "t.csv").write_text("time_s,rate_bps\n0,1000\n1,0\n")
    for scale, got in ((1e-30, "1e-27"), (1e30, "1e\\+33")):
        with pytest.raises(DataError, match=f"t.csv: times {scale:g} .*, got {got} bit/s".replace("+30", "\\+30")):
            device_rates(CsvTraces(path=str(tmp_path), scale=scale), 2, Streams(1))
    assert device_rates(CsvTraces(path=str(tmp_path), scale=1e-9), 1, Streams(1)).needed_ns(0, 1, 0) > 10**15


def test_a_mahimahi_line_is_one_packet_in_the_millisecond_that_ends_there(tmp_path):
    """Times are ms: a file "1" is 1504 byte/ms = 12.032 Mbit/s, or 12 with packets of 1500 byte, for ever."""
    (tmp_path / "x.down").write_text("1\n")

    assert only(MahimahiTraces(path=str(tmp_path))).needed_ns(12_032_000, 0) / 1e9 == pytest.approx(1)
    assert only(MahimahiTraces(path=str(tmp_path), packet_byte=1500)).mean_bps == pytest.approx(12e6)


def test_mahimahi_milliseconds_are_kept_or_averaged(tmp_path):
    """Two packets at 2 ms and one at 5 ms; windows keep the bits, and a line 0 counts in the first millisecond."""
    (tmp_path / "x.down").write_text("2\n2\n5\n")
    (tmp_path / "y.up").write_text("0\n10\n")
    exact = only(MahimahiTraces(path=str(tmp_path), packet_byte=1250, window_s=0.001))
    coarse = only(MahimahiTraces(path=str(tmp_path), packet_byte=1250, window_s=0.004))
    up = only(MahimahiTraces(path=str(tmp_path), select="*.up", packet_byte=1250, window_s=0.001))

    assert exact.edges_s == pytest.approx(np.array([0, 0.001, 0.002, 0.004, 0.005]))
    assert exact.rate_bps == pytest.approx(np.array([0, 2e7, 0, 1e7]))
    assert coarse.rate_bps == pytest.approx(np.array([5e6, 1e7]))
    assert up.bits_between(0, 1_000_000) == pytest.approx(1e4)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ": has no rows"),
        ("0\n0\n", ": ends at 0"),
        ("5\n4\n", ":2: time goes back to 4 after 5"),
        ("1.5\n", ":1: time is no whole number, got '1.5'"),
        ("-3\n2\n", ":1: time is not within 0 and 1000000000, got '-3'"),
        ("1\n10000000000\n", ":2: time is not within"),
        ("1 2\n", ":1: has 2 fields instead of 1"),
        ("one\n", ":1: time is no whole number, got 'one'"),
    ],
)
def test_a_mahimahi_file_that_makes_no_sense_is_refused(tmp_path, text, problem):
    """Whole milliseconds in rising order that end above 0 are asked for."""
    (tmp_path / "x.down").write_text(text)

    with pytest.raises(DataError, match=rf"x\.down{problem}.*; write one whole number of milliseconds per line"):
        MahimahiTraces(path=str(tmp_path)).load()


def irish_zip(path, text):
    """A small archive in the form of the Irish data set, with what macOS adds."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("5G/Download/Static/B.csv", text)
        archive.writestr("5G/Netflix/Static/C.csv", "application limited")
        archive.writestr("__MACOSX/5G/Download/Static/._B.csv", b"\x00\x05\x16\xff")
        archive.writestr("5G/Download/.DS_Store", b"\x00\xff")
    return str(path)


def test_irish_bitrates_are_kilobits_per_second(tmp_path):
    """Rows hold until the next whole second; two rows of a second are averaged; the last row holds for 1 s."""
    text = (
        "Timestamp,Speed,DL_bitrate,UL_bitrate\n"
        "2019.12.16_13.59.58,0,1000,10\n2019.12.16_13.59.59,0,0,20\n"
        "2019.12.16_13.59.59,0,500,40\n2019.12.16_14.00.02,0,80000,5\n"
    )
    path = irish_zip(tmp_path / "5g.zip", text)
    down, up = only(Irish5gTraces(path=path)), only(Irish5gTraces(path=path, direction="up"))

    assert down.edges_s.tolist() == [0, 1, 4, 5]
    assert down.rate_bps.tolist() == [1e6, 0.25e6, 80e6]
    assert up.rate_bps.tolist() == [10e3, 30e3, 5e3]


def tar_of(path, **texts):
    """An archive of text files; __ in a name stands for /."""
    with tarfile.open(path, "w:gz") as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return str(path)


def test_lumos_lines_are_seconds_and_megabits_of_the_second_that_follows(tmp_path):
    """Each line holds from its time on, the last one for 1 s; 4G and 5G are told apart by folder."""
    path = tar_of(tmp_path / "l.tar.gz", L__5G__a="0 45.0\n1 0\n3 10\n", L__4G__b="4 8\n5 2\n")
    fast, slow = only(Lumos5gTraces(path=path)), only(Lumos5gTraces(path=path, select="*/4G/*"))

    assert fast.edges_s.tolist() == [0, 1, 3, 4]
    assert fast.rate_bps.tolist() == [45e6, 0, 10e6]
    assert slow.rate_bps.tolist() == [8e6, 2e6]


def test_pensieve_lines_are_seconds_and_megabits_since_the_line_before(tmp_path):
    """The rate of a line holds until its time; the first line only starts the clock."""
    path = tar_of(tmp_path / "p.tar.gz", cooked_traces__bus="0\t9\n", cooked_traces__x="10.0\t9\n11.5\t2\n13.5\t1.25\n")
    series = only(PensieveTraces(path=path, select="*/x"))

    assert series.edges_s.tolist() == [0, 1.5, 3.5]
    assert series.rate_bps.tolist() == [2e6, 1.25e6]

    with pytest.raises(DataError, match="bus: has no two rows of increasing time"):
        PensieveTraces(path=path, select="*/bus").load()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ": has no rows"),
        ("0 1 2\n1 1 2\n", ":1: has 3 fields instead of 2"),
        ("0 1\n1 fast\n", ":2: rate is no number, got 'fast'"),
        ("0 1\n1 inf\n", ":2: rate is no number, got 'inf'"),
        ("# Mbit/s\n1 1\n0 1\n", ":3: time goes back to 0 after 1"),
        ("0 -1\n1 1\n", ":1: rate is negative, got '-1'"),
        ("0 0\n1 0\n", ": never carries a bit"),
    ],
)
@pytest.mark.parametrize("source", [Lumos5gTraces, PensieveTraces])
def test_a_text_of_two_columns_that_makes_no_sense_is_refused(tmp_path, source, text, problem):
    """The message names the file and the problem."""
    (tmp_path / "t").write_text(text)

    with pytest.raises(DataError, match=f"t{problem}"):
        source(path=str(tmp_path), select="t").load()


def test_archives_that_cannot_be_read_are_refused(tmp_path):
    """Damaged and missing archives, files that are no text and selections of nothing name the path."""
    for name in ("a.zip", "b.tar.gz", "c.csv.gz", "d.csv.xz"):
        (tmp_path / name).write_bytes(b"damaged")
        with pytest.raises(DataError, match=f"{name}: cannot be read"):
            CsvTraces(path=str(tmp_path / name)).load()
    (tmp_path / "e.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"e\.csv: is not text"):
        CsvTraces(path=str(tmp_path / "e.csv")).load()
    with pytest.raises(DataError, match=r"holds no file that is called '\*\.nothing'"):
        CsvTraces(path=str(tmp_path), select="*.nothing").load()
    with pytest.raises(DataError, match=r"absent\.csv: not found; give it in full"):
        CsvTraces(path="absent.csv").load(tmp_path)


def pack_nothing(path, size_byte):
    """Write a file or archive of zeros that is small until it is unpacked."""
    zeros = bytes(size_byte)
    match path.suffixes:
        case [*_, ".tar", ".xz"]:
            with tarfile.open(path, "w:xz") as archive:
                member = tarfile.TarInfo("t.csv")
                member.size = size_byte
                archive.addfile(member, io.BytesIO(zeros))
        case [*_, ".gz"]:
            path.write_bytes(gzip.compress(zeros))
        case [*_, ".xz"]:
            path.write_bytes(lzma.compress(zeros))
        case [".zip"]:
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("one.csv", zeros[: size_byte // 2])
                archive.writestr("two.csv", zeros[: size_byte - size_byte // 2])


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.xz", "a.zip", "a.tar.xz"])
def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch, name):
    """All that an archive holds counts, and one byte decides."""
    monkeypatch.setattr(recordings, "MAX_RECORDING_BYTE", 100_000)
    pack_nothing(tmp_path / name, 100_000)
    assert sum(len(text) for _, text in read_texts(tmp_path / name)) == 100_000

    pack_nothing(tmp_path / name, 100_001)
    assert (tmp_path / name).stat().st_size < 2000
    with pytest.raises(DataError, match=f"{name}: holds more than"):
        list(read_texts(tmp_path / name))


def test_the_environment_names_the_data_folder(tmp_path, monkeypatch):
    """Without a folder in the call FEDNET_DATA is used."""
    (tmp_path / "t.csv").write_text("time_s,rate_bps\n0,7\n")
    monkeypatch.setenv("FEDNET_DATA", str(tmp_path))

    assert only(CsvTraces(path="t.csv")).mean_bps == 7


@pytest.mark.slow
@needs("net_mahimahi_cellular")
def test_mahimahi_means_are_the_manifests():
    """Mean Mbit/s of twelve recordings, at 1504 byte per line."""
    down = MahimahiTraces().load(DATA)
    up = MahimahiTraces(select="*.up*").load(DATA)
    means = {name.removesuffix(".gz"): series.mean_bps / 1e6 for name, series in {**down, **up}.items()}

    assert len(means) == 13
    for name, mean_mbps in {
        "ATT-LTE-driving.down": 5.19, "ATT-LTE-driving.up": 0.84, "TMobile-LTE-driving.down": 12.8,
        "TMobile-LTE-short.down": 16.75, "TMobile-LTE-short.up": 13.35, "TMobile-UMTS-driving.down": 2.03,
        "TMobile-UMTS-driving.up": 0.95, "Verizon-EVDO-driving.down": 0.52, "Verizon-EVDO-driving.up": 0.84,
        "Verizon-LTE-short.down": 5.04, "Verizon-LTE-short.up": 5.96,
    }.items():  # fmt: skip
        assert means[name] == pytest.approx(mean_mbps, abs=0.0051)
    assert min(series.period_s for series in down.values()) == pytest.approx(120, abs=0.1)
    assert max(series.period_s for series in up.values()) == pytest.approx(1065, abs=1)


@pytest.mark.slow
@needs("net_5g_irish/5G-production-dataset.zip")
def test_irish_downloads_are_tens_of_megabits():
    """21 downloads of 2 to 140 Mbit/s; one has the bits counted by hand from its raw rows, second by second."""
    traces = Irish5gTraces().load(DATA)

    assert len(traces) == 21
    name = "5G-production-dataset/Download/Static/B_2019.12.16_13.40.04.csv"
    assert traces[name].period_s == 2282  # from 13:40:04 to 14:18:05, and the last second

    (text,) = (text for file, text in read_texts(DATA / "net_5g_irish" / "5G-production-dataset.zip", name))
    samples = {}
    for row in text.splitlines()[1:]:
        hour, minute, second = row.split(",")[0].partition("_")[2].split(".")
        samples.setdefault(3600 * int(hour) + 60 * int(minute) + int(second), []).append(float(row.split(",")[12]))
    total_kbit, latest = 0.0, 0.0
    for second in range(min(samples), max(samples) + 1):
        latest = np.mean(samples.get(second, [latest]))
        total_kbit += latest
    assert traces[name].bits_between(0, 2282 * 10**9) == pytest.approx(total_kbit * 1000)
    means_mbps = [series.mean_bps / 1e6 for series in traces.values()]
    assert 2 < min(means_mbps) < 50 < max(means_mbps) < 140


@pytest.mark.slow
@needs("net_5g_umn/lumos5g_4g_5g_traces.tar.gz")
@pytest.mark.parametrize(
    ("select", "count", "seconds", "percentiles"),
    [("*/4G/*", 175, 108_413, (5, 30, 94.5)), ("*/5G/*", 121, 70_983, (44, 429, 1180))],
)
def test_lumos_percentiles_are_the_manifests(select, count, seconds, percentiles):
    """Numbers of traces and seconds, and the 10th, 50th and 90th percentile in Mbit/s."""
    traces = Lumos5gTraces(select=select).load(DATA)

    assert len(traces) == count
    assert sum(series.period_s for series in traces.values()) == pytest.approx(seconds, rel=1e-3)
    assert np.percentile(rows_mbps(traces), [10, 50, 90]) == pytest.approx(percentiles, rel=0.01)


@needs("net_fcc_norway3g/comyco_traces.tar.gz")
@pytest.mark.parametrize(
    ("select", "count", "rows", "percentiles"),
    [
        ("cooked_traces/*.log", 68, 61_883, (0.26, 1.07, 2.60)),
        ("cooked_traces/trace_*", 59, 17_114, (0.37, 1.00, 2.71)),
    ],
)
def test_norway_and_fcc_percentiles_are_the_manifests(select, count, rows, percentiles):
    """Numbers of traces and rows (each trace's first is not used), and the percentiles in Mbit/s."""
    traces = PensieveTraces(select=select).load(DATA)

    assert len(traces) == count
    assert len(rows_mbps(traces)) == rows - count
    assert np.percentile(rows_mbps(traces), [10, 50, 90]) == pytest.approx(percentiles, abs=0.0051)
