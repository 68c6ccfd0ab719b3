"""AI2D, the K230's unit that prepares pictures: crop, shift, resize or affine, and pad.

Written from the vendor's documentation. The unit itself rounds in fixed point, so that its pixels
may differ from these by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio.compat.nncase.ai2d_pixels import (
    PLANES,
    Affine,
    Format,
    Method,
    Mode,
    PadMode,
    bordered,
    cast,
    extents,
    packed,
    planar,
    resized,
    warped,
)
from intaglio.compat.nncase.refusals import refusing
from intaglio.compat.nncase.runtime_tensor import RuntimeTensor
from intaglio.errors import BadInput
from intaglio.ir import Array


class AI2D:
    """Prepares pictures for a model: crop, shift, resize or affine, pad, in this order.

    Deviation: the result is rounded to the nearest integer, which may differ from the unit's
    fixed point by one; YUV is BT.601 of full range.
    """

    def __init__(self) -> None:
        self._formats = (Format.NCHW_FMT, Format.NCHW_FMT)
        self._types: tuple[Any, Any] = (np.dtype(np.uint8), np.dtype(np.uint8))
        self._crop: tuple[int, int, int, int] | None = None
        self._shift: int | None = None
        self._pad: tuple[tuple[int, ...], PadMode, tuple[int, ...]] | None = None
        self._resize: tuple[Method, Mode] | None = None
        self._affine: Affine | None = None
        self._builder: Builder | None = None

    @refusing
    def set_dtype(self, src_format: Any, dst_format: Any, src_type: Any, dst_type: Any) -> None:
        """Set layouts and element types of input and output."""
        self._formats = (_member(Format, src_format), _member(Format, dst_format))
        self._types = (_type(src_type), _type(dst_type))

    def set_datatype(self, src_format: Any, dst_format: Any, src_type: Any, dst_type: Any) -> None:
        """`set_dtype` by its name in the runtime for Linux."""
        self.set_dtype(src_format, dst_format, src_type, dst_type)

    @refusing
    def set_crop_param(
        self, crop_flag: Any, start_x: int = 0, start_y: int = 0, width: int = 0, height: int = 0
    ) -> None:
        """Take a rectangle of the input."""
        numbers = tuple(int(n) for n in (start_x, start_y, width, height))
        if crop_flag and (min(numbers) < 0 or min(numbers[2:]) < 1):
            raise BadInput(f"the crop is {list(numbers)}; give start_x, start_y, width and height")
        self._crop = numbers if crop_flag else None  # type: ignore[assignment]

    @refusing
    def set_shift_param(self, shift_flag: Any, shift_val: int = 0) -> None:
        """Shift the elements of RAW16 to the right."""
        if shift_flag and not 0 <= int(shift_val) < 16:
            raise BadInput(f"shift_val is {shift_val}; give 0 to 15 bits")
        self._shift = int(shift_val) if shift_flag else None

    @refusing
    def set_pad_param(
        self,
        pad_flag: Any,
        paddings: Sequence[int] = (),
        pad_mode: Any = 0,
        pad_val: Sequence[int] = (),
    ) -> None:
        """Add a border: two numbers for each axis (top and bottom are the fifth and sixth)."""
        if not pad_flag:
            self._pad = None
            return
        numbers = tuple(int(n) for n in paddings)
        if len(numbers) != 8 or min(numbers) < 0 or any(numbers[:4]):
            raise BadInput(
                f"paddings are {list(numbers)}; give [0, 0, 0, 0, top, bottom, left, right]"
            )
        values = tuple(int(n) for n in pad_val)
        self._pad = (numbers[4:], _member(PadMode, pad_mode), values)

    @refusing
    def set_resize_param(
        self, resize_flag: Any, interp_method: Any = 1, interp_mode: Any = 0
    ) -> None:
        """Resize to what the output has inside of its border."""
        pair = (_member(Method, interp_method), _member(Mode, interp_mode))
        self._resize = pair if resize_flag else None

    @refusing
    def set_affine_param(
        self,
        affine_flag: Any,
        interp_method: Any = 1,
        cord_round: int = 0,
        bound_ind: int = 0,
        bound_val: int = 0,
        bound_smooth: int = 0,
        M: Sequence[float] = (),
    ) -> None:
        """Map the input by [a0, a1, b0, a2, a3, b1], as cv2.warpAffine does."""
        if not affine_flag:
            self._affine = None
            return
        matrix = tuple(float(x) for x in np.asarray(M, np.float64).ravel())
        if len(matrix) != 6 or not np.isfinite(matrix).all():
            raise BadInput(f"M is {list(matrix)}; give six numbers: [a0, a1, b0, a2, a3, b1]")
        if abs(matrix[0] * matrix[4] - matrix[1] * matrix[3]) < 1e-12:
            raise BadInput(f"M is {list(matrix)}, which maps everything onto a line")
        self._affine = Affine(
            _member(Method, interp_method),
            int(cord_round),
            bool(bound_ind),
            int(bound_val),
            bool(bound_smooth),
            matrix,
        )

    @refusing
    def build(self, input_shape: Sequence[int], output_shape: Sequence[int]) -> Builder:
        """Check the shapes: what `run` of the result, or of this object, computes."""
        if self._resize is not None and self._affine is not None:
            raise BadInput("resize and affine exclude each other; set one of the flags to False")
        self._builder = Builder(self, tuple(map(int, input_shape)), tuple(map(int, output_shape)))
        return self._builder

    @refusing
    def run(self, input_tensor: Any, output_tensor: Any) -> None:
        """Prepare a picture as `build` was told."""
        if self._builder is None:
            raise BadInput("nothing is built; call build(input_shape, output_shape) first")
        self._builder.run(input_tensor, output_tensor)


class Builder:
    """What AI2D does with pictures of one shape."""

    def __init__(self, unit: AI2D, source: tuple[int, ...], result: tuple[int, ...]):
        self._from, self._to = unit._formats
        self._types = unit._types
        self._crop, self._shift, self._affine = unit._crop, unit._shift, unit._affine
        self._pad, self._resize = unit._pad, unit._resize
        self.input_shape, self.output_shape = source, result
        height, width, channels = extents(source, self._from, "input_shape")
        self._height, self._width, to = extents(result, self._to, "output_shape")
        if to != channels:
            raise BadInput(
                f"input_shape {list(source)} as {self._from.name} has {channels} channels, "
                f"output_shape {list(result)} as {self._to.name} has {to}; make them the same"
            )
        if self._to in PLANES and self._from != self._to:
            raise BadInput(f"{self._from.name} cannot become {self._to.name}; use NCHW_FMT")
        if self._crop is not None:
            x, y, w, h = self._crop
            if x + w > width or y + h > height:
                raise BadInput(
                    f"the crop of {w}x{h} at ({x}, {y}) leaves the input of {width}x{height}"
                )
            height, width = h, w
        top, bottom, left, right = self._pad[0] if self._pad else (0, 0, 0, 0)
        self._inner = (self._height - top - bottom, self._width - left - right)
        if min(self._inner) < 1:
            raise BadInput(f"the border is larger than the output of {self._width}x{self._height}")
        if not self._resize and not self._affine and self._inner != (height, width):
            raise BadInput(
                f"{width}x{height} pixels go into {self._inner[1]}x{self._inner[0]}; "
                "call set_resize_param, or give another output_shape"
            )
        if self._pad and len(self._pad[2]) not in (1, channels) and not self._pad[1]:
            raise BadInput(f"pad_val has {len(self._pad[2])} numbers; give {channels}")

    @refusing
    def run(self, input_tensor: Any, output_tensor: Any) -> None:
        """Prepare the picture in a tensor into another."""
        for tensor in (input_tensor, output_tensor):
            if not isinstance(tensor, RuntimeTensor):
                raise BadInput(f"a tensor is {type(tensor).__name__}; give from_numpy(array)")
        given, out = input_tensor.to_numpy(), output_tensor.to_numpy()
        for what, array, shape, kind in (
            ("input", given, self.input_shape, self._types[0]),
            ("output", out, self.output_shape, self._types[1]),
        ):
            if array.size != np.prod(shape) or array.dtype != kind:
                raise BadInput(
                    f"the {what} tensor is {array.dtype}{list(array.shape)}, built was "
                    f"{kind}{list(shape)}"
                )
        made = self._picture(given.reshape(self.input_shape))
        out[...] = made.reshape(out.shape)

    def _picture(self, array: Array) -> Array:
        planes = planar(array, self._from).astype(np.float32)
        if self._crop is not None:
            x, y, w, h = self._crop
            planes = planes[:, :, y : y + h, x : x + w]
        if self._shift is not None:
            planes = np.floor(planes / (1 << self._shift))
        if self._resize is not None:
            planes = resized(planes, self._inner, *self._resize)
        elif self._affine is not None:
            planes = warped(planes, self._inner, self._affine)
        if self._pad is not None:
            planes = bordered(planes, *self._pad)
        return packed(cast(planes, self._types[1]), self._to)


def _member(kind: Any, given: Any) -> Any:
    try:
        return kind(int(given))
    except (TypeError, ValueError):
        known = ", ".join(one.name for one in kind)
        raise BadInput(f"{given!r} is none of {known}") from None


def _type(given: Any) -> Any:
    try:
        kind = np.dtype(given)
    except TypeError:
        kind = np.dtype(object)
    if kind.kind not in "iuf":
        raise BadInput(f"the element type is {given!r}; give np.uint8, np.int16 or np.float32")
    return kind
