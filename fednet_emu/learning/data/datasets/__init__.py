"""Datasets: what the devices learn from, one kind per file."""

from typing import Annotated

from fednet_emu.component import Slot
from fednet_emu.learning.data.datasets.base import Dataset, Samples
from fednet_emu.learning.data.datasets.chest_accelerometer import ChestAccelerometer
from fednet_emu.learning.data.datasets.digits import Digits
from fednet_emu.learning.data.datasets.mnist import FashionMnist, Mnist
from fednet_emu.learning.data.datasets.npz import Npz
from fednet_emu.learning.data.datasets.synthetic import Synthetic
from fednet_emu.learning.data.datasets.synthetic_regression import SyntheticRegression

DATASETS: dict[str, type[Dataset]] = {
    "chest-accelerometer": ChestAccelerometer,
    "digits": Digits,
    "fashion-mnist": FashionMnist,
    "mnist": Mnist,
    "npz": Npz,
    "synthetic": Synthetic,
    "synthetic-regression": SyntheticRegression,
}
"""Every kind of dataset that is built in."""

AnyDataset = Annotated[Dataset, Slot("dataset", DATASETS)]
"""Type of a field that holds one dataset."""

__all__ = [
    "DATASETS",
    "AnyDataset",
    "ChestAccelerometer",
    "Dataset",
    "Digits",
    "FashionMnist",
    "Mnist",
    "Npz",
    "Samples",
    "Synthetic",
    "SyntheticRegression",
]
