"""The classic interface, `flwr.server.strategy` and `NumPyClient`, runs through Flower's own compatibility layer."""

import threading

import pytest

import fednet_emu as fe
from tests.flower.conftest import on_small

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")

FAST = {"progress": False}
SERVER = """
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg

    def accuracy(metrics):
        return {"accuracy": sum(n * its["accuracy"] for n, its in metrics) / sum(n for n, _ in metrics)}

    def server_fn(context):
        strategy = FedAvg(evaluate_metrics_aggregation_fn=accuracy, **STRATEGY)
        config = ServerConfig(num_rounds=context.run_config["rounds"], round_timeout=60.0)
        return ServerAppComponents(strategy=strategy, config=config)

    app = ServerApp(server_fn=server_fn)
"""
CLIENT = """
    import numpy as np
    from flwr.client import ClientApp, NumPyClient

    class Client(NumPyClient):
        def __init__(self, k):
            self.k = k

        def get_parameters(self, config):
            return [np.zeros(100, np.float32)]

        def fit(self, parameters, config):
            return [parameters[0] + 1 + self.k], 20, {}

        def evaluate(self, parameters, config):
            w = float(parameters[0][0])
            return 100 - w, 20, {"accuracy": w / 100}

    app = ClientApp(client_fn=lambda context: Client(context.node_config["partition-id"]).to_client())
"""
QUIET = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def classic(write_app, **options):
    return on_small(write_app(server=SERVER, client=CLIENT, **options))


@QUIET
def test_a_classic_app_runs(write_app):
    """One device gives the initial parameters; then each round is one broadcast and one exchange, as in the new API."""
    threads = threading.active_count()
    run = fe.run(classic(write_app), **FAST)

    sent = run.transfers
    assert threading.active_count() == threads
    assert run.rounds[["round", "invited", "arrived"]].to_numpy().tolist() == [[t, 4, 4] for t in (1, 2, 3)]
    assert run.evaluations.accuracy.tolist() == pytest.approx([0.025, 0.05, 0.075])
    assert run.evaluations.loss.tolist() == pytest.approx([97.5, 95.0, 92.5])
    assert sent[sent.direction == "downlink"].receivers.tolist() == [1] + [4] * 6
    assert run.device_evaluations.accuracy.max() == pytest.approx(0.075)


@QUIET
def test_it_repeats(write_app):
    """Clients are drawn by the seed, and results come in the order of the instructions, not of threads."""
    scenario = classic(write_app, fraction_fit=0.5)
    first, again, other = (fe.run(scenario, seed=seed, **FAST) for seed in (0, 0, 3))

    assert first.digest == again.digest != other.digest
    assert first.evaluations.equals(again.evaluations)


@QUIET
def test_lost_replies_are_failures(write_app):
    """The strategy goes on with those that came."""
    scenario = classic(write_app, fraction_evaluate=0.0)
    scenario["network"] = {"uplink": {"message_loss": {"kind": "random", "probability": 0.4}}}
    run = fe.run(scenario, seed=1, **FAST)

    assert 0 < run.rounds.arrived.sum() < 12
    assert len(run.rounds) == 3


@QUIET
def test_it_waits_for_clients(write_app):
    """Two of four devices come after five seconds; waiting for them takes simulated time, and none of the host's."""
    scenario = classic(write_app, min_fit_clients=4, min_available_clients=4, fraction_evaluate=0.0)
    windows = {"kind": "windows", "devices": {"0": [[4.5, 1000]], "1": [[4.5, 1000]]}}
    scenario["devices"] = {**scenario["devices"], "availability": windows}
    run = fe.run(scenario, **FAST)

    assert run.rounds.arrived.tolist() == [4, 4, 4]
    assert 5.0 <= run.transfers.requested_s.iloc[2] < 5.1
