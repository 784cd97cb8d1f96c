"""Libraries that few scenarios need are imported by these only: everything starts without them."""

from __future__ import annotations

import sys

import pytest

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets import hugging_face as hub
from fednet_emu.learning.models import TorchvisionModel, TransformersModel

ASKED = {
    "datasets": hub.library,
    "torchvision": lambda: TorchvisionModel(name="resnet18").build((3, 32, 32), 10),
    "transformers": lambda: TransformersModel(config={"model_type": "gpt2"}).build((8,), 10),
}


@pytest.mark.parametrize("name", ["torchvision", "datasets", "transformers"])
def test_a_missing_library_is_one_sentence(name, monkeypatch):
    """It names the extra that has it."""
    monkeypatch.setitem(sys.modules, name, None)
    extra = "hugging-face" if name == "datasets" else name

    with pytest.raises(
        ScenarioError, match=rf"{name} is not installed or incomplete .*pip install 'fednet-emu\[{extra}\]'"
    ):
        ASKED[name]()
