"""A small hierarchical transformer with shifted windows (after Swin, Liu et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.zoo.layers import Mlp, attend

WINDOW = 7


def windows(x: Tensor, w: int) -> Tensor:
    """n x h x w x c into windows of tokens: (n * windows) x w² x c."""
    n, height, width, c = x.shape
    x = x.view(n, height // w, w, width // w, w, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, c)


def join(x: Tensor, w: int, height: int, width: int) -> Tensor:
    """The inverse of `windows`."""
    c = x.shape[-1]
    x = x.view(-1, height // w, width // w, w, w, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, height, width, c)


def places(w: int) -> Tensor:
    """For each pair of tokens in a window, the row of their offset in the table of biases."""
    at = torch.arange(w)
    token = torch.stack(torch.meshgrid(at, at, indexing="ij")).flatten(1)
    offset = token[:, :, None] - token[:, None, :] + w - 1
    return offset[0] * (2 * w - 1) + offset[1]


def apart(size: int, w: int, shift: int) -> Tensor:
    """The mask between tokens that share a window only because of the roll."""
    region = torch.bucketize(torch.arange(size), torch.tensor([size - w, size - shift]), right=True)
    label = windows((region[:, None] * 3 + region)[None, :, :, None], w).squeeze(-1)
    return (label[:, :, None] != label[:, None, :]).float() * -100.0


class WindowAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * WINDOW - 1) ** 2, heads))
        self.register_buffer("places", places(WINDOW))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        n, tokens, width = x.shape
        qkv = self.qkv(x).reshape(n, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.places.view(-1)].view(tokens, tokens, -1)
        bias = bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        if mask is not None:  # one mask per window, the same for each image
            bias = bias + mask.unsqueeze(1)
            bias = bias.repeat(n // mask.shape[0], 1, 1, 1)
        return self.out(attend(q, k, v, bias).transpose(1, 2).reshape(n, tokens, width))


class SwinBlock(nn.Module):
    """Attention within windows; every second block rolls the image by half a window first."""

    def __init__(self, width: int, heads: int, size: int, shifted: bool) -> None:
        super().__init__()
        self.shift = WINDOW // 2 if shifted and size > WINDOW else 0
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = WindowAttention(width, heads), Mlp(width, 4 * width)
        self.register_buffer("mask", apart(size, WINDOW, self.shift) if self.shift else None)

    def forward(self, x: Tensor) -> Tensor:
        _, height, width, _ = x.shape
        y, s = self.norm1(x), self.shift
        if s:
            y = torch.roll(y, (-s, -s), (1, 2))
        y = join(self.attention(windows(y, WINDOW), self.mask), WINDOW, height, width)
        if s:
            y = torch.roll(y, (s, s), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class Merge(nn.Module):
    """Each 2 x 2 of tokens becomes one, twice as wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduce = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        corners = [x[:, i::2, j::2, :] for j in (0, 1) for i in (0, 1)]
        return self.reduce(self.norm(torch.cat(corners, -1)))


class Swin(nn.Module):
    def __init__(self, width: int, depths: tuple[int, ...], head: int, size: int = 224) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        layers: list[nn.Module] = []
        size //= 4
        for stage, depth in enumerate(depths):
            if stage:
                layers.append(Merge(width))
                width, size = 2 * width, size // 2
            for i in range(depth):
                layers.append(SwinBlock(width, width // head, size, shifted=i % 2 == 1))
        self.body, self.last = nn.Sequential(*layers), nn.LayerNorm(width)
        self.classify = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.patches(x).permute(0, 2, 3, 1))
        return self.classify(self.last(self.body(x)).mean((1, 2)))


def swin_like() -> nn.Module:
    return Swin(48, (2, 2, 2, 2), 24)
