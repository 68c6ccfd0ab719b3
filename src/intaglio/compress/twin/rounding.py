"""Rounding to integers with the gradients of quantisation-aware training.

`real` is a tensor divided by its scale. A rounded tensor stands for scale * (q - zero). Gradients
of what rounds are straight through; those of scale and zero point depend on the method:

- lsq: learned step size (Esser et al., arXiv 1902.08153)
- lsq+: the same, and a learned zero point (Bhalgat et al., arXiv 2004.09576)
- pact: a learned clipping bound; only clipped elements move it (Choi et al., arXiv 1805.06085)
- minmax: the scale follows the observed range and has no gradient
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

METHODS = ("lsq", "lsq+", "pact", "minmax")
LEAST_SCALE = 1e-12
LEAST_RATIO = 1e-3  # of a trained scale to the one it began with
MOMENTUM = 0.01  # of the observed range, method minmax


class _Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class _Sign(torch.autograd.Function):
    """The sign, with the slope 2 - 2|x| near 0 (Bi-Real Net, arXiv 1808.00278)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.sign(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * (2 - 2 * x.abs()).clamp_min(0)


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1, with a gradient near 0."""
    return _Sign.apply(x)


def binary_weights(w: Tensor) -> Tensor:
    """The sign of each weight times the mean size of its output channel's weights."""
    size = w.detach().abs().mean(list(range(1, w.dim())), keepdim=True)
    signs = w + (torch.where(w >= 0, 1.0, -1.0) - w).detach()  # straight through
    return signs * size


def rounded(x: Tensor) -> Tensor:
    """Round half to even, with the gradient of the identity."""
    return _Straight.apply(x)


class _Stored(torch.autograd.Function):
    """clamp(round(real) + zero), per tensor or per index of the first axis."""

    @staticmethod
    def forward(
        ctx: Any, real: Tensor, scale: Tensor, zero: Tensor, low: float, high: float, how: str
    ) -> Tensor:
        free = real.round() + zero
        q = free.clamp(low, high)
        ctx.save_for_backward(real, scale, zero, q, free == q)
        ctx.how = how
        return q

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        real, scale, zero, q, inside = ctx.saved_tensors
        of_scale = of_zero = None
        if ctx.needs_input_grad[1] and ctx.how != "minmax":
            part = q - zero
            part = torch.where(
                inside, torch.zeros_like(q) if ctx.how == "pact" else part - real, part
            )
            of_scale = _summed(grad * part, scale) / scale
        if ctx.needs_input_grad[2] and ctx.how == "lsq+":
            of_zero = _summed(torch.where(inside, torch.zeros_like(grad), -grad), zero)
        return grad * inside, of_scale, of_zero, None, None, None


def _summed(x: Tensor, like: Tensor) -> Tensor:
    """The sum over all axes that `like` does not have."""
    if like.numel() == 1:
        return x.sum().reshape(like.shape)
    axes = [i for i in range(x.dim()) if like.shape[i] == 1]
    return x.sum(axes, keepdim=True)


def unit_of(real: Tensor) -> float:
    """The power of two next to the root mean square: parameters in it are of the size of 1.

    So one learning rate fits all layers, whatever the sizes of their weights.
    """
    size = float(real.double().square().mean().sqrt())
    return 2.0 ** round(math.log2(size)) if 0 < size < math.inf else 1.0


class Rounding(nn.Module):
    """The scale and zero point of a group of activations."""

    def __init__(
        self, scale: float, zero: int, limits: tuple[int, int], how: str, free: bool, name: str
    ):
        super().__init__()
        self.how, self.free, self.name, self.limits = how, free, name, limits
        learned = free and how != "minmax"
        self.register_buffer("start", torch.tensor(scale))
        self.ratio = nn.Parameter(torch.ones(()), learned)  # scale / start: steps are relative
        self._zero = nn.Parameter(torch.tensor(float(zero)), free and how == "lsq+")
        self.bounds: tuple[float, float] = (float(limits[0]), float(limits[1]))

    @property
    def scale(self) -> Tensor:
        """The scale as a factor: its gradient comes from `__call__` alone."""
        return (self.start * self.ratio).detach()

    @property
    def zero(self) -> Tensor:
        return self._zero.detach().round().clamp(*map(float, self.limits))

    def forward(self, real: Tensor, bounds: tuple[float, float] | None = None) -> Tensor:
        """Round a tensor that is divided by the scale; `bounds` clamp tighter than the type."""
        low, high = bounds or self.bounds
        if self.training and self.free and self.how == "minmax":
            self._follow(real.detach(), low, high)
        zero = self._zero if self.how == "lsq+" else self.zero
        if self.how == "lsq+":
            zero = rounded(zero.clamp(*map(float, self.limits)))
        return _Stored.apply(real, self.start * self.ratio, zero, low, high, self.how)

    @torch.no_grad()
    def _follow(self, real: Tensor, low: float, high: float) -> None:
        """Move the scale towards the one that just holds what was seen."""
        zero = float(self.zero)
        need = (
            max(
                float(real.max()) / max(high - zero, 1.0), -float(real.min()) / max(zero - low, 1.0)
            )
            if zero > low
            else float(real.max()) / max(high - zero, 1.0)
        )
        self.start.mul_(1 + MOMENTUM * (max(need, 0.1) - 1))

    def get_extra_state(self) -> list[float]:
        return list(self.bounds)

    def set_extra_state(self, state: list[float]) -> None:
        self.bounds = state[0], state[1]

    @torch.no_grad()
    def constrain(self) -> None:
        """Keep the scale positive."""
        self.ratio.clamp_(min=LEAST_RATIO)

    @torch.no_grad()
    def set(self, scale: float, zero: int, bounds: tuple[float, float]) -> None:
        """Another scale, zero point and range of integers."""
        self.start.fill_(scale)
        self.ratio.fill_(1.0)
        self._zero.fill_(float(zero))
        self.bounds = bounds


class Weights(nn.Module):
    """The float weights of a layer, and the scales per output channel that round them."""

    def __init__(
        self, integers: Tensor, scale: Tensor, zero: Tensor, limits: tuple[int, int], how: str,
        axis: int = 0,
    ):  # fmt: skip
        super().__init__()
        self.axis = axis  # of output channels, along which scales differ
        self.limits, self.how = limits, "minmax" if how in ("minmax", "pact") else "lsq"
        self.register_buffer("zero", zero)
        self.register_buffer("start", scale.clone())
        self.ratio = nn.Parameter(torch.ones_like(scale), self.how == "lsq")
        real = (integers - self._column(zero, integers)) * self._column(scale, integers)
        self.unit = unit_of(real)
        self.weight = nn.Parameter(real / self.unit)
        self.register_buffer("keep", torch.ones(()))  # a mask: pruned weights stay 0

    def _column(self, p: Tensor, w: Tensor) -> Tensor:
        """A parameter per channel, shaped to broadcast against the weights."""
        if p.numel() == 1:
            return p.reshape(())
        return p.reshape([-1 if i == self.axis else 1 for i in range(w.dim())])

    def _channels(self, w: Tensor) -> Tensor:
        """The weights with a row for each scale."""
        if self.start.numel() == 1:
            return w.reshape(1, -1)
        return w.movedim(self.axis, 0).reshape(self.start.numel(), -1)

    @property
    def real(self) -> Tensor:
        """The float weights."""
        return self.weight * self.unit * self.keep

    @property
    def scale(self) -> Tensor:
        return (self.start * self.ratio).detach()

    def integers(self) -> Tensor:
        """The integers less their zero points."""
        w = self.real
        if self.how == "minmax" and self.training:
            self._follow(w.detach())
        scale = self._column(self.start * self.ratio, w)
        zero = self._column(self.zero, w)
        low, high = self.limits
        return _Stored.apply(w / scale.detach(), scale, zero, low, high, self.how) - zero

    @torch.no_grad()
    def _follow(self, w: Tensor) -> None:
        rows = self._channels(w)
        most = float(min(self.limits[1], -self.limits[0]))
        found = rows.abs().amax(1) / most
        self.start.copy_(found.clamp_min(LEAST_SCALE).reshape(self.start.shape))

    def get_extra_state(self) -> list[int]:
        return list(self.limits)

    def set_extra_state(self, state: list[int]) -> None:
        self.limits = state[0], state[1]

    @torch.no_grad()
    def constrain(self) -> None:
        self.ratio.clamp_(min=LEAST_RATIO)

    @torch.no_grad()
    def hold_signs(self) -> None:
        """Leave binary weights, +a and -a, as they are: as integers they are not trained."""
        sizes = self.integers().abs()
        if sizes.numel() > 1 and bool((sizes == sizes.max()).all()):
            self.weight.requires_grad_(False)
            self.ratio.requires_grad_(False)

    @torch.no_grad()
    def narrow(self, bits: int) -> None:
        """Round to fewer bits, with the scales of least squared error."""
        self.limits = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if bits > 1 else (-1, 1)
        low, high = self.limits
        w = self.real
        rows = self._channels(w)
        most = rows.abs().amax(1, keepdim=True).clamp_min(LEAST_SCALE) / max(high, 1)
        best = torch.full((len(rows), 1), float("inf"))
        scale = most.clone()
        for share in torch.linspace(0.3, 1.05, 31):
            s = most * share
            error = ((rows / s).round().clamp(low, high) * s - rows).square().sum(1, keepdim=True)
            scale = torch.where(error < best, s, scale)
            best = torch.minimum(error, best)
        self.start.copy_(scale.reshape(self.start.shape))
        self.ratio.fill_(1.0)
        self.zero.zero_()
