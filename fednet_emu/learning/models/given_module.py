"""A network passed as a Python object; a YAML scenario cannot name it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from pydantic import ConfigDict, field_serializer, field_validator
from torch import nn

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models.base import Model
from fednet_emu.learning.models.user_module import try_out


class GivenModule(Model):
    """A module, whose parameters are the initial model, or a function that makes one, initialised by the run's seed."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    given: nn.Module | Callable[..., Any]
    """A module; or a function or class that makes one, called with `input_shape` and `outputs` if it asks for them."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """A copy of the module, or a new one; it is tested on two samples of zeros."""
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
            raise ScenarioError(f"model: {problem}; it may ask for input_shape and outputs, and no more") from error

    @field_validator("given", mode="before")
    @classmethod
    def _no_text(cls, given: Any) -> Any:
        if isinstance(given, str):
            raise ValueError(  # noqa: TRY004  (pydantic takes it for a problem of the value)
                f"was an object of Python, which no file holds, got '{given}'; hand it over again"
            )
        return given

    @field_serializer("given")
    def _described(self, given: Any) -> str:
        """Description for the records of a run, because a scenario file cannot name a Python object."""
        if not isinstance(given, nn.Module):
            return _name(given)
        digest = blake2b(digest_size=8)
        for name, tensor in given.state_dict().items():
            digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
        return f"{type(given).__name__} with parameters {digest.hexdigest()}"


def _name(maker: Any) -> str:
    return str(getattr(maker, "__qualname__", repr(maker)))
