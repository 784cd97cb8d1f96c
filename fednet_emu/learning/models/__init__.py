"""Models that the devices train."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.learning.models.base import Model
from fednet_emu.learning.models.feedforward import (
    DigitModel,
    LeNet,
    Linear,
    McMahanCnn,
    Mlp,
    NiidBenchCnn,
    ResNet18,
    ResNet20,
    Softmax,
)
from fednet_emu.learning.models.lstm import CharLstm, WordLstm
from fednet_emu.learning.models.torchvision_model import TorchvisionModel
from fednet_emu.learning.models.transformers_model import TransformersModel
from fednet_emu.learning.models.user_module import UserModule

MODELS: dict[str, type[Model]] = kinds(
    *(CharLstm, DigitModel, LeNet, Linear, McMahanCnn, Mlp, UserModule, NiidBenchCnn, ResNet18, ResNet20, Softmax),
    *(TorchvisionModel, TransformersModel, WordLstm),
)
AnyModel = Annotated[Model, Slot("model", MODELS)]
