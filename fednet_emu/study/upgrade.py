"""Replace former names of settings, kinds and values in scenario and study files by the present names."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from fednet_emu.errors import ScenarioError, ScenarioWarning
from fednet_emu.files.writing import write_text
from fednet_emu.scenario.document import filled
from fednet_emu.scenario.includes import read_text
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.tree import file_text
from fednet_emu.study.file import StudyFile, opened
from fednet_emu.study.runs import runs_of
from fednet_emu.study.search.search import load_search

_RENAMED = re.compile(r"(?P<line>\d+)  (?P<path>\S+): (.*'(?P<word>[^']+)';? (it )?)?is now named '(?P<new>[^']+)'")
_END = r"(?=['\"]?\s*(?:[],}#]|$))"  # end of a scalar in YAML


def upgrade(path: Path) -> Iterator[str]:
    """Replace former names in a file, whose layout and comments do not change.

    Yields:
        One line for each replaced name.

    Raises:
        ScenarioError: the file has other problems, which are found after all former names are replaced.
    """
    while problems := _problems(path):
        if not path.is_file():
            raise ScenarioError(*problems)
        lines, changes = read_text(path).splitlines(keepends=True), list[str]()
        for problem in problems:
            found = _RENAMED.match(problem.removeprefix(f"{file_text(path)}:"))
            if found is None:
                continue
            row, former = int(found["line"]) - 1, found["word"] or found["path"].rpartition(".")[2]
            before, after = (
                (r"([:=\[,-]\s*['\"]?)", _END) if found["word"] else (r"((?<![\w-]))", r"(?=['\"]?\s*:|\.\w)")
            )
            pattern = f"{before}{re.escape(former)}{after}"
            lines[row], count = re.subn(pattern, rf"\g<1>{found['new']}", lines[row], count=1)
            if count:
                changes.append(f"{path}:{row + 1}  {found['path']}: {former} is now {found['new']}")
        if not changes:
            raise ScenarioError(*problems)
        write_text(path, "".join(lines))
        yield from changes


def _problems(path: Path) -> tuple[str, ...]:
    """Return the problems of a scenario or study file; for a scenario, checks that need its data are skipped."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ScenarioWarning)
            found = opened(str(path))
            if not isinstance(found, StudyFile):
                validate(Scenario, filled(found))
            elif found.search is None:
                runs_of(found)
            else:
                load_search(found)
    except ScenarioError as error:
        return error.problems
    return ()
