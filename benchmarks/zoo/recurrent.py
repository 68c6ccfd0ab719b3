"""Two recurrent layers of 256 and a linear layer over every step, batch first."""

from __future__ import annotations

from torch import Tensor, nn


class Recurrent(nn.Module):
    def __init__(self, layer: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.layers = layer(128, 256, num_layers=2, batch_first=True)
        self.out = nn.Linear(256, 128)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layers(x)[0])


def lstm() -> nn.Module:
    return Recurrent(nn.LSTM)


def gru() -> nn.Module:
    return Recurrent(nn.GRU)
