"""Model, data of each partition, and functions for training and testing."""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A small perceptron for images of 8 x 8 pixels."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x):
        """Return scores of the ten digits, [n, 10]."""
        return self.layers(x)


@cache
def digits():
    """Return all images, in a fixed random order, and their labels."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(42).permutation(len(y))
    return torch.tensor(x[order] / 16, dtype=torch.float32), torch.tensor(y[order])


def load_data(partition_id, num_partitions, batch_size):
    """Return batches of a partition: four fifths for training, one fifth for testing."""
    x, y = (part[partition_id::num_partitions] for part in digits())
    cut = len(y) * 4 // 5
    train, test = TensorDataset(x[:cut], y[:cut]), TensorDataset(x[cut:], y[cut:])
    return DataLoader(train, batch_size=batch_size, shuffle=True), DataLoader(test, batch_size=batch_size)


def train(net, trainloader, epochs, lr, device):
    """Train the model and return its mean loss."""
    net.to(device).train()
    criterion, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), lr=lr)
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(trainloader))


def test(net, testloader, device):
    """Return the loss and the accuracy of the model."""
    net.to(device).eval()
    criterion = nn.CrossEntropyLoss(reduction="sum")
    loss, correct = 0.0, 0
    with torch.no_grad():
        for images, labels in testloader:
            outputs = net(images.to(device))
            loss += criterion(outputs, labels.to(device)).item()
            correct += (outputs.argmax(1) == labels.to(device)).sum().item()
    return loss / len(testloader.dataset), correct / len(testloader.dataset)
