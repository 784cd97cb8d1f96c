"""FedAvg through Flower is our FedAvg: equal parameters, times, and bits but for the message's own overhead."""

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL, small_federation, small_scenario

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")

SERVER = """
    from pathlib import Path

    import numpy as np
    from flwr.app import Array, ArrayRecord, ConfigRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    app = ServerApp()
    HERE = Path(__file__).parents[1]
    with np.load(HERE / "data.npz") as file:
        INITIAL = file["initial"]

    @app.main()
    def main(grid, context):
        arrays = ArrayRecord({"w": Array(INITIAL)})
        config = ConfigRecord({"x" * PAD: 0.0})
        strategy = FedAvg(fraction_evaluate=0.0, min_evaluate_nodes=0)
        np.save(HERE / "final.npy", strategy.start(grid, arrays, num_rounds=5, train_config=config).arrays["w"].numpy())
"""
CLIENT = """
    from pathlib import Path

    import numpy as np
    import torch
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()
    with np.load(Path(__file__).parents[1] / "data.npz") as file:
        DATA = dict(file)

    @app.train()
    def train(msg, context):
        k = context.node_config["partition-id"]
        x, y = torch.from_numpy(DATA[f"x{k}"]), torch.from_numpy(DATA[f"y{k}"])
        w = torch.from_numpy(msg.content["arrays"]["w"].numpy().copy()).requires_grad_()
        for _ in range(3):
            loss = ((x @ w[:9] + w[9] - y.reshape(-1)) ** 2).mean()
            (gradient,) = torch.autograd.grad(loss, w)
            w = (w.detach() - 0.05 * gradient).requires_grad_()
        metrics = MetricRecord({"num-examples": len(x), "train_loss": float(loss.detach())})
        content = RecordDict({"arrays": ArrayRecord({"w": Array(w.detach().numpy())}), "metrics": metrics})
        return Message(content, reply_to=msg)
"""
OURS = ("algorithm.lr=0.05", "algorithm.local_steps=3", "stop.rounds=5", "devices.speed.flop_per_s=3e5")


def overheads(pad):
    """Bits of a message beyond the ten floats, downlink and uplink; the configuration has a name of `pad` letters."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord

    arrays = ArrayRecord({"w": Array(np.zeros(10, np.float32))}).count_bytes()
    down = ConfigRecord({"server-round": 1, "x" * pad: 0.0}).count_bytes()
    up = MetricRecord({"num-examples": 20, "train_loss": 0.0}).count_bytes()
    return 8 * (arrays + down) - 320, 8 * (arrays + up) - 320


def test_fedavg_through_flower_is_our_fedavg(write_app, tmp_path):
    """On the same model, data and steps: parameters to 1e-5, every transfer and computation to the nanosecond.

    Our messages get a header of the size of Flower's overhead, which is made the same on both ways.
    """
    fed = small_federation(*OURS)
    model = fed.task.model
    data = {"initial": model.initial().numpy()}
    for k in range(4):
        rows = fed.task.slice_of(k)
        data |= {f"x{k}": fed.task.data.x[rows].numpy(), f"y{k}": fed.task.data.y[rows].numpy()}
    pad = next(pad for pad in range(1, 99) if len(set(overheads(pad))) == 1)
    down, up = overheads(pad)
    header = f"network.overhead={{kind: header, header_bit: {down}}}"
    ours = small_federation(*OURS, header)
    expected = ours.read(ours.run(small_scenario(*OURS, header).algorithm)).numpy()

    app = write_app(server=SERVER.replace("PAD", str(pad)), client=CLIENT)
    np.savez(app / "data.npz", **data)
    settings = {**from_text(SMALL, "small").data, "algorithm": {"kind": "flower", "app": str(app)}}
    flops = {"flop_per_example": 3 * model.flop_per_sample}
    learning = dict.fromkeys(("data", "partition", "model"))
    scenario = {**settings, **learning, "stop": {"rounds": 5}, "training": {}}
    scenario["algorithm"]["work"] = flops
    run = fe.run(scenario, settings={"devices.speed.flop_per_s": 3e5}, progress=False)

    assert down == up
    assert np.abs(np.load(app / "final.npy") - expected).max() < 1e-5
    assert np.abs(expected - data["initial"]).max() > 0.01
    for name, columns in (
        ("transfers", ["direction", "sender", "receiver", "size_bit", "requested_s", "started_s", "ended_s"]),
        ("computes", ["device", "started_s", "ended_s", "flop", "energy_j"]),
    ):
        first, second = ours.ledger.frame(name)[columns], run.table(name)[columns]
        order = columns[:3]
        assert first.sort_values(order).to_numpy().tolist() == second.sort_values(order).to_numpy().tolist()
    assert run.summary["event_digest"]
