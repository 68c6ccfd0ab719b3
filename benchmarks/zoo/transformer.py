"""BERT encoders (Devlin et al. 2018), ViT-tiny (Dosovitskiy et al. 2020, Touvron et al. 2021) and a
small GPT-2 (Radford et al. 2019), each with attention as in its usual code."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.zoo.layers import Mlp, attend

VOCABULARY = 30522
GPT_VOCABULARY = 8192


class BertLayer(nn.Module):
    """Attention and MLP, each followed by add and norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out, self.norm1 = nn.Linear(width, width), nn.LayerNorm(width, 1e-12)
        self.mlp, self.norm2 = Mlp(width, 4 * width), nn.LayerNorm(width, 1e-12)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        heads = attend(self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x)), bias)
        joined = heads.permute(0, 2, 1, 3).contiguous().view(x.shape)
        x = self.norm1(x + self.out(joined))
        return self.norm2(x + self.mlp(x))


class Bert(nn.Module):
    """Token states and the pooled first token, of ids, mask and segments."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(512, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.ModuleList([BertLayer(width, heads) for _ in range(layers)])
        self.pooler = nn.Linear(width, width)
        self.register_buffer("position_ids", torch.arange(512)[None])

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        places = self.position_ids[:, : ids.shape[1]]
        x = self.norm(self.words(ids) + self.segments(segments) + self.places(places))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, bias)
        return x, torch.tanh(self.pooler(x[:, 0]))


def bert(width: int, layers: int, heads: int) -> nn.Module:
    return Bert(width, layers, heads)


class VitBlock(nn.Module):
    """Norm before attention and MLP; queries, keys and values from one product."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = Mlp(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(n, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        heads = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(heads.transpose(1, 2).reshape(n, tokens, width))
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    """A class token and 16 x 16 patches through `layers` blocks."""

    def __init__(self, width: int, layers: int, heads: int, size: int = 224) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, (size // 16) ** 2 + 1, width))
        nn.init.normal_(self.token)
        nn.init.normal_(self.places, std=0.5)
        self.blocks = nn.Sequential(*[VitBlock(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


def vit_tiny() -> nn.Module:
    return Vit(192, 12, 3)


class Projection(nn.Module):
    """GPT-2's linear layer: weights lie inputs x outputs, and the product is of rank 2."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * inputs**-0.5)
        self.bias = nn.Parameter(torch.randn(outputs) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return y.view(*x.shape[:-1], y.shape[-1])


class GptBlock(nn.Module):
    """Norm before; a token attends to itself and to those before it."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = Projection(width, 3 * width), Projection(width, width)
        self.grow, self.shrink = Projection(width, 4 * width), Projection(4 * width, width)
        self.act = nn.GELU(approximate="tanh")
        lower = torch.ones(length, length, dtype=torch.bool).tril()
        self.register_buffer("lower", lower[None, None])

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(width, 2)
        q, k, v = (t.view(n, tokens, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        scores = torch.matmul(q, k.transpose(-1, -2)) / v.shape[-1] ** 0.5
        seen = self.lower[:, :, :tokens, :tokens]
        scores = torch.where(seen, scores, torch.finfo(scores.dtype).min)
        heads = torch.matmul(scores.softmax(-1), v).transpose(1, 2).contiguous()
        x = x + self.out(heads.view(n, tokens, width))
        return x + self.shrink(self.act(self.grow(self.norm2(x))))


class Gpt(nn.Module):
    """The next token's logits at every place; words enter and leave by one matrix."""

    def __init__(self, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(GPT_VOCABULARY, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[GptBlock(width, heads, length) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        x = self.norm(self.blocks(self.words(ids) + self.places(places)))
        return nn.functional.linear(x, self.words.weight)


def gpt2_like() -> nn.Module:
    return Gpt(256, 4, 4, 128)
