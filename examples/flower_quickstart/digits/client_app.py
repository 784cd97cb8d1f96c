"""Client side of the app `digits`."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits.task import Net, load_data
from digits.task import test as test_fn
from digits.task import train as train_fn

app = ClientApp()


def _prepared(msg: Message, context: Context):
    """Return the model in the message, the data of this node, and the device for computing."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    node, batch_size = context.node_config, context.run_config["batch-size"]
    loaders = load_data(node["partition-id"], node["num-partitions"], batch_size)
    return model, *loaders, torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model, trainloader, _, device = _prepared(msg, context)
    train_loss = train_fn(model, trainloader, context.run_config["local-epochs"], msg.content["config"]["lr"], device)
    metrics = MetricRecord({"train_loss": train_loss, "num-examples": len(trainloader.dataset)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    model, _, testloader, device = _prepared(msg, context)
    eval_loss, eval_acc = test_fn(model, testloader, device)
    metrics = MetricRecord({"eval_loss": eval_loss, "eval_acc": eval_acc, "num-examples": len(testloader.dataset)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
