"""Which kernel computes a convolution of bytes on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.ir import Array, Node, Value, constant
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.int8 import best_run, packed, qconv, qdepthwise, unpacked
from intaglio.targets.cpu.qwinograd import PAIRS, qwinograd, tiled_weights, why_not_tiled
from intaglio.targets.cpu.weave import weave_of, why_not_woven


def why_not(x: Value, w: Array, scale: Value | None, w_zero: Value | None, groups: int,
            attrs: dict[str, Any], plain: float = 1.0) -> str | None:  # fmt: skip
    """Why weights [m, c, window..] do not meet the image in tiles."""
    if x.type.rank != 4 or x.type.dynamic or scale is None or w_zero is not None:
        return "tiles need an image of fixed size, and symmetric weights"
    pad = attrs["pad"]
    image = x.shape[0], x.shape[1] + pad[0] + pad[2] - 2, x.shape[2] + pad[1] + pad[3] - 2
    shape = (*image, x.shape[3])
    return why_not_tiled(shape, w, attrs["stride"], attrs["dilation"], groups, plain)


def _in_tiles(x: Value, w: Array, bias: Value, scale: Value | None, residual: Value | None,
              table: Value | None, attrs: dict[str, Any], origin: str = "") -> Value:  # fmt: skip
    rest = {k: v for k, v in attrs.items() if k not in ("stride", "dilation")}
    made: Value = qwinograd(x, constant(tiled_weights(w)), bias, scale, residual, table,
                            channels=w.shape[0], origin=origin, **rest)  # fmt: skip
    return made


def convolution(x: Value, w: Array, bias: Value, scale: Value | None,
                residual: Value | None = None, table: Value | None = None,
                w_zero: Value | None = None, *, groups: int, **attrs: Any) -> Value:  # fmt: skip
    """A channel-last image times weights [m, c, window..] by the kernel that suits them."""
    (channels, deep), kernel = w.shape[:2], w.shape[2:]
    made: Value
    single = groups == x.shape[-1] == channels > 1
    bytes_only = scale is not None and residual is None and table is None and w_zero is None
    plain = bytes_only and attrs["dtype"] in ("i8", "u8")
    if plain and single and not why_not_woven(kernel, attrs["stride"], attrs["dilation"]):
        weave = weave_of(kernel, attrs["stride"], attrs["dilation"])
        woven = constant(weave.packed(np.moveaxis(w[:, 0], 0, -1)))
        made = qdepthwise(x, woven, bias, scale, kernel=kernel, **attrs)
    elif why_not(x, w, scale, w_zero, groups, attrs) is None:
        made = _in_tiles(x, w, bias, scale, residual, table, attrs)
    else:
        run = best_run(deep, kernel, attrs["dilation"], groups)
        grouped = w.reshape(groups, channels // groups, deep, *kernel)
        made = qconv(x, constant(packed(grouped, run)), bias, scale, residual, table, w_zero,
                     channels=channels, kernel=kernel, groups=groups, run=run,
                     **attrs)  # fmt: skip
    return made


@rule(P.any("cpu.qconv"))
def qconv_in_tiles(node: Node) -> Value | No | None:
    """A 3x3 convolution of bytes -> cpu.qwinograd, where products of bytes are not that fast."""
    x, w, bias, scale, residual, table, w_zero = node.inputs
    a = dict(node.attrs)
    channels, kernel, groups, run = (a.pop(k) for k in ("channels", "kernel", "groups", "run"))
    if kernel != (3, 3) or x is None or w is None or w.data is None or bias is None:
        return None
    taps = unpacked(w.data, x.shape[-1] // groups, channels // groups, kernel, run)
    if why := why_not(x, taps, scale, w_zero, groups, a, PAIRS):
        return no(why)
    return _in_tiles(x, taps, bias, scale, residual, table, a, node.origin)


PAIRS_INT8: tuple[Rule, ...] = (qconv_in_tiles,)  # where 16-bit pairs are what can be multiplied
