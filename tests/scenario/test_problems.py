"""Problems: sentences that a wrong scenario can cause, and keys that would change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, field_validator, model_validator

import fednet_emu as fe
from fednet_emu.component.component import Component, Excludes
from fednet_emu.component.slot import Slot
from fednet_emu.devices.stragglers import SlowWindow
from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.scenario.document import apply_overrides, from_text
from fednet_emu.scenario.problems import validate
from fednet_emu.testing import small_scenario
from tests.algorithms.small import ALGORITHM_SETTINGS
from tests.quick import examples


class Fading(Protocol):
    """What every kind of fading can do."""

    def gain(self) -> float: ...


class NoFading(Component):
    """Has no settings."""

    kind = "none"


class Rayleigh(Component):
    """Has one setting, with a default."""

    kind = "rayleigh"
    coherence_s: float = Field(default=0.1, gt=0)


class Rician(Component):
    """Needs a setting; one setting has the name of another kind."""

    kind = "rician"
    k_db: float
    rayleigh: bool = False


AnyFading = Annotated[Fading, Slot("fading", {"none": NoFading, "rayleigh": Rayleigh, "rician": Rician})]


class Radio(Component):
    """Two required numbers and a fading."""

    bandwidth_hz: float = Field(gt=0)
    tx_power_dbm: float
    outage_prob: float = Field(default=0, ge=0, lt=1)
    fading: AnyFading = Rayleigh()


class Colour(Enum):
    """Choices as an enumeration."""

    RED = "red"


class Group(Component):
    """An entry of a list."""

    size: Annotated[int, Field(gt=0)] | Literal["all"] = 1
    fading: AnyFading | None = None
    delay: float | AnyFading | tuple[int, ...] = 0.0


class Scenario(Component):
    """One setting of every type."""

    seed: int = Field(default=0, ge=0)
    name: str = Field(default="x", min_length=1, max_length=5, pattern="^[a-z]+$")
    flag: bool = False
    mode: Literal["fast", "exact"] = "fast"
    colour: Colour = Colour.RED
    even: int = Field(default=0, multiple_of=2)
    rates: tuple[float, ...] = Field(default=(1.0,), min_length=1, max_length=3)
    pair: tuple[int, str] = (1, "a")
    levels: dict[str, Annotated[float, Field(le=1)]] = Field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    mix: tuple[AnyFading, ...] = ()
    shares: tuple[float, ...] = ()
    radio: Radio = Radio(bandwidth_hz=1, tx_power_dbm=0)
    start_s: float | None = Field(default=None, ge=0)
    end_s: float | None = None

    @field_validator("shares")
    @classmethod
    def _sum_to_one(cls, shares: tuple[float, ...]) -> tuple[float, ...]:
        if shares and sum(shares) != 1:
            raise ValueError(f"must sum to 1, got {sum(shares)}; scale them")
        return shares

    @model_validator(mode="after")
    def _ends_after_start(self) -> Self:
        if self.start_s is not None and self.end_s is not None and self.end_s < self.start_s:
            raise ValueError(f"end_s must not be below start_s, got {self.end_s} < {self.start_s}")
        return self


def problems(text: str, *overrides: str, model: type[Component] = Scenario) -> list[str]:
    """The problems of a text, as validation tells them."""
    with pytest.raises(ScenarioError) as caught:
        validate(model, apply_overrides(from_text(text, "a.yaml"), overrides))
    return list(caught.value.problems)


def test_a_right_document_becomes_a_component() -> None:
    """Short forms, lists and numbers with exponent arrive as what the classes say."""
    scenario = validate(Scenario, from_text("seed: 1e3\nmix: [none, {kind: rician, k_db: 3}]\npair: [1, b]\n"))

    assert scenario == Scenario(seed=1000, mix=(NoFading(), Rician(k_db=3)), pair=(1, "b"))


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    """The example of the style guide: one error, one line for each problem, and none twice."""
    text = (
        "sed: 1\nradio:\n  bandwith_hz: 20e6\n  tx_power_dbm: loud\n  fading: raileigh\n  outage_prob: 1.2\nseed: 1.5\n"
    )

    with pytest.raises(ScenarioError) as caught:
        validate(Scenario, from_text(text, "scenarios/cyclic.yaml"))

    assert str(caught.value) == (
        "6 problems in the scenario:\n"
        "  scenarios/cyclic.yaml:1  sed: no such setting; did you mean 'seed'?\n"
        "  scenarios/cyclic.yaml:3  radio.bandwith_hz: no such setting; did you mean 'bandwidth_hz'?\n"
        "  scenarios/cyclic.yaml:4  radio.tx_power_dbm: expected a number, got 'loud'\n"
        "  scenarios/cyclic.yaml:5  radio.fading: no such kind of fading, got 'raileigh'; did you mean 'rayleigh'? "
        "(known: none, rayleigh, rician)\n"
        "  scenarios/cyclic.yaml:6  radio.outage_prob: must be in [0, 1), got 1.2\n"
        "  scenarios/cyclic.yaml:7  seed: expected a whole number, got 1.5"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("seed: -1", "seed: must be >= 0, got -1"),
        ("seed: many", "seed: expected a whole number, got 'many'"),
        ("seed: true", "seed: expected a whole number, got true"),
        ("seed:", "seed: expected a whole number, got nothing"),
        ("seed: [1]", "seed: expected a whole number, got [1]"),
        ("seed: 3 rounds", "seed: expected a whole number, got '3 rounds'; write the number alone, the unit is in "
         "the name of the setting"),
        ("start_s: -1", "start_s: must be >= 0, got -1"),
        ("start_s: soon", "start_s: expected a number, got 'soon'"),
        ("start_s: .inf", "start_s: must be finite, got inf"),
        ("name: 3", "name: expected text, got 3; write '3' in quotes"),
        ("name: ''", "name: must have a length >= 1, got ''"),
        ("name: abcdef", "name: must have a length <= 5, got 'abcdef'"),
        ("name: A1", "name: must match the pattern '^[a-z]+$', got 'A1'"),
        ("flag: maybe", "flag: expected true or false, got 'maybe'"),
        ("mode: fats", "mode: expected 'fast' or 'exact', got 'fats'; did you mean 'fast'?"),
        ("colour: blue", "colour: must be 'red', got 'blue'"),
        ("even: 3", "even: must be a multiple of 2, got 3"),
        ("rates: []", "rates: must have a length >= 1, got 0"),
        ("rates: [1, 2, 3, 4]", "rates: must have a length <= 3, got 4"),
        ("rates: 5", "rates: expected a list, got 5"),
        ("rates: [1, false]", "rates[1]: expected a number, got false"),
        ("rates: [1, x]", "rates[1]: expected a number, got 'x'"),
        ("pair: [1, 2]", "pair[1]: expected text, got 2; write '2' in quotes"),
        ("levels: 1", "levels: expected a mapping, got 1"),
        ("levels: {low: 2}", "levels.low: must be <= 1, got 2"),
        ("groups: [{}, {size: 1, sise: 2}]", "groups[1].sise: no such setting; did you mean 'size'?"),
        ("groups: [7]", "groups[0]: expected a mapping, got 7"),
        ("shares: [0.5, 1]", "shares: must sum to 1, got 1.5; scale them"),
        ("radio: 3", "radio: expected a mapping, got 3"),
        ("radio:", "radio: expected a mapping, got nothing"),
        ("radio: {bandwidth_hz: 1}", "radio.tx_power_dbm: is required"),
        ("zzz: 1", "zzz: no such setting; known: seed, name, flag, mode, colour, even, rates, pair, levels, groups, "
         "mix, shares, radio, start_s, end_s"),
    ],
)  # fmt: skip
def test_one_wrong_value_gives_one_sentence(text: str, problem: str) -> None:
    """Where, what is wrong, the value in the user's spelling, and what would be right."""
    assert problems(text) == [f"a.yaml:1  {problem}"]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("rician", ".k_db: is required"),
        ("{kind: rician}", ".k_db: is required"),
        ("{kind: rician, k_db: x}", ".k_db: expected a number, got 'x'"),
        ("{kind: rician, k_db: 1, rayleigh: 3}", ".rayleigh: expected true or false, got 3"),
        ("{kind: rayleigh, coherence_s: 0}", ".coherence_s: must be > 0, got 0"),
        ("{kind: rayleigh, k_db: 3}", ".k_db: no such setting; it belongs to fading 'rician'"),
        ("{kind: none, zzz: 3}", ".zzz: no such setting; known: none"),
        ("{kind: nome}", ": no such kind of fading, got 'nome'; did you mean 'none'? (known: none, rayleigh, rician)"),
        ("nome", ": no such kind of fading, got 'nome'; did you mean 'none'? (known: none, rayleigh, rician)"),
        ("zzz", ": no such kind of fading, got 'zzz'; known: none, rayleigh, rician"),
        ("{kind: 8}", ": no such kind of fading, got 8; known: none, rayleigh, rician"),
        ("{kind: [a]}", ": no such kind of fading, got ['a']; known: none, rayleigh, rician"),
        ("{}", ".kind: is required; kinds of fading: none, rayleigh, rician"),
        ("{kidn: none}", ".kidn: no such setting; did you mean 'kind'?"),
        ("7", ": expected a kind of fading, got 7; known: none, rayleigh, rician"),
        ("null", ": expected a kind of fading, got nothing; known: none, rayleigh, rician"),
    ],
)
def test_a_wrong_component_gives_one_sentence(entry: str, problem: str) -> None:
    """The kind is never part of the path, also when a setting is called like a kind."""
    assert problems(f"mix:\n- none\n- {entry}\n") == [f"a.yaml:3  mix[1]{problem}"]


@pytest.mark.parametrize(
    ("fading", "problem"),
    [
        ("{coherence_s: 0}", ".coherence_s: must be > 0, got 0"),
        ("{coherense_s: 1}", ".coherense_s: no such setting; did you mean 'coherence_s'?"),
        ("{k_dbb: 3}", ".k_dbb: no such setting; did you mean 'k_db'?"),
        ("{kidn: none}", ".kidn: no such setting; did you mean 'kind'?"),
        ("{k_db: 3}", ".k_db: no such setting of fading 'rayleigh', the default; it belongs to fading 'rician'; "
         "give its kind"),
        ("{zzz: 3}", ".zzz: no such setting of fading 'rayleigh', the default; known: coherence_s"),
        ("{kind: rayleigh, zzz: 3}", ".zzz: no such setting; known: coherence_s"),
    ],
)  # fmt: skip
def test_a_wrong_change_of_a_default_gives_one_sentence(fading: str, problem: str) -> None:
    """The sentence is that of the default's kind, which it names where another kind has the key."""
    text = f"radio:\n  bandwidth_hz: 1\n  tx_power_dbm: 0\n  fading: {fading}\n"
    assert problems(text) == [f"a.yaml:4  radio.fading{problem}"]


def test_a_mapping_without_a_kind_is_what_only_one_kind_can_be() -> None:
    """Where the default is null, the keys choose the kind if one kind alone has all of them; a list has no default."""
    scenario = validate(Scenario, from_text("groups: [{fading: {k_db: 3}}]"))

    assert scenario.groups[0].fading == Rician(k_db=3)
    assert Group(fading={"coherence_s": 2}).fading == Rayleigh(coherence_s=2)  # type: ignore[arg-type]
    missing = "kind: is required; kinds of fading: none, rayleigh, rician"
    assert problems("groups: [{fading: {k_db: 3, coherence_s: 1}}]") == [f"a.yaml:1  groups[0].fading.{missing}"]
    assert problems("mix: [{k_db: 3}]") == [f"a.yaml:1  mix[0].{missing}"]


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        ("size: -1", "size: must be > 0, got -1"),
        ("size: al", "size: expected a whole number or 'all', got 'al'; did you mean 'all'?"),
        ("size: true", "size: expected a whole number or 'all', got true"),
        ("delay: soon", "delay: expected a number or a kind of fading or a list, got 'soon'"),
        ("delay: {kind: rician}", "delay.k_db: is required"),
        ("delay: [1, x]", "delay[1]: expected a whole number, got 'x'"),
        ("fading: rician", "fading.k_db: is required"),
        ("fading: {kind: rayleigh, coherence_s: -1}", "fading.coherence_s: must be > 0, got -1"),
    ],
)
def test_a_choice_of_types_gives_one_sentence(group: str, problem: str) -> None:
    """A value that fits one member of a union in type is judged by it; else all members are named."""
    assert problems(f"groups:\n- {{{group}}}\n") == [f"a.yaml:2  groups[0].{problem}"]


def test_a_missing_setting_points_to_the_mapping_around_it() -> None:
    """The line is that of the nearest key which was written."""
    assert problems("seed: 1\nradio:\n  outage_prob: 0\n") == [
        "a.yaml:2  radio.bandwidth_hz: is required",
        "a.yaml:2  radio.tx_power_dbm: is required",
    ]


def test_missing_components_and_choices_are_listed() -> None:
    """A required slot or choice says what it may be."""

    class Needy(Component):
        """Requires a kind and a choice."""

        fading: AnyFading
        mode: Literal["fast", 3]

    assert problems("{}", model=Needy) == [
        "a.yaml:1  fading: is required; kinds of fading: none, rayleigh, rician",
        "a.yaml:1  mode: is required; one of 'fast', 3",
    ]


def test_a_setting_in_the_wrong_section_is_told_where_it_belongs() -> None:
    """A key that another section knows is sent there, and is not reported missing there."""
    assert problems("bandwidth_hz: 1e6\nk_db: 3\nradio: {tx_power_dbm: 3, fading: {kind: rician}}\n") == [
        "a.yaml:1  bandwidth_hz: no such setting; did you mean 'radio.bandwidth_hz'?",
        "a.yaml:2  k_db: no such setting; did you mean 'radio.fading.k_db'?",
    ]


def test_rules_over_several_settings_name_the_section() -> None:
    """The text of a component's own check is kept."""
    assert problems("seed: 1\nstart_s: 2\nend_s: 1\n") == [
        "a.yaml:1  end_s must not be below start_s, got 1.0 < 2.0"
    ]  # fmt: skip


def test_problems_of_the_command_line_come_last() -> None:
    """An override is named as the place of its problem; the file keeps its order."""
    assert problems("mode: x\nseed: y\n", "flag=z", "mix=[none]", "mix[0]=q") == [
        "a.yaml:1  mode: expected 'fast' or 'exact', got 'x'",
        "a.yaml:2  seed: expected a whole number, got 'y'",
        "--set flag  flag: expected true or false, got 'z'",
        "--set mix[0]  mix[0]: no such kind of fading, got 'q'; known: none, rayleigh, rician",
    ]


def test_problems_of_an_included_file_name_that_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is the one to mend, wherever it is; the main file comes first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text("\nseed: x\nflag: y\n", encoding="utf-8")

    assert problems("include: base.yaml\nflag: true\nmode: z\n") == [
        "a.yaml:3  mode: expected 'fast' or 'exact', got 'z'",
        "base.yaml:2  seed: expected a whole number, got 'x'",
    ]


wrong_values = st.sampled_from([None, True, -7, 1.5, "zzz", [], [1], {}, {"kind": "zzz"}, {"size": "x", "no": 1}])
settings_of_scenario = st.sampled_from([*Scenario.model_fields, "unknown"])


@examples(120)
@given(st.dictionaries(settings_of_scenario, wrong_values, min_size=1, max_size=4))
def test_whatever_is_written_is_accepted_or_explained(data: dict[str, Any]) -> None:
    """Any mixture of wrong values gives sentences in our grammar, each on a line that has a key of its path."""
    lines = [f"{key}: {_flow(value)}" for key, value in data.items()]
    document = from_text("\n".join(lines), "a.yaml")
    try:
        validate(Scenario, document)
    except ScenarioError as error:
        for problem in error.problems:
            place, path = problem.split("  ", 1)
            line = int(place.removeprefix("a.yaml:"))
            assert lines[line - 1].split(":")[0] == path.split(":")[0].split(".")[0].split("[")[0]
            assert not any(word in problem for word in ("Input", "valid", "function-", "constrained", "None", "True"))


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(part)}" for key, part in value.items()) + "}"
    return {None: "null", True: "true"}.get(value, str(value)) if not isinstance(value, list) else str(value)


SIDELINK = "network.sidelink={channel: {include: ideal}}"
GIVEN = {
    "sidelink": SIDELINK,
    "edges": "network.edge_servers={}",
    "server-samples": "server.samples=8",
    "server-speed": "server.flop_per_s=1e6",
    "validation-samples": "server.validation_samples=8",
}


def told(*settings: str) -> str:
    return "\n".join(problems_of_unused(*settings))


def problems_of_unused(*settings: str) -> list[str]:
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
        ("server.samples=8", "server.samples: the algorithm fedavg does not train on them, so these samples have no "
                             "effect, got 8; leave it out, or choose feddf, fedmd, fedul"),
        ("server.validation_samples=8", "server.validation_samples: the algorithm fedavg chooses no model by its "
                                        "validation error, got 8; leave it out, or choose fedul"),
        ("server.flop_per_s=1e6", "server.flop_per_s: the algorithm fedavg computes nothing on the server, got "
                                  "1e+06; leave it out, or choose feddf, fedul, splitfed"),
    ],
)  # fmt: skip
def test_what_fedavg_never_uses_is_refused(setting: str, told: str) -> None:
    """The message names the algorithms that do."""
    assert problems_of_unused(setting) == [told]


def test_the_server_has_a_speed_where_it_opens_masks() -> None:
    """Then secure aggregation computes on it."""
    secure = ("server.flop_per_s=1e6", "algorithm.weighting=uniform", "network.uplink.secure_aggregation=bonawitz")
    opens = "network.uplink.secure_aggregation.prg_flop_per_entry="

    assert "computes nothing on the server" in told(*secure)
    assert problems_of_unused(*secure, f"{opens}2") == []


@pytest.mark.parametrize("kind", [kind for kind in ALGORITHM_SETTINGS if kind != "flower"])
def test_each_algorithm_takes_what_it_uses_and_nothing_else(kind: str) -> None:
    """Of edge servers, sidelink and server, a scenario may have those of `uses`."""
    bare = [
        its
        for its in ALGORITHM_SETTINGS[kind]
        if not its.startswith(("network.edge_servers", "network.sidelink", "server"))
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

    assert small_scenario(side.replace("KEY", "rx_consumption_w")).network.sidelink is not None


@pytest.mark.parametrize(("key", "value"), [("density", 0.3), ("size_m", 3), ("height_m", 4)])
@pytest.mark.parametrize("hall", ["SL", "DL", "SH", "DH", "HH"])
def test_clutter_is_set_where_a_formula_has_it(hall: str, key: str, value: float) -> None:
    """Nothing hides the devices of hall HH, and a base station looks over clutter in SH and DH only (Table 7.4.2-1)."""
    has_it = hall in (("SH", "DH") if key == "height_m" else ("SL", "DL", "SH", "DH"))
    law = f"channel.path_loss={{kind: 3gpp-inf, hall: {hall}, clutter_{key}: {value}}}"
    settings = [law, "channel.carrier_hz=3.5e9", "channel.base_station.height_m=8", "channel.device.height_m=1.5"]
    if has_it:
        assert problems_of_unused(*settings) == []
        return
    with pytest.raises(
        ScenarioError, match=rf"clutter_{key}: the formulas of hall {hall} do not have it, got {value}; leave"
    ):
        small_scenario(*settings)
