"""The scenario of a measured 5G, WiFi and Ethernet testbed: closed forms, and ranges that hold the published numbers.

Published, in the abstract of Hayek et al. 2025 (arXiv 2504.04678): on 5G the uplink takes 23 % of a round, and 33.3
times as long as on Ethernet and 17.8 times as long as on WiFi.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

import fednet_emu as fe
from fednet_emu.study.runs import runs_of

REFERENCE = Path(__file__).parents[2] / "results" / "reference" / "testbed" / "uplinks.csv"
SHARE, TO_ETHERNET, TO_WIFI = 0.23, 33.3, 17.8
BLOCK_HZ = 12 * 30e3
ON_DATA = 0.92
"""Share of the uplink's symbols that is not control and reference signals (TS 38.306 clause 4.1.2)."""
ATTEMPTS = 1.1
"""Transmissions per block: a tenth fails once, and then its two copies together as good as never."""


class Cell(NamedTuple):
    """Resource blocks, share of the time, bits per symbol and 1024 times the code rate (TS 38.214 Table 5.1.3.1-1)."""

    blocks: int = 106
    share: float = 32 / 140
    bits: int = 6
    code_x1024: int = 719

    @property
    def rate_bps(self) -> float:
        efficiency_bps_hz = self.bits * self.code_x1024 / 1024 / ATTEMPTS
        return self.share * ON_DATA * self.blocks * BLOCK_HZ * efficiency_bps_hz


RATES_BPS = {
    "5G": Cell().rate_bps,
    "5G 20 MHz": Cell(blocks=51).rate_bps,
    "5G 100 MHz": Cell(blocks=273).rate_bps,
    "5G uplink 20 %": Cell(share=0.2).rate_bps,
    "5G uplink 40 %": Cell(share=0.4).rate_bps,
    "5G 5 dB": Cell(bits=4, code_x1024=434).rate_bps,
    "5G 25 dB": Cell(code_x1024=948).rate_bps,
    "5G least": Cell(51, 0.2, 4, 434).rate_bps,
    "5G greatest": Cell(273, 0.4, 6, 948).rate_bps,
    "WiFi 36 Mbit/s": 36e6,
    "WiFi 303 Mbit/s": 303e6,
    "Ethernet 97.5 Mbit/s": 97.5e6,
    "Ethernet 975 Mbit/s": 975e6,
}
WORK = {
    "3 devices, 400 s": (3, 727_598, 400.0),
    "5 devices, 35 s": (5, 727_598, 35.0),
    "8 devices, 10 s, 1000 classes": (8, 1_248_625, 10.0),
}
"""Devices, parameters, and seconds of training in a round."""


def uplink_s(devices: int, parameters: int, rate_bps: float) -> float:
    """All devices' 32-bit numbers in packets of 1460 bytes and 40 of headers, at the rate of the whole cell."""
    payload_bit = 32 * parameters
    packets = -(-payload_bit // (8 * 1460))
    return devices * (payload_bit + 320 * packets) / rate_bps


@pytest.fixture(scope="module")
def uplinks() -> pd.DataFrame:
    """The committed times of every cell of the study."""
    return pd.read_csv(REFERENCE).set_index(["link", "work"])


def ratios(uplinks: pd.DataFrame, of: str, to: str) -> list[float]:
    """Every uplink time of the links that start with `of`, over those that start with `to`, with the same work."""
    times = uplinks.uplink_s.unstack("link")
    above, below = ([name for name in times if name.startswith(start)] for start in (of, to))
    return [ratio for link in above for other in below for ratio in times[link] / times[other]]


@pytest.mark.parametrize(
    ("link", "work"),
    [("5G", "5 devices, 35 s"), ("5G least", "8 devices, 10 s, 1000 classes"), ("WiFi 36 Mbit/s", "3 devices, 400 s")],
)
def test_the_uplink_takes_what_the_closed_form_says(link: str, work: str, uplinks: pd.DataFrame) -> None:
    """Run again: bits over (share x bandwidth x efficiency), one device after the other, as in the committed table."""
    [cell] = [cell for cell in runs_of("testbed") if cell.columns == {"link": link, "work": work}]
    devices, parameters, training_s = WORK[work]

    run = fe.run(cell.scenario, timing_only=True)

    uploads = run.transfers[run.transfers.direction == "uplink"].head(devices)
    found_s = uploads.ended_s.max() - uploads.requested_s.min()
    assert found_s == pytest.approx(uplink_s(devices, parameters, RATES_BPS[link]), rel=1e-3)
    assert found_s == pytest.approx(uplinks.uplink_s[link, work], rel=1e-4)
    assert (run.computes.ended_s - run.computes.started_s).tolist() == pytest.approx(
        [training_s] * 2 * devices, rel=1e-3
    )


def test_every_committed_time_is_that_of_the_closed_form(uplinks: pd.DataFrame) -> None:
    """All links and amounts of work are there, and each uplink takes devices x bits / rate."""
    assert set(uplinks.index) == {(link, work) for link in RATES_BPS for work in WORK}
    for (link, work), row in uplinks.iterrows():
        devices, parameters, training_s = WORK[work]
        assert row.uplink_s == pytest.approx(uplink_s(devices, parameters, RATES_BPS[link]), rel=1e-3), (link, work)
        assert row.training_s == pytest.approx(training_s, rel=1e-3)
        assert row.uplink_share == pytest.approx(row.uplink_s / row.round_s, rel=1e-3)


@pytest.mark.parametrize(
    ("of", "to", "least", "greatest", "published"),
    [("5G", "Ethernet", 0.53, 187, TO_ETHERNET), ("5G", "WiFi", 0.20, 58, TO_WIFI)],
)
def test_published_ratios_lie_within_the_stated_ranges(
    of: str, to: str, least: float, greatest: float, published: float, uplinks: pd.DataFrame
) -> None:
    """The ranges that the docs state are those of the study."""
    found = ratios(uplinks, of, to)

    assert (min(found), max(found)) == pytest.approx((least, greatest), rel=0.02)
    assert least < published < greatest


def test_the_published_share_lies_within_the_stated_range(uplinks: pd.DataFrame) -> None:
    """From 0.1 % to 84 %; with the sample configuration alone from 0.6 % to 49 %."""
    shares = uplinks.uplink_share[[link for link in RATES_BPS if link.startswith("5G")]]

    assert (shares.min(), shares.max()) == pytest.approx((0.001, 0.84), rel=0.03)
    assert (shares["5G"].min(), shares["5G"].max()) == pytest.approx((0.0058, 0.49), rel=0.02)
    assert shares["5G"].min() < SHARE < shares["5G"].max()


def test_the_sample_configuration_alone_does_not_reach_the_published_ratios(uplinks: pd.DataFrame) -> None:
    """When all send at once it stays 5 % below the one to Ethernet, and at little more than half of the one to WiFi."""
    found = uplinks[[link == "5G" or not link.startswith("5G") for link, _ in uplinks.index]]

    assert max(ratios(found, "5G", "Ethernet")) == pytest.approx(0.952 * TO_ETHERNET, rel=0.01)
    assert max(ratios(found, "5G", "WiFi")) == pytest.approx(0.55 * TO_WIFI, rel=0.02)


def test_the_stand_in_has_as_many_numbers_as_squeezenet() -> None:
    """Counted from the layers of Iandola et al. 2016 (version 1.0) and of version 1.1, with 10 or 1000 outputs."""

    def fire(inputs: int, squeeze: int, expand: int) -> int:
        return (inputs + 1) * squeeze + (squeeze + 1) * expand + (9 * squeeze + 1) * expand

    narrow, wide = (16, 64), (32, 128)
    modules = [(64, *narrow), (128, *narrow), (128, *wide), (256, *wide)]
    modules += [(256, 48, 192), (384, 48, 192), (384, 64, 256), (512, 64, 256)]
    first = {"1.1": (9 * 3 + 1) * 64, "1.0": (49 * 3 + 1) * 96}
    body = {"1.1": sum(fire(*sizes) for sizes in modules)}
    body["1.0"] = sum(fire(*sizes) for sizes in [(96, *narrow), (128, *narrow), (128, *wide), *modules[3:]])

    found = {(v, n): first[v] + body[v] + 513 * n for v in ("1.0", "1.1") for n in (10, 1000)}

    assert found == {("1.0", 10): 740_554, ("1.0", 1000): 1_248_424, ("1.1", 10): 727_626, ("1.1", 1000): 1_235_496}
    assert pytest.approx(found["1.1", 10], rel=1e-4) == 727_598
    assert pytest.approx(found["1.0", 1000], rel=2e-4) == 1_248_625
