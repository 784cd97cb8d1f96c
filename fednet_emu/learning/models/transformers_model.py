"""Networks of the library transformers, built from a configuration or read from a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from fednet_emu.component.component import exactly_one
from fednet_emu.errors import ScenarioError, described, did_you_mean
from fednet_emu.files.data_folder import locate
from fednet_emu.learning.models.adapters import AnyAdapters
from fednet_emu.learning.models.base import Model
from fednet_emu.learning.models.user_module import try_out

_DROPOUT = ("dropout", "pdrop")
"""Substrings of the names of settings that are dropout rates."""
_ATTENTION = "eager"
"""Implementation of attention as two matrix products, which PyTorch can vectorise over devices. The fused kernel of
PyTorch has the same operation count, but cannot be vectorised."""
_NO_TOKEN = -1
"""An id that no token of any data has."""


class TransformersModel(Model):
    """A network of the library transformers, such as GPT-2, BERT or ViT.

    Either all weights are trained, or only adapters.

    If the network is built from a configuration, its weights are random. If it is read from a folder that
    `save_pretrained` has written, it has the stored weights. Nothing is downloaded. By default, the size of the
    vocabulary (if `head` is `tokens`) or of the images is that of the data. For windows of tokens and `head: classes`,
    `vocab_size` in the configuration applies. If `head` is `tokens`, a position sees only itself and earlier positions,
    even in encoders such as BERT. Needs the extra `transformers`.
    """

    kind = "transformers"
    _one_origin = exactly_one("config", "path")
    config: dict[str, Any] | None = None
    """Configuration of the network: the architecture as `model_type`, and settings of its configuration class, such as
    `{model_type: gpt2, n_layer: 2}`. Exactly one of `config` and `path` is required."""
    path: str | None = None
    """Folder with a configuration and weights. A relative path is looked up in the data folder first, then in the
    current folder. If the output layer has no stored weights, its weights are random."""
    head: Literal["tokens", "classes"] = "tokens"
    """Type of the outputs. tokens: scores for the next token at every position of a window, for use with `data.predict:
    every`; classes: scores for the classes of a sample, which is a window of tokens or an image."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Value to which all dropout rates of the network are set. If it is positive, devices are trained one at a time,
    because dropout draws random numbers."""
    adapters: AnyAdapters | None = None
    """Adapters that are trained instead of the network's weights. Null trains all weights."""

    def located(self, data_dir: Path | None) -> TransformersModel:
        if self.path is None:
            return self
        return self.model_copy(update={"path": str(locate(self.path, data_dir).absolute())})

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """Build the network for windows [length] or images [channels, height, width], and try it on two samples."""
        if self.path is not None and not Path(self.path).is_absolute():
            return self.located(None).build(input_shape, outputs)
        library = _library()
        with _quiet(library):
            config = self._configuration(library, input_shape, outputs)
            try:
                network = self._network(library, config, input_shape)
            except Exception as error:
                problem = f"the library cannot make {config.model_type} ({described(error)}), got {self._given}"
                raise ScenarioError(f"model: {problem}; give what suits the architecture") from error
        module: nn.Module = _Scores(network, "input_ids" if len(input_shape) == 1 else "pixel_values")
        if self.adapters is not None:
            module = self.adapters.on(module)
        if not _is_abstract():
            try_out(module, input_shape, outputs, config.model_type)
        return module

    @property
    def _given(self) -> str:
        return f"path {self.path}" if self.config is None else f"config {self.config}"

    def _network(self, library: Any, config: Any, input_shape: tuple[int, ...]) -> nn.Module:
        """Return `config`'s network, with stored weights if `path` is set, unless on the meta device (shapes only)."""
        images = "ForImageClassification" if len(input_shape) == 3 else "ForSequenceClassification"
        auto = getattr(library, f"AutoModel{'ForCausalLM' if self.head == 'tokens' else images}")
        if self.path is None or _is_abstract():
            made: Any = auto.from_config(config, attn_implementation=_ATTENTION)
            made.tie_weights()  # transformers 5.0 has not tied weights without memory
        else:
            how = {"attn_implementation": _ATTENTION, "dtype": torch.float32, "local_files_only": True}
            made = auto.from_pretrained(self.path, config=config, **how)
        network: nn.Module = made
        for layer in network.modules():
            if hasattr(layer, "create_position_ids_from_input_ids") and layer.padding_idx is None:
                layer.padding_idx = _NO_TOKEN  # RoBERTa numbers positions from this id on, and skips its tokens
        return network

    def _configuration(self, library: Any, input_shape: tuple[int, ...], outputs: int) -> Any:
        """Return the configuration with one output per class or token, and with all dropout rates set to `dropout`."""
        config = self._stored(library) if self.config is None else self._written(library, input_shape, outputs)
        if self.head == "classes":
            config.num_labels = outputs
            if len(input_shape) == 1 and getattr(config, "pad_token_id", None) is None:
                what = f"{config.model_type} classifies by the last token that is no padding, got none"
                remedy = "give the number of a token that the data do not have"
                raise ScenarioError(f"model.config.pad_token_id: {what}; {remedy}")
        elif getattr(config, "is_decoder", None) is False:
            config.is_decoder = True  # as an encoder, the network would see the token to be predicted
        for name in config.to_dict():
            if any(part in name for part in _DROPOUT):
                setattr(config, name, self.dropout)
        config.use_cache = False
        return config

    def _stored(self, library: Any) -> Any:
        try:
            return library.AutoConfig.from_pretrained(self.path, local_files_only=True)
        except Exception as error:
            problem = f"holds no configuration of transformers ({described(error)}), got {self.path}"
            raise ScenarioError(f"model.path: {problem}; give a folder that save_pretrained wrote") from error

    def _written(self, library: Any, input_shape: tuple[int, ...], outputs: int) -> Any:
        given = dict(self.config or {})
        name = given.pop("model_type", None)
        try:
            usual = library.AutoConfig.for_model(name)
        except (ValueError, TypeError) as error:
            known = sorted(library.models.auto.CONFIG_MAPPING)
            hint = (name and did_you_mean(str(name), known)) or "; give model_type, such as gpt2"
            raise ScenarioError(f"model.config.model_type: no such architecture, got {name!r}{hint}") from error
        names = [*usual.to_dict(), *usual.attribute_map]
        for key in given:
            if key not in names:
                what = f"{name} has no such setting, got '{key}'"
                raise ScenarioError(f"model.config: {what}{did_you_mean(key, names) or '; leave it out'}")
            if any(part in key for part in _DROPOUT):
                raise ScenarioError(f"model.config: dropout has one rate, got {key}; write it as model.dropout")
        own: dict[str, Any] = {}
        if len(input_shape) == 3:
            own = {"num_channels": input_shape[0], "image_size": list(input_shape[1:])}
        elif self.head == "tokens":
            own = {"vocab_size": outputs, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
        try:
            return library.AutoConfig.for_model(name, **{**own, **given})
        except Exception as error:
            problem = f"{name} rejects it ({described(error)}), got {given}"
            raise ScenarioError(f"model.config: {problem}; correct these settings") from error


class _Scores(nn.Module):
    """Module that wraps a network of transformers, so that it has a single input and returns only the scores."""

    def __init__(self, network: nn.Module, argument: str) -> None:
        super().__init__()
        self.network, self.argument = network, argument

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [n, classes] for samples, or scores [n, length, tokens] for windows of tokens."""
        scores: Tensor = self.network(**{self.argument: x}).logits
        return scores


def _library() -> Any:
    try:
        return import_module("transformers")
    except ImportError as error:
        problem = f"transformers is not installed or incomplete ({' '.join(str(error).split())})"
        raise ScenarioError(
            f"model: {problem}, got kind 'transformers'; pip install 'fednet-emu[transformers]'"
        ) from error


@contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Context manager that hides the warnings and progress bars of the library."""
    log = library.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(log.CRITICAL)
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def _is_abstract() -> bool:
    """Return True if networks are created on PyTorch's meta device, where tensors have shapes but no values."""
    return torch.get_default_device().type == "meta"
