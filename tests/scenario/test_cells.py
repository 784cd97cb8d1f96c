"""Claims about the networks in scenarios/cells: an upload takes what was measured or computed elsewhere."""

from pathlib import Path

import pytest

import fednet_emu as fe
from fednet_emu.scenario.library import names

CELLS = sorted(path.stem for path in (Path(__file__).parents[2] / "scenarios" / "cells").glob("*.yaml"))
SQUEEZENET_BIT = 24_132_984
"""727,598 numbers with the headers of TCP, HTTP/2 and gRPC: 3,015,024 bytes in packets of TCP, and 0.06 % of gRPC."""


def last_s(cell, devices):
    """The longest of so many uploads that start at once, in s."""
    settings = {
        "title": cell,
        "include": f"cells/{cell}",
        "devices": {
            "count": devices,
            "placement": {"kind": "disc", "radius_m": 6, "inner_radius_m": 4},
            "speed": {"kind": "fixed", "flop_per_s": 1e12},
        },
        "data": {"kind": "synthetic", "features": [3, 32, 32], "n_samples": 480, "n_test": 100},
        "partition": "iid",
        "model": {"kind": "mlp", "hidden": [236]},
        "algorithm": {"kind": "fedavg", "cohort": devices, "batch_size": 32},
        "stop": {"rounds": 1},
    }
    run = fe.run(settings, timing_only=True, progress=False)
    uplinks = run.transfers.query("kind == 'uplink'")
    assert run.summary["verified"]
    assert set(uplinks.wire_bit) == {SQUEEZENET_BIT}
    return float((uplinks.ended_s - uplinks.requested_s).max())


def test_they_are_no_scenarios_by_themselves():
    """The library lists scenarios that run; these are parts of one."""
    assert len(CELLS) == 6
    assert not [name for name in names() if name.startswith("cells")]


@pytest.mark.parametrize(
    ("cell", "devices", "least_s", "most_s"),
    [
        # what the published ratios of a testbed imply of its cell: 8.66 Mbit/s with eight devices to 11.1 with one
        ("oai-n78-20mhz", 5, 5 * 24.13 / 11.1, 5 * 24.13 / 8.66),
        ("oai-n78-20mhz", 1, 2.5, 3.4),  # a climb to scheme 24, or 16, from what OpenAirInterface's code does
        ("oai-n78-40mhz", 1, 1.5, 1.8),
        ("oai-n78-40mhz", 5, 5.0, 8.0),
        ("srsran-n78-100mhz", 1, 24.13 / 86.9, 24.13 / 50),  # below the peak of 64QAM in 273 blocks
        ("wifi-n20", 1, 0.35, 0.395),  # the fluid, and ns-3 with acknowledgements of TCP on the air
        ("wifi-n20", 5, 2.12, 2.39),
        ("wifi-ac80", 1, 0.066, 0.082),
        ("wifi-ac80", 5, 0.40, 0.46),
        ("gigabit", 5, 5 * 0.02413, 5 * 0.0247 + 0.0006),  # packets, and frames of Ethernet with two round trips
    ],
)
def test_an_upload_takes_what_others_found(cell, devices, least_s, most_s):
    """Of 2.91 MB, alone and five at once."""
    assert least_s < last_s(cell, devices) < most_s
