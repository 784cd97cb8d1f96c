"""The keys of a scenario, each with a label that names it in every scenario: its path with the kinds on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo

from fednet_emu.component.component import Component
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.shapes import Shape
from qa.swarm.draw import Owner, kinds_of


class Key(NamedTuple):
    """A key of a given scenario.

    Attributes:
        label: its path with the kinds on the way, `channel.fading.rician.k_db`.
        path: its keys.
        shape: what is expected there.
        value: what is there.
        default: what it is if it is left out; None if it is required.
        owner: the slot and the kind of the component around it.
    """

    label: str
    path: tuple[str, ...]
    shape: Shape
    value: Any
    default: Any
    owner: Owner


def keys_of(
    component: Component, path: tuple[str, ...] = (), label: str = "", owner: Owner = ("", "")
) -> Iterator[Key]:
    """Every key of a component and of those in it, given or left out; not those of components in lists."""
    for name, shape, info in _fields(type(component)):
        value, its, inside = getattr(component, name), f"{label}.{name}".lstrip("."), owner
        if not _is_heading(shape, info):
            yield Key(its, (*path, name), shape, value, _default(info), owner)
        if shape.choice is not None and value is not None:
            kind = getattr(value, "kind", "")
            inside, its = (shape.choice.name, kind), _below(its, kind)
        if isinstance(value, Component):
            yield from keys_of(value, (*path, name), its, inside)


def labels(component: type[Component] = Scenario, label: str = "") -> Iterator[str]:
    """The label of every key that a drawn scenario may have."""
    for name, shape, info in _fields(component):
        its = f"{label}.{name}".lstrip(".")
        if not _is_heading(shape, info):
            yield its
        for kind in kinds_of(shape.choice) if shape.choice is not None else ():
            yield from labels(shape.choice.table[kind], _below(its, kind))
        if shape.settings:
            yield from labels(shape.annotation, its)


def _fields(component: type[Component]) -> Iterator[tuple[str, Shape, FieldInfo]]:
    shapes = Shape(component).settings
    return ((name, shape, component.model_fields[name]) for name, shape in shapes.items() if name != "kind")


def _is_heading(shape: Shape, info: FieldInfo) -> bool:
    """Whether a key holds nothing but keys, and is always there."""
    return bool(shape.settings) and (info.is_required() or _default(info) is not None)


def _default(info: FieldInfo) -> Any:
    return None if info.is_required() else info.get_default(call_default_factory=True)


def _below(label: str, kind: str) -> str:
    """The label of a kind; the radio laws of a sidelink's channel are called as those of the channel."""
    longer = f"{label}.{kind}"
    return longer.removeprefix("network.sidelink.") if longer.startswith("network.sidelink.channel.") else longer
