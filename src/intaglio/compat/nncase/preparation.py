"""Preprocessing in nncase's order, as nodes of the graph.

New input, transpose, swap of red and blue, dequantise, letterbox, normalise, layout of the model;
then the model, and the layout of its outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

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
            order = np.array([2, 1, 0, *range(3, x.shape[1])], np.int64)
            x = ops.gather(x, constant(order), axis=1)
        if self.dtype != "f32":
            x = self._dequantized(x)
        if picture:
            x = self._letterboxed(x, old)
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
            return ops.dequantize_linear(x, constant(np.float32(scale)), _stored(zero, self.dtype))
        x = ops.mul(ops.cast(x, dtype="f32"), np.float32(scale))
        return ops.add(x, np.float32(low - first * scale))

    def _letterboxed(self, x: Value, old: Type) -> Value:
        """Resize into the model's size, and pad with `letterbox_value`."""
        high, wide = old.shape[2:] if self.model_layout == "NCHW" else old.shape[1:3]
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
        return ops.pad(x, before=before, after=after, value=self.settings.pad_value)

    def _normalized(self, x: Value, picture: bool) -> Value:
        s = self.settings
        for op, numbers, idle in ((ops.sub, s.mean, 0.0), (ops.div, s.std, 1.0)):
            if not numbers or all(n == idle for n in numbers):
                continue
            if picture and len(numbers) == x.shape[1] > 1 and len(set(numbers)) > 1:
                x = op(x, np.float32(numbers).reshape(1, -1, 1, 1))
            else:
                x = op(x, np.float32(numbers[0]))
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


def _stored(zero: int, dtype: str) -> Value:
    return constant(zero, dtype=dtype)
