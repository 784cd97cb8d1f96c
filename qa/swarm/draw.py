"""Draw a whole scenario from a seed: every slot and setting is found through the annotations of the components."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pydantic_core import PydanticUndefined

from fednet_emu.component.slot import Slot
from fednet_emu.errors import FednetError
from fednet_emu.records.ledger import Ledger
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.shapes import Shape
from qa.swarm.mixtures import mixture
from qa.swarm.plays import Hangs, in_time, played, scenario_of
from qa.swarm.recipes import ALWAYS, EITHER, ELSEWHERE, FILES, NEEDS, OPTIONAL, RARE, RECIPES, USES

Settings = dict[str, Any]
Picks = dict[str, str]
"""The kind that was drawn for each slot, by the key path of the slot."""

Owner = tuple[str, str]
"""The slot and the kind of a component."""

MOST_ATTEMPTS = 2000
MOST_REDRAWS = 10
"""How often a draw is kept but for the section of the scenario that was refused."""
MOST_FLOP, MOST_STEPS = 3e7, 1000
"""Training of a scenario that a swarm plays five times; a redraw is cheaper."""
MOST_CHARGES = 5000
"""Rows about batteries: tiny ones get empty again and again."""
MOST_TRANSFERS = 100
"""Messages of a mixture, which is played by all laws."""
FIRST = ("algorithm", "devices", "data")
"""Parts that are drawn first, because others are drawn to suit them."""
FIXED = {"title": "", "seed": None, "training": None, "include": None}
"""Settings of the whole scenario that are not drawn from their annotation."""
SHAPES = Shape(Scenario).settings


@dataclass
class Drawn:
    """A drawn scenario.

    Attributes:
        settings: what a scenario file would hold.
        picks: the kind in each slot.
        refused: how many draws before it the scenario layer refused, by the setting that it named first.
        ledger: the records of a run without training; None if it broke down.
    """

    settings: Settings
    picks: Picks
    refused: Counter[str]
    ledger: Ledger | None = field(default=None, compare=False)


def drawn(seed: int, *, mixed: bool = False) -> Drawn:
    """Return the first scenario of a seed, or its first mixture of newer kinds, that the scenario layer accepts.

    Raises:
        LookupError: none of many draws is accepted.
    """
    refused: Counter[str] = Counter()
    for attempt in range(MOST_ATTEMPTS):
        rng = Random(f"{'mixture' if mixed else 'swarm'} {seed} {attempt}")
        draw = _Draw(rng, mixture(rng) if mixed else {})
        settings = draw.scenario(seed)
        for _ in range(MOST_REDRAWS):
            reason, ledger = refusal(settings)
            if mixed and ledger is not None and len(ledger.transfers) > MOST_TRANSFERS:
                reason = "too much work"
            if not reason:
                return Drawn(settings, draw.picks, refused, ledger)
            refused[reason] += 1
            section = reason.partition(".")[0]
            if section not in settings or section == "algorithm":  # what others need depends on the algorithm
                break
            draw.section(settings, section)
    raise LookupError(f"seed {seed}: {MOST_ATTEMPTS} draws were refused, got {refused.most_common(5)}")


def refusal(settings: Settings) -> tuple[str, Ledger | None]:
    """The setting for which a scenario is refused, or that it is too much work; empty if it can be judged.

    It is played without training, since some parts are refused only when they are built or used. The second result
    is the ledger of that run, None if it was refused or broke down.
    """
    try:
        with in_time():
            play = played(scenario_of(settings), timing_only=True)
    except Hangs:  # other users send millions of files while an algorithm waits a week for an absent device
        return "too much work" if "traffic" in settings else "", None
    except FednetError as error:
        return str(error.args[0]).removeprefix("drawn").split(":")[0].strip(), None
    except Exception:
        return "", None  # this is what the swarm looks for: the judge will see it again
    heavy = play.flop > MOST_FLOP or play.steps > MOST_STEPS or len(play.ledger.batteries) > MOST_CHARGES
    return "too much work" if heavy else "", play.ledger


def another(rng: Random, count: int, shape: Shape, path: str, owner: Owner, default: Any = None) -> Any:
    """Draw a value for one setting of a scenario with so many devices.

    Args:
        rng: random numbers.
        count: the number of devices.
        shape: what is expected there.
        path: the key path.
        owner: the slot and the kind of the component around it; both empty for a part of no slot.
        default: the value that it has if it is left out.
    """
    draw = _Draw(rng, {})
    draw.count = count
    return draw.value(shape, path, *owner, default)


def kinds_of(slot: Slot) -> list[str]:
    """The kinds of a slot that can be drawn, those of the emulator only."""
    return [kind for kind in slot.table if (slot.name, kind) not in ELSEWHERE]


class _Draw:
    def __init__(self, rng: Random, needs: Settings) -> None:
        self.rng, self.needs = rng, needs
        self.picks: Picks = {}
        self.count = rng.choice((1, 2, 3, 4, 5, 8))
        self.unused: set[str] = set()

    def scenario(self, seed: int) -> Settings:
        order = [*FIRST, *(name for name in SHAPES if name not in FIRST and name not in FIXED)]
        settings: Settings = {"seed": seed, "training": {"engine": "serial", "threads": 1}}
        for name in order:
            self.section(settings, name)
            if name == "algorithm":
                kind = self.picks["algorithm"]
                self.needs = {**self.needs, **NEEDS.get(kind, {})}
                self.unused = {key for key, use in USES.items() if use not in ALGORITHMS[kind].uses}
        return settings

    def section(self, settings: Settings, name: str) -> None:
        """Draw one part of the scenario, or draw it anew; it may be left out where it is optional."""
        settings.pop(name, None)
        self.picks = {path: kind for path, kind in self.picks.items() if path.partition(".")[0] != name}
        if Scenario.model_fields[name].is_required() or self._wanted(name, name):
            settings[name] = self.value(SHAPES[name], name, "", "")
        if name == "stop":
            settings[name].setdefault("rounds", self.rng.randint(1, 4))

    def _wanted(self, path: str, name: str) -> bool:
        if path in self.unused:
            return False
        required_inside = any(need == path or need.startswith(f"{path}.") for need in self.needs)
        return path in ALWAYS or required_inside or self.rng.random() < (OPTIONAL / 3 if name in RARE else OPTIONAL)

    def value(self, shape: Shape, path: str, slot: str, kind: str, default: Any = None) -> Any:
        """Draw a value; `slot` and `kind` are those of the component that the setting belongs to."""
        if shape.choice is not None:
            return self._component(shape.choice, path)
        file = FILES.get(path.removeprefix("network.sidelink."))
        if file is not None:
            return file(self.rng, self.count)
        if shape.settings:
            return self._mapping(shape.annotation, path, slot, kind)
        need, name = self.needs.get(path), path.rpartition(".")[2]
        if need is not None and not isinstance(need, bool):
            return need
        if path == "devices.count":
            return self.count
        recipe = next(
            (RECIPES[key] for key in (f"{slot}.{kind}.{name}", f"{slot}.{name}", name) if key in RECIPES), None
        )
        return recipe(self.rng, self.count) if recipe else self._plain(shape, path, default)

    def _plain(self, shape: Shape, path: str, default: Any) -> Any:
        """A value for a setting without a recipe."""
        if shape.literals:
            return self.rng.choice(shape.literals)
        if shape.annotation is bool:
            return self.rng.random() < 0.5
        assert default is not PydanticUndefined, f"{path} of {self.picks} is required and has no recipe"
        return default * self.rng.choice((0.5, 1.0)) if isinstance(default, float) else default

    def _component(self, slot: Slot, path: str) -> Settings:
        need = self.needs.get(path)
        kind = need if isinstance(need, str) else self.rng.choice(kinds_of(slot))
        self.picks[path] = kind
        return {"kind": kind, **self._mapping(slot.table[kind], path, slot.name, kind)}

    def _mapping(self, component: Any, path: str, slot: str, kind: str) -> Settings:
        settings: Settings = {}
        shapes = Shape(component).settings
        unwanted = self.rng.choice(EITHER) if shapes.keys() >= set(EITHER) else ""
        for name, shape in shapes.items():
            info, inner = component.model_fields[name], f"{path}.{name}"
            default = info.get_default(call_default_factory=True)
            slotted = shape.choice is not None and default is not None
            always = info.is_required() or f"{slot}.{kind}.{name}" in RECIPES or (unwanted and name in EITHER)
            wanted = always or (slotted and self.rng.random() < 0.6) or self._wanted(inner, name)
            if name in ("kind", unwanted) or not wanted:
                continue
            value = self.value(shape, inner, slot, kind, default)
            if value is not None or info.is_required():
                settings[name] = value
        return settings
