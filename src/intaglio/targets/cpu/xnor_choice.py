"""Lower convolutions of signs, as binary layers have them, to cpu.xnor_conv."""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array, Node, Value, constant
from intaglio.ops import channels_first, channels_last
from intaglio.rewrite import No, Rule, no, rule
from intaglio.targets.cpu.int8_arithmetic import wrapped
from intaglio.targets.cpu.qlinear import PRODUCT, number, requantization, sums_scale, why_not_scales
from intaglio.targets.cpu.xnor_conv import MAX_KERNEL, packed_signs, xnor_conv


def two_numbers(table: Array, dtype: str) -> tuple[int, int, int] | None:
    """The bound of a table that is a step, the entry up to the bound, and the one above it."""
    first = -128 if dtype == "i8" else 0
    entries = table[np.arange(first, first + 256) & 255].astype(np.int64)
    places = np.flatnonzero(np.diff(entries))
    if len(places) != 1:
        return None
    return first + int(places[0]), int(entries[0]), int(entries[-1])


def _one_size(w: Array) -> int:
    """u if all weights are u or -u, else 0."""
    if w.dtype != np.int8 or not w.size:
        return 0
    sizes = np.abs(w.astype(np.int16))
    return int(sizes.flat[0]) if sizes.min() == sizes.max() else 0


def _rule(least: int) -> Rule:
    @rule(PRODUCT)
    def signs_as_bits(
        node: Node,
        x: Value,
        xs: Value,
        xz: Value,
        w: Value,
        ws: Value,
        wz: Value,
        ys: Value | None,
        yz: Value | None,
        b: Value | None,
        r: Value | None,
        rs: Value | None,
        rz: Value | None,
    ) -> Value | No | None:
        """Lower a qlinear_conv of two numbers, which a lookup makes, with weights of one size to
        transpose, cpu.xnor_conv, transpose.
        """
        made = x.producer
        if made is None or made.op != "lookup" or w.data is None or not (size := _one_size(w.data)):
            return None
        source, table = made.inputs
        assert source is not None
        assert table is not None
        found = None if table.data is None else two_numbers(table.data, source.dtype)
        if found is None or x.type.rank != 4:
            return no("the lookup does not make two numbers of an image with two spatial axes")
        if x.shape[1] < least:
            return no(f"8-bit products are faster with fewer than {least} channels")
        if node.attrs["groups"] != 1 or max(w.shape[2:]) > MAX_KERNEL:
            return no("signs are counted for one group and windows of at most 7x7")
        if wz.data is None or wz.data.any():
            return no("the weights have zero points")
        if yz is not None and yz.dtype not in ("i8", "u8"):
            return no(f"the result is {yz.dtype}, not 8 bits wide")
        if why := why_not_scales(xs, xz, ws, ys, rs):
            return no(why)
        bound, low, high = found
        low, high = low - number(xz), high - number(xz)
        positive = w.data > 0
        taps = size * np.where(positive, 1, -1).astype(np.int64).sum(1).reshape(len(w.data), -1)
        # low * sum(w) + (high - low) * size * (bits of w - popcount)
        step = size * (high - low)
        start = low * taps.sum(1) + step * positive.reshape(len(taps), -1).sum(1, dtype=np.int64)
        bias = start if b is None or b.data is None else start + b.data
        padding = constant(wrapped(-low * taps.T)) if any(node.attrs["pad"]) else None
        a = {k: node.attrs[k] for k in ("stride", "pad", "dilation")}
        result: Value = xnor_conv(
            channels_last(source),
            constant(packed_signs(positive, a["dilation"])),
            constant(wrapped(bias)),
            sums_scale(xs, ws, ys, len(taps)),
            None if r is None else channels_last(r),
            None,
            padding,
            channels=len(taps),
            kernel=w.shape[2:],
            above=bound,
            step=step,
            **requantization(ys, yz, rs, rz),
            **a,
        )
        return channels_first(result)

    return signs_as_bits


BINARY: tuple[Rule, ...] = (_rule(1),)
BINARY_AVX2: tuple[Rule, ...] = (_rule(24),)  # words of 32 bits are counted in seven instructions
