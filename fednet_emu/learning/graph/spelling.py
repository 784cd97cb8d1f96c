"""Serialisation of values and functions to bytes, where equal bytes mean equal computations in any process.

A function is serialised as its module and name. A bound method or a partial also includes its whole state. An array is
serialised as its content. Functions that are defined in scripts or notebooks, random generators, and objects of the
simulated clock or network are rejected.
"""

from __future__ import annotations

import dataclasses
import operator
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache, cached_property, partial
from hashlib import blake2b, sha256
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path, PurePath
from typing import Any, final
from weakref import ref

import numpy as np
import torch
from torch import Tensor, nn

from fednet_emu.component.component import Component
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.deferred import Deferred

DIGEST_BYTE = 16
SHIPPED = frozenset(
    {"fednet_emu", "torch", "numpy", "scipy", "builtins", "math", "operator", "_operator", "statistics", "functools"}
)
"""Top-level modules whose versions are part of the digest of every learning program."""
_NEVER = tuple(f"fednet_emu.{part}" for part in ("kernel.", "network.", "devices.", "records.", "emulation.", "radio."))
_NEVER_TYPES = frozenset({"Federation", "Graph", "Learner", "Device", "Links", "Rounds"})
_GETTERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)
_MOST_KEPT = 4096


class Unwritable(TypeError):  # noqa: N818  (the name describes the value)
    """Error for a value or a function that cannot be serialised. The message names the value or function."""


def digest_of(*parts: Any) -> bytes:
    """Return a digest of a sequence of byte strings, which also depends on the boundaries between them."""
    whole = blake2b(digest_size=DIGEST_BYTE)
    for part in parts:
        whole.update(b"%d:" % len(part))
        whole.update(part)
    return whole.digest()


@final
class Speller:
    """Serialises values to bytes. The digests of large constant objects are cached."""

    def __init__(self) -> None:
        own_code.cache_clear()
        self._kept: dict[int, tuple[Callable[[], Any], int | None, bytes]] = {}
        self._inside: set[int] = set()

    def spelled(self, value: Any) -> bytes:
        """Return the serialised value (a Deferred as its digest), or raise `Unwritable` for it or a part of it."""
        kind = type(value)
        if kind is Deferred:
            digest: bytes = value._digest
            return b"D" + digest
        if kind in _PLAIN:
            return f"{kind.__name__} {value!r};".encode()
        if kind is tuple or kind is list:
            return b"%b(%b)" % (kind.__name__.encode(), b",".join(map(self.spelled, value)))
        if kind is bytes:
            return b"bytes %d:%b" % (len(value), value)
        return self._object(value)

    def keep(self, value: Any, text: bytes) -> None:
        """Cache the serialised form `text` of the constant object `value`."""
        if len(self._kept) > _MOST_KEPT:
            self._kept.clear()
        try:
            held: Callable[[], Any] = ref(value)
        except TypeError:  # keep the object, so that no other object gets its id
            held = partial(_itself, value)
        self._kept[id(value)] = (held, _changes(value), text)

    def _known(self, value: Any) -> bytes | None:
        found = self._kept.get(id(value))
        return found[2] if found is not None and found[0]() is value and found[1] == _changes(value) else None

    def _object(self, value: Any) -> bytes:
        known = self._known(value)
        if known is not None:
            return known
        if isinstance(value, Tensor) and value._base is not None and (base := self._known(value._base)) is not None:
            view = f"view {value.storage_offset()} {tuple(value.shape)} {value.stride()} {value.dtype}"
            return base + view.encode()
        if id(value) in self._inside:
            raise Unwritable(f"{_name_of(value)}, which refers to itself")
        self._inside.add(id(value))
        try:
            text = self._written(value)
        finally:
            self._inside.discard(id(value))
        if len(text) > 2 * DIGEST_BYTE:
            text = b"H" + digest_of(text)
        frozen = dataclasses.is_dataclass(type(value)) and type(value).__dataclass_params__.frozen
        if frozen or isinstance(value, Tensor | nn.Module | types.FunctionType):
            self.keep(value, text)
        return text

    def _written(self, value: Any) -> bytes:
        for kinds, write in self._writers():
            if isinstance(value, kinds):
                return write(value)
        if callable(value) and hasattr(value, "__qualname__"):
            return _native(value)
        return self._state(value)

    def _writers(self) -> Iterator[tuple[Any, Callable[[Any], bytes]]]:
        yield Tensor, _tensor
        yield np.ndarray, _array
        yield np.generic, lambda value: _array(np.asarray(value)) + b"scalar"
        yield Streams, lambda value: b"streams %d %d" % (value.seed, value.scene_seed)
        yield type, lambda value: _path_of(value).encode()
        yield types.FunctionType, self._function
        yield types.MethodType, lambda value: b"method" + self.spelled((value.__func__, value.__self__))
        yield partial, lambda value: b"partial" + self.spelled((value.func, value.args, value.keywords))
        yield _GETTERS, lambda value: b"getter" + self.spelled(value.__reduce__())
        yield Component, self._component
        yield nn.Module, self._module
        yield Mapping, lambda value: b"map" + self.spelled((type(value), [[key, its] for key, its in value.items()]))
        yield set | frozenset, lambda value: b"set" + b",".join(sorted(map(self.spelled, value)))
        yield tuple | list, lambda value: _path_of(type(value)).encode() + self.spelled(tuple(value))
        yield slice | range, lambda value: repr(value).encode()
        yield torch.dtype | torch.device | torch.layout, lambda value: repr(value).encode()
        yield Enum | PurePath, lambda value: repr(value).encode()

    def _function(self, value: types.FunctionType) -> bytes:
        text = _path_of(value)
        if value.__closure__ or _found(value.__module__, value.__qualname__) is not value:
            raise Unwritable(f"{_name_of(value)}, which is not found by its name")
        return text.encode()

    def _component(self, value: Component) -> bytes:
        fields = [[name, getattr(value, name)] for name in type(value).model_fields]
        return b"component" + self.spelled((type(value), fields, dict(value.__pydantic_private__ or {})))

    def _module(self, value: nn.Module) -> bytes:
        said = {name for name, its in vars(value).items() if not name.endswith("_hooks") or its}
        said.discard("_flat_weight_refs")  # references of a recurrent layer to its own parameters
        state = {name: its for name, its in vars(value).items() if name in said}
        return b"module" + self.spelled((type(value), [[name, its] for name, its in state.items()]))

    def _state(self, value: Any) -> bytes:
        kind = type(value)
        if kind.__module__.startswith(_NEVER) or kind.__name__ in _NEVER_TYPES:
            raise Unwritable(f"{_name_of(value)}, which changes during a run")
        path = _path_of(kind)
        lazily = {name for own in kind.__mro__ for name, its in vars(own).items() if isinstance(its, cached_property)}
        if not hasattr(value, "__dict__") and not any("__slots__" in vars(own) for own in kind.__mro__):
            raise Unwritable(_name_of(value))
        slots = [name for own in kind.__mro__ for name in _names(vars(own).get("__slots__", ()))]
        state = {name: getattr(value, name) for name in slots if hasattr(value, name)} | getattr(value, "__dict__", {})
        fields = [[name, its] for name, its in state.items() if name not in lazily and not name.startswith("__")]
        return path.encode() + self.spelled(fields)


def _itself(value: Any) -> Any:
    return value


def _changes(value: Any) -> int | None:
    return value._version if isinstance(value, Tensor) and not value.is_inference() else None


_PLAIN = (type(None), bool, int, float, complex, str, type(Ellipsis))


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _tensor(value: Tensor) -> bytes:
    if value.layout is not torch.strided or value.is_quantized:
        raise Unwritable(f"a tensor of layout {value.layout}")
    kept = value.detach().cpu().contiguous()
    content: Any = kept.reshape(-1).view(torch.uint8).numpy() if kept.numel() else b""
    shape = f"tensor {value.dtype} {tuple(value.shape)} {value.device} {value.requires_grad}"
    return digest_of(shape.encode(), sha256(content).digest())  # twice as fast as BLAKE2 if in hardware


def _array(value: np.ndarray[Any, Any]) -> bytes:
    if value.dtype.hasobject:
        raise Unwritable(f"an array of type {value.dtype}")
    return digest_of(f"array {value.dtype} {value.shape}".encode(), np.ascontiguousarray(value).tobytes())


def _native(value: Any) -> bytes:
    """Serialise a function that is not written in Python, as its module, its class and its name."""
    owner = getattr(value, "__self__", None) or getattr(value, "__objclass__", None)
    if owner is not None and not isinstance(owner, type | types.ModuleType):
        raise Unwritable(_name_of(value))
    where = getattr(value, "__module__", None) or getattr(owner, "__module__", None) or getattr(owner, "__name__", "")
    if str(where).partition(".")[0] not in SHIPPED:
        raise Unwritable(_name_of(value))
    name = getattr(owner, "__qualname__", getattr(owner, "__name__", ""))
    return f"native {where} {name} {value.__qualname__}".encode()


def _path_of(what: Any) -> str:
    """Return `module:qualname` of a function or class, followed by version and code if it is from another package.

    `Unwritable` is raised if it belongs to no installed package, or is defined inside a function.
    """
    module, name = what.__module__, what.__qualname__
    top = module.partition(".")[0]
    if "<" in name or module == "__main__":
        raise Unwritable(_name_of(what))
    if top in SHIPPED or top in sys.stdlib_module_names:
        return f"{module}:{name}"
    if top not in _VERSIONS:
        packages = [distribution(package) for package in dict.fromkeys(packages_distributions().get(top, ()))]
        _VERSIONS[top] = ", ".join(f"{its.name} {its.version} {_files(its)}" for its in packages)
    source = getattr(sys.modules.get(module), "__file__", None)
    if not _VERSIONS[top] or source is None:
        raise Unwritable(_name_of(what))
    code = digest_of(Path(source).read_bytes()).hex() if _is_installed(source) else own_code(main=False)
    return f"{module}:{name} of {_VERSIONS[top]}, {code}"


def _files(package: Distribution) -> str:
    return digest_of((package.read_text("RECORD") or "").encode()).hex()  # with a hash of each installed file


@cache
def own_code(*, main: bool = True) -> str:
    """Return a digest of the source of all loaded modules that no installer has put in place.

    The result is a random text if `main` is True and the main program, such as a notebook, is not wholly in a file.
    """
    whole, program = blake2b(digest_size=DIGEST_BYTE), sys.modules["__main__"]
    if main and not _is_in_file(program):
        return os.urandom(DIGEST_BYTE).hex()
    files = {getattr(its, "__file__", None) for its in list(sys.modules.values()) if main or its is not program}
    for path in sorted(path for path in files if isinstance(path, str) and not _is_installed(path)):
        with suppress(OSError):
            whole.update(b"%b %b" % (os.fsencode(Path(path).name), digest_of(Path(path).read_bytes())))
    return whole.hexdigest()


def _is_installed(path: str) -> bool:
    return path.startswith(_INSTALLED) or "site-packages" in path or "dist-packages" in path


_INSTALLED = (str(Path(__file__).parents[2]), *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")))


def _is_in_file(program: types.ModuleType) -> bool:
    """Return True if all functions of a program, and those of its classes, are in its file."""
    own = [its for its in vars(program).values() if getattr(its, "__module__", None) == program.__name__]
    methods = [its for kind in own if isinstance(kind, type) for its in vars(kind).values()]
    files = {its.__code__.co_filename for its in (*own, *methods) if isinstance(its, types.FunctionType)}
    return hasattr(program, "__file__") and all(Path(file).is_file() for file in files)


_VERSIONS: dict[str, str] = {}


def _found(module: str, path: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _name_of(value: Any) -> str:
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"
