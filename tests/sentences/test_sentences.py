"""Sentences that users read when something is wrong, in the data files of this folder.

A file has sections of claims. A section is `## subject`, then the names that its claims use, by import; a claim is
`== the claim: its reason`, then statements, and is one test: they run in order, with the fixtures `tmp_path` and
`monkeypatch`. What ends with an arrow is checked:

    statement  ->  ExceptionType: pattern          raises the exception, in whose text the pattern is found
    statement  =>  ExceptionType: text             raises the exception, whose text contains this text
    expression  has  text                          contains this text

The part from the arrow on may stand on a line of its own.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ARROWS = re.compile(r"  (->|=>|has)  ")


class Claim(NamedTuple):
    place: str
    names: str
    steps: list[tuple[int, str]]


def claims_of(text: str, place: str) -> dict[str, Claim]:
    claims: dict[str, Claim] = {}
    subject, names, steps = "", "", []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("## "):
            subject, names, steps = line[3:], "", []
        elif line.startswith("== "):
            key, steps = f"{subject}: {line[3:].partition(': ')[0]}", []
            assert key not in claims, f"{place}:{number}: two claims are called {key!r}"
            claims[key] = Claim(place, names, steps)
        elif claims and claims[next(reversed(claims))].steps is steps:
            steps.append((number, line))
        else:
            names += f"{line}\n"
    return claims


def failures(claim: Claim, **names: Any) -> list[str]:
    exec(claim.names, names)
    found, code = [], ""
    for number, line in claim.steps:
        statement, *told = ARROWS.split(line, maxsplit=1)
        code += f"{statement}\n"
        if told and (problem := _problem(code, *told, names)):
            found.append(f"{claim.place}:{number}: {problem}")
        code = "" if told else code
    exec(code, names)
    return found


def _problem(code: str, arrow: str, told: str, names: dict[str, Any]) -> str:
    *before, last = ast.parse(code).body
    exec(compile(ast.Module(before, []), "claim", "exec"), names)
    if arrow == "has":
        assert isinstance(last, ast.Expr)
        whole = eval(compile(ast.Expression(last.value), "claim", "eval"), names)
        return "" if told in whole else f"expected {told!r}, got {whole!r}"
    kind, _, text = told.partition(": ")
    try:
        exec(compile(ast.Module([last], []), "claim", "exec"), names)
    except eval(kind, names) as error:
        found = re.search(text, str(error)) if arrow == "->" else text in str(error)
        return "" if found else f"expected {text!r}, got {str(error)!r}"
    except Exception as error:
        return f"expected {told}, got {error!r}"
    return f"expected {told}, nothing is raised"


CLAIMS = {
    f"{path.stem}/{key}": claim
    for path in sorted(Path(__file__).parent.glob("*.txt"))
    for key, claim in claims_of(path.read_text(encoding="utf-8"), path.name).items()
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_mistake_is_refused_with_its_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All lines of a claim are tried; those that fail are listed with their place."""
    assert failures(CLAIMS[name], tmp_path=tmp_path, monkeypatch=monkeypatch) == []


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ("int('x')  ->  ValueError: ^invalid lit.ral", ""),
        ("int('x')  =>  ValueError: lit.ral", "a.txt:3: expected 'lit.ral', got \"invalid literal"),
        ("int('x')  ->  ValueError: valid number", "a.txt:3: expected 'valid number', got \"invalid literal"),
        ("int('3')  =>  ValueError: invalid", "a.txt:3: expected ValueError: invalid, nothing is raised"),
        ("int('x')  =>  KeyError: x", "a.txt:3: expected KeyError: x, got ValueError"),
        ("text = 'x'\nint(text)\n  =>  ValueError: 'x'", ""),
        ("text = 'xy'\ntext  has  y", ""),
        ("text = 'xy'\ntext  has  z", "a.txt:4: expected 'z', got 'xy'"),
    ],
)
def test_a_claim_can_fail(steps: str, problem: str) -> None:
    """Another text and no error at all are noticed, with file and line."""
    (claim,) = claims_of(f"## numbers\n== a word is no number: why\n{steps}\n", "a.txt").values()
    found = failures(claim)

    assert found[0].startswith(problem) if problem else found == []
