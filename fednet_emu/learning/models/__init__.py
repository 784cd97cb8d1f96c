"""Models: what the devices train, one kind per file."""

from typing import Annotated

from fednet_emu.component import Slot
from fednet_emu.learning.models.base import Model
from fednet_emu.learning.models.digit_model import DigitModel
from fednet_emu.learning.models.linear import Linear, Softmax
from fednet_emu.learning.models.mcmahan_cnn import McMahanCnn
from fednet_emu.learning.models.mlp import Mlp
from fednet_emu.learning.models.user_module import UserModule

MODELS: dict[str, type[Model]] = {
    "digit-model": DigitModel,
    "linear": Linear,
    "mcmahan-cnn": McMahanCnn,
    "mlp": Mlp,
    "module": UserModule,
    "softmax": Softmax,
}
"""Every kind of model that is built in."""

AnyModel = Annotated[Model, Slot("model", MODELS)]
"""Type of a field that holds one model."""

__all__ = ["MODELS", "AnyModel", "DigitModel", "Linear", "McMahanCnn", "Mlp", "Model", "Softmax", "UserModule"]
