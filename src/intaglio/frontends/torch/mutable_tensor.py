"""In-place updates and views: a MutableTensor holds the current value of a PyTorch tensor.

A view computes its value from its base and can write back to it, so that `x[:, 0] = y` changes `x`
and all other views of `x`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio import ops
from intaglio.errors import Unsupported
from intaglio.frontends.torch.tensors import Quantized
from intaglio.ir import Value

Held = Value | Quantized
Forward = Callable[[Value], Value]
Backward = Callable[[Value, Value], Value]  # (base, new value of the view) -> new base


class MutableTensor:
    """A tensor of the model, which in-place operators may overwrite."""

    __slots__ = ("_held", "_seen", "back", "base", "forward", "label")

    def __init__(self, held: Held, label: str = ""):
        self._held, self.label = held, label
        self.base: MutableTensor | None = None
        self.forward: Forward | None = None
        self.back: Backward | None = None
        self._seen: Held | None = None

    @classmethod
    def view(
        cls, base: MutableTensor, held: Value, forward: Forward, back: Backward | None
    ) -> MutableTensor:
        """A view of `base` whose current value is `held`."""
        result = cls(held)
        result.base, result.forward, result.back, result._seen = base, forward, back, base.held
        return result

    @property
    def held(self) -> Held:
        if self.base is not None and self.forward is not None:
            now = self.base.held
            if now is not self._seen:
                if isinstance(now, Quantized):
                    raise Unsupported(
                        "a tensor with a view is overwritten by a quantised one; clone the view"
                    )
                self._held, self._seen = self.forward(now), now
        return self._held

    def write(self, new: Held) -> None:
        """Overwrite the tensor and, if it is a view, its base."""
        if self.base is None:
            self._held = new
            return
        base = self.base.held
        if self.back is None or isinstance(base, Quantized) or isinstance(new, Quantized):
            raise Unsupported(
                "a tensor is overwritten through a view without a known inverse; "
                "write the model without the in-place operation"
            )
        self.base.write(self.back(base, new))
        self._held, self._seen = new, self.base.held

    @property
    def root(self) -> MutableTensor:
        tensor = self
        while tensor.base is not None:
            tensor = tensor.base
        return tensor


def with_slice_replaced(
    base: Value, new: Value, axis: int, start: int, stop: int, step: int = 1
) -> Value:
    """`base` with the indices start, start + step, ... below stop of `axis` replaced by `new`."""
    extent = base.shape[axis]
    places = list(range(start, min(stop, extent), step))
    if not places:
        return base
    want = (*base.shape[:axis], len(places), *base.shape[axis + 1 :])
    if new.dtype != base.dtype:
        new = ops.cast(new, dtype=base.dtype)
    if new.shape != want:
        new = ops.expand(new, shape=want)
    if step == 1:
        parts = [new]
        if start > 0:
            parts.insert(0, ops.part(base, 0, start, axis=axis))
        if places[-1] + 1 < extent:
            parts.append(ops.part(base, places[-1] + 1, extent, axis=axis))
        result: Value = ops.concat(*parts, axis=axis) if len(parts) > 1 else new
        return result
    index = np.arange(extent)
    index[places] = extent + np.arange(len(places))
    both = ops.concat(base, new, axis=axis)
    result = ops.gather(both, index.astype(np.int64), axis=axis)
    return result
