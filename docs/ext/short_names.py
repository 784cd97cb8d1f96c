"""Resolve names of types in signatures that differ from their documented names, such as `pd.DataFrame`."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.ext.intersphinx import missing_reference

OUTSIDE = {
    "pd.DataFrame": "pandas.DataFrame",
    "pd.Series": "pandas.Series",
    **dict.fromkeys(("nn.Module", "torch.nn.modules.module.Module"), "torch.nn.Module"),
    "Figure": "matplotlib.figure.Figure",
    "Path": "pathlib.Path",
    **{name: f"collections.abc.{name}" for name in ("Callable", "Iterable", "Iterator", "Mapping", "Sequence")},
}
INSIDE = {name: f"fednet_emu.emulation.given.{name}" for name in ("ScenarioLike", "Settings", "Network")}


def resolve(app: Any, env: Any, node: Any, content: nodes.TextElement) -> nodes.Element | None:
    """Return a link to the documentation of a short name; None for a name without an entry in the tables above."""
    target = node.get("reftarget", "")
    if target in OUTSIDE:
        node["reftarget"] = OUTSIDE[target]
        return missing_reference(app, env, node, content)
    if target in INSIDE:
        domain = env.get_domain("py")
        return domain.resolve_xref(env, node["refdoc"], app.builder, "data", INSIDE[target], node, content)
    return None


def setup(app: Any) -> dict[str, bool]:
    """Register this extension with Sphinx."""
    app.connect("missing-reference", resolve, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
