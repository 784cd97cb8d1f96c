"""Model, data, and functions for training and testing."""

from functools import cache

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy

CLASSES = 10


def new_model():
    """Return a perceptron for images of 8 x 8 pixels: `model: {kind: mlp, hidden: [32]}`."""
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, CLASSES))


@cache
def digits():
    """Return images and labels for training and for testing: `data: digits`."""
    x, y = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(x / 16, y, test_size=0.2, stratify=y, random_state=0)
    return [(torch.tensor(x, dtype=torch.float32), torch.tensor(y)) for x, y in ((train_x, train_y), (test_x, test_y))]


@cache
def load_data(partition_id):
    """Return the training images of one digit and their labels: `partition: one-class` with ten devices."""
    x, y = digits()[0]
    mine = y == partition_id
    return x[mine], y[mine]


def train(model, x, y, lr, steps, batch_size):
    """Take `steps` SGD steps on batches drawn without replacement; return their mean loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    total = 0.0
    for rows in torch.randperm(len(y))[: steps * batch_size].split(batch_size):
        optimizer.zero_grad()
        loss = cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / steps


def test(model):
    """Return the loss and the accuracy of the model on the test images of all digits."""
    x, y = digits()[1]
    with torch.no_grad():
        outputs = model(x)
    return cross_entropy(outputs, y).item(), (outputs.argmax(1) == y).float().mean().item()
