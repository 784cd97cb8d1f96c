"""What faults there are: the mutation operators of mutmut, applied inside the functions of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "kernel",
    "devices",
    "network/air",
    "network/medium",
    "network/access",
    "network/links",
    "radio",
    "records",
    "learning/graph",
    "federation",
    "algorithms",
)
"""The folders of fednet_emu whose tests are tested."""
ELSEWHERE = "algorithms/flower"
"""A folder among them whose tests run in an environment of their own, with Flower."""

LEFT_OUT = (cst.Annotation, cst.Decorator, cst.Parameters, cst.Raise, cst.FormattedString)
"""Types, decorators, default values, and what an error says."""
GUARDS = ("assert_never", "cast", "isinstance", "len")
"""Calls that speak to the type checker, or fail at once if changed; left out, too."""


@dataclass(frozen=True)
class Place:
    """A node in whose stead another may be put.

    Attributes:
        function: the function or method that holds it, as `Class.method`.
        line: where it begins.
        node: itself.
        other: what stands there in the mutant.
    """

    function: str
    line: int
    node: cst.CSTNode
    other: cst.CSTNode


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        file: path in the repository.
        function: what it changes, as `Class.method`.
        number: which of the faults of that function it is.
        line: line of the fault.
    """

    file: str
    function: str
    number: int
    line: int

    @property
    def name(self) -> str:
        """What names it as long as its function stays as it is."""
        return f"{self.file}:{self.function}#{self.number}"

    @property
    def package(self) -> str:
        """Its folder among PACKAGES."""
        return next(package for package in PACKAGES if self.file.startswith(f"fednet_emu/{package}/"))

    def code(self) -> str:
        """The text of its file with the fault in it."""
        module, places = _parsed(self.file)
        mine = [place for place in places if place.function == self.function][self.number]
        return module.deep_replace(mine.node, mine.other).code

    def change(self, code: str) -> tuple[str, str]:
        """The lines in which its code differs from the file, before and after, each joined to one line."""
        old, new = (ROOT / self.file).read_text().splitlines(), code.splitlines()
        while old and new and old[-1] == new[-1]:
            del old[-1], new[-1]
        same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        before, after = (" ".join(line.strip() for line in lines[same:]) for lines in (old, new))
        return before, after


class _Visitor(cst.CSTVisitor):
    """Collects the places of a module that are inside functions."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        self.places: list[Place] = []
        self._scopes: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, LEFT_OUT) or _calls(node, *GUARDS) or _is_strict(node):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._scopes.append(node)
        elif any(isinstance(scope, cst.FunctionDef) for scope in self._scopes) and not (
            _is_prose(node) or _calls(node, "zip")
        ):
            self._mutate(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if self._scopes and self._scopes[-1] is original_node:
            self._scopes.pop()

    def _mutate(self, node: cst.CSTNode) -> None:
        where = self.get_metadata(PositionProvider, node, None)
        if not isinstance(where, CodeRange):
            return
        outermost = next(i for i, scope in enumerate(self._scopes) if isinstance(scope, cst.FunctionDef))
        function = ".".join(scope.name.value for scope in self._scopes[: outermost + 1])
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                self.places += [Place(function, where.start.line, node, other) for other in operator(node)]


def _calls(node: cst.CSTNode, *names: str) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in names


def _is_strict(node: cst.CSTNode) -> bool:
    """Whether it is the argument `strict=True` of `zip`, which guards what cannot happen."""
    return isinstance(node, cst.Arg) and node.keyword is not None and node.keyword.value == "strict"


def _is_prose(node: cst.CSTNode) -> bool:
    """Whether a string is for people to read: it has words with spaces between."""
    return isinstance(node, cst.SimpleString) and " " in node.value


@cache
def _parsed(file: str) -> tuple[cst.Module, list[Place]]:
    return places_in((ROOT / file).read_text())


def places_in(text: str) -> tuple[cst.Module, list[Place]]:
    """A module, parsed, and everywhere in it where a fault may be put in."""
    wrapper = MetadataWrapper(cst.parse_module(text))
    visitor = _Visitor()
    wrapper.visit(visitor)
    return wrapper.module, visitor.places


def mutants_of(file: str) -> Iterator[Mutant]:
    """Every mutant of a file."""
    seen: Counter[str] = Counter()
    for place in _parsed(file)[1]:
        yield Mutant(file, place.function, seen[place.function], place.line)
        seen[place.function] += 1


def drawn(seed: int, count: int, only: str = "") -> list[Mutant]:
    """The first `count` mutants of a random order in which every part of the order is spread over the packages.

    A longer draw with the same seed begins with the shorter one.
    """
    order: list[tuple[float, Mutant]] = []
    for package in (package for package in PACKAGES if f"{package}/".startswith(only) or only.startswith(package)):
        files = sorted((ROOT / "fednet_emu" / package).rglob("*.py"))
        names = [path.relative_to(ROOT).as_posix() for path in files if ELSEWHERE not in path.as_posix()]
        mutants = [mutant for name in names for mutant in mutants_of(name)]
        Random(f"{seed} {package}").shuffle(mutants)
        order += [((i + 0.5) / len(mutants), mutant) for i, mutant in enumerate(mutants)]
    order.sort(key=lambda entry: entry[0])
    return [mutant for _, mutant in order if mutant.file.startswith(f"fednet_emu/{only}")][:count]
