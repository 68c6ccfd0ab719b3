"""Cases: consecutive linear ops."""

from __future__ import annotations

from tests.passes.cases.build import IMAGE, VECTOR, case, conv, deconv, f32, num, scalar

from intaglio import ops

ROWS = f32(2, 3, 5)
case("scale_before_matmul", lambda x: ops.matmul(ops.mul(x, num(5)), num(5, 3)), VECTOR)
case("scale_before_matmul", lambda x: ops.matmul(ops.mul(x, num(5)), num(2, 5, 4)), ROWS)
case("scale_before_matmul", lambda x: ops.matmul(ops.mul(scalar(0.3), x), num(5, 4)), ROWS)
case("shift_before_matmul", lambda x: ops.matmul(ops.add(x, num(1, 5)), num(5, 3)), VECTOR)
case("shift_before_matmul", lambda x: ops.matmul(ops.add(x, num(1)), num(5, 3)), ROWS)
case("scale_into_left_matrix", lambda x: ops.mul(ops.matmul(num(4, 3), x), num(4, 1)), ROWS)
case("scale_into_left_matrix", lambda x: ops.mul(ops.matmul(num(2, 4, 3), x), scalar(2)), ROWS)
case(
    "scale_to_smaller_operand",
    lambda x, y: ops.mul(ops.matmul(x, y), scalar(0.5)),
    f32(2, 9, 2),
    f32(2, 2, 8),
)
case(
    "scale_to_smaller_operand",
    lambda x, y: ops.mul(ops.matmul(x, y), num(1, 1, 1)),
    f32(2, 9, 2),
    f32(2, 40),
)
case("matmul_of_matmul", lambda x: ops.matmul(ops.matmul(x, num(5, 9)), num(9, 3)), ROWS)
WIDE = f32(1, 4, 9, 9)
POINT = {"k": 1, "pad": (0,) * 4}
case("pointwise_after_conv", lambda x: conv(conv(x, 16), 4, **POINT), WIDE)
case(
    "pointwise_after_conv",
    lambda x: conv(conv(x, 16, stride=(2, 1)), 4, bias=False, stride=(2, 3), **POINT),
    WIDE,
)
case("conv_after_pointwise", lambda x: conv(conv(x, 16, bias=False, **POINT), 4), WIDE)
case("conv_after_pointwise", lambda x: conv(conv(x, 16, **POINT), 4, pad=(0,) * 4), WIDE)
case(
    "affine_of_affine",
    lambda x: ops.mul(ops.add(ops.mul(x, num(4, 1, 1)), num(4, 1, 1)), num(4, 1, 1)),
    IMAGE,
)
CROP = {"start": (0, 0, 1, 0), "stop": (2**62, 2**62, 2**62, -2), "step": (1,) * 4}
case("crop_into_conv_transpose", lambda x: ops.slice_(deconv(x), **CROP), IMAGE)
