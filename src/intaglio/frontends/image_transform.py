"""Pictures as cameras give them, in the form that a model's input has: as nodes of the graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Type, Value, constant


@dataclass
class ImageTransform:
    """From what comes to what the model's input was."""

    old: Value
    axis: int | None
    dtype: str
    perm: tuple[int, ...] | None
    swap: bool
    size: tuple[int, int] | None
    bounds: tuple[float, float] | None
    mean: Array | None
    std: Array | None
    pad_value: float

    def build(self) -> tuple[Value, Value]:
        """The new input, and what takes the old one's place."""
        old = self.old
        shape = list(old.shape)
        if self.size and self.axis:
            shape[self._high], shape[self._high + 1] = self.size
        given = (
            shape if self.perm is None else [shape[self.perm.index(k)] for k in range(len(shape))]
        )
        same = self.dtype == old.dtype  # what it says of its scale is still true
        picture = Value(Type(self.dtype, tuple(given), old.type.quant if same else None), old.name)
        x = picture if self.perm is None else ops.transpose(picture, perm=self.perm)
        plain = self.mean is None and self.std is None and self.bounds is None
        if same and plain and self.size is None:
            return picture, self._swapped(x)
        rounded = self.old.type.quant is not None and not dtypes.is_float(old.dtype)
        tables = rounded or all(n.op == "quantize_linear" for n in old.uses)
        if tables and self.dtype == "u8" and self.size is None:
            x = self._by_tables(self._swapped(x))
        else:
            x = self._normalized(x if self.dtype == "f32" else ops.cast(x, dtype="f32"))
        if rounded:
            assert old.type.quant is not None
            scale, zero = old.type.quant.scale[0], old.type.quant.zero[0]
            x = ops.quantize_linear(
                x, constant(scale, dtype="f32"), constant(zero, dtype=old.dtype), dtype=old.dtype
            )
        return picture, x if x.dtype == old.dtype else ops.cast(x, dtype=old.dtype)

    def _normalized(self, x: Value) -> Value:
        """Fitted into the model's size, less the mean, by the deviation.

        Channels are swapped last, and the numbers before that the other way round: a convolution
        that follows takes the order into its weights, and then the numbers.
        """
        x = self._fitted(x)
        if self.bounds and self.bounds != (0.0, 255.0):
            low, high = self.bounds
            x = ops.mul(x, np.float32((high - low) / 255))
            x = ops.add(x, np.float32(low)) if low else x
        for numbers, op in ((self.mean, ops.sub), (self.std, ops.div)):
            x = x if numbers is None else op(x, self._spread(numbers))
        return self._swapped(x)

    @property
    def _high(self) -> int:
        """The axis of rows; that of columns follows."""
        return 2 if self.axis == 1 else 1

    @property
    def _order(self) -> list[int]:
        assert self.axis is not None
        return [2, 1, 0, *range(3, self.old.shape[self.axis])]

    def _swapped(self, x: Value) -> Value:
        if not self.swap:
            return x
        return ops.gather(x, constant(np.array(self._order, np.int64)), axis=self.axis)

    def _spread(self, numbers: Array) -> Array:
        assert self.axis is not None
        mine = numbers[self._order] if self.swap else numbers
        shape = [1] * 4
        shape[self.axis] = mine.size
        return np.ascontiguousarray(mine.reshape(shape), np.float32)

    def _fitted(self, x: Value) -> Value:
        """A picture of another size, as large as fits into the model's, in its middle."""
        if self.size is None:
            return x
        high, wide = self.old.shape[self._high], self.old.shape[self._high + 1]
        inner = letterbox_size(self.size, (high, wide))
        axes = (self._high, self._high + 1)
        if inner != self.size:
            scales = tuple(float(a / b) for a, b in zip(inner, self.size, strict=True))
            x = ops.resize(
                x,
                axes=axes,
                shape=inner,
                scales=scales,
                mode="linear",
                coordinate_transformation_mode="half_pixel",
            )
        before, after = [0] * 4, [0] * 4
        for a, whole, part in zip(axes, (high, wide), inner, strict=True):
            before[a] = (whole - part) // 2
            after[a] = whole - part - before[a]
        if not any(before) and not any(after):
            return x
        return ops.pad(x, before=tuple(before), after=tuple(after), value=self.pad_value)

    def _by_tables(self, x: Value) -> Value:
        """Every channel is a function of its bytes, and what follows is quantised: the integer
        rules make one table of 256 bytes of it, for each run of channels that share numbers.

        It is computed as samples are, because whole pixels less 127.5 lie between two bytes all.
        """
        assert self.axis is not None
        count = self.old.shape[self.axis]
        low, high = self.bounds or (0.0, 255.0)
        step = np.float32((high - low) / 255)
        numbers = [
            (float(m), float(s))
            for m, s in zip(
                np.zeros(count) if self.mean is None else self.mean,
                np.ones(count) if self.std is None else self.std,
                strict=True,
            )
        ]
        parts, start = [], 0
        for c in range(1, count + 1):
            if c < count and numbers[c] == numbers[start]:
                continue
            part = ops.part(x, start, c, axis=self.axis) if c - start < count else x
            real = ops.dequantize_linear(part, constant(step), constant(0, dtype="u8"))
            real = ops.add(real, np.float32(low)) if low else real
            for op, number in zip((ops.sub, ops.div), numbers[start], strict=True):
                real = op(real, constant(number, dtype="f32"))
            parts.append(real)
            start = c
        made: Value = parts[0] if len(parts) == 1 else ops.concat(*parts, axis=self.axis)
        return made


def letterbox_size(size: tuple[int, int], into: tuple[int, int]) -> tuple[int, int]:
    """Height and width of a picture of that size when it is made to fit."""
    ratio = min(into[0] / size[0], into[1] / size[1])
    return max(round(size[0] * ratio), 1), max(round(size[1] * ratio), 1)
