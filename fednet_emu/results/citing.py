"""What to cite for a scenario: BibTeX entries of the methods, models, data and standards that it uses.

The entries are in `references.bib`, each below a line that names the kinds that come from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fednet_emu.component.component import Component
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.slots import slots

REFERENCES = Path(__file__).with_name("references.bib")
OURSELVES = "fednet_emu"
_ENTRY = re.compile(r"^% (?P<sources>\S[^\n]*)\n(?P<entry>@\w+\{.*?^\})$", re.MULTILINE | re.DOTALL)


def bibtex(scenarios: Iterable[Scenario]) -> str:
    """Return the BibTeX entries of all that these scenarios use, the emulator first.

    A component of a plug-in adds what its class has in a class variable `bibtex`.
    """
    used: dict[str, None] = {OURSELVES: None}
    own: dict[str, None] = {}
    for scenario in scenarios:
        for component in _components(scenario):
            used |= dict.fromkeys(name for each in type(component).__mro__ for name in _kinds().get(each, ()))
            own |= dict.fromkeys([getattr(type(component), "bibtex", "").strip()])
    known = [entry for entry, sources in references().items() if not used.keys().isdisjoint(sources)]
    return "\n\n".join([*known, *filter(None, own)])


@cache
def references() -> Mapping[str, tuple[str, ...]]:
    """Return each entry with the parts that come from it, as `slot.kind`."""
    text = REFERENCES.read_text(encoding="utf-8")
    return {found["entry"]: tuple(found["sources"].split()) for found in _ENTRY.finditer(text)}


@cache
def _kinds() -> Mapping[type, tuple[str, ...]]:
    """Each class of a kind with its names, as `slot.kind`."""
    found: dict[type, tuple[str, ...]] = {}
    for name, place in slots().items():
        for kind, component in place.slot.table.items():
            found[component] = (*found.get(component, ()), f"{name}.{kind}")
    return found


def _components(value: Any) -> Iterator[Component]:
    """Yield the components inside a value, itself included."""
    if isinstance(value, Component):
        yield value
        value = [getattr(value, name) for name in type(value).model_fields]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for part in parts:
        yield from _components(part)
