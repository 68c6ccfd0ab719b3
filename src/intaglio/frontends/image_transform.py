"""Image preprocessing as graph nodes: from the image that a user gives to the model's input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Type, Value, constant


@dataclass
class ImageTransform:
    """The preprocessing of one input, from the new input to the value that the model reads."""

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
        """The new input, and the value that replaces the old input."""
        old = self.old
        shape = list(old.shape)
        if self.size and self.axis:
            shape[self._height_axis], shape[self._height_axis + 1] = self.size
        given = (
            shape if self.perm is None else [shape[self.perm.index(k)] for k in range(len(shape))]
        )
        same = self.dtype == old.dtype  # the quantisation of the input still holds
        image = Value(Type(self.dtype, tuple(given), old.type.quant if same else None), old.name)
        x = image if self.perm is None else ops.transpose(image, perm=self.perm)
        plain = self.mean is None and self.std is None and self.bounds is None
        if same and plain and self.size is None:
            return image, self._swapped(x)
        rounded = self.old.type.quant is not None and not dtypes.is_float(old.dtype)
        tables = rounded or all(n.op == "quantize_linear" for n in old.uses)
        if tables and self.dtype == "u8" and self.size is None:
            x = self._dequantized(self._swapped(x))
        else:
            x = self._normalized(x if self.dtype == "f32" else ops.cast(x, dtype="f32"))
        if rounded:
            assert old.type.quant is not None
            scale, zero = old.type.quant.scale[0], old.type.quant.zero[0]
            x = ops.quantize_linear(
                x, constant(scale, dtype="f32"), constant(zero, dtype=old.dtype), dtype=old.dtype
            )
        return image, x if x.dtype == old.dtype else ops.cast(x, dtype=old.dtype)

    def _normalized(self, x: Value) -> Value:
        """Letterbox, then subtract the mean and divide by the standard deviation.

        Channels are swapped last, with mean and std in swapped order: a following convolution can
        then fuse the swap and after it the factors into its weights.
        """
        x = self._letterboxed(x)
        if self.bounds and self.bounds != (0.0, 255.0):
            low, high = self.bounds
            x = ops.mul(x, np.float32((high - low) / 255))
            x = ops.add(x, np.float32(low)) if low else x
        for numbers, op in ((self.mean, ops.sub), (self.std, ops.div)):
            x = x if numbers is None else op(x, self._per_channel(numbers))
        return self._swapped(x)

    @property
    def _height_axis(self) -> int:
        """The axis of the height; the width is the next one."""
        return 2 if self.axis == 1 else 1

    @property
    def _channel_order(self) -> list[int]:
        assert self.axis is not None
        return [2, 1, 0, *range(3, self.old.shape[self.axis])]

    def _swapped(self, x: Value) -> Value:
        if not self.swap:
            return x
        return ops.gather(x, constant(np.array(self._channel_order, np.int64)), axis=self.axis)

    def _per_channel(self, numbers: Array) -> Array:
        if self.axis is None:
            return np.asarray(numbers[0], np.float32)
        mine = numbers[self._channel_order] if self.swap else numbers
        shape = [1] * self.old.type.rank
        shape[self.axis] = mine.size
        return np.ascontiguousarray(mine.reshape(shape), np.float32)

    def _letterboxed(self, x: Value) -> Value:
        """Resize to fit the model's size with the aspect ratio kept, then pad on both sides."""
        if self.size is None:
            return x
        high, wide = self.old.shape[self._height_axis], self.old.shape[self._height_axis + 1]
        inner = letterbox_size(self.size, (high, wide))
        axes = (self._height_axis, self._height_axis + 1)
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

    def _dequantized(self, x: Value) -> Value:
        """Normalise from dequantised bytes, for a model whose input is quantised next.

        The integer rules then turn this into one table of 256 entries per run of channels with
        equal mean and std. The arithmetic is that of the calibration samples, because pixels minus
        127.5 are exactly halfway between two integers.
        """
        count = 1 if self.axis is None else self.old.shape[self.axis]
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
            part = x
            if self.axis is not None and c - start < count:
                part = ops.part(x, start, c, axis=self.axis)
            real = ops.dequantize_linear(part, constant(step), constant(0, dtype="u8"))
            real = ops.add(real, np.float32(low)) if low else real
            for op, number in zip((ops.sub, ops.div), numbers[start], strict=True):
                real = op(real, constant(number, dtype="f32"))
            parts.append(real)
            start = c
        made: Value = parts[0] if len(parts) == 1 else ops.concat(*parts, axis=self.axis)
        return made


def letterbox_size(size: tuple[int, int], into: tuple[int, int]) -> tuple[int, int]:
    """Height and width of an image of `size` scaled to fit `into`, with the aspect ratio kept."""
    ratio = min(into[0] / size[0], into[1] / size[1])
    return max(round(size[0] * ratio), 1), max(round(size[1] * ratio), 1)
