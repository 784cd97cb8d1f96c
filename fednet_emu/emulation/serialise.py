"""Conversion of tensors, arrays, numbers, strings, records and containers of these to JSON with tensors, and back.

Reading runs no code: no pickle, no constructor, no import. A record (named tuple or dataclass) is restored from its
fields only, and only if its class is already loaded.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

CONTENT = "content"
"""Name of the tensor that contains the JSON text."""
_AS_THEY_ARE = (type(None), bool, int, float, str)


class NotPlain(TypeError):  # noqa: N818  (a property of the value)
    """A value cannot be written because of its type; the text of the error names the type."""


class Writer:
    """Converts values to JSON. Tensors are stored in `tensors` by name; a tensor that occurs twice is stored once.

    Args:
        first: the number that is the name of the first tensor.
        copies: True to store copies of the tensors, because the caller may change them later.
    """

    def __init__(self, *, first: int = 0, copies: bool = False) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._first, self._copies = first, copies
        self._names: dict[int, str] = {}
        self._memory: set[int] = set()
        self._room_byte = math.inf
        self._held: list[Any] = []  # keeps stored values alive, so that no new value gets the id of a stored one

    def plain(self, value: Any) -> Any:
        """Return the JSON form of a value: the value itself, or a list that begins with the kind of the value.

        `NotPlain` is raised if the value, or a value inside it, is of a kind that has no JSON form.
        """
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        if kind is list or kind is tuple:
            return [kind.__name__, *map(self.plain, value)]
        if kind is dict:
            return ["dict", *([self.plain(key), self.plain(its)] for key, its in value.items())]
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, np.ndarray | np.generic):
            return self._array(value)
        return ["record", _name(kind), *map(self.plain, _fields(value))]

    def small(self, value: Any, max_byte: float) -> Any:
        """Return the JSON form of a value, as `plain` does, if its new tensors have at most `max_byte` bytes in total.

        Otherwise, or if the value has no JSON form, `NotPlain` is raised, and no tensor of the value is stored.
        """
        before, self._room_byte = len(self._held), max_byte
        try:
            return self.plain(value)
        except NotPlain:
            for its in self._held[before:]:
                del self.tensors[self._names.pop(id(its))]
            del self._held[before:]
            raise
        finally:
            self._room_byte = math.inf

    def _tensor(self, value: Tensor) -> list[Any]:
        if value.layout is not torch.strided or value.is_quantized:
            raise NotPlain(f"a tensor of layout {value.layout}")
        kept = value.detach()
        strides = None if kept.is_contiguous() or 0 in kept.stride() else list(kept.stride())
        return ["tensor", self._kept(value, lambda: kept.cpu().contiguous()), str(value.device), strides]

    def _array(self, value: np.ndarray[Any, Any] | np.generic) -> list[Any]:
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            raise NotPlain(f"an array of type {value.dtype}")
        form = "scalar" if isinstance(value, np.generic) else "array"
        columns = bool(value.flags.f_contiguous and not value.flags.c_contiguous)
        return [form, self._kept(value, lambda: torch.from_numpy(np.array(value, order="C"))), columns]

    def _kept(self, value: Any, tensor: Callable[[], Tensor]) -> str:
        if id(value) not in self._names:
            self._room_byte -= value.nbytes
            if self._room_byte < 0:
                raise NotPlain("a large value")
            name = self._names[id(value)] = str(self._first + len(self._names))
            self.tensors[name] = self._unshared(tensor())
            self._held.append(value)
        return self._names[id(value)]

    def _unshared(self, tensor: Tensor) -> Tensor:
        """Return `tensor`, or a copy if it shares memory with a stored tensor, which safetensors cannot write."""
        storage = tensor.untyped_storage()
        if self._copies or storage.nbytes() != tensor.nbytes or storage.data_ptr() in self._memory:
            return tensor.clone()
        self._memory.add(storage.data_ptr())
        return tensor


def packed(content: Any, tensors: dict[str, Tensor]) -> bytes:
    """Return the bytes of a safetensors file with JSON `content` and `tensors`."""
    text = np.frombuffer(json.dumps(content).encode(), np.uint8)
    body: bytes = safetensors.torch.save({**tensors, CONTENT: torch.from_numpy(text.copy())})
    return body


def unpacked(body: bytes) -> tuple[Any, dict[str, Tensor]]:
    """Return the JSON content and the tensors of a file whose bytes `packed` has returned."""
    tensors = safetensors.torch.load(body)
    return json.loads(bytes(tensors.pop(CONTENT).numpy())), tensors


class Reader:
    """Converts the JSON of a `Writer` back to values, whose tensors share no memory."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._tensors = tensors
        self._made: dict[str, Any] = {}

    def value(self, plain: Any) -> Any:
        """Return the value whose JSON form is `plain`; raise a `ValueError` for unknown kinds and classes."""
        if not isinstance(plain, list):
            return plain
        kind, *rest = plain
        if kind in ("tensor", "array", "scalar"):
            return self._tensor_like(kind, *rest)
        if kind == "list":
            return [self.value(its) for its in rest]
        if kind == "tuple":
            return tuple(self.value(its) for its in rest)
        if kind == "dict":
            return {self.value(key): self.value(its) for key, its in rest}
        if kind == "record":
            return _record(_class(rest[0]), [self.value(its) for its in rest[1:]])
        raise ValueError(f"unknown kind of value, got {kind!r}")

    def _tensor_like(self, kind: str, name: str, *form: Any) -> Any:
        if name not in self._made:
            tensor = self._tensors.pop(name)
            if kind != "tensor":
                self._made[name] = np.array(tensor.numpy(), order="F" if form[0] else "C")
            elif form[1] is None:
                self._made[name] = tensor.to(form[0], copy=True)
            else:
                empty = torch.empty_strided(tensor.shape, form[1], dtype=tensor.dtype, device=form[0])
                self._made[name] = empty.copy_(tensor)
        return self._made[name][()] if kind == "scalar" else self._made[name]


def _name(kind: type) -> str:
    """Return the name of a record class, `module:Outer.Inner`; raise `NotPlain` if no class has this name."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    try:
        found = _class(name)
    except ValueError:
        found = None
    if found is not kind:
        raise NotPlain(f"a value of class {kind.__qualname__}, which is no named tuple or dataclass of a module")
    return name


def _class(name: str) -> type:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = vars(found).get(part) if isinstance(found, type) or type(found) is type(sys) else None
    if not (isinstance(found, type) and (_is_named_tuple(found) or dataclasses.is_dataclass(found))):
        raise ValueError(f"no such class of records is loaded, got {name!r}")
    return found


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and isinstance(vars(kind).get("_fields"), tuple)


def _fields(value: Any) -> Iterator[Any]:
    if _is_named_tuple(type(value)):
        yield from value
        return
    names = [field.name for field in dataclasses.fields(value)]
    if vars(value).keys() - set(names) if hasattr(value, "__dict__") else False:
        raise NotPlain(f"a value of class {type(value).__qualname__} with attributes that are no fields")
    yield from (getattr(value, name) for name in names)


def _record(kind: type, values: list[Any]) -> Any:
    if _is_named_tuple(kind):
        if len(values) != len(vars(kind)["_fields"]):
            raise ValueError(f"{kind.__qualname__}: wrong number of fields, got {len(values)}")
        return tuple.__new__(kind, values)
    made: Any = object.__new__(kind)
    for field, value in zip(dataclasses.fields(kind), values, strict=True):
        object.__setattr__(made, field.name, value)
    return made
