"""Which kernel computes a convolution of bytes on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.ir import Array, Value, constant
from intaglio.targets.cpu.int8 import best_run, packed, qconv, qdepthwise
from intaglio.targets.cpu.qwinograd import qwinograd, tiled_weights, why_not_tiled
from intaglio.targets.cpu.weave import weave_of, why_not_woven


def in_tiles(x: Value, w: Array, scale: Value | None, w_zero: Value | None, groups: int,
             attrs: dict[str, Any]) -> bool:  # fmt: skip
    """Whether tiles are possible and worth it."""
    if x.type.rank != 4 or x.type.dynamic or scale is None or w_zero is not None:
        return False
    pad = attrs["pad"]
    image = x.shape[0], x.shape[1] + pad[0] + pad[2] - 2, x.shape[2] + pad[1] + pad[3] - 2
    shape = (*image, x.shape[3])
    return why_not_tiled(shape, w, attrs["stride"], attrs["dilation"], groups) is None


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
    elif in_tiles(x, w, scale, w_zero, groups, attrs):
        rest = {k: v for k, v in attrs.items() if k not in ("stride", "dilation")}
        made = qwinograd(x, constant(tiled_weights(w)), bias, scale, residual, table,
                         channels=channels, **rest)  # fmt: skip
    else:
        run = best_run(deep, kernel, attrs["dilation"], groups)
        grouped = w.reshape(groups, channels // groups, deep, *kernel)
        made = qconv(x, constant(packed(grouped, run)), bias, scale, residual, table, w_zero,
                     channels=channels, kernel=kernel, groups=groups, run=run,
                     **attrs)  # fmt: skip
    return made
