"""Flower's strategies for boosted trees, as in its own example: models are bytes that grow from round to round."""

import pytest

import fednet_emu as fe
from tests.flower.conftest import LOSSES, on_small

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")
pytest.importorskip("xgboost", reason="xgboost is not installed; pip install xgboost-cpu")

SERVER = """
    import numpy as np
    from flwr.app import ArrayRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import NAME

    app = ServerApp()

    @app.main()
    def main(grid, context):
        nothing = ArrayRecord([np.frombuffer(b"", dtype=np.uint8)])
        NAME(fraction_train=1.0).start(grid=grid, initial_arrays=nothing, num_rounds=context.run_config["rounds"])
"""
CLIENT = """
    import numpy as np
    import xgboost as xgb
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()
    PARAMS = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.5, "nthread": 1}

    def data(k):
        x = np.random.default_rng(k).normal(size=(60, 3))
        return xgb.DMatrix(x, label=(x.sum(1) > 0).astype(float))

    def reply(msg, metrics, **arrays):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 60, **metrics}), **arrays}), reply_to=msg)

    def booster(msg):
        model = xgb.Booster(params=PARAMS)
        model.load_model(bytearray(msg.content["arrays"]["0"].numpy().tobytes()))
        return model

    @app.train()
    def train(msg, context):
        own = data(context.node_config["partition-id"])
        if msg.content["config"]["server-round"] == 1:
            model = xgb.train(PARAMS, own, num_boost_round=1)
        else:
            model = booster(msg)
            model.update(own, model.num_boosted_rounds())
            model = model[model.num_boosted_rounds() - 1 :] if BAGGING else model
        return reply(msg, {}, arrays=ArrayRecord([np.frombuffer(model.save_raw("json"), dtype=np.uint8)]))

    @app.evaluate()
    def evaluate(msg, context):
        test = data(99)
        right = (booster(msg).predict(test) > 0.5) == test.get_label()
        return reply(msg, {"accuracy": float(right.mean())})
"""


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["FedXgbBagging", "FedXgbCyclic"])
def test_it_runs(write_app, name, loss):
    """Trees are added from round to round, so messages grow; the clients' mean accuracy is that of a good forest."""
    strategies = pytest.importorskip("flwr.serverapp.strategy")
    if not hasattr(strategies, name):
        pytest.skip(f"this version of Flower has no {name}")
    client = CLIENT.replace("BAGGING", str(name == "FedXgbBagging"))
    scenario = on_small(write_app(server=SERVER.replace("NAME", name), client=client), run_config={"rounds": 5})
    run = fe.run({**scenario, "network": LOSSES[loss]}, seed=1, progress=False)

    sizes = run.transfers[run.transfers.direction == "downlink"].size_bit.tolist()
    assert run.summary["status"] == "done"
    assert sizes[-1] > 2 * sizes[1] > 2 * sizes[0]
    assert run.summary["accuracy"] > 0.7
