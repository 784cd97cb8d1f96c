"""Merge a settings file with the files that it includes.

Any mapping may contain `include: NAME`. The mapping then takes its missing keys from the file NAME. Some keys accept
the name alone as a short form: `channel: urban-micro` means `channel: {include: urban-micro}`. The value of `profile`
may map several names to shares: `{pi-4b: 0.5, jetson-nano: 0.5}` means `[{include: pi-4b, share: 0.5}, ...]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fednet_emu.devices.profiles import Profile
from fednet_emu.errors import ScenarioError
from fednet_emu.limits import MAX_CHAIN, MAX_FILE_BYTE, MAX_FILES, MAX_NESTING, MAX_VALUES
from fednet_emu.scenario.library import Folder, locate, no_such
from fednet_emu.scenario.tree import KeyPath, Node, file_text, merge, problem_text, show
from fednet_emu.scenario.yaml_text import parse

INCLUDE = "include"
MIXED, SHARE = "profile", "share"
"""The setting whose value may be a mixture of several files, and the key for the share of each file."""
_TABLES = "keep large tables in files of data"

SHORT_FORMS: Mapping[str, Folder] = {"channel": "channels", "profile": "profiles", "traffic": "traffic"}
"""Keys whose value may be a file name, each with the folder in which a file name without a path is looked up."""


def read_text(path: Path, *, quoted: bool = True) -> str:
    """Return the text of a settings file. If `quoted` is False, errors do not quote its content.

    Raises:
        ScenarioError: the file cannot be read, is too large, or is not UTF-8 text.
    """
    source = file_text(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTE + 1)
        if len(content) > MAX_FILE_BYTE:
            raise ScenarioError(f"{source}  the file is too large, got more than {MAX_FILE_BYTE} bytes; {_TABLES}")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        got = f", got byte {error.object[error.start]:#04x}" if quoted else ""
        raise ScenarioError(f"{source}  the file must be UTF-8 text{got}") from None
    except OSError as error:
        what = f"the file cannot be read, got '{error.strerror}'; check its permissions"
        raise ScenarioError(f"{source}  {what}") from None


@dataclass
class Reader:
    """Reads one file and all files that it includes.

    Attributes:
        files: the chain of including files, innermost last.
        problems: the problems found so far.
        includes: number of includes followed so far.
        values: number of values read so far.
    """

    files: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    includes: int = 0
    values: int = 0

    def read(self, path: Path, at: KeyPath = ()) -> Node | None:
        """Return the tree of a file, merged with its includes; None if it is invalid. Append errors to `problems`."""
        quoted = not self.files  # an included file may be no scenario, and its content is not shown
        try:
            tree = parse(read_text(path, quoted=quoted), file_text(path), quoted=quoted)
        except ScenarioError as error:
            self.problems.extend(error.problems)
            return None
        self.files.append(path)
        whole = self.expand(tree, at)
        self.files.pop()
        return whole

    def expand(self, node: Node, at: KeyPath) -> Node:
        """Return a tree merged with the files it includes; `at` is the key path of the tree within the scenario.

        Raises:
            ScenarioError: the scenario, including all files, exceeds a limit on its values or its nesting.
        """
        self.values += 1
        if self.values > MAX_VALUES:
            what = f"the scenario holds more than {MAX_VALUES} values; {_TABLES}"
            raise ScenarioError(problem_text(node.place, at, what))
        if len(at) > MAX_NESTING:
            what = f"is nested deeper than {MAX_NESTING} levels; write it flatter"
            raise ScenarioError(problem_text(node.place, at, what))
        if isinstance(node.value, list):
            return Node([self.expand(child, (*at, index)) for index, child in enumerate(node.value)], node.place)
        if isinstance(node.value, dict):
            parts = _mixture(node) if at and at[-1] == MIXED else None
            return self.expand(parts, at) if parts else self._mapping(node, at)
        if at and at[-1] in SHORT_FORMS and isinstance(node.value, str):
            base = self.include(node, at, at)
            return Node(base.value, node.place) if base else node
        return node

    def _mapping(self, node: Node, at: KeyPath) -> Node:
        own = {key: self.expand(child, (*at, key)) for key, child in node.value.items() if key != INCLUDE}
        name = node.value.get(INCLUDE)
        base = self.include(name, at, (*at, INCLUDE)) if name else None
        return merge(base, Node(own, node.place)) if base else Node(own, node.place)

    def include(self, name: Node, at: KeyPath, key: KeyPath) -> Node | None:
        """Return the tree of the file `name` included at key path `at`; None if invalid. Errors name the key `key`."""
        folder: Folder = next((SHORT_FORMS[str(its)] for its in reversed(at) if its in SHORT_FORMS), "scenarios")
        if not isinstance(name.value, str):
            what = f"expected the name of a {folder.removesuffix('s')} file, got {show(name.plain())}"
            self._complain(name, key, f"{what}; include one file")
            return None
        self.includes += 1
        if self.includes > MAX_FILES:
            what = f"the scenario follows more than {MAX_FILES} includes, got one more; write out what they share"
            raise ScenarioError(problem_text(name.place, key, what))
        if len(self.files) > MAX_CHAIN:
            what = f"more than {MAX_CHAIN} files include each other one by one, got one more; write out what they hold"
            raise ScenarioError(problem_text(name.place, key, what))
        beside = self.files[-1] if self.files else None
        path = locate(name.value, folder, beside)
        if path is None:
            self._complain(name, key, no_such(name.value, folder, beside))
            return None
        if any(path.samefile(earlier) for earlier in self.files):
            chain = " -> ".join(file_text(file) for file in (*self.files, path))
            self._complain(name, key, f"must not include itself, got {chain}; remove one of these includes")
            return None
        return self.read(path, at)

    def _complain(self, node: Node, key: KeyPath, what: str) -> None:
        self.problems.append(problem_text(node.place, key, what))


def _mixture(node: Node) -> Node | None:
    """Return a mapping from file names to shares as a list of includes; None if `node` has settings of a profile."""
    shares: dict[str, Node] = node.value
    numbers = all(isinstance(share.value, int | float) for share in shares.values())
    if not shares or not numbers or shares.keys() & Profile.model_fields.keys():
        return None
    parts = ({INCLUDE: Node(name, share.place), SHARE: share} for name, share in shares.items())
    return Node([Node(part, node.place) for part in parts], node.place)
