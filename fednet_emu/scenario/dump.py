"""Write a component as complete, readable YAML text."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

from pydantic import BaseModel
from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

from fednet_emu.errors import visible_lines

LINE_WIDTH = 120
_TAG = "tag:yaml.org,2002:"


def dump(model: BaseModel) -> str:
    """Return a component as YAML text: every setting with its value, including defaults, with `kind` first.

    Loading and validating the text gives an equal component. Large and small numbers are written as `2.0e+7`; lists
    that contain no mapping are written on one line.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.width = LINE_WIDTH
    yaml.allow_unicode = True
    stream = io.StringIO()
    yaml.dump(model.model_dump(mode="json"), stream)
    # what is not printable stands in double quotes, where YAML has the same escapes as Python
    return visible_lines(stream.getvalue())


class _Representer(SafeRepresenter):
    """Defines how `dump` writes values; the keys of a mapping keep their order, except that `kind` comes first."""

    def represent_dict(self, data: dict[str, Any]) -> Any:
        ordered = {key: data[key] for key in sorted(data, key=lambda key: key != "kind")}
        return self.represent_mapping(f"{_TAG}map", ordered.items(), flow_style=False)

    def represent_list(self, data: list[Any]) -> Any:
        return self.represent_sequence(f"{_TAG}seq", data, flow_style=not _has_mapping(data))

    def represent_str(self, data: str) -> Any:
        # ruamel writes unusual line breaks unescaped, and they read back as blanks; in double quotes it escapes them
        return self.represent_scalar(f"{_TAG}str", data, style=None if data.isprintable() else '"')

    def represent_float(self, data: float) -> Any:
        return self.represent_scalar(f"{_TAG}float", float_text(data))


_Representer.add_representer(dict, _Representer.represent_dict)
_Representer.add_representer(str, _Representer.represent_str)
_Representer.add_representer(list, _Representer.represent_list)
_Representer.add_representer(float, _Representer.represent_float)


def _has_mapping(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_has_mapping, value)))


def float_text(value: float) -> str:
    """Return the shortest YAML text that reads back as the same number; large and small ones look like `2.0e+7`."""
    number = Decimal(repr(value))
    if not number.is_finite():
        return ".nan" if number.is_nan() else ".inf" if value > 0 else "-.inf"
    exponent = number.adjusted()
    if number == 0 or -4 < exponent < 6:
        return repr(value)
    digits = "".join(map(str, number.normalize().as_tuple().digits))
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}e{exponent:+d}"
