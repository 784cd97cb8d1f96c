"""Link paths of source files in backticks, such as `fednet_emu/radio/fading.py`, to pages that show these files.

A path that names no file causes a warning, so that pages cannot name files that have moved. A setting in backticks,
such as `network.uplink.access` or `algorithm: fedbuff`, becomes a link to its entry in the settings reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

ROOT = Path(__file__).parents[2]
PATH = re.compile(r"(?:fednet_emu|scenarios|channels|profiles|tools|tests|examples|benchmarks)/[\w./-]+\.(py|yaml)")
LANGUAGES = {"py": "python", "yaml": "yaml"}
logger = logging.getLogger(__name__)


class CodeLinks(SphinxPostTransform):
    """Sphinx transform that replaces paths of source files in a page by links."""

    default_priority = 400
    builders = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Link every path that names a file of the repository; log a warning for every other path."""
        for literal in list(self.document.findall(nodes.literal)):
            path = literal.astext()
            if not PATH.fullmatch(path) or isinstance(literal.parent, nodes.reference):
                continue
            if not (ROOT / path).is_file():
                logger.warning("%s: no such file in the repository", path, location=literal)
                continue
            self.app.shown_code.add(path)  # type: ignore[attr-defined]
            target = self.app.builder.get_relative_uri(self.env.docname, f"code/{path}")
            link = nodes.reference("", "", literal.deepcopy(), internal=True, refuri=target)
            literal.replace_self(link)


class GalleryLinks(SphinxPostTransform):
    """Sphinx transform that redirects links to gallery scripts to the gallery pages with the output of the scripts."""

    default_priority = 9  # before Sphinx makes downloads of links to files
    builders = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Replace every link to `examples/GROUP/NAME.py` by a link to the page `gallery/GROUP/NAME`."""
        for link in list(self.document.findall(addnodes.download_reference)):
            name = re.search(r"examples/(\w+/\w+)\.py$", link["reftarget"])
            if name:
                target = self.app.builder.get_relative_uri(self.env.docname, f"gallery/{name[1]}")
                page = nodes.reference(
                    "", "", *(child.deepcopy() for child in link.children), internal=True, refuri=target
                )
                link.replace_self(page)


class SettingLinks(SphinxPostTransform):
    """Sphinx transform that links names of settings to the settings reference, which is generated with the site."""

    default_priority = 401
    builders = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Link every text in backticks that is the path of a setting in the settings reference."""
        if self.env.docname.startswith("reference/settings/"):
            return
        labels = self.env.get_domain("std").anonlabels  # type: ignore[attr-defined]
        for literal in list(self.document.findall(nodes.literal)):
            name = literal.astext()
            label = f"settings.{name.replace(': ', '.')}"
            if label not in labels or isinstance(literal.parent, nodes.reference) or not re.search(r"[.:]", name):
                continue
            page, anchor = labels[label]
            target = self.app.builder.get_relative_uri(self.env.docname, page)
            link = nodes.reference("", "", literal.deepcopy(), internal=True, refuri=f"{target}#{anchor}")
            literal.replace_self(link)


def pages(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield a page with the source code of each file to which `CodeLinks` has made a link."""
    for path in sorted(app.shown_code):
        text = (ROOT / path).read_text(encoding="utf-8")
        body = app.builder.highlighter.highlight_block(text, LANGUAGES[path.rpartition(".")[2]])
        yield f"code/{path}", {"title": path, "body": f"<h1>{path}</h1>{body}", "sidebars": []}, "page.html"


def setup(app: Any) -> dict[str, bool]:
    """Register this extension with Sphinx."""
    app.shown_code = set()
    app.add_post_transform(CodeLinks)
    app.add_post_transform(GalleryLinks)
    app.add_post_transform(SettingLinks)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
