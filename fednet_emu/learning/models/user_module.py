"""Networks from user code, given by the import path of a `torch.nn.Module` or as a Python object."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import torch
from pydantic import Field, field_serializer
from torch import nn

from fednet_emu.component.component import GivenObject
from fednet_emu.component.plugins import imported
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models.base import Model


class UserModule(Model):
    """A network from your own code, given by an import path "package.module:Class".

    The Python module must be installed, or be in a folder of PYTHONPATH. The current folder is not searched by default.
    The network must map a batch [n, *sample] to outputs [n, outputs], which is checked once on two samples of zeros.
    """

    kind = "module"
    path: str = Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")
    """Import path of the class, as `package.module:Class`."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the constructor of the class."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        constructor = self._import()
        try:
            module = constructor(**self.args)
        except Exception as error:
            given = ", ".join(f"{name}={value!r}" for name, value in self.args.items()) or "no arguments"
            problem = f"{self.path} rejects its arguments ({_text(error)}), got {given}"
            raise ScenarioError(f"model.args: {problem}; give what its constructor takes") from error
        try_out(module, input_shape, outputs, self.path)
        return module

    def _import(self) -> type[nn.Module]:
        try:
            found = imported(self.path)
        except ScenarioError as error:
            raise ScenarioError(f"model.path: {error}") from error
        if not (isinstance(found, type) and issubclass(found, nn.Module)):
            wanted = "must name a subclass of torch.nn.Module"
            raise ScenarioError(f"model.path: {self.path} {wanted}, got {found!r}; derive the class from nn.Module")
        return found


def try_out(module: nn.Module, input_shape: tuple[int, ...], outputs: int, name: str) -> None:
    """Check that `module` maps batches [n, *input_shape] to outputs [n, outputs].

    The module is called with two samples of zeros, first as numbers and, if that fails, as tokens. Outputs [n,
    *input_shape, outputs], which are scores for the next token at every position, are also accepted. The scores at a
    position must not depend on later tokens. To check this, the last token is changed.
    """
    modes = [(part, part.training) for part in module.modules()]
    batch = torch.zeros(2, *input_shape)
    try:
        found, taken = _called(module.eval(), batch)
        early = _moved_by_the_last(module, taken, found)
    except Exception as error:
        problem = f"{name} fails on a batch of shape {list(batch.shape)}, got {_text(error)}"
        raise ScenarioError(f"model: {problem}; make it take samples of shape {list(input_shape)}") from error
    for part, training in modes:
        part.training = training
    shape = list(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
    if shape not in ([2, outputs], [2, *input_shape, outputs]):
        problem = f"{name} must map a batch of 2 samples to [2, {outputs}], got {shape}"
        raise ScenarioError(f"model: {problem}; give it {outputs} outputs")
    if early > _ROUNDING:
        problem = f"positions of {name} see tokens after them, got scores that the last token moves by {early:.1g}"
        raise ScenarioError(f"model: {problem}; choose an architecture that predicts the next token")


_ROUNDING = 1e-5
"""Maximum relative change of scores that counts as rounding."""


def _called(module: nn.Module, batch: torch.Tensor) -> tuple[Any, torch.Tensor]:
    """Call a module with numbers or, if that fails, with these as tokens; return outputs and accepted batch."""
    with torch.no_grad():
        try:
            return module(batch), batch
        except Exception:
            if not any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules()):
                raise
            return module(batch.long()), batch.long()


@torch.no_grad()
def _moved_by_the_last(module: nn.Module, tokens: torch.Tensor, scores: Any) -> float:
    """Return how much a new last token changes earlier scores [n, length, outputs], relative to their size."""
    if not isinstance(scores, torch.Tensor) or scores.shape[:-1] != tokens.shape or scores.shape[-1] < 2:
        return 0.0
    other = tokens.clone()
    other[..., -1] = 1
    moved = (module(other) - scores)[..., :-1, :].abs()
    return float(moved.max() / scores.abs().max()) if moved.numel() else 0.0


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class GivenModule(GivenObject, Model):
    """A PyTorch module, or a function that creates one, given in Python instead of in a scenario file.

    The initial model has the parameters of the module. If a function creates the module, its random numbers depend on
    the seed of the run.
    """

    given: nn.Module | Callable[..., Any]
    """A module, or a function or class that creates one. The arguments `input_shape` and `outputs` are passed if the
    function has parameters of these names."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        name = type(self.given).__name__ if isinstance(self.given, nn.Module) else _name(self.given)
        module = copy.deepcopy(self.given) if isinstance(self.given, nn.Module) else self._made(input_shape, outputs)
        if not isinstance(module, nn.Module):
            raise ScenarioError(f"model: {name} must give a torch.nn.Module, got {module!r}; return one")
        try_out(module, input_shape, outputs, name)
        return module

    def _made(self, input_shape: tuple[int, ...], outputs: int) -> Any:
        known = {"input_shape": input_shape, "outputs": outputs}
        asked = inspect.signature(self.given).parameters
        try:
            return self.given(**{name: value for name, value in known.items() if name in asked})
        except Exception as error:
            problem = f"{_name(self.given)} cannot be called, got {type(error).__name__}: {error}"
            raise ScenarioError(f"model: {problem}; it may only take input_shape and outputs") from error

    @field_serializer("given")
    def _described(self, given: Any) -> str:
        """Return the name of a function, or the type of a module and a digest of its parameters, for the records."""
        if not isinstance(given, nn.Module):
            return _name(given)
        digest = blake2b(digest_size=8)
        for name, tensor in given.state_dict().items():
            digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
        return f"{type(given).__name__} with parameters {digest.hexdigest()}"


def _name(maker: Any) -> str:
    return str(getattr(maker, "__qualname__", repr(maker)))
