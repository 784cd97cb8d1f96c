"""What the settings of a component mean: the docstrings below its fields, read from the source when somebody asks.

Reading them takes a second for all components, which a run does not spend.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def documented_fields(model_class: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a class by name, each with its docstring, or that of the field it overrides."""
    texts: dict[str, str] = {}
    for owner in reversed(model_class.__mro__):
        if issubclass(owner, BaseModel):
            texts |= docstrings(owner)
    for name, info in model_class.model_fields.items():
        info.description = info.description or texts.get(name)
    return model_class.model_fields


@cache
def docstrings(owner: type) -> dict[str, str]:
    """Return the docstrings below the fields that a class itself declares; none where its source is not known."""
    try:
        source = textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):
        return {}
    (declared,) = ast.parse(source).body
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(getattr(declared, "body", ()))
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
