"""The product of two computed maps: a convolution whose weights are the second one.

(a - a_zero) * (b - b_zero) is the sum of a * b, b * -a_zero, a * -b_zero and a constant. The first
three are convolutions that add to the same sums of 32 bits: the input of the second is one byte,
the weights of the third are a number in the command.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node
from intaglio.npu.chips.cv18xx.arithmetic import I32, multiplier_and_shift, requantized
from intaglio.npu.layers import Layer

UNITS = 16  # bytes of a lane's row
MOST = 4063  # rows, columns and products of a sum: extents of a command
LEAST_ZERO, MOST_ZERO = -255, 128  # constants have a byte, signed or not
PARAMETERS = np.dtype([("bias", "<i4"), ("multiplier", "<u4"), ("shift", "u1")])
PLANES = 4  # bytes of a sum, which lie in planes of their own


@dataclass(frozen=True, slots=True)
class Matmul:
    """Zero points of the operands, and what becomes of the sums: bias, multiplier and shift."""

    a_zero: int
    b_zero: int
    bias: int
    multiplier: int
    shift: int

    def apply(self, a: Array, b: Array, dtype: str, relu: bool) -> Array:
        """`a` [N, K, M, 1] and `b` [N, C, K, 1] as [N, C, M, 1]."""
        left, right = (v[..., 0].astype(np.float64) for v in (b, a))
        sums = (left - self.b_zero) @ (right - self.a_zero)
        table = np.array([[self.bias], [self.multiplier], [self.shift]], np.int64)
        return requantized(sums[..., None], table, dtype, relu)


def of_matmul(node: Node) -> Matmul:
    """The numbers of an npu.matmul; BadInput says which of them the chip does not have."""
    attrs, a = node.attrs, node.inputs[0]
    assert a is not None
    sizes = a.shape[1], a.shape[2], node.outputs[0].shape[1]
    if max(sizes) > MOST:
        raise BadInput(f"a product of matrices has an extent of {max(sizes)}; {MOST} is the most")
    for name in ("a_zero", "b_zero"):
        if not LEAST_ZERO <= attrs[name] <= MOST_ZERO:
            raise BadInput(
                f"a zero point is {attrs[name]}; it is at least {LEAST_ZERO}, at most {MOST_ZERO}"
            )
    factor = float(attrs["factor"])
    multiplier, shift = multiplier_and_shift(np.array(factor))
    largest = sizes[0] * 510 * 510  # of all sums on the way
    bias = attrs["y_zero"] / factor if factor else np.inf
    if not abs(bias) + largest < I32[1]:
        raise BadInput(
            f"a product of matrices has the factor {factor:g}; its zero point is too far"
        )
    numbers = round(bias), int(multiplier), int(shift)
    return Matmul(attrs["a_zero"], attrs["b_zero"], *numbers)


def records(layer: Layer, lanes: int) -> int:
    """Blocks of channels that one command computes: all, if their weights follow each other."""
    attrs, depth = layer.attrs, layer.reads[0].channels
    if attrs["a_zero"] or attrs["b_zero"] or depth % UNITS:
        return 1
    return -(-layer.dst.channels // lanes)


def table(layer: Layer, lanes: int) -> Array:
    """Bias, multiplier and shift of so many blocks; a row of -a_zero for each block of a."""
    assert layer.node is not None
    p, many, depth = of_matmul(layer.node), records(layer, lanes), layer.reads[0].channels
    quant = np.zeros(many, PARAMETERS)
    quant["bias"], quant["multiplier"] = p.bias + depth * p.a_zero * p.b_zero, p.multiplier
    quant["shift"] = p.shift
    ones = np.full(UNITS * -(-depth // lanes) if p.a_zero else 0, -p.a_zero & 0xFF, np.uint8)
    numbers = quant.view(np.uint8)
    room = np.zeros(ones_at(many) - len(numbers), np.uint8)
    return np.repeat(np.concatenate([numbers, room, ones]).reshape(1, -1), lanes, 0)


def ones_at(many: int) -> int:
    """Where the rows of -a_zero begin in the table."""
    return -(-many * PARAMETERS.itemsize // UNITS) * UNITS


def scratch_planes(layer: Layer) -> int:
    """Planes of bytes of one block that a layer needs while it computes."""
    return PLANES if layer.attrs["a_zero"] or layer.attrs["b_zero"] else 0
