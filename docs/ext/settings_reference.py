"""Write the settings reference from the component classes, one page for each section of a scenario.

The anchor of a key is its path, such as `network.uplink.access.ofdma.subchannels`. A key of several kinds also has
the anchor that error messages show, such as `network.uplink.access.subchannels`. A class that several settings use is
described at the first setting; the other settings have the anchors, and a link to the description.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from generated import SETUP, write_page
from markdown_text import code, code_in, link, paragraphs, sentence_of, sources_of, span, table
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from value_text import default_text, needs_link, range_text, type_text

from fednet_emu.component.slot import Slot
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.schema import documented_fields
from fednet_emu.scenario.shapes import Shape
from fednet_emu.study.file import StudyFile
from fednet_emu.units import unit_of

ROW = ("Key", "Value", "Unit", "Range", "Default", "Meaning")


@dataclass
class Reference:
    """Collector of the content of the settings reference, one page after the other.

    Attributes:
        described: for each class or slot, the path of the setting at which it is described.
        page_of: the page on which each path of `described` is.
        rows: path, page and description of every key, for the index of all keys.
        page: the name of the page that is being written.
    """

    described: dict[Any, str] = field(default_factory=dict)
    page_of: dict[str, str] = field(default_factory=dict)
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    page: str = ""

    def link(self, path: str, words: str) -> str:
        """Return a link from the current page to the description of the setting `path`."""
        return link("" if self.page_of[path] == self.page else self.page_of[path], path, words)

    def section(self, page: str, path: str, info: FieldInfo) -> str:
        """Return the page of one section of a scenario."""
        self.page = page
        shape = _shape(info)
        kinds = _default(info) if shape.choice else ""
        lead = [*paragraphs(info.description or ""), kinds]
        body = self.slot(shape.choice, path, 2) if shape.choice else self.component(shape.annotation, path, 2)
        return "\n".join([f"(settings.{path})=", f"# {code(path)}", span(path), "", *lead, *body, ""])

    def slot(self, slot: Slot, path: str, level: int) -> Iterator[str]:
        """Yield a table of the kinds of a slot, a list of the keys of all kinds, and the description of each kind."""
        self._note(slot.name, path)
        kinds = slot.kinds()
        yield from table(
            (f"Kinds of {slot.name.replace('_', ' ')}", ""),
            [(link("", f"{path}.{kind}", code(kind)), sentence_of(its.__doc__)) for kind, its in kinds.items()],
        )
        owners: dict[str, list[str]] = {}
        for kind, its in kinds.items():
            for key in _keys(its):
                owners.setdefault(key, []).append(kind)
        listed = [
            f"{span(f'{path}.{key}')}{code(key)} ({', '.join(link('', f'{path}.{kind}.{key}', kind) for kind in its)})"
            for key, its in owners.items()
            if key not in kinds
        ]
        if listed:
            yield f"Their keys: {', '.join(listed)}.\n"
        for kind, its in kinds.items():
            yield from self._heading(f"{path}.{kind}", f"{path.rpartition('.')[2]}: {kind}", level)
            yield from self.component(its, f"{path}.{kind}", level + 1)

    def component(self, model: type[BaseModel], path: str, level: int) -> Iterator[str]:
        """Yield the description of a component class, the table of its keys, and the components that they contain."""
        self._note(model, path)
        yield from paragraphs(model.__doc__ or "")
        yield from (f"Source: {text}\n" for text in sources_of(sys.modules[model.__module__].__doc__))
        inner: list[str] = []
        rows = []
        for key, info in _keys(model).items():
            rows.append(self._row(f"{path}.{key}" if path else key, key, info))
            inner += self._inside(f"{path}.{key}" if path else key, info, level)
        yield from settings_table(rows) if rows else ["No settings of its own.\n"]
        yield f"Code: {code_in(model.__module__)}\n"
        yield from inner

    def _row(self, path: str, key: str, info: FieldInfo) -> tuple[str, ...]:
        shape = _shape(info)
        target = needs_link(shape)
        its = shape.annotation.__doc__ if target is not None and isinstance(shape.annotation, type) else ""
        meaning = " ".join(paragraphs(info.description or "")).strip() or sentence_of(its)
        self.rows.append((path, self.page, meaning))
        known = self.described.get(target)
        if known is not None:
            meaning += f" As {self.link(known, code(known))}.{''.join(map(span, _all_below(path, shape)))}"
        elif target is not None:
            meaning += f" See {link('', path, code(path))}."
        anchor = span(path) if known is not None or target is None else ""
        unit = unit_of(key) or ""
        return (f"{anchor}{code(key)}", type_text(info), unit, range_text(shape), default_text(info), meaning)

    def _inside(self, path: str, info: FieldInfo, level: int) -> Iterator[str]:
        shape = _shape(info)
        target = needs_link(shape)
        if target is None or target in self.described:
            return
        yield from self._heading(path, path, level)
        if shape.choice:
            yield from [*paragraphs(info.description or ""), _default(info)]
            yield from self.slot(shape.choice, path, level + 1)
        else:
            yield from self.component(shape.annotation, path, level + 1)

    def _heading(self, path: str, title: str, level: int) -> Iterator[str]:
        yield from (f"(settings.{path})=", f"{'#' * level} {code(title)}", "", span(path), "")

    def _note(self, what: Any, path: str) -> None:
        self.described.setdefault(what, path)
        self.page_of.setdefault(path, self.page)


def settings_table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table of keys, with a CSS class that changes the layout on narrow screens."""
    yield "```{rst-class} settings\n```\n"
    yield from table(ROW, rows)


def _default(info: FieldInfo) -> str:
    return "Required.\n" if info.is_required() else f"Default: {default_text(info)}.\n"


def _shape(info: FieldInfo) -> Shape:
    """Return the shape of a setting, or the shape of its entries if the setting can be a list of components."""
    whole = Shape.of(info.annotation, info.metadata)
    whole = next((member for member in whole.members if member.settings), whole)
    entry = None if whole.choice or whole.settings else whole.step(0)
    return entry[1] if entry is not None and (entry[1].choice or entry[1].settings) else whole


def _keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {info.alias or name: info for name, info in documented_fields(model).items()}


def _all_below(path: str, shape: Shape) -> Iterator[str]:
    """Yield the paths of all keys and kinds of a component at `path` whose description is elsewhere."""
    keys = dict(_keys(shape.annotation)) if not shape.choice else {}
    kinds = shape.choice.kinds() if shape.choice else {}
    own = dict.fromkeys(key for its in kinds.values() for key in _keys(its) if key not in kinds)
    yield from (f"{path}.{name}" for name in (*own, *kinds))
    for kind, its in kinds.items():
        yield from _all_below(f"{path}.{kind}", Shape(its))
    for key, info in keys.items():
        yield f"{path}.{key}"
        inner = _shape(info)
        if needs_link(inner) is not None:
            yield from _all_below(f"{path}.{key}", inner)


def pages() -> dict[str, str]:
    """Return all pages of the settings reference by name, as MyST Markdown."""
    reference = Reference()
    sections = {key: info for key, info in _keys(Scenario).items() if needs_link(_shape(info)) is not None}
    found = {key: reference.section(key, key, info) for key, info in sections.items()}
    reference.page = "study"
    lead = "(settings.study)=\n# Study files\n\n" + span("study") + "\n"
    found["study"] = "\n".join([lead, *reference.component(StudyFile, "study", 2)])
    reference.page = "index"
    loose = [
        reference._row(key, key, info) if key not in sections else _section_row(key, info)
        for key, info in _keys(Scenario).items()
    ]
    every = [(link(page, path, code(path)), meaning) for path, page, meaning in reference.rows]
    template = (Path(__file__).parent / "settings_index.md").read_text(encoding="utf-8")
    found["index"] = template.format(
        sections="\n".join(settings_table(loose)),
        toctree="\n".join([*sections, "study"]),
        every="\n".join(table(("Key", "Meaning"), every)),
    )
    return found


def _section_row(key: str, info: FieldInfo) -> tuple[str, ...]:
    shape = Shape.of(info.annotation, info.metadata)
    text = info.description or (shape.annotation.__doc__ if isinstance(shape.annotation, type) else "") or ""
    return (f"[{code(key)}]({key}.md)", type_text(info), "", "", default_text(info), sentence_of(text))


def write(app: Any) -> None:
    """Write the changed pages of the settings reference into the folder `reference/settings` of the documentation."""
    (Path(app.srcdir) / "reference/settings").mkdir(exist_ok=True)
    for name, text in pages().items():
        write_page(app, f"reference/settings/{name}.md", text)


def setup(app: Any) -> dict[str, bool]:
    """Register this extension with Sphinx."""
    app.connect("builder-inited", write)
    return SETUP
