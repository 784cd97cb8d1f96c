"""Load a scenario file with command-line overrides as a valid scenario."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fednet_emu.emulation.build import unfit_augmentation
from fednet_emu.emulation.hardware import unfit
from fednet_emu.emulation.outlook import Outlook, unaffordable, unreachable
from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.document import Document, apply_overrides, filled, load
from fednet_emu.scenario.model import Problem, Scenario
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.tree import Place, problem_text

UNNAMED = "scenario"
"""What a scenario without a file and a title is called."""


def load_scenario(name: str | Path, overrides: Iterable[str] = ()) -> Scenario:
    """Read a scenario, fill in its defaults and check it.

    Args:
        name: a path, or the name of a file in scenarios/.
        overrides: settings as `key.path=value`.

    Raises:
        ScenarioError: lists every problem of the file with its line.
    """
    return checked(apply_overrides(filled(load(name)), overrides))


def checked(document: Document) -> Scenario:
    """Validate a document completely.

    Raises:
        ScenarioError: lists every problem of the document with its place.
    """
    return examined(Outlook(validate(Scenario, document)), document).scenario


def examined(outlook: Outlook, document: Document | None = None) -> Outlook:
    """Check everything about a scenario that its keys and values do not show one by one, and return its outlook.

    Raises:
        ScenarioError: lists every problem, with its place in the document, unless it was made in Python.
    """
    refuse_contradictions(outlook, document)
    refuse_unreachable(outlook, document)
    return outlook


def refuse_contradictions(outlook: Outlook, document: Document | None) -> None:
    """Refuse a scenario that does not fit into memory, or whose parts do not go together, whatever its seed.

    Raises:
        ScenarioError: lists every problem, with its place in the document.
    """
    scenario = outlook.scenario
    _refuse(
        list(unaffordable(outlook))
        or list(unfit(scenario))
        or list(scenario.contradictions())
        or list(unfit_augmentation(scenario, outlook.extent.input_shape) if outlook.extent else ()),
        document,
    )


def refuse_unreachable(outlook: Outlook, document: Document | None) -> None:
    """Refuse a scenario if nobody can be reached where its seed places the devices.

    Raises:
        ScenarioError: names the settings, with their places in the document.
    """
    _refuse(list(unreachable(outlook)), document)


def refuse_unaffordable(outlook: Outlook) -> None:
    """Refuse a scenario that was checked on another host, if it does not fit into the memory of this one.

    Raises:
        ScenarioError: names the part that needs most.
    """
    _refuse(list(unaffordable(outlook)), None)


def _refuse(problems: Sequence[Problem], document: Document | None) -> None:
    if problems:
        places = (Place(UNNAMED, 0) if document is None else document.place(path) for path, _ in problems)
        texts = (problem_text(place, *problem) for place, problem in zip(places, problems, strict=True))
        raise ScenarioError(*texts)
