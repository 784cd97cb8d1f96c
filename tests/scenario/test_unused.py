"""Keys that would change nothing are refused, with the reason and what would be right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

import fednet_emu as fe
from fednet_emu.component.component import Excludes
from fednet_emu.devices.stragglers import SlowWindow
from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.testing import small_scenario
from tests.algorithms.small import ALGORITHM_SETTINGS

SIDELINK = "network.sidelink={channel: {include: ideal}}"
GIVEN = {
    "sidelink": SIDELINK,
    "edges": "network.edges={}",
    "server-samples": "server.samples=8",
    "server-speed": "server.flop_per_s=1e6",
    "validation-samples": "server.validation_samples=8",
}


def told(*settings: str) -> str:
    """The same as one text."""
    return "\n".join(problems(*settings))


def problems(*settings: str) -> list[str]:
    """The contradictions of the small scenario with these settings, as `key: what`."""
    return [f"{'.'.join(path)}: {what}" for path, what in small_scenario(*settings).contradictions()]


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (SIDELINK, "network.sidelink: the algorithm fedavg never sends from device to device, got a sidelink; leave it "
                   "out, or choose ad-psgd, colrel, connectivity-aware, d-psgd, gossip, matcha, sgp"),
        ("evaluation.consensus=true", "evaluation.consensus: the algorithm fedavg has no models whose mean can be "
                                      "scored, got true; leave it out, or choose ad-psgd, d-psgd, gossip, "
                                      "local, matcha, sgp"),
        ("server.samples=8", "server.samples: the algorithm fedavg trains nothing on them, so that nobody learns from "
                             "these samples, got 8; leave it out, or choose feddf, fedmd, fedul"),
        ("server.validation_samples=8", "server.validation_samples: the algorithm fedavg chooses no model by its "
                                        "validation error, got 8; leave it out, or choose fedul"),
        ("server.flop_per_s=1e6", "server.flop_per_s: the algorithm fedavg computes nothing on the server, got "
                                  "1e+06; leave it out, or choose feddf, fedul, splitfed"),
    ],
)  # fmt: skip
def test_what_fedavg_never_uses_is_refused(setting: str, told: str) -> None:
    """The message names the algorithms that do."""
    assert problems(setting) == [told]


def test_the_server_has_a_speed_where_it_opens_masks() -> None:
    """Then secure aggregation computes on it."""
    secure = ("server.flop_per_s=1e6", "algorithm.weighting=uniform", "network.uplink.secure_aggregation=bonawitz")
    opens = "network.uplink.secure_aggregation.prg_flop_per_entry="

    assert "computes nothing on the server" in told(*secure)
    assert problems(*secure, f"{opens}2") == []


@pytest.mark.parametrize("kind", [kind for kind in ALGORITHM_SETTINGS if kind != "flower"])
def test_each_algorithm_takes_what_it_uses_and_nothing_else(kind: str) -> None:
    """Of edge servers, sidelink and server, a scenario may have those of `uses`."""
    bare = [
        its for its in ALGORITHM_SETTINGS[kind] if not its.startswith(("network.edges", "network.sidelink", "server"))
    ]
    refused = {
        name
        for name, given in GIVEN.items()
        if f"{given.partition('=')[0]}: the algorithm {kind} " in told(*bare, given)
    }

    assert refused == GIVEN.keys() - ALGORITHMS[kind].uses


class Silent(fe.Algorithm):
    """An algorithm of one's own that ends at once."""

    def run(self, fed: fe.Federation) -> fe.Process:
        """Nothing."""
        return
        yield


class Gossip(Silent):
    """One that says that it sends from device to device."""

    uses: ClassVar[frozenset[str]] = frozenset({"sidelink"})


def test_an_algorithm_of_ones_own_says_what_it_uses() -> None:
    """Whose class does not say so is told what to write."""
    own = {"network.sidelink": {"channel": "ideal"}}
    with pytest.raises(ScenarioError, match=r'Silent never sends .*, or say uses = frozenset\({"sidelink"}\) in the'):
        fe.run("quickstart", algorithm=Silent(), settings=own, progress=False)

    assert fe.run("quickstart", algorithm=Gossip(), settings=own, progress=False).summary["status"] == "done"


class FromNoon(SlowWindow):
    """A straggler of one's own, which says itself with what it does not go together."""

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        """It needs an end by time, and has not this factor."""
        yield from super().conflicts(scenario)
        if scenario.stop.simulated_s is None:
            yield "", "needs stop.simulated_s, got none; give it"
        if self.factor > 8:
            yield "factor", f"is above 8, got {self.factor:g}; lower it"


def test_a_part_of_ones_own_states_its_own_conflicts() -> None:
    """The scenario finds them by walking its parts: of the whole part, of a setting of it, and what it inherits."""
    own = FromNoon(devices=(0, 99), factor=9, from_s=1, to_s=2)
    with pytest.raises(ScenarioError) as refused:
        fe.check("quickstart", settings={"devices.straggler": own})

    where = "settings['devices.straggler']  devices.straggler"
    assert refused.value.problems == (
        f"{where}.devices: no such devices, got [99]; must be from 0 to 19",
        f"{where}: needs stop.simulated_s, got none; give it",
        f"{where}.factor: is above 8, got 9; lower it",
    )
    fine = FromNoon(devices=(0,), factor=8, from_s=1, to_s=2)
    assert fe.check("quickstart", settings={"devices.straggler": fine, "stop.simulated_s": 9}).stop.simulated_s == 9


class Ordered(Silent):
    """An algorithm that excludes a kind of another setting, and has a subclass that excludes a value."""

    excludes = (Excludes("partition", {"iid"}, "needs unequal devices", "choose dirichlet", key="kind"),)


class Paired(Ordered):
    """The subclass: a predicate of a value, and words of its own about it."""

    excludes = (Excludes("devices.count", lambda n: n % 2, "works in pairs", "give one more", got="{value} devices"),)


def test_a_class_excludes_values_of_other_settings() -> None:
    """By kind and by predicate, with the rules of its base class first; a setting below null excludes nothing."""
    problem = {
        "kind": "algorithm.kind: needs unequal devices, got Paired with partition: iid; choose dirichlet",
        "": "algorithm: works in pairs, got 3 devices; give one more",
    }
    odd = small_scenario("devices.count=3", "partition=iid").model_copy(update={"algorithm": Paired()})
    even = small_scenario("devices.count=4", "partition=iid").model_copy(update={"algorithm": Ordered()})
    below_null = Excludes("network.sidelink.topology", {"none"}, "", "")

    assert [f"{'.'.join(path)}: {what}" for path, what in odd.contradictions()] == list(problem.values())
    assert [what for _, what in even.contradictions()] == [
        problem["kind"].partition(": ")[2].replace("Paired", "Ordered")
    ]
    assert list(below_null.found(Silent(), even)) == []


def test_a_device_has_one_idle_power() -> None:
    """That of the sidelink's channel would be counted nowhere; what it draws while it receives there is."""
    device = "{tx_power_dbm: 20, noise_figure_db: 5, height_m: 1, KEY: 0.2}"
    side = f"network.sidelink={{channel: {{include: ideal, device: {device}}}}}"
    with pytest.raises(
        ScenarioError, match=r"sidelink\.channel: device\.idle_w: a device idles with .* got 0\.2 for its"
    ):
        small_scenario(side.replace("KEY", "idle_w"))

    assert small_scenario(side.replace("KEY", "receive_w")).network.sidelink is not None


@pytest.mark.parametrize(("key", "value"), [("density", 0.3), ("size_m", 3), ("height_m", 4)])
@pytest.mark.parametrize("hall", ["SL", "DL", "SH", "DH", "HH"])
def test_clutter_is_set_where_a_formula_has_it(hall: str, key: str, value: float) -> None:
    """Nothing hides the devices of hall HH, and a base station looks over clutter in SH and DH only (Table 7.4.2-1)."""
    has_it = hall in (("SH", "DH") if key == "height_m" else ("SL", "DL", "SH", "DH"))
    law = f"channel.path_loss={{kind: 3gpp-inf, hall: {hall}, clutter_{key}: {value}}}"
    settings = [law, "channel.carrier_hz=3.5e9", "channel.base_station.height_m=8", "channel.device.height_m=1.5"]
    if has_it:
        assert problems(*settings) == []
        return
    with pytest.raises(
        ScenarioError, match=rf"clutter_{key}: the formulas of hall {hall} do not have it, got {value}; leave"
    ):
        small_scenario(*settings)
