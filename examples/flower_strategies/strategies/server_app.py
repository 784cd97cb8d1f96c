"""Server side of the app `strategies`, which also evaluates the model after each round."""

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, FedYogi

from strategies.task import new_model
from strategies.task import test as test_fn

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for the configured number of rounds, with all clients in each round."""
    config = context.run_config
    options = {"fraction_evaluate": 0.0, "min_evaluate_nodes": 0, "min_available_nodes": 10, "min_train_nodes": 10}
    strategies = {
        "fedavg": lambda: FedAvg(**options),
        "fedyogi": lambda: FedYogi(**options, eta=config["server-learning-rate"], eta_l=config["learning-rate"]),
    }
    strategies[config["strategy"]]().start(
        grid=grid,
        initial_arrays=ArrayRecord(new_model().state_dict()),
        train_config=ConfigRecord({"lr": config["learning-rate"]}),
        num_rounds=config["num-server-rounds"],
        evaluate_fn=evaluated,
    )


def evaluated(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Return the loss and the accuracy of a model."""
    model = new_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test_fn(model)
    return MetricRecord({"loss": loss, "accuracy": accuracy})
