"""What is made once for many tests, and what `make test` leaves to `make test-all`.

That is most combinations of values, and most examples that Hypothesis draws.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import settings


def crossed(*axes: Iterable[Any]) -> list[Any]:
    """All combinations of the values of the axes; as many as the longest axis has values are quick, the others slow.

    In the quick ones every value of every axis occurs, so that what is wrong with a value by itself is noticed.
    """
    values = [list(axis) for axis in axes]
    quick = {tuple(number % len(axis) for axis in values) for number in range(max(map(len, values)))}
    return [
        pytest.param(
            *(axis[place] for axis, place in zip(values, places, strict=True)),
            marks=[] if places in quick else pytest.mark.slow,
        )
        for places in product(*(range(len(axis)) for axis in values))
    ]


def share(thorough: int) -> int:
    """So many draws in `make test-all`, a tenth of them in `make test`, but at least five."""
    return max(thorough * settings().max_examples // 100, min(thorough, 5))


def examples(thorough: int, **more: Any) -> settings:
    """The settings of Hypothesis with that share of so many examples."""
    return settings(max_examples=share(thorough), **more)


@cache
def validator(*, study: bool = False) -> Any:
    """The validator of scenarios or studies by their JSON schema, made once: that takes half a second."""
    from jsonschema import Draft202012Validator

    from fednet_emu.results.library import schema

    return Draft202012Validator(schema(study=study))
