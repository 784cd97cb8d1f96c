"""Claims about slots and the way to the first one, against an enumeration and against a walk through the slots."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.network.nr.slots import TddPattern, UplinkAccess

with (Path(__file__).parent / "reference" / "link_nr_ul_access_latency.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))

SLOT_NS = 500_000
PATTERNS = st.sampled_from(["DDDSU", "DDSUU", "DDDDDDDSUU", "DSUU", "DU", "DDSU", "DSUUU", "UD"])


def access(row):
    """The access of a row of the table, whose slots last half a millisecond."""
    pattern = TddPattern(row["pattern"], 30)
    period = round(float(row["sr_period_ms"]) / 0.5)
    return UplinkAccess(pattern, period, int(row["k2_min_slots"]), int(row["decode_slots"]))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['pattern']}-{row['sr_period_ms']}-{row['k2_min_slots']}")
@pytest.mark.parametrize("grant", ["first", "bulk"])
def test_latencies_are_those_of_the_enumeration(row, grant):
    """All 28 rows: the least exactly, the mean within 0.05 ms, the largest one step of 0.05 ms above the table's."""
    latency = access(row).latency(bulk=grant == "bulk")

    assert len(ROWS) == 28
    assert latency.least * 0.5 == float(row[f"{grant}_min_ms"])
    assert latency.mean * 0.5 == pytest.approx(float(row[f"{grant}_mean_ms"]), abs=0.0501)
    assert latency.most * 0.5 == pytest.approx(float(row[f"{grant}_max_ms"]) + 0.05, abs=1e-9)


def walked_wait_ns(slots, sr_period, k2, decode, now_ns):
    """The same by a walk from slot to slot, with a calendar of the nominal occasions."""

    def kind(slot):
        return slots[slot % len(slots)]

    def first(slot, kinds):
        while kind(slot) not in kinds:
            slot += 1
        return slot

    origin, slot = first(0, "U"), 0
    used = set()
    for n in range(-60, 100):
        used.add(first(origin + n * sr_period, "U"))
    while slot * SLOT_NS < now_ns or slot not in used:
        slot += 1
    for _ in range(2):
        slot = first(first(slot + 1 + decode, "DS") + k2, "U")
    return slot * SLOT_NS - now_ns


@given(PATTERNS, st.integers(1, 40), st.integers(1, 8), st.integers(0, 4), st.integers(0, 50 * SLOT_NS))
def test_a_wait_is_that_of_a_walk_through_the_slots(slots, sr_period, k2, decode, now_ns):
    """Any pattern, period, k2, decoding time and arrival."""
    in_time = UplinkAccess(TddPattern(slots, 30), sr_period, k2, decode)
    now_ns %= 10 * sr_period * SLOT_NS

    assert in_time.wait_ns(now_ns) == walked_wait_ns(slots, sr_period, k2, decode, now_ns)


@given(PATTERNS, st.integers(1, 40), st.integers(1, 8), st.integers(0, 4))
def test_the_mean_is_that_of_waits_of_evenly_spread_arrivals(slots, sr_period, k2, decode):
    """The midpoints of all slots of the hyperperiod, between which a wait is linear."""
    in_time = UplinkAccess(TddPattern(slots, 30), sr_period, k2, decode)
    waits = [in_time.wait_ns(slot * SLOT_NS + SLOT_NS // 2) / SLOT_NS for slot in range(in_time.hyperperiod)]

    latency = in_time.latency(bulk=True)

    assert sum(waits) / len(waits) + 1 == pytest.approx(latency.mean)
    assert latency.least <= min(waits) + 1
    assert max(waits) + 1 <= latency.most


def test_a_failed_block_comes_again_after_ten_slots():
    """5 ms at 30 kHz for both usual patterns, k2 of 4 and two slots to decode."""
    for slots in ("DDDSU", "DDDDDDDSUU"):
        in_time = UplinkAccess(TddPattern(slots, 30), 40, 4, 2)
        first = slots.index("U")
        assert in_time.after(first) - first == 10


@pytest.mark.parametrize(("slots", "up", "down"), [("DDDSU", 0.2, 0.6), ("DDDDDDDSUU", 0.2, 0.7), ("DDSUU", 0.4, 0.4)])
def test_shares_of_usual_patterns(slots, up, down):
    """The uplink's and the downlink's share of the slots."""
    pattern = TddPattern(slots, 30)

    assert (pattern.share("U"), pattern.share("D")) == pytest.approx((up, down))


def test_a_slot_is_a_millisecond_over_a_power_of_two():
    """TS 38.211 Table 4.3.2-1."""
    lengths_ns = [TddPattern("DDDSU", spacing_khz).slot_ns for spacing_khz in (15, 30, 60, 120)]

    assert lengths_ns == [1_000_000, 500_000, 250_000, 125_000]


@pytest.mark.parametrize(
    ("slots", "what"),
    [
        ("DDDS", "at least one"),
        ("UUU", "at least one"),
        ("DDXU", "D, S and U"),
        ("DDU", "whole periods fit into 10 ms"),
    ],
)
def test_what_is_no_pattern_is_refused(slots, what):
    """Without U nobody may send, without D nobody is granted anything, and 10 ms hold whole periods."""
    with pytest.raises(ValueError, match=what):
        TddPattern(slots, 30)
