"""The ops that NPU units compute, on feature maps N x C x H x W, with their meaning in numpy.

Zero points, factors and bounds are attributes. Integers are rounded once, at the end (epilogue.py).
Factors are f32, and so are products and sums of them. Each op computes the same bits as the neutral
op that it replaces. Feature maps of f16 have no zero points; their sums are f32, added up in one
fixed order (f16_arithmetic.py).
"""

from intaglio.npu.ops import cpu_fallback as cpu_fallback  # registers the equivalents on a CPU
from intaglio.npu.ops.convolutions import conv, depthwise
from intaglio.npu.ops.data_movement import concat, depth_to_space, resize, slice_
from intaglio.npu.ops.elementwise import eltwise, lut
from intaglio.npu.ops.matrix_product import matmul
from intaglio.npu.ops.pooling import pool
from intaglio.npu.ops.program import npu_program

__all__ = [
    "concat",
    "conv",
    "depth_to_space",
    "depthwise",
    "eltwise",
    "lut",
    "matmul",
    "npu_program",
    "pool",
    "resize",
    "slice_",
]
