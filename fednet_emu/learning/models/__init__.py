"""Models: what the devices train, one kind per file."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.learning.models.base import Model
from fednet_emu.learning.models.digit_model import DigitModel
from fednet_emu.learning.models.lenet import LeNet, NiidBenchCnn
from fednet_emu.learning.models.linear import Linear, Softmax
from fednet_emu.learning.models.lstm import CharLstm, WordLstm
from fednet_emu.learning.models.mcmahan_cnn import McMahanCnn
from fednet_emu.learning.models.mlp import Mlp
from fednet_emu.learning.models.resnet import ResNet18, ResNet20
from fednet_emu.learning.models.torchvision_model import TorchvisionModel
from fednet_emu.learning.models.user_module import UserModule

MODELS: dict[str, type[Model]] = kinds(
    CharLstm,
    DigitModel,
    LeNet,
    Linear,
    McMahanCnn,
    Mlp,
    UserModule,
    NiidBenchCnn,
    ResNet18,
    ResNet20,
    Softmax,
    TorchvisionModel,
    WordLstm,
)
"""Every kind of model that is built in."""

AnyModel = Annotated[Model, Slot("model", MODELS)]
"""Type of a field that holds one model."""
