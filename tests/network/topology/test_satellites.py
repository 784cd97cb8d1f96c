"""Links between satellites: distances, heights of lines, drifts of known constellations, and edges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fednet_emu.arrays import IntArray
from fednet_emu.devices.mobility.regions import DiscRegion
from fednet_emu.devices.mobility.satellites import Walker
from fednet_emu.devices.orbits import MEAN_RADIUS_M, SatelliteView, Site
from fednet_emu.emulation.load import refuse_contradictions
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.delay import LIGHT_M_S
from fednet_emu.network.topology.edges import TopologyInputs
from fednet_emu.network.topology.satellites import SatelliteEdges, in_sight
from fednet_emu.testing import run_small, small_scenario

SHELLS = {
    "iridium": (66, 6, 2, 86.4, 780, "star"),
    "starlink": (1584, 72, 1, 53.0, 550, "delta"),
    "kuiper": (1156, 34, 1, 51.9, 630, "delta"),
    "oneweb": (648, 18, 1, 87.9, 1200, "star"),
    "ours": (40, 5, 1, 97.6, 550, "star"),
}


def sky(
    count: int, planes: int, phasing: int, inclination: float, height_km: float, pattern: Any, **more: Any
) -> SatelliteView:
    """A constellation over a station on the equator."""
    walker = Walker(
        planes=planes, phasing=phasing, inclination_deg=inclination, height_m=height_km * 1e3, pattern=pattern, **more
    )
    orbits = walker.paths(np.zeros((count, 2)), DiscRegion(radius_m=1), Streams(0))
    return SatelliteView(orbits, [Site(lat_deg=0, lon_deg=0)])


def edges_of(view: SatelliteView, at_s: float, **settings: Any) -> tuple[IntArray, IntArray]:
    """The edges at a time."""
    inputs = TopologyInputs(view.count, Streams(0), view, lambda _at_s: None)  # type: ignore[arg-type, return-value]
    return SatelliteEdges(**settings).source(inputs)(np.zeros(view.count, np.int64), at_s, (0,))


@pytest.mark.parametrize(
    ("name", "inclination", "ring_km", "delay_ms", "dip_km", "drift_deg"),
    [
        ("iridium", 86.4, 4029.339, 13.4404, 490.334, -0.41925),
        ("starlink", 53.0, 1969.922, 6.5710, 479.554, -4.50542),
        ("kuiper", 51.9, 1291.942, 4.3095, 600.135, -4.43724),
        ("oneweb", 87.9, 1319.712, 4.4021, 1171.190, -0.20037),
        ("ours", 97.6, 5297.104, 17.6692, 23.170, 0.99012),
    ],
)
def test_rings_of_known_constellations(
    name: str, inclination: float, ring_km: float, delay_ms: float, dip_km: float, drift_deg: float
) -> None:
    """Distance 2 a sin(pi / N), delay, height a cos(pi / N) - R, and drift of the nodes in degrees a day."""
    count, planes, phasing, _, height_km, pattern = SHELLS[name]
    view = sky(count, planes, phasing, inclination, height_km, pattern, drift="j2")
    place_m = view.positions_m(np.arange(2), 1234.5)
    distance_m = math.dist(*place_m)
    assert distance_m / 1e3 == pytest.approx(ring_km, abs=1e-3)
    assert distance_m / LIGHT_M_S * 1e3 == pytest.approx(delay_ms, abs=1e-4)
    one, other = np.array([0]), np.array([1])
    assert in_sight(view, one, other, 1234.5, (dip_km - 0.001) * 1e3).all()
    assert not in_sight(view, one, other, 1234.5, (dip_km + 0.001) * 1e3).any()
    assert math.degrees(view.orbits.node_rad_s) * 86_400 == pytest.approx(drift_deg, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "least_km", "most_km", "rate_m_s", "seam_m_s"),
    [
        ("iridium", 1544.546, 4004.204, 2567.97, 13846.6),
        ("starlink", 390.791, 620.671, 252.07, None),
        ("kuiper", 835.066, 1315.654, 517.97, None),
        ("oneweb", 121.597, 1324.400, 1152.85, 14372.9),
        ("ours", 468.905, 4265.689, 4163.18, 13946.7),
    ],
)
def test_neighbours_in_the_next_plane(
    name: str, least_km: float, most_km: float, rate_m_s: float, seam_m_s: float | None
) -> None:
    """Range and range rate of satellites in adjacent planes, at 721 instants of a period; across a seam to 0.2 %."""
    count, planes, phasing, inclination, height_km, pattern = SHELLS[name]
    view = sky(count, planes, phasing, inclination, height_km, pattern)
    radius_m = MEAN_RADIUS_M + height_km * 1e3
    times_s = np.linspace(0.0, 2 * math.pi * math.sqrt(radius_m**3 / 3.986004418e14), 721)

    def ranges_km(other: int, later_s: float = 0.0) -> Any:
        one_m, other_m = view.orbits.places_m(np.array([0, other]), times_s + later_s)
        return np.linalg.norm(one_m - other_m, axis=-1) / 1e3

    def fastest_m_s(other: int) -> float:
        return float(np.abs(ranges_km(other, 0.01) - ranges_km(other, -0.01)).max()) * 1e3 / 0.02

    each = count // planes
    found_km = ranges_km(each)
    assert (found_km.min(), found_km.max()) == pytest.approx((least_km, most_km), abs=1e-3)
    assert fastest_m_s(each) == pytest.approx(rate_m_s, abs=0.05)
    if seam_m_s is not None:
        assert max(map(fastest_m_s, range(count - each, count))) == pytest.approx(seam_m_s, rel=2e-3)


@pytest.mark.parametrize(
    ("height_km", "longest_km"), [(780, 6171.353), (550, 5013.917), (630, 5440.074), (1200, 7925.816)]
)
def test_the_longest_link_above_80_km(height_km: float, longest_km: float) -> None:
    """Two satellites see each other up to a distance of 2 sqrt(a^2 - b^2), b = R + 80 km, and not beyond."""
    a_m, b_m = MEAN_RADIUS_M + height_km * 1e3, MEAN_RADIUS_M + 8e4
    assert 2 * math.sqrt(a_m**2 - b_m**2) / 1e3 == pytest.approx(longest_km, abs=1e-3)
    apart_rad = 2 * math.asin(longest_km * 500 / a_m)
    for factor, seen in ((1 - 1e-5, True), (1 + 1e-5, False)):
        view = sky(2, 2, 0, 0.0, height_km, "delta")
        place_m = a_m * np.array([[1.0, 0.0, 0.0], [math.cos(factor * apart_rad), math.sin(factor * apart_rad), 0.0]])
        view.orbits.places_m = lambda which, _at_s, place_m=place_m: place_m[which][:, None]
        assert in_sight(view, np.array([0]), np.array([1]), 0.0, 8e4).all() == seen


def test_opposite_satellites_never_see_each_other() -> None:
    """Two satellites of one plane are 2 a apart, with the Earth between them."""
    view = sky(2, 1, 0, 60.0, 800, "delta")
    assert math.dist(*view.positions_m(np.arange(2), 77.0)) == pytest.approx(2 * (MEAN_RADIUS_M + 800e3))
    assert len(edges_of(view, 77.0, neighbours="all")[0]) == 0


@pytest.mark.parametrize("at_s", [0.0, 3600.0, 43_210.0, 86_400.0])
def test_a_grid_of_iridium_over_a_day(at_s: float) -> None:
    """Edges are symmetric and constant in number, rings keep their length to a micrometre, and a star has a seam."""
    view = sky(66, 6, 2, 86.4, 780, "star", drift="j2")
    sender, receiver = edges_of(view, at_s, neighbours="grid")
    pairs = set(zip(sender.tolist(), receiver.tolist(), strict=True))
    assert pairs == {(other, one) for one, other in pairs}
    assert len(pairs) == 2 * (66 + 55)
    assert not {(one // 11, other // 11) for one, other in pairs} & {(0, 5), (5, 0)}
    place_m = view.positions_m(np.arange(66), at_s)
    ring_m = [math.dist(place_m[k], place_m[k // 11 * 11 + (k + 1) % 11]) for k in range(66)]
    assert np.ptp(ring_m) < 1e-6


@pytest.mark.parametrize(("planes", "each", "phasing"), [(72, 22, 17), (72, 22, 1), (6, 11, 3), (5, 8, 4)])
def test_a_grid_of_a_delta_closes_around_the_earth(planes: int, each: int, phasing: int) -> None:
    """From the last plane to the first, ranges over a period are those between any two adjacent planes."""
    view = sky(planes * each, planes, phasing, 53.0, 780, "delta")
    pairs = set(zip(*(ends.tolist() for ends in SatelliteEdges(neighbours="grid")._pairs(
        planes * each, planes, phasing, star=False
    )), strict=True))  # fmt: skip
    assert pairs == {(other, one) for one, other in pairs}
    assert len(pairs) == 4 * planes * each
    times_s = np.linspace(0.0, 6018.0, 301)

    def ranges_km(one: int, other: int) -> Any:
        one_m, other_m = view.orbits.places_m(np.array([one, other]), times_s)
        return np.linalg.norm(one_m - other_m, axis=-1) / 1e3

    inner = ranges_km(0, each)
    ((one, other),) = [(one, other) for one, other in pairs if one == (planes - 1) * each and other < each]
    assert ranges_km(one, other).min() == pytest.approx(inner.min(), rel=1e-3)
    assert ranges_km(one, other).max() == pytest.approx(inner.max(), rel=1e-3)


@pytest.mark.parametrize("seed", range(30))
def test_drawn_shells(seed: int) -> None:
    """An edge of a ring is there at all times exactly if the closed-form height is above the limit."""
    rng = np.random.default_rng(seed)
    each, height_km = int(rng.integers(3, 61)), float(rng.uniform(300, 2000))
    view = sky(each, 1, 0, float(rng.uniform(0, 180)), height_km, "delta")
    dip_m = (MEAN_RADIUS_M + height_km * 1e3) * math.cos(math.pi / each) - MEAN_RADIUS_M
    counts = {len(edges_of(view, at_s)[0]) for at_s in (0.0, 5000.0)}
    assert counts == ({2 * each} if dip_m >= 8e4 else {0})


SPACE = (
    "devices.count=11",
    "devices.mobility={kind: walker, planes: 1, inclination_deg: 86.4, height_m: 7.8e+5}",
    "network.cells={kind: ground, sites: [{lat_deg: 0, lon_deg: 0}]}",
    "channel.path_loss={kind: log-distance, exponent: 2, reference_loss_db: -1.5}",
    "algorithm={kind: d-psgd, lr: 0.1, local_steps: 1, batch_size: 8}",
)
LINKS = (
    "network.sidelink={channel: {include: ideal, rate: {kind: fixed, bit_rate_bps: 1.6e+7}}, mode: unicast}",
    "network.sidelink.delay=range",
    "network.sidelink.access=spatial-reuse",
    "network.sidelink.topology={edges: {kind: satellites}}",
)


def test_d_psgd_plays_over_a_ring() -> None:
    """A transfer takes S / C + d / c to the nanosecond, at 16 Mbit/s and 4029.339 km."""
    fed = run_small(*SPACE, *LINKS, "stop.rounds=2", timing_only=True)
    column = fed.ledger.transfers.column
    distance_m = 2 * (MEAN_RADIUS_M + 7.8e5) * math.sin(math.pi / 11)
    due_ns = -(-column("size_bit") * 1000 // 16) + math.ceil(distance_m / LIGHT_M_S * 1e9)
    assert (column("ended_ns") - column("started_ns")).tolist() == due_ns.tolist()
    assert len(due_ns) >= 2 * 22


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            (*SPACE, *LINKS, "devices.count=8", "devices.mobility.height_m=5.5e+5"),
            "a ring of 8 at 550 km dips to 23.2 km, below min_grazing_altitude_m 80 km at all times; "
            "take 9 or more per plane",
        ),
        (LINKS, "joins satellites, got static mobility"),
        (SPACE[:3], "satellites set, got walker with availability: always"),
    ],
)
def test_links_that_cannot_be_are_refused(settings: tuple[str, ...], text: str) -> None:
    """Each error says what is wrong and what would be right."""
    with pytest.raises(ScenarioError) as error:
        refuse_contradictions(Outlook(small_scenario(*settings)), None)
    assert text in "\n".join(error.value.problems)
