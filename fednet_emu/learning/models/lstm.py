"""Recurrent networks that predict the next character or word, with the sizes used in the literature.

Each gate has one bias, as in TensorFlow, so that the numbers of parameters equal the published ones. In PyTorch, a gate
has a second bias, which is fixed at zero here and is not a parameter.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models.base import Model


class CharLstm(Model):
    """The character LSTM of McMahan et al. (AISTATS 2017), LEAF and FedProx.

    It consists of an embedding of length 8, two LSTM layers of 256 units, and a linear layer.

    The network predicts the token after a window of tokens. With LEAF's 80 characters, it has 817,872 parameters. With
    82 tokens, it has 818,402 parameters, the number often quoted for this task. With the 90 tokens of Reddi et al.
    (ICLR 2021), it has 820,522 parameters.
    """

    embedding: int = Field(8, gt=0)
    """Length of the embedding vector of a token."""
    units: int = Field(256, gt=0)
    """Number of units of each LSTM layer."""
    layers: int = Field(2, gt=0, le=64)
    """Number of LSTM layers."""
    vocabulary: int | None = Field(None, gt=0)
    """Number of different input tokens. Null uses the number of outputs, which is correct if the next token is
    predicted."""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        if len(input_shape) != 1:
            raise ScenarioError(
                f"model: samples must be windows [length] of tokens for {self.kind}, got shape {list(input_shape)}; "
                "use data such as text, or a model such as mlp"
            )
        return nn.Sequential(
            nn.Embedding(self.vocabulary or outputs, self.embedding),
            _LastState(self.embedding, self.units, self.layers),
            *self._head(outputs),
        )

    def _head(self, outputs: int) -> list[nn.Module]:
        """Return the output layers, which map the last LSTM state [n, units] to the outputs."""
        return [nn.Linear(self.units, outputs)]


class WordLstm(CharLstm):
    """The word LSTM of Reddi et al. (ICLR 2021).

    It consists of an embedding of length 96, an LSTM layer of 670 units, a linear layer of 96 units, and the output
    layer.

    The network predicts the token after a window of tokens. With the 10,004 tokens of the Stack Overflow task in the
    paper, it has 4,050,748 parameters.
    """

    embedding: int = Field(96, gt=0)
    units: int = Field(670, gt=0)
    layers: int = Field(1, gt=0, le=64)
    projection: int = Field(96, gt=0)
    """Number of units of the linear layer between the LSTM layers and the outputs."""

    def _head(self, outputs: int) -> list[nn.Module]:
        return [nn.Linear(self.units, self.projection), nn.Linear(self.projection, outputs)]


class _LastState(nn.Module):
    """LSTM layers whose output is the state of the last layer after the last token."""

    def __init__(self, inputs: int, units: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, units, layers, batch_first=True)
        for name, parameter in self.lstm.named_parameters():
            if name.startswith("bias_hh"):
                parameter.requires_grad = False
                nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs [n, length, inputs] to states [n, units]."""
        states: Tensor = self.lstm(x)[0]
        return states[:, -1]

    def train(self, mode: bool = True) -> _LastState:
        """Stay in training mode: cuDNN computes no gradients in evaluation mode, and there is no dropout."""
        return super().train(True)
