"""A kind's name stands once: in the name of its class, or in the class where that has another name."""

from __future__ import annotations

import pytest

import fednet_emu as fe
from fednet_emu.component.component import Component
from fednet_emu.component.slot import kinds
from fednet_emu.scenario.slots import slots


def test_a_table_names_its_classes() -> None:
    """By the words of the class, capitals within a word included, or as the class says itself."""

    class TwoWords(Component):
        """Two."""

    class HTTPLike3GCurve(TwoWords):
        """A word of capitals, and one with a digit."""

    class Other(TwoWords):
        """Says it itself; its heir does not inherit that."""

        kind = "none"

    class Heir(Other):
        """Of the class before."""

    for component in (TwoWords, HTTPLike3GCurve, Heir):
        del component.kind  # as in this package, whose classes have no kind before their table is made

    assert list(kinds(Other, TwoWords, HTTPLike3GCurve, Heir)) == ["none", "two-words", "http-like3-g-curve", "heir"]
    assert (Other.kind, TwoWords().kind, Heir.kind) == ("none", "two-words", "heir")


def test_every_class_of_a_table_has_its_kind() -> None:
    """So that a component can say what it is; nothing else of this package is a kind."""
    tables = [place.slot.table for place in slots().values()]

    assert all(component.kind == kind for table in tables for kind, component in table.items())
    assert fe.check("quickstart").devices.kind == ""


def test_a_class_from_elsewhere_has_its_own_name_and_no_field_of_that_name() -> None:
    """It may say another one; a field, which plug-ins had before, is refused with what to write."""

    class Mine(fe.Algorithm):
        """One of one's own."""

        kind = "my-own"

    class Yours(Mine):
        """Says nothing."""

    assert (Mine.kind, Yours.kind) == ("my-own", "Yours")
    with (
        pytest.warns(UserWarning, match="shadows"),
        pytest.raises(
            TypeError, match=r"^Old: kind is no setting, got a field; write kind = '\.\.\.', or leave it out"
        ),
    ):
        type("Old", (fe.Algorithm,), {"__annotations__": {"kind": str}, "kind": "old", "__module__": "elsewhere"})
