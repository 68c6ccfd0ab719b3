"""cpu.pool: max, average and Lp pooling of channels-last images."""

from __future__ import annotations

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.ops.registry import op
from intaglio.targets.cpu.channels_last import (
    channels_first,
    channels_last,
    channels_last_type,
    neutral_image,
)
from intaglio.targets.cpu.packing import Ints


def _pool_type(
    x: Value,
    *,
    kind: str,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    count_include_pad: bool,
    p: int,
) -> Type:
    if kind not in ("max", "avg", "lp"):
        raise BadInput(f"cpu.pool has the kinds max, avg and lp, not {kind!r}")
    result = ops.lp_pool.infer(
        neutral_image(x), kernel=kernel, stride=stride, pad=pad, dilation=dilation, p=p
    )
    return channels_last_type(result)


@op(_pool_type, name="cpu.pool")
def pool(
    x: Array,
    *,
    kind: str,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    count_include_pad: bool = False,
    p: int = 2,
) -> Array:
    """The maximum, mean or p-norm of each window of an image [n, .., c]."""
    window = {"kernel": kernel, "stride": stride, "pad": pad, "dilation": dilation}
    first = channels_first(x)
    if kind == "max":
        y = ops.max_pool.body(first, **window)
    elif kind == "avg":
        y = ops.avg_pool.body(first, **window, count_include_pad=count_include_pad)
    else:
        y = ops.lp_pool.body(first, **window, p=p)
    return channels_last(y)
