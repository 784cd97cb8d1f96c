"""FedJAX: its federated averaging on in-memory data, compiled by XLA for the CPU."""

from __future__ import annotations

import jax

if not hasattr(jax, "tree_map"):  # FedJAX 0.0.17 calls it by its old name
    jax.tree_map = jax.tree_util.tree_map

import fedjax
import haiku as hk
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from peers.stopwatch import Stopwatch, Task, report
from peers.workloads import CLASSES, WARM_UP, load_data

CHANNELS, SIDE = 64, 7  # what the CNN flattens


def forward(name: str, x: jax.Array) -> jax.Array:
    """Scores [B, classes] of x [B, 28, 28, 1], channels last as XLA likes them."""
    if name == "cnn":
        for channels in (32, CHANNELS):
            x = jax.nn.relu(hk.Conv2D(channels, 5, padding="SAME")(x))
            x = hk.max_pool(x, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(len(x), -1)
    hidden = {"softmax": [], "mlp": [200], "cnn": [512]}[name]
    for width in hidden:
        x = jax.nn.relu(hk.Linear(width)(x))
    return hk.Linear(CLASSES)(x)


def main() -> None:
    """Run one workload."""
    task = Task.from_command_line()
    workload = task.workload
    data = load_data(workload, task.folder)
    images = data.x.reshape(workload.clients, workload.samples, 28, 28, 1)
    steps = 0

    def counted(batch):
        nonlocal steps
        steps += 1
        return batch

    clients = fedjax.InMemoryFederatedData(
        {str(k): {"x": images[k], "y": data.y[k]} for k in range(workload.clients)},
        preprocess_batch=fedjax.BatchPreprocessor([counted]),
    )
    network = hk.without_apply_rng(hk.transform(lambda batch: forward(workload.model, batch["x"])))

    def loss(params, batch, rng):
        scores = jax.nn.log_softmax(network.apply(params, batch))
        return -jnp.take_along_axis(scores, batch["y"][:, None], axis=1).mean()

    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss),
        client_optimizer=fedjax.optimizers.sgd(workload.lr),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
            batch_size=workload.batch, num_epochs=None, num_steps=workload.steps
        ),
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(clients, workload.cohort, seed=0)
    params = network.init(jax.random.PRNGKey(0), {"x": images[0, :2]})
    state = algorithm.init(initial(task, params))
    watch, steps = Stopwatch(workload), 0  # FedJAX has tried the counter on every client
    watch.round_done()
    for number in range(1, workload.all_rounds + 1):
        state, _ = algorithm.apply(state, sampler.sample())
        if number in (WARM_UP, workload.all_rounds):  # between them XLA may run ahead
            jax.block_until_ready(state.params)
        watch.round_done()
    report(task, watch, steps, torch_layout(jax.device_get(list(state.params.values()))), "fedjax", jax=jax.__version__)


def initial(task: Task, params):
    """The common initial parameters in the structure of haiku's."""
    with np.load(task.folder / f"{task.workload.model}.npz") as file:
        given = [file[name] for name in file.files]
    layers = zip(params, given[::2], given[1::2], strict=True)
    return {name: {"w": jnp.asarray(haiku_layout(weight)), "b": jnp.asarray(bias)} for name, weight, bias in layers}


def haiku_layout(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """A weight of PyTorch: inputs before outputs, and channels last in what the CNN flattens."""
    if weight.ndim == 4:
        return weight.transpose(2, 3, 1, 0)
    if weight.shape[1] == CHANNELS * SIDE * SIDE:
        return weight.reshape(-1, CHANNELS, SIDE, SIDE).transpose(2, 3, 1, 0).reshape(-1, len(weight))
    return weight.T


def torch_layout(layers: list[dict[str, NDArray[np.float32]]]) -> list[NDArray[np.float32]]:
    """The parameters in the order and layout of PyTorch."""
    arrays = []
    for layer in layers:
        weight = layer["w"]
        if weight.ndim == 4:
            weight = weight.transpose(3, 2, 0, 1)
        elif len(weight) == CHANNELS * SIDE * SIDE:
            weight = weight.reshape(SIDE, SIDE, CHANNELS, -1).transpose(3, 2, 0, 1).reshape(weight.shape[1], -1)
        else:
            weight = weight.T
        arrays += [weight, layer["b"]]
    return arrays


if __name__ == "__main__":
    main()
