"""Importers of RFFT2D, COMPLEX_ABS, REAL and IMAG; a complex tensor is a pair of real ones."""

from __future__ import annotations

from intaglio import ops
from intaglio.frontends.tflite.node import Complex, TfliteNode, importer
from intaglio.ir import Value

MAX_LENGTH = 1 << 20  # of a transform


@importer("RFFT2D", stored=True)
def rfft2d(n: TfliteNode) -> Complex:
    """The real transform of the last axis, then the complex one of the axis before it."""
    x, lengths = n.required(0), n.ints(1)
    rank = x.type.rank
    if rank < 2 or len(lengths) != 2 or not 0 < min(lengths) <= max(lengths) <= MAX_LENGTH:
        n.unsupported(f"a transform of {x.type} with lengths {lengths} is not supported")
    y = ops.reshape(x, shape=(*x.shape, 1))
    y = ops.dft(y, axis=rank - 1, length=lengths[1], onesided=True)
    if (x.shape[-2], lengths[0]) != (1, 1):
        y = ops.dft(y, axis=rank - 2, length=lengths[0])
    parts = [ops.reshape(ops.part(y, i, i + 1, axis=-1), shape=y.shape[:-1]) for i in (0, 1)]
    return Complex(*parts)


@importer("COMPLEX_ABS", stored=True)
def complex_abs(n: TfliteNode) -> Value:
    z = n.complex(0)
    squares = ops.add(ops.mul(z.real, z.real), ops.mul(z.imag, z.imag))
    result: Value = ops.sqrt(squares)
    return result


@importer("REAL", "IMAG", stored=True)
def component(n: TfliteNode) -> Value:
    z = n.complex(0)
    return z.real if n.op.op == "REAL" else z.imag
