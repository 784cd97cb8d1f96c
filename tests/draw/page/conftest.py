"""Reads a page as its browser does."""

import base64
import json
import re
import zlib

import numpy as np
import pytest


def text_of(page: str, name: str) -> str:
    """The text of one of the scripts of a page."""
    return re.search(rf'<script type="[a-z/]+" id="{name}">(.*?)</script>', page, re.DOTALL).group(1)


def content_of(page: str):
    """The document of a page, with its arrays."""
    block = zlib.decompress(base64.b64decode(text_of(page, "arrays")))

    def array(kind, offset, length, differences):
        dtype = np.dtype(kind)
        planes = np.frombuffer(block, np.uint8, length * dtype.itemsize, offset).reshape(dtype.itemsize, length)
        numbers = np.ascontiguousarray(planes.T).view(f"<{kind}").ravel()
        return np.cumsum(numbers, dtype=np.int64) if differences else numbers

    def whole(content):
        if isinstance(content, list):
            return [whole(item) for item in content]
        if not isinstance(content, dict):
            return content
        return array(*content["$array"]) if "$array" in content else {key: whole(each) for key, each in content.items()}

    return whole(json.loads(text_of(page, "document")))


@pytest.fixture
def read_page():
    """Returns the document of a page, with its arrays."""
    return content_of
