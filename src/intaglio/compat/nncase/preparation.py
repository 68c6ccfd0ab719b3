"""Preprocessing in nncase's order, as nodes of the graph.

New input, transpose, swap of red and blue, dequantise, letterbox, normalise, layout of the model;
then the model, and the layout of its outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from intaglio import dtypes, ops
from intaglio.compat.nncase.settings import Preprocess
from intaglio.errors import BadInput
from intaglio.frontends.image_transform import letterbox_size
from intaglio.ir import Graph, Type, Value, constant

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


@dataclass(frozen=True)
class Preparation:
    """The preprocessing of a model."""

    settings: Preprocess
    model_layout: str  # NCHW or NHWC
    quantized: bool

    @property
    def dtype(self) -> str:
        """The element type of the new inputs."""
        return self.settings.dtype or ("u8" if self.quantized else "f32")

    @property
    def by_channel(self) -> bool:
        """Whether channels of bytes are swapped, or normalised by different numbers."""
        numbers = (self.settings.mean, self.settings.std)
        return self._tables and (self.settings.swap or any(len(set(n)) > 1 for n in numbers))

    def as_layer(self, graph: Graph) -> Preparation:
        """Let a 1x1 convolution of the graph swap and normalise; the preparation without that.

        The KPU has no other arithmetic that differs by channel.
        """
        s, found = self.settings, False
        for i, old in enumerate(list(graph.inputs)):
            channels = old.shape[1 if self.model_layout == "NCHW" else -1]
            if not self.applies(old.type) or old.type.rank != 4 or channels < 2:
                continue
            mean = np.array(_per_channel(s.mean or (0.0,), channels))
            std = np.array(_per_channel(s.std or (1.0,), channels))
            order = _swapped(channels) if s.swap and channels >= 3 else range(channels)
            weights = np.zeros((channels, channels, 1, 1), np.float32)
            weights[range(channels), list(order), 0, 0] = 1 / std
            given = Value(old.type, old.name)
            x = ops.transpose(given, perm=TO_NCHW) if self.model_layout == "NHWC" else given
            bias = constant((-mean / std).astype(np.float32))
            x = ops.conv(
                x, constant(weights), bias, stride=(1, 1), pad=(0, 0, 0, 0), dilation=(1, 1)
            )
            x = ops.transpose(x, perm=TO_NHWC) if self.model_layout == "NHWC" else x
            x.name = old.name = f"{given.name}_normalized"
            graph.replace(old, x)
            graph.inputs[i], found = given, True
        return replace(self, settings=replace(s, mean=(), std=(), swap=False)) if found else self

    @property
    def _tables(self) -> bool:
        """Whether tables of bytes may do the arithmetic."""
        return self.quantized and self.dtype != "f32"

    def embed(self, graph: Graph) -> None:
        """Make the preprocessing part of a graph."""
        for i, old in enumerate(list(graph.inputs)):
            if old.name in graph.state or not self.applies(old.type):
                continue
            given, made = self.chain(old.name, old.type)
            made.name = old.name = f"{given.name}_prepared"
            graph.replace(old, made)
            graph.inputs[i] = given
        self._turn_outputs(graph)

    def graph_of(self, name: str, old: Type) -> Graph:
        """A graph of the preprocessing alone, for calibration samples."""
        given, made = self.chain(name, old)
        return Graph([given], [made], ["prepared"], "preparation")

    def applies(self, old: Type) -> bool:
        """Whether an input is prepared: floats with as many axes as `input_shape`."""
        rank = len(self.settings.shape) or 4
        return dtypes.is_float(old.dtype) and old.rank == rank

    def chain(self, name: str, old: Type) -> tuple[Value, Value]:
        """The new input, and the value that the model reads."""
        s = self.settings
        shape = s.shape or self._model_shape_in(old)
        given = Value(Type(self.dtype, shape), name)
        x = given
        if (perm := self._permutation(old)) is not None:
            x = ops.transpose(given, perm=perm)
        picture = old.rank == 4
        if picture and s.swap and x.shape[1] >= 3:
            order = np.array(_swapped(x.shape[1]), np.int64)
            x = ops.gather(x, constant(order), axis=1)
        if self._tables and picture and self._size(old) == x.shape[2:]:
            x = self._by_runs(x)
        else:
            x = self._dequantized(x) if self.dtype != "f32" else x
            x = self._letterboxed(x, old) if picture else x
            x = self._normalized(x, picture)
        if picture and self.model_layout == "NHWC":
            x = ops.transpose(x, perm=TO_NHWC)
        if x.shape != old.shape:
            raise BadInput(
                f"input_shape {list(shape)} in layout '{s.layout or 'as the model'}' becomes "
                f"{list(x.shape)}, but input '{name}' of the model is {list(old.shape)}; "
                "change input_shape or input_layout"
            )
        return given, x if x.dtype == old.dtype else ops.cast(x, dtype=old.dtype)

    def _model_shape_in(self, old: Type) -> tuple[int, ...]:
        """The shape of the model's input in the layout of the new one."""
        perm, shape = self._permutation(old), old.shape
        if old.rank == 4 and self.model_layout == "NHWC":
            shape = tuple(shape[k] for k in TO_NCHW)
        return shape if perm is None else tuple(shape[perm.index(k)] for k in range(len(shape)))

    def _permutation(self, old: Type) -> tuple[int, ...] | None:
        """From the layout of the new input to NCHW, or to the model's if it has not four axes."""
        layout = self.settings.layout
        if layout in ("NHWC", "NCHW", "") and old.rank == 4:
            given = layout or self.model_layout
            return TO_NCHW if given == "NHWC" else None
        if layout in ("NHWC", "NCHW", ""):
            return None
        perm = tuple(int(p) for p in layout.split(","))
        if len(perm) != old.rank:
            raise BadInput(f"input_layout is '{layout}', but the input has {old.rank} axes: {old}")
        return perm

    def _dequantized(self, x: Value) -> Value:
        low, high = self.settings.bounds
        first, last = dtypes.limits(self.dtype)
        scale = (high - low) / (last - first)
        zero = round(first - low / scale)
        if first <= zero <= last:
            stored = constant(zero, dtype=self.dtype)
            real: Value = ops.dequantize_linear(x, constant(np.float32(scale)), stored)
            return real
        scaled = ops.mul(ops.cast(x, dtype="f32"), np.float32(scale))
        made: Value = ops.add(scaled, np.float32(low - first * scale))
        return made

    def _by_runs(self, x: Value) -> Value:
        """Dequantise and normalise each run of channels with equal numbers.

        The integer rules turn every run into one table of bytes where the model is quantised.
        """
        count = x.shape[1]
        mean, std = (_per_channel(n, count) for n in (self.settings.mean, self.settings.std))
        pairs = list(zip(mean or (0.0,) * count, std or (1.0,) * count, strict=True))
        parts, start = [], 0
        for c in range(1, count + 1):
            if c < count and pairs[c] == pairs[start]:
                continue
            part = x if c - start == count else ops.part(x, start, c, axis=1)
            part, (m, s) = self._dequantized(part), pairs[start]
            part = ops.sub(part, np.float32(m)) if m else part
            parts.append(ops.div(part, np.float32(s)) if s != 1 else part)
            start = c
        made: Value = parts[0] if len(parts) == 1 else ops.concat(*parts, axis=1)
        return made

    def _size(self, old: Type) -> tuple[int, ...]:
        """Height and width of the model's input."""
        return old.shape[2:] if self.model_layout == "NCHW" else old.shape[1:3]

    def _letterboxed(self, x: Value, old: Type) -> Value:
        """Resize into the model's size, and pad with `letterbox_value`."""
        high, wide = self._size(old)
        size = x.shape[2], x.shape[3]
        if size == (high, wide):
            return x
        inner = letterbox_size(size, (high, wide))
        if inner != size:
            scales = tuple(float(a / b) for a, b in zip(inner, size, strict=True))
            x = ops.resize(
                x,
                axes=(2, 3),
                shape=inner,
                scales=scales,
                mode="linear",
                coordinate_transformation_mode="half_pixel",
            )
        top, left = (high - inner[0]) // 2, (wide - inner[1]) // 2
        before, after = (0, 0, top, left), (0, 0, high - inner[0] - top, wide - inner[1] - left)
        if not any(before) and not any(after):
            return x
        padded: Value = ops.pad(x, before=before, after=after, value=self.settings.pad_value)
        return padded

    def _normalized(self, x: Value, picture: bool) -> Value:
        count = x.shape[1] if picture else 1
        for op, numbers, idle in (
            (ops.sub, self.settings.mean, 0.0),
            (ops.div, self.settings.std, 1.0),
        ):
            each = _per_channel(numbers, count)
            if all(n == idle for n in each):
                continue
            same = len(set(each)) == 1
            x = op(
                x, np.float32(each[0]) if same else np.array(each, np.float32).reshape(1, -1, 1, 1)
            )
        return x

    def _turn_outputs(self, graph: Graph) -> None:
        layout = self.settings.output_layout
        if layout in ("", self.model_layout):
            return
        named = {"NHWC": TO_NHWC, "NCHW": TO_NCHW}
        perm = named.get(layout) or tuple(int(p) for p in layout.split(","))
        for i, v in enumerate(graph.outputs):
            if v.type.rank == len(perm) and graph.output_names[i] not in graph.state:
                graph.set_input(graph.result, i, ops.transpose(v, perm=perm))


def _swapped(channels: int) -> list[int]:
    """The order of channels with red and blue swapped."""
    return [2, 1, 0, *range(3, channels)]


def _per_channel(numbers: tuple[float, ...], count: int) -> tuple[float, ...]:
    """One number for each channel; of grey pictures the first one, and of one number this one.

    BadInput if there are several, too few for all channels.
    """
    if len(numbers) < count and len(set(numbers)) > 1:
        raise BadInput(
            f"mean or std is {list(numbers)}, the input has {count} channels; give a number for "
            "each, or one for all"
        )
    return numbers if len(numbers) == count else numbers[:1] * count
