"""The settings reference: nothing that a file may hold is missing from it, and every link in it has an end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from markdown_text import escaped
from settings_reference import pages

from tests.quick import validator

SCHEMA = validator().schema
PAGES: dict[str, str] = {}
ANCHORS: dict[str, list[str]] = {}


@pytest.fixture(scope="module", autouse=True)
def _pages() -> None:
    """Write the pages when the first test asks for them: it takes seconds."""
    PAGES.update(pages())
    ANCHORS.update({name: re.findall(r'<span id="([^"]+)">', text) for name, text in PAGES.items()})


def keys_of(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The path of every key that a JSON schema knows, with the kinds on the way: `channel.fading.rician.k_db`."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    schema = schema.get("else", schema)
    parts = schema.get("allOf", ())
    for part in parts:
        kind = part["if"].get("properties", {}).get("kind", {}).get("const")
        if kind is not None:
            yield from keys_of(part["then"], f"{path}.{kind}")
        elif not part["if"].get("not"):
            yield from keys_of(part["then"], path)
    for key, inner in {} if parts else schema.get("properties", {}).items():
        if key not in ("kind", "include"):
            yield f"{path}.{key}".removeprefix(".")
            yield from keys_of(inner, f"{path}.{key}".removeprefix("."))


KEYS = sorted(set(keys_of(SCHEMA)))


def test_an_address_ends_before_the_punctuation_of_its_sentence() -> None:
    """A colon behind an address is not part of the link, while underscores inside it are."""
    text = "See https://arxiv.org/abs/1911.02417: the time. Also https://a.org/b_c/d."

    assert escaped(text) == "See <https://arxiv.org/abs/1911.02417>: the time. Also <https://a.org/b_c/d>."
    assert not [link for text in PAGES.values() for link in re.findall(r"https?://[^\s>]*[:;,.](?=[\s>]|$)", text)]


def test_every_key_of_every_kind_has_an_anchor() -> None:
    """Each key of the JSON schema, at each place where it may stand, can be linked to on the page of its section."""
    assert len(KEYS) > 600
    assert "network.sidelink.channel.fading.rician.k_db" in KEYS
    assert "algorithm.aspire.uncertainty.cd-norm.budget" in KEYS
    missing = [key for key in KEYS if key not in ANCHORS.get(key.split(".")[0], ANCHORS["index"])]
    assert missing == []


def test_every_kind_has_an_anchor() -> None:
    """Every kind of every slot is described, with the first sentence of its class."""
    kinds = {kind for name in SCHEMA["$defs"] if name.count(".") == 1 for kind in [name.split(".")[1]]} - {
        "partial",
        "any",
    }

    ends = {anchor.split(".")[-1] for anchors in ANCHORS.values() for anchor in anchors}
    assert len(kinds) > 100
    assert kinds <= ends
    assert "One transmission at a time in a cell, in the order of requests" in PAGES["network"]


def test_keys_of_studies_have_anchors() -> None:
    """A study's keys are on a page of their own."""
    keys = [f"study.{key}" for key in validator(study=True).schema["properties"]]

    assert set(keys) <= set(ANCHORS["study"])
    assert "study.limits.memory_mb" in ANCHORS["study"]


def test_what_errors_name_is_an_anchor() -> None:
    """Errors name a key without its kind; that leads to the list of the kinds that have it."""
    assert {"algorithm.lr", "network.uplink.access.subchannels", "channel.carrier_hz"} <= {
        anchor for anchors in ANCHORS.values() for anchor in anchors
    }


def test_anchors_are_unique_and_links_have_ends() -> None:
    """No page has an anchor twice, and what a page links to is there."""
    assert len(PAGES) > 10
    for name, text in PAGES.items():
        assert len(set(ANCHORS[name])) == len(ANCHORS[name]), name
        links = re.findall(r'<a href="([\w-]*)(?:\.html)?#([^"]+)">', text)
        assert len(links) > 5 or "Kinds of" not in text, name
        for page, anchor in links:
            assert anchor in ANCHORS[page or name], f"{name}: {page}#{anchor}"


def test_rows_tell_unit_range_and_default() -> None:
    """A row has the unit of the name's ending, the interval, and the default as a file would have it."""
    (row,) = [line for line in PAGES["network"].splitlines() if 'id="network.uplink.timeout_s"' in line]

    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:5] == ["number or `null`", "s", "> 0", "`null`"]
    assert "is lost" in cells[5]


def test_sources_are_named() -> None:
    """A kind after a paper or a standard says which."""
    assert "https://arxiv.org/abs/2303.08988" in PAGES["algorithm"]
    assert "TR 38.901" in PAGES["channel"]
