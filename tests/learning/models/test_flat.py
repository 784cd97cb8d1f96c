"""Models as flat vectors, their operations and their seed."""

from __future__ import annotations

import gc
import io
import threading
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.backends import mha
from torch.utils.flop_counter import FlopCounterMode

from fednet_emu.learning.models.base import seeded_module, torch_seed
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.models.flops import FlopCount


def flat(module: nn.Module, *input_shape: int, loss: str = "cross-entropy") -> FlatModel:
    """The model of a module and the shape of one sample."""
    return FlatModel(module, loss, input_shape)


def mlp() -> nn.Module:
    """The network 784-200-10 of McMahan et al. (2017)."""
    return seeded_module(lambda: nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)), 1)


def test_forward_equals_the_module():
    """The initial vector gives the outputs of the module that it came from, bit by bit."""
    module = mlp()
    model, x = flat(module, 784), torch.rand(4, 784)

    assert torch.equal(model.forward(model.initial(), x), module(x))


def test_initial_is_a_copy():
    """Changing the module or one initial vector does not change the model."""
    module = mlp()
    model = flat(module, 784)
    first = model.initial()
    expected = first.clone()

    first.zero_()
    nn.init.zeros_(module[0].weight)

    assert torch.equal(model.initial(), expected)


def test_unflatten_gives_views():
    """Unflattened parameters share memory with the vector and have the module's names and shapes."""
    module = mlp()
    model = flat(module, 784)
    vector = torch.zeros(model.size)
    pieces = model.unflatten(vector)

    vector.fill_(3.0)

    assert {name: piece.shape for name, piece in pieces.items()} == {n: p.shape for n, p in module.named_parameters()}
    assert all((piece == 3.0).all() for piece in pieces.values())


def test_loss_weighs_samples():
    """Weights 1, 0 and 3 on squared errors 1, 100 and 4 give (1 + 12) / 4; without weights the mean is 35."""
    model = flat(nn.Linear(1, 1), 1, loss="squared-error")
    x, y = torch.tensor([[1.0], [10.0], [2.0]]), torch.zeros(3)
    vector = torch.tensor([1.0, 0.0])

    assert float(model.loss(vector, x, y, torch.tensor([1.0, 0.0, 3.0]))) == pytest.approx(13 / 4)
    assert float(model.loss(vector, x, y)) == pytest.approx(35.0)


def test_flop_of_a_multilayer_perceptron():
    """The backward pass adds the weight gradients of both layers and the input gradient of the second."""
    model = flat(mlp(), 784)
    forward = 2 * (784 * 200 + 200 * 10)

    assert model.forward_flop_per_sample == forward
    assert model.flop_per_sample == 2 * forward + 2 * 200 * 10


def test_activations_are_counted_per_sample():
    """A ReLU network keeps its input and its hidden layer for the backward pass, and not its parameters."""
    assert flat(mlp(), 784).activation_byte_per_sample == 4 * (784 + 200 + 200)


def test_frozen_parameters_stay_inside():
    """Parameters without gradient are not part of the vector but of the function."""
    module = mlp()
    module[0].requires_grad_(False)
    model, x = flat(module, 784), torch.rand(4, 784)

    assert model.size == 200 * 10 + 10
    assert torch.equal(model.forward(model.initial(), x), module(x))


@pytest.mark.parametrize(
    ("layer", "draws", "batchable"),
    [
        (nn.ReLU(), False, True),
        (nn.LayerNorm(6), False, True),
        (nn.Dropout(0.01), True, False),
        (nn.RReLU(), True, False),
        (nn.BatchNorm1d(6, track_running_stats=False), False, False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_models_that_cannot_share_a_batch_are_recognised(layer, draws, batchable):
    """A model that draws random numbers, or mixes the samples of a batch, is not batchable."""
    model = flat(nn.Sequential(nn.Linear(4, 6), layer, nn.Linear(6, 3)), 4)

    assert (model.draws, model.batchable) == (draws, batchable)


def test_dropout_drops_in_training_only():
    """Evaluation with dropout is deterministic."""
    model = flat(nn.Sequential(nn.Linear(50, 50), nn.Dropout(0.5)), 50)
    vector, x = model.initial(), torch.rand(4, 50)

    assert torch.equal(model.forward(vector, x), model.forward(vector, x))
    assert (model.forward(vector, x, training=True) == 0).any()


def test_making_a_model_draws_nothing():
    """Trying and measuring a module with dropout leaves torch's global generator where it was."""
    module = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5))
    before = torch.get_rng_state()

    model = flat(module, 4)
    counted = (model.flop_per_sample, model.forward_flop_per_sample, model.activation_byte_per_sample)

    assert min(counted) > 0
    assert torch.equal(torch.get_rng_state(), before)


def normed() -> nn.Module:
    return seeded_module(lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)), 1)


def test_running_statistics_are_the_tail_of_the_vector():
    """Behind the parameters come means 0 and variances 1; the count of batches stays at home."""
    model = flat(normed(), 4)

    assert model.n_trainable == 4 * 6 + 6 + 6 + 6 + 6 * 3 + 3
    assert model.size == model.n_trainable + 6 + 6
    assert model.initial()[model.n_trainable :].tolist() == [0.0] * 6 + [1.0] * 6
    assert not model.batchable


def test_evaluation_uses_the_statistics_in_the_vector():
    """A vector with other statistics gives the outputs of the module that has these."""
    module = normed()
    model, x = flat(module, 4), torch.rand(5, 4)
    vector = model.initial()
    vector[model.n_trainable :] = torch.arange(1.0, 13.0)
    module[1].running_mean.copy_(torch.arange(1.0, 7.0))
    module[1].running_var.copy_(torch.arange(7.0, 13.0))

    assert torch.equal(model.forward(vector, x), module.eval()(x))


def test_a_training_pass_leaves_the_vector_alone():
    """A forward pass in training mode looks at the batch, and neither changes the vector nor what comes after."""
    module = normed()
    model, x = flat(module, 4), torch.rand(5, 4)
    vector = model.initial()
    first = model.forward(vector, x, training=True)

    assert torch.equal(vector, model.initial())
    assert torch.equal(model.forward(vector, x, training=True), first)
    assert torch.equal(first, module(x))


def test_buffers_that_training_leaves_alone_are_welcome():
    """A constant buffer, such as a normalisation, is part of the function."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)
            self.register_buffer("factor", torch.tensor(2.0))

        def forward(self, x):
            return self.fc(self.factor * x)

    module = Scaled()
    model, x = flat(module, 4), torch.rand(2, 4)

    assert torch.equal(model.forward(model.initial(), x), module(x))


def test_live_module_shares_memory_with_its_vector():
    """Writing to the vector of a live module changes what the module computes, and nothing else."""
    model, x = flat(mlp(), 784), torch.rand(3, 784)
    live = model.live()

    live.vector.zero_()

    assert (live.module(x) == 0).all()
    assert (model.initial() != 0).any()


def test_a_live_module_leaves_its_last_vector_alone():
    """What was trained stays as it is, and is kept by nobody else, when the next job starts."""
    live, x = flat(mlp(), 784).live(), torch.rand(3, 784)
    live.start(torch.zeros(159010))
    first = weakref.ref(live.vector)
    kept = live.vector
    live.start(torch.ones(159010))

    assert (live.module(x) != 0).all()
    assert (kept == 0).all()
    live.let_go()
    del kept
    assert first() is None


def test_a_model_holds_its_parameters_once():
    """Training and evaluation share them: a file of both modules is as large as one."""
    file = io.BytesIO()
    torch.save(flat(mlp(), 784), file)

    assert file.tell() < 1.1 * 4 * 159010


def test_lives_share_what_is_never_trained():
    """Frozen weights and constant buffers are held once for all threads; what is trained, or moves, is each life's."""
    module = nn.Sequential(nn.Linear(6, 4).requires_grad_(False), nn.BatchNorm1d(4), Odd("keeps a constant"))
    model, frozen = flat(module, 6), module[0].weight.clone()
    one, other = model.live(), model.live()

    def same(name: str) -> bool:
        tensors = [life.module.state_dict()[name] for life in (one, other)]
        return tensors[0].data_ptr() == tensors[1].data_ptr()

    assert {name for name in module.state_dict() if same(name)} == {"0.weight", "0.bias", "2.centre"}
    one.start(torch.ones(model.size))
    assert torch.equal(other.module[0].weight, frozen)
    assert not torch.equal(one.module[2].linear.weight, other.module[2].linear.weight)
    assert model.flop_per_sample > 0
    assert torch.equal(model.live().module[0].weight, frozen)


def test_counting_activations_leaves_nothing_behind():
    """The trial pass is gone when it is over, with all that it saved for a backward pass."""
    model = flat(mlp(), 784)

    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    before = tensors()
    assert model.activation_byte_per_sample > 0
    assert tensors() == before


class Odd(nn.Module):
    """A linear layer that does one thing that most models do not do."""

    def __init__(self, habit):
        super().__init__()
        self.linear, self.habit = nn.Linear(4, 3), habit
        self.register_buffer("centre", torch.zeros(4))

    def forward(self, x):
        if self.habit == "centres" and self.training:
            x = x - x.mean(0)
        if self.habit == "replaces a buffer" and self.training:
            self.centre = 0.9 * self.centre + 0.1 * x.detach().mean(0)
        if self.habit == "writes into its input":
            x.relu_()
        y = self.linear(x - self.centre)
        return 2 * y if self.habit == "branches" and y.sum() > 0 else y


def test_models_that_mix_samples_in_training_only_are_recognised():
    """A module that centres its batch while it trains is not batchable, although evaluation looks at each sample."""
    assert flat(Odd("nothing"), 4).batchable
    assert not flat(Odd("centres"), 4).batchable


def test_models_that_pytorch_cannot_vectorise_are_recognised():
    """A module that branches on a tensor has no vectorised call; a plain one has."""
    assert flat(Odd("nothing"), 4).vectorises()
    assert not flat(Odd("branches"), 4).vectorises()


@pytest.mark.parametrize("channels", [1, 3])
def test_convolutions_see_the_channels_of_a_pixel_side_by_side(channels):
    """The same numbers in the layout that PyTorch's convolutions are fastest in, and the same outputs."""
    layers = [nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2)]
    model = FlatModel(nn.Sequential(*layers), "cross-entropy", (channels, 6, 6))
    x = torch.randn(5, channels, 6, 6)
    turned = model.laid_out(x)

    assert torch.equal(turned, x)
    assert turned.stride(1) == 1
    assert layers[0](turned).is_contiguous(memory_format=torch.channels_last)
    vector = model.initial()
    assert torch.allclose(model.forward(vector, turned), model.forward(vector, x), rtol=1e-5, atol=1e-6)


def test_modules_that_may_care_about_the_layout_get_the_plain_one():
    """Code of the user's own may ask for a view that only that has; dropout draws in the order of memory."""

    class Viewing(nn.Module):
        def forward(self, x):
            return x.view(len(x), -1)

    x = torch.randn(5, 1, 6, 6)
    for last in (Viewing(), nn.Sequential(nn.Dropout(), nn.Flatten())):
        model = FlatModel(nn.Sequential(nn.Conv2d(1, 2, 3), last, nn.Linear(32, 2)), "cross-entropy", (1, 6, 6))
        assert model.laid_out(x) is x


def test_batch_norm_needs_two_samples_in_training():
    """One sample has no variance; with several values per channel, as in an image, one sample is enough."""
    flat = FlatModel(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), "cross-entropy", (3,))
    image = FlatModel(nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(4, 2)), "cross-entropy", (1, 2, 2))
    plain = FlatModel(nn.Linear(3, 2), "cross-entropy", (3,))

    assert (flat.min_batch, image.min_batch, plain.min_batch) == (2, 1, 1)


MODULES = {
    "dense": (nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)), (2, 1, 4, 4)),
    "convolution": (nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(3, 2, 3)), (2, 1, 8, 8)),
    "recurrent": (nn.LSTMCell(4, 3), (2, 4)),
}


@pytest.mark.parametrize(("module", "shape"), MODULES.values(), ids=MODULES)
def test_the_count_is_that_of_pytorch_itself(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Forward and backward passes count as in PyTorch's own counter."""
    x = torch.randn(shape)

    def work() -> None:
        outputs = module(x)
        (outputs[0] if isinstance(outputs, tuple) else outputs).sum().backward()

    with FlopCount() as ours:
        work()
    with FlopCounterMode(display=False) as theirs:
        work()

    assert ours.total == theirs.get_total_flops() > 0


# ---- attention -------------------------------------------------------------------------------------------------------


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v


@pytest.mark.parametrize("backward", [False, True])
def test_attention_costs_its_products_whoever_computes_them(backward: bool) -> None:
    """3 samples, 4 heads, 5 queries, 7 keys, all of width 6: 2 x 3 x 4 x 5 x 7 x 12, and thrice that with backward."""
    totals = []
    for attention in (by_hand, nn.functional.scaled_dot_product_attention):
        q, k, v = (torch.randn(3, 4, n, 6, requires_grad=True) for n in (5, 7, 7))
        with FlopCount() as count:
            outputs = attention(q, k, v)
            if backward:
                outputs.sum().backward()
        totals.append(count.total)

    assert totals == [10_080 * (3 if backward else 1)] * 2


class Encoder(nn.Module):
    """A transformer layer of width 64 between two dense layers; 64 tokens of 8 numbers give ten scores."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.head = nn.Linear(8, 64), nn.Linear(64, 10)
        self.layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """The scores [B, 10]."""
        scores: Tensor = self.head(self.layer(self.front(x)).mean(1))
        return scores


def test_a_transformer_costs_the_same_in_evaluation_and_in_training() -> None:
    """64 tokens of width d = 64: 24 T d^2 + 4 T^2 d, and the dense layers; backward is twice that, less the input."""
    model = FlatModel(Encoder(), "cross-entropy", (64, 8))
    dense, layer, head = 2 * 64 * 8 * 64, 24 * 64 * 64**2 + 4 * 64**2 * 64, 2 * 64 * 10
    forward = dense + layer + head

    assert model.forward_flop_per_sample == forward == 7_406_848
    assert model.flop_per_sample == 3 * forward - dense == 22_155_008


def test_counting_leaves_the_fast_path_as_it_was() -> None:
    """It is off inside, also inside another count, and back afterwards, also after an error."""
    with FlopCount(), pytest.raises(ZeroDivisionError), FlopCount():
        raise ZeroDivisionError
    assert mha.get_fastpath_enabled()

    with FlopCount(), FlopCount():
        assert not mha.get_fastpath_enabled()
    assert mha.get_fastpath_enabled()


def test_module_is_a_function_of_the_seed():
    """The same seed builds the same parameters, another seed builds others."""
    a, b, c = (seeded_module(lambda: nn.Linear(3, 2), seed).weight for seed in (7, 7, 8))

    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_seeding_leaves_the_global_generator_alone():
    """Building a module shifts no other draw from torch's global generator."""
    before = torch.get_rng_state()

    seeded_module(lambda: nn.Linear(3, 2), 7)
    with torch_seed(8):
        torch.rand(5)

    assert torch.equal(torch.get_rng_state(), before)


def test_nobody_else_draws_while_a_model_is_tried():
    """Whether a model draws is found by trying it; another thread's draws would be disturbed, and taken for its own."""
    drew, threads = threading.Event(), []

    def draw():
        with torch_seed(8):
            torch.rand(1)
        drew.set()

    class Tried(nn.Linear):
        def forward(self, x):
            if not threads:
                threads.append(threading.Thread(target=draw))
                threads[0].start()
                assert not drew.wait(0.2)
            return super().forward(x)

    FlatModel(Tried(2, 1), "squared-error", (2,))

    threads[0].join()
    assert drew.is_set()
