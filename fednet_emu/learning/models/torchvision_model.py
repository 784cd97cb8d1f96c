"""Architectures of the library torchvision, with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Literal

import torch
from pydantic import Field
from torch import nn

from fednet_emu.errors import ScenarioError, described, did_you_mean
from fednet_emu.learning.models.base import Model, check_images
from fednet_emu.learning.torch_vision import torch_vision

_COLOURS = 3
"""Number of input channels for which torchvision's architectures are made."""
_SIDE_OUTPUTS = {"googlenet", "inception_v3"}
"""Architectures that have auxiliary outputs in training by default, and that warn about their initialisation."""
_BY_VALUES = "regnet_"
"""Name prefix of the architectures that compute the widths of layers with tensors. They cannot be built on PyTorch's
meta device, where tensors have shapes but no values."""


class TorchvisionModel(Model):
    """An image classifier of the library torchvision, such as `resnet18` or `mobilenet_v3_small`, with random weights.

    The first convolution gets as many input channels as the images have, and the last layer one output per class. Most
    architectures are made for images of 224 x 224 pixels, and reduce the resolution of small images too much. For small
    images, use the models `resnet-18` or `resnet-20`. Needs the extra `torchvision`.
    """

    kind = "torchvision"
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)
    """Name of the architecture, one of `torchvision.models.list_models()`."""
    norm: Literal["batch", "group"] = "batch"
    """Type of the normalisation layers. batch: over the samples of a batch, as published; group: over groups of
    channels of each sample. Hsieh et al. (ICML 2020) recommend group norm, because batch statistics differ from device
    to device."""
    groups: int = Field(2, gt=0)
    """Number of groups of channels in group norm. Must divide the numbers of channels of all layers."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Further keyword arguments of the architecture in torchvision, such as `dropout`."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """Build the network for images [channels, height, width], and try it on two black images."""
        check_images(self.kind, input_shape)
        models = torch_vision("model").models
        with torch.device("cpu") if self.name.startswith(_BY_VALUES) else nullcontext():
            module = self._made(models, outputs)
            if input_shape[0] != _COLOURS:
                self._adapt(module, input_shape[0])
            if self.norm == "group":
                self._normalise_by_groups(module)
            self._try_out(module, input_shape, outputs)
        return module

    def _made(self, models: Any, outputs: int) -> nn.Module:
        known = models.list_models(module=models)
        if self.name not in known:
            what = f"unknown architecture of torchvision, got '{self.name}'"
            raise ScenarioError(f"model.name: {what}; give one such as resnet18{did_you_mean(self.name, known)}")
        fixed: dict[str, Any] = {"weights": None, "num_classes": outputs}
        if taken := sorted(fixed.keys() & self.args.keys()):
            what = "weights are random, and classes follow from the data"
            raise ScenarioError(f"model.args: {what}, got {', '.join(taken)}; leave them out")
        plain = {"aux_logits": False, "init_weights": True} if self.name in _SIDE_OUTPUTS else {}
        try:
            module: nn.Module = models.get_model(self.name, **{**plain, **self.args, **fixed})
        except Exception as error:
            given = ", ".join(f"{name}={value!r}" for name, value in self.args.items()) or "none"
            problem = f"{self.name} rejects its arguments ({described(error)}), got {given}"
            raise ScenarioError(f"model.args: {problem}; give what the architecture takes") from error
        return module

    def _adapt(self, module: nn.Module, channels: int) -> None:
        """Replace the first convolution by one that has `channels` input channels and is otherwise the same."""
        for owner, name, layer in _layers(module, nn.Conv2d):
            if layer.in_channels != _COLOURS or layer.groups != 1:
                break
            form = (layer.out_channels, layer.kernel_size, layer.stride, layer.padding, layer.dilation)
            setattr(owner, name, nn.Conv2d(channels, *form, bias=layer.bias is not None))
            return
        problem = f"the first layer of {self.name} cannot take another number of channels, got {channels}"
        raise ScenarioError(f"model: {problem}; use images of three channels, or another architecture")

    def _normalise_by_groups(self, module: nn.Module) -> None:
        for owner, name, layer in list(_layers(module, nn.BatchNorm2d)):
            if layer.num_features % self.groups:
                problem = f"must divide all widths of {self.name}, got {self.groups} for {layer.num_features} channels"
                raise ScenarioError(f"model.groups: {problem}; give 1, 2, 4 or 8")
            setattr(owner, name, nn.GroupNorm(self.groups, layer.num_features, eps=layer.eps))

    def _try_out(self, module: nn.Module, input_shape: tuple[int, ...], outputs: int) -> None:
        """Check the outputs' shape in evaluation mode, which draws no numbers and changes no running statistics."""
        batch = torch.zeros(2, *input_shape)
        try:
            with torch.no_grad():
                found = module.eval()(batch)
        except Exception as error:
            problem = f"{self.name} cannot take images of shape {list(input_shape)}, got {described(error)}"
            remedy = "use larger images, an architecture for small ones, or args that fit, such as image_size"
            raise ScenarioError(f"model: {problem}; {remedy}") from error
        module.train()
        if found.shape != (2, outputs):
            problem = f"{self.name} must map two images to [2, {outputs}], got {list(found.shape)}"
            raise ScenarioError(f"model: {problem}; use another architecture")


def _layers(module: nn.Module, kind: type[nn.Module]) -> Iterator[tuple[nn.Module, str, Any]]:
    """Yield every layer of a given type, with its parent module and its name in the parent."""
    for owner in module.modules():
        for name, layer in owner.named_children():
            if isinstance(layer, kind):
                yield owner, name, layer
