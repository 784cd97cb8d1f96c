"""Client side of the app `strategies`. Client k has the images of digit k."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from strategies.task import load_data, new_model
from strategies.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    config = context.run_config
    model = new_model()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    x, y = load_data(context.node_config["partition-id"])
    loss = train_fn(model, x, y, msg.content["config"]["lr"], config["local-steps"], config["batch-size"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)
