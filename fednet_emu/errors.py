"""All errors that a user can cause. Any other exception is a bug and is shown with its traceback.

    FednetError            base class: the command line prints the error and ends with exit code 2
    +-- ScenarioError      the scenario, or a file that it names, is invalid; lists all problems
    |   +-- Diverged       a loss or a parameter is no longer finite: the run ends with this status
    +-- DataError          a data file or run folder is missing or corrupt
    +-- Deadlock           the algorithm waits for an event that can never happen
    +-- AlgorithmError     code of an algorithm uses the federation in a way that must be a mistake
    +-- AppFailed          code of a user's app raises an exception (exit code 1)

`args` are the raw positional arguments, and `__str__` builds the text from them. An error that is pickled for another
process therefore has the same text there. Problems have the form "place: problem, got value; remedy". A scenario may
contain any characters, so `__str__` escapes control characters (`visible`).
"""

from __future__ import annotations

import difflib
import math
import os
import sys
from collections.abc import Collection, Iterable
from numbers import Real
from types import FrameType
from typing import Any

MAX_PROBLEMS = 100
"""Maximum number of problems that an error lists; further problems are only counted."""


def visible(text: str) -> str:
    r"""Return the text with unprintable characters and terminal control characters escaped, for example as `\x1b`.

    An already escaped text is returned unchanged.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def visible_lines(text: str) -> str:
    """Return the text with every line escaped by `visible`; line breaks are kept."""
    return "\n".join(map(visible, text.split("\n")))


def one_line(text: object, most: int | None = None) -> str:
    """Return a text, such as that of an error, in one line of at most `most` characters."""
    return " ".join(str(text).split())[:most]


def described(error: BaseException, most: int | None = None) -> str:
    """Return the type and the text of an error in one line of at most `most` characters."""
    return one_line(f"{type(error).__name__}: {error}", most)


class FednetError(Exception):
    """Base of all errors that the user can fix."""

    def __str__(self) -> str:
        return visible_lines(super().__str__())


class ScenarioError(FednetError):
    """One or more problems in a scenario; each argument of the error is a sentence about one problem."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems, one sentence each, in the order of the scenario file."""
        return tuple(visible(str(problem)) for problem in self.args)

    def __str__(self) -> str:
        if len(self.args) == 1:
            return self.problems[0]
        shown = [f"  {problem}" for problem in self.problems[:MAX_PROBLEMS]]
        more = [f"  and {len(self.args) - MAX_PROBLEMS} more"] if len(self.args) > MAX_PROBLEMS else []
        return "\n".join([f"{len(self.args)} problems in the scenario:", *shown, *more])


class Diverged(ScenarioError):  # noqa: N818  (names the outcome of a run; no command fails)
    """A loss or a parameter is no longer finite; the text names the job, the step and the learning rate."""


class ScenarioWarning(UserWarning):
    """Warning about a valid but suspicious scenario; the text begins with the key path of the suspicious setting."""


class DataError(FednetError):
    """A data file or run folder cannot be used; the text is `path: problem; remedy`."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(path, problem, remedy)

    def __str__(self) -> str:
        path, problem, remedy = self.args
        return visible(f"{path}: {problem}; {remedy}")


class Deadlock(FednetError):  # noqa: N818  (the standard term)
    """The algorithm waits, but no event is left that could resume it; `waits` describes the waiting processes."""

    def __init__(self, now_s: float, waits: str) -> None:
        super().__init__(now_s, waits)

    def __str__(self) -> str:
        now_s, waits = self.args
        return f"deadlock at t={now_s:.6g} s: {waits}"


class AlgorithmError(FednetError):
    """The code of an algorithm has a mistake; the text is `file:line  where: problem; remedy`."""

    def __init__(self, where: str, problem: str, remedy: str, line: str | None = None) -> None:
        super().__init__(where, problem, remedy, _line_of_a_user() if line is None else line)

    def __str__(self) -> str:
        where, problem, remedy, line = self.args
        return visible(f"{f'{line}  ' if line else ''}{where}: {problem}; {remedy}")


def _line_of_a_user() -> str:
    """Return the innermost running line of code outside this package, as `file:line`; empty if there is none."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THEIRS:
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else ""


_NOT_THEIRS = ("fednet_emu", "simpy", "torch", "contextlib")


class AppFailed(FednetError):  # noqa: N818  (names an outcome)
    """The code of an app raised an exception; the text names the failed part of the app and includes the traceback."""

    def __init__(self, where: str, trace: str) -> None:
        super().__init__(where, trace)

    def __str__(self) -> str:
        where, trace = self.args
        return visible_lines(f"{trace.rstrip()}\nthe app failed: {where}")


def require_number(where: str, value: Any, low: float, high: float = math.inf, *, whole: bool = False) -> Any:
    """Return `value`; raise a `FednetError` unless it is a finite (or whole) number from `low` to `high`."""
    is_number = isinstance(value, int if whole else Real)
    if is_number and low <= value <= high and math.isfinite(value):
        return value
    kind = "a whole number" if whole else "a number"
    span = f" from {low} to {high}" if high < math.inf else f" of at least {low}" if low > -math.inf else ""
    raise FednetError(f"{where}: must be {kind}{span}, got {value!r}; for example 1")


def nearest(word: str, known: Iterable[object]) -> str | None:
    """Return the known word that is most similar to a misspelt word; None if no known word is similar."""
    return next(iter(difflib.get_close_matches(word, [str(name) for name in known], n=1)), None)


def did_you_mean(word: str, known: Iterable[object], otherwise: str = "") -> str:
    """Return the clause `; did you mean 'x'?` for a misspelt word.

    If no known word is similar, return the text `otherwise` and the known words, or an empty string by default. The
    words are separated by semicolons if one of them contains a comma.
    """
    words = [str(each) for each in known]
    close = nearest(word, words)
    if close:
        return f"; did you mean '{close}'?"
    comma = "; " if any("," in each for each in words) else ", "
    return f"; {otherwise} {comma.join(words) or 'none'}" if otherwise else ""


def require_known(what: str, word: str | None, known: Collection[str], otherwise: str = "choose from") -> None:
    """Raise a `FednetError` with the text `what, got 'word'; did you mean 'x'?` unless `word` is known or None."""
    if word is not None and word not in known:
        raise FednetError(f"{what}, got '{word}'{did_you_mean(word, known, otherwise)}")
