"""Data sets: components that provide training and test samples."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.learning.data.datasets.adult import Adult
from fednet_emu.learning.data.datasets.base import Dataset
from fednet_emu.learning.data.datasets.hugging_face import HuggingFace
from fednet_emu.learning.data.datasets.image_folder import ImageFolder
from fednet_emu.learning.data.datasets.leaf import Leaf
from fednet_emu.learning.data.datasets.mnist import Digits, FashionMnist, Mnist
from fednet_emu.learning.data.datasets.npz import Npz
from fednet_emu.learning.data.datasets.synthetic import Fcube, Synthetic, SyntheticRegression
from fednet_emu.learning.data.datasets.tables import Csv, Parquet
from fednet_emu.learning.data.datasets.text import Text
from fednet_emu.learning.data.datasets.torchvision_images import TorchvisionImages
from fednet_emu.learning.data.datasets.wearables import ChestAccelerometer, UciHar

DATASETS: dict[str, type[Dataset]] = kinds(
    *(Adult, ChestAccelerometer, Csv, Digits, FashionMnist, Fcube, HuggingFace, ImageFolder, Leaf, Mnist, Npz),
    *(Parquet, Synthetic, SyntheticRegression, Text, TorchvisionImages, UciHar),
)
AnyDataset = Annotated[Dataset, Slot("dataset", DATASETS)]
