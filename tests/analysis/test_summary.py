"""Claims about the summary of a run as a table."""

from __future__ import annotations

import math

import pytest

from fednet_emu.analysis.summary import profile_rows, summary_rows

SUMMARY = {
    "name": "cyclic-fedavg",
    "seed": 7,
    "status": "finished",
    "simulated_s": 200.0,
    "host_s": 1.5,
    "rounds": 12_000,
    "uplink_bit": 12_345_678,
    "downlink_bit": 6.4e9,
    "sidelink_bit": 0,
    "energy_j": 4.56,
    "accuracy": 0.91234,
    "loss": 0.2718281,
    "event_digest": "0123456789abcdef0123456789abcdef",
    "verified": True,
    "something_new": 1,
}


def test_every_row_has_its_unit():
    """The table shows what a run measured in units that people read, in a fixed order."""
    assert summary_rows(SUMMARY) == [
        ("scenario", "cyclic-fedavg"),
        ("seed", "7"),
        ("status", "finished"),
        ("simulated time", "3 min 20 s"),
        ("host time", "1.5 s"),
        ("rounds", "12 000"),
        ("uplink", "12.3 Mbit"),
        ("downlink", "6.4 Gbit"),
        ("sidelink", "0 bit"),
        ("energy", "4.56 J"),
        ("accuracy", "0.912"),
        ("loss", "0.2718"),
        ("event digest", "0123456789ab"),
        ("verdict", "all records consistent"),
    ]


@pytest.mark.parametrize("unmeasured", [None, math.nan])
def test_what_was_not_measured_has_no_row(unmeasured):
    """A timing-only run has no accuracy, and the table does not pretend that it has."""
    titles = [title for title, _ in summary_rows({**SUMMARY, "accuracy": unmeasured, "loss": unmeasured})]
    assert "accuracy" not in titles
    assert "loss" not in titles
    assert "energy" in titles


@pytest.mark.parametrize(
    ("verified", "verdict"),
    [
        (True, "all records consistent"),
        (False, "records are not consistent"),
    ],
)
def test_the_verdict_says_whether_records_are_consistent(verified, verdict):
    """A run whose records contradict a conservation law says so."""
    assert dict(summary_rows({"verified": verified})) == {"verdict": verdict}


def test_the_profile_lists_parts_by_size():
    """Parts come with share and seconds, the largest first, and say how long the thread stood still."""
    parts = {"building": {"host_s": 1.0, "waiting_s": 0.0}, "training": {"host_s": 3.0, "waiting_s": 0.5}}

    assert profile_rows({"host_parts": parts, "mean_wavefront": 12.5}) == [
        ("  training", " 75%  3 s, 500 ms of it waiting"),
        ("  building", " 25%  1 s"),
        ("  mean wavefront", "12.5 training jobs"),
    ]


def test_the_profile_says_why_exchanges_are_played_one_by_one():
    """Three exchanges as arrays, and the reason of two others."""
    own = {"as_arrays": 3, "one_by_one": {"messages are compressed": 2}}

    assert profile_rows({"host_parts": {}, "mean_wavefront": 1, "exchanges": own})[1:] == [
        ("  exchanges as arrays", "3"),
        ("  exchanges one by one", "2: messages are compressed"),
    ]


def test_the_profile_tells_what_processes_have_computed():
    """Added up over all of them, beside what the run itself did meanwhile, and what went to and fro."""
    own = {"processes": 2, "computing_s": 5.0, "ahead_s": 0.25, "sent_byte": 190e6, "received_byte": 1.5e6}
    parts = {"training": {"host_s": 3.0, "waiting_s": 2.5}}

    assert profile_rows({"host_parts": parts, "mean_wavefront": 1, "elsewhere": own})[2:] == [
        ("  computing elsewhere", "5 s, the sum of 2 processes"),
        ("  clock went on meanwhile", "250 ms"),
        ("  sent, received", "190 MB, 1.5 MB"),
    ]
