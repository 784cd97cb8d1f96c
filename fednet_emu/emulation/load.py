"""Load a scenario file with command-line overrides as a valid scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fednet_emu.emulation.build import unfit_augmentation, unreachable
from fednet_emu.emulation.cost import unaffordable
from fednet_emu.emulation.hardware import unfit
from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.document import Document, apply_overrides, filled, load
from fednet_emu.scenario.model import Problem, Scenario
from fednet_emu.scenario.problems import LOG, validate
from fednet_emu.scenario.tree import problem_text


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
    scenario = valid(document)
    refuse_unreachable(scenario, document)
    return scenario


def valid(document: Document, tell: Callable[[str], None] = LOG.warning) -> Scenario:
    """Validate the keys of a document, its values, whether they fit into memory, and whether they go together.

    Whether anybody can be reached is left to `refuse_unreachable`, as that alone depends on the seed. `tell` is that of
    `validate`.

    Raises:
        ScenarioError: lists every problem of the document with its place.
    """
    scenario = validate(Scenario, document, tell)
    extent = scenario.extent(None)
    problems = (
        list(unaffordable(scenario))
        or list(unfit(scenario))
        or list(scenario.contradictions())
        or list(unfit_augmentation(scenario, extent.input_shape) if extent else ())
    )
    _refuse(problems, document)
    return scenario


def refuse_unreachable(scenario: Scenario, document: Document) -> None:
    """Refuse a valid scenario if nobody can be reached where its seed places the devices.

    Raises:
        ScenarioError: names the settings, with their places in the document.
    """
    _refuse(list(unreachable(scenario)), document)


def _refuse(problems: Sequence[Problem], document: Document) -> None:
    if problems:
        raise ScenarioError(*(problem_text(document.place(path), path, what) for path, what in problems))
