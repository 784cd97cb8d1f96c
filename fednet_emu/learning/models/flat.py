"""Neural networks as functions of a single flat vector of parameters, which can be sent and averaged."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fednet_emu.errors import ScenarioError, did_you_mean
from fednet_emu.learning.models.adapters import base_names, shipped_bit
from fednet_emu.learning.models.base import torch_seed
from fednet_emu.learning.models.flops import FlopCount
from fednet_emu.learning.models.losses import HITS, LOSSES


@torch.no_grad()
def passes(module: nn.Module, x: Tensor) -> bool:
    """Return True if the module accepts the batch `x`, and False if the call raises an error."""
    try:
        module(x)
    except (RuntimeError, ValueError):
        return False
    return True


@torch.no_grad()
def mixes(module: nn.Module, pair: Tensor) -> bool:
    """Return True if the output for a sample depends on other samples of the batch.

    The output for the first of the two samples in `pair` [2, ...] is compared with the output for this sample alone. If
    the call with the single sample fails, the result is True.
    """
    try:
        alone = module(pair[:1])
    except (RuntimeError, ValueError):
        return True
    return not np.allclose(module(pair)[:1], alone, rtol=1e-3, atol=1e-5)


def common_dtype(parameters: Mapping[str, nn.Parameter]) -> torch.dtype:
    """Return the common dtype of all parameters; raise a `ScenarioError` if there are none, or if dtypes differ."""
    dtypes = sorted({str(p.dtype) for p in parameters.values()})
    if not dtypes:
        raise ScenarioError("model: nothing to train, got no parameter that requires a gradient; use another model")
    if len(dtypes) > 1:
        raise ScenarioError(f"model: parameters of several types, got {', '.join(dtypes)}; use one type throughout")
    return next(iter(parameters.values())).dtype


def check_call(module: nn.Module, x: Tensor, loss: str, items: str) -> None:
    """Call a module with a batch `x` [B, ...], and check that its outputs fit the `loss`.

    A `ScenarioError`, which refers to the samples as `items`, is raised if the call fails or changes `x`, or if the
    outputs do not have the shape that the loss needs.
    """
    before, shape = x.clone(), tuple(x.shape)
    try:
        outputs = module(x)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ScenarioError(
            f"model: cannot take a batch of {items}, got shape {shape} and {error}; "
            f"choose a model for {items} of shape {shape[1:]}"
        ) from error
    if not torch.equal(x, before):
        raise ScenarioError(
            "model: writes into its input, got another batch after the call; have its first layer make a new tensor"
        )
    if loss == "cross-entropy" and outputs.ndim != 2:
        raise ScenarioError(
            f"model: outputs are not one score per class, got shape {tuple(outputs.shape)}; "
            f"cross-entropy needs [batch, classes]"
        )
    if loss == "next-token" and outputs.shape[:-1] != x.shape:
        raise ScenarioError(
            f"model: outputs are not scores at every position, got shape {tuple(outputs.shape)}; next-token needs "
            f"[batch, {x.shape[1]}, tokens]"
        )


def check_kept(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
    """Raise a `ScenarioError` if a call has replaced a buffer of a module by a new tensor.

    `before` and `after` are the buffers by name. The new tensor would not be a view into the flat vector.
    """
    lost = [name for name, buffer in before.items() if after.get(name) is not buffer]
    if lost:
        raise ScenarioError(
            f"model: a new tensor takes the place of a buffer in training, got {', '.join(lost)}; "
            "change it in place, as with `copy_`"
        )


def owner(buffer: str) -> str:
    """Return the name of the layer to which a buffer belongs."""
    return buffer.rpartition(".")[0]


@final
@dataclass(slots=True)
class Live:
    """A module in training mode, whose parameters and running statistics are views into one vector.

    The trainable parameters `weights` are the first part of the vector. The running statistics are the second part, and
    every forward pass updates them. `counters` are buffers that are not sent, such as the number of batches seen.
    `base` has the frozen weights of the layers with adapters.
    """

    model: FlatModel
    module: nn.Module
    parameters: tuple[nn.Parameter, ...]
    statistics: tuple[Tensor, ...]
    counters: tuple[Tensor, ...]
    base: tuple[nn.Parameter, ...]
    vector: Tensor
    weights: Tensor

    def start(self, vector: Tensor, base: Tensor | None = None) -> None:
        """Begin a training with the values in `vector`, and reset the counters.

        The values are copied into a new vector, which later calls do not change. `base` [base_size], the frozen weights
        of the layers with adapters, is not copied; None uses the base of the model.
        """
        self.vector = vector.clone()
        self.weights = self.vector[: self.model.n_trainable]
        for part, view in zip((*self.parameters, *self.statistics), self.model.pieces(self.vector), strict=True):
            part.data = view
        for weight, view in zip(self.base, self.model.base_weights(base).values(), strict=True):
            weight.data = view
        for counter in self.counters:
            counter.zero_()

    def let_go(self) -> Tensor:
        """Return the vector, and release both the vector and the base, so that their memory can be freed."""
        vector, self.vector = self.vector, self.vector.new_empty(0)
        self.weights = self.vector
        for part in (*self.parameters, *self.statistics, *self.base):
            part.data = self.vector
        return vector


@final
class FlatModel:
    """A PyTorch module and its loss as functions of a flat vector [size].

    The vector consists of the trainable parameters and the running statistics. Running statistics, as in batch norm,
    are the last part of the vector. They are sent and averaged like parameters, and are used in evaluation, but
    gradient steps and server steps do not change them. Parameters that need no gradient are not part of the vector and
    are never sent. The module is copied. Vectors and data must be on the torch device of the module.

    The frozen weights of the layers with adapters are called the base [base_size]. A call may use a base that differs
    from that of the module. This base is passed as an argument, or appended to the vector, which then has the shape
    [size + base_size].

    Args:
        module: a floating-point module, which maps a batch [B, *input_shape] to outputs.
        loss: name of the loss in `LOSSES`.
        input_shape: the shape of one sample.
        vocabulary: number of different tokens, if inputs are token ids; None if inputs are real-valued.

    Attributes:
        size: number of scalars in the vector.
        n_trainable: number of trainable parameters, which are the first part of the vector.
        n_statistics: number of running statistics, which are the last part of the vector.
        base_size: number of scalars in the base.
        shipped_bit: size in bits of the frozen weights that are sent to each device once; 0 if devices have them from
            the start.
        loss_name: the name of the loss in `LOSSES`.
        draws: whether training uses torch's random generator, as dropout does.
        is_classifier: whether each sample has exactly one right class.
        min_batch: minimum number of samples in a training batch: 1, or 2 if a layer needs batch statistics.
        batchable: whether training jobs may share a vectorised call. This requires that training draws no random
            numbers, that the output for a sample does not depend on other samples, and that no layer is a recurrent
            layer of PyTorch, over which a vectorised call would only loop. Other models are trained one job at a time,
            each with its own seed.
    """

    def __init__(
        self, module: nn.Module, loss: str, input_shape: tuple[int, ...], vocabulary: int | None = None
    ) -> None:
        if loss not in LOSSES:
            raise ScenarioError(
                f"model.loss: unknown loss, got '{loss}'; known are {', '.join(LOSSES)}{did_you_mean(loss, LOSSES)}"
            )
        self._module = copy.deepcopy(module).train()
        self._eval_module = _copied(self._module, self._module.parameters()).eval()
        self._loss = LOSSES[loss]
        self._hits = HITS.get(loss)
        self.input_shape, self.vocabulary = tuple(input_shape), vocabulary
        trainable = {name: p for name, p in self._module.named_parameters() if p.requires_grad}
        self.loss_name = loss
        self.is_classifier = loss == "cross-entropy"
        self.dtype = common_dtype(trainable)
        with self._trial(self._module) as tried:
            self.draws, changed = self._try_training(tried)
            self._separable = not (self.draws or changed or self._mixes_samples(tried))
            self.min_batch = 1 if self._separable or passes(tried.train(), self._ramp(1)) else 2
        self._statistics = tuple(name for name, buffer in changed.items() if buffer.is_floating_point())
        self._counters = tuple(name for name in changed if name not in self._statistics)
        parts = {**trainable, **{name: changed[name] for name in self._statistics}}
        self._names = tuple(parts)
        self._shapes = tuple(part.shape for part in parts.values())
        self._sizes = [part.numel() for part in parts.values()]
        self.size = sum(self._sizes)
        self.n_trainable = sum(part.numel() for part in trainable.values())
        self.n_statistics = self.size - self.n_trainable
        self._base, self.shipped_bit = base_names(self._module), shipped_bit(self._module)
        self.base_size = sum(self._module.get_parameter(name).numel() for name in self._base)
        recurrent = any(isinstance(layer, nn.RNNBase) for layer in self._module.modules())
        self.batchable = self._separable and not recurrent

    def to(self, device: str) -> FlatModel:
        """Move the module to a torch device, and return the model."""
        self._module.to(device)
        self._eval_module.to(device)
        return self

    def initial(self) -> Tensor:
        """Return a flat copy [size] of the parameters and running statistics with which the module was built."""
        tensors = dict([*self._module.named_parameters(), *self._module.named_buffers()])
        return torch.cat([tensors[name].detach().reshape(-1) for name in self._names])

    @property
    def device(self) -> torch.device:
        """The torch device of the module. Vectors and data must be on the same device."""
        return next(self._module.parameters()).device

    @property
    def layers(self) -> tuple[nn.Module, ...]:
        """The layers of the module: the entries of an `nn.Sequential`, or the module itself as a single layer."""
        return _sequence(self._module)

    def laid_out(self, x: Tensor) -> Tensor:
        """Return `x` [B, ...] in the fastest memory format, which is channels-last (NHWC) on a CPU."""
        if x.ndim != 4 or x.device.type != "cpu" or not self._takes_channels_last:
            return x
        if x.shape[1] > 1:
            return x.contiguous(memory_format=torch.channels_last)
        return x.as_strided(x.shape, (x.stride(0), 1, x.stride(2), x.stride(3)))  # PyTorch infers layouts from strides

    @cached_property
    def _takes_channels_last(self) -> bool:
        kinds = {type(layer) for layer in self.layers}
        return nn.Conv2d in kinds and kinds <= _OF_ANY_LAYOUT and not any(map(has_hooks, self.layers))

    def pieces(self, vector: Tensor) -> list[Tensor]:
        """Return the parameters in the module's order, then the running statistics, as views of a flat vector."""
        parts = torch.split(vector, self._sizes)
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def unflatten(self, vector: Tensor, base: Tensor | None = None) -> dict[str, Tensor]:
        """Return the parameters and running statistics by name, as views into a flat vector.

        The weights of a base that is passed, or appended to the vector, are included.
        """
        if base is None and len(vector) > self.size:
            vector, base = vector[: self.size], vector[self.size :]
        parts = dict(zip(self._names, self.pieces(vector), strict=True))
        return parts if base is None else parts | self.base_weights(base)

    def base_weights(self, base: Tensor | None = None) -> dict[str, Tensor]:
        """Return the frozen weights of layers with adapters by name, as views into `base`, or else into the model."""
        own = {name: self._module.get_parameter(name).detach() for name in self._base}
        if base is None:
            return own
        parts = torch.split(base, [weight.numel() for weight in own.values()])
        return {name: part.view(own[name].shape) for name, part in zip(own, parts, strict=True)}

    def forward(self, vector: Tensor, x: Tensor, *, training: bool = False, base: Tensor | None = None) -> Tensor:
        """Return the outputs [B, ...] for the parameters `vector` [size] and the inputs `x` [B, *input_shape].

        If `training` is True, dropout is active, and batch norm uses the statistics of the batch. The running
        statistics in the vector do not change, and have no gradient.
        """
        tensors = self.unflatten(vector, base)
        for name in self._statistics:
            tensors[name] = tensors[name].detach().clone() if training else tensors[name].detach()
        outputs: Tensor = functional_call(self._module if training else self._eval_module, tensors, (x,))
        return outputs

    def sample_losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss [B] of each sample, from the outputs of `forward` and the targets `y` [B, ...]."""
        return self._loss(outputs, y)

    @property
    def has_accuracy(self) -> bool:
        return self._hits is not None

    def hits(self, outputs: Tensor, y: Tensor) -> Tensor | None:
        """Return the accuracy [B] of each sample, from outputs of `forward` and targets `y`; None for a regression."""
        return None if self._hits is None else self._hits(outputs, y)

    def loss(
        self, vector: Tensor, x: Tensor, y: Tensor, weight: Tensor | None = None, *, base: Tensor | None = None
    ) -> Tensor:
        """Return sum(weight * loss) / sum(weight) over a training batch; without `weight` [B], the mean loss."""
        losses = self._loss(self.forward(vector, x, training=True, base=base), y)
        if weight is None:
            return losses.mean()
        return (losses * weight).sum() / weight.sum()

    def loss_and_squares(
        self, vector: Tensor, x: Tensor, y: Tensor, weight: Tensor | None = None, *, base: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the same loss as the method `loss`, and the weighted sum of the samples' squared losses."""
        losses = self._loss(self.forward(vector, x, training=True, base=base), y)
        if weight is None:
            return losses.mean(), losses.square().sum()
        return (losses * weight).sum() / weight.sum(), (losses.square() * weight).sum()

    @property
    def constants(self) -> list[Tensor]:
        """The frozen parameters, and the buffers that training does not change. All copies of the model share them."""
        moving = {*self._names, *self._counters}
        modules = (self._module, self._eval_module)
        named = (its for module in modules for its in (*module.named_parameters(), *module.named_buffers()))
        return list(dict.fromkeys(tensor for name, tensor in named if name not in moving))

    def copied(self) -> FlatModel:
        """Return a copy of the model for another thread. The copy shares the constant tensors of the original."""
        return copy.deepcopy(self, {id(tensor): tensor for tensor in self.constants})

    def live(self) -> Live:
        """Return a new module for training in place, whose parameters and statistics are views into one flat vector.

        Frozen parameters, and buffers that training does not change, are shared with this model.
        """
        base = {name: nn.Parameter(weight, requires_grad=False) for name, weight in self.base_weights().items()}
        own = {id(self._module.get_parameter(name)): weight for name, weight in base.items()}
        module = copy.deepcopy(self._module, {id(tensor): tensor for tensor in self.constants} | own)
        parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        trainable = tuple(parameters[name] for name in self._names if name not in self._statistics)
        statistics = tuple(buffers[name] for name in self._statistics)
        counters = tuple(buffers[name] for name in self._counters)
        vector = self.initial()
        live = Live(self, module, trainable, statistics, counters, tuple(base.values()), vector, vector)
        live.start(vector)
        return live

    def vectorises(self) -> bool:
        """Return True if PyTorch can vectorise the gradient over models; False if code branches on tensor values.

        The first check takes seconds, because PyTorch has to load its modules for vectorised calls.
        """
        vectors, x = self.initial().cpu().expand(2, -1), self._ramp(4).view(2, 2, *self.input_shape)
        with self._trial(self._module) as module:

            def total(vector: Tensor, x: Tensor) -> Tensor:
                outputs: Tensor = functional_call(module, self.unflatten(vector), (x,))
                return outputs.sum()

            try:
                vmap(grad(total))(vectors, x)
            except (RuntimeError, ValueError, TypeError):
                return False
            return True

    @cached_property
    def flop_per_sample(self) -> float:
        """Number of floating-point operations of a forward and a backward pass for one sample.

        The matrix products and convolutions that are executed are counted by PyTorch's formulas, in which a
        multiply-add is two operations. Element-wise operations are not counted.
        """
        with self._trial(self._module) as module, FlopCount() as counter:
            module(self._ramp(2)).sum().backward()
        return float(counter.total) / 2

    @cached_property
    def forward_flop_per_sample(self) -> float:
        """Number of floating-point operations of a forward pass for one sample, counted as in `flop_per_sample`."""
        with self._trial(self._eval_module) as module, FlopCount() as counter, torch.no_grad():
            module(self._ramp(2))
        return float(counter.total) / 2

    @cached_property
    def activation_byte_per_sample(self) -> int:
        """Memory in bytes per sample that a forward pass keeps for the backward pass, without the parameters."""
        saved: list[int] = []

        def pack(tensor: Tensor) -> None:  # keeping the tensor would also keep its graph alive
            saved.append(tensor.numel() * tensor.element_size())

        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda nothing: nothing)
        with self._trial(self._module) as module, hooks:
            module(self._ramp(2))
            of_two = sum(saved)
            if not self._separable:
                return of_two
            module(self._ramp(1))
        return max(2 * of_two - sum(saved), 1)

    def _ramp(self, n_samples: int) -> Tensor:
        """Return fixed samples that are not constant, for trial calls; tokens include the first and the last id."""
        shape = (n_samples, *self.input_shape)
        if self.vocabulary is not None:
            return torch.linspace(0, self.vocabulary - 1, math.prod(shape)).round().long().reshape(shape)
        return torch.linspace(-1.0, 1.0, math.prod(shape), dtype=self.dtype).reshape(shape)

    def _try_training(self, module: nn.Module) -> tuple[bool, dict[str, Tensor]]:
        """Call a trial copy in training mode. Return whether it draws random numbers, and which buffers may change.

        A buffer may change if the call changes any buffer of the same layer. If the call fails, an error is raised.
        """
        with torch.no_grad():
            buffers = dict(module.named_buffers())
            before = {name: buffer.clone() for name, buffer in buffers.items()}
            generator = torch.get_rng_state()
            check_call(module, self._ramp(2), self.loss_name, self._items)
            draws = not torch.equal(generator, torch.get_rng_state())
            after = dict(module.named_buffers())
            check_kept(buffers, after)
            owners = {owner(name) for name, old in before.items() if not torch.equal(old, after[name])}
            return draws, {name: buffer for name, buffer in after.items() if owner(name) in owners}

    @property
    def _items(self) -> str:
        return "samples" if self.vocabulary is None else f"windows of {self.vocabulary} different tokens"

    def _mixes_samples(self, module: nn.Module) -> bool:
        """Return True if the output for a sample depends on other samples of the batch, as with batch norm."""
        pair = self._ramp(2)
        return any(mixes(module.train(training), pair) for training in (False, True))

    @staticmethod
    @contextmanager
    def _trial(module: nn.Module) -> Iterator[nn.Module]:
        """Context manager that yields a copy of the module on the CPU for trial calls.

        The calls change neither the module nor torch's random generators. Other threads that draw random numbers wait
        until the block ends. Otherwise, they would draw other numbers, which would be attributed to the module.
        """
        frozen = (p for p in module.parameters() if not p.requires_grad and p.device.type == "cpu")
        with torch_seed(0):
            yield _copied(module, frozen).cpu()


_OF_ANY_LAYOUT = {nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, nn.BatchNorm2d, nn.ReLU, nn.Flatten, nn.Linear}


def _copied(module: nn.Module, shared: Iterable[Tensor]) -> nn.Module:
    return copy.deepcopy(module, {id(tensor): tensor for tensor in shared})


def _sequence(module: nn.Module) -> tuple[nn.Module, ...]:
    if type(module) is not nn.Sequential or has_hooks(module):
        return (module,)
    return tuple(layer for part in module for layer in _sequence(part))


def has_hooks(module: nn.Module) -> bool:
    """Return True if the module has forward hooks, which may change the outputs of a call."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
