"""ONNX pooling."""

from __future__ import annotations

from typing import Any

from intaglio.frontends.onnx.importer import OnnxNode, importer
from intaglio.frontends.onnx.shape import ints
from intaglio.frontends.onnx.windows import windows_of
from intaglio.ir import Value
from intaglio.ops.pool import avg_pool, lp_pool, max_pool, max_unpool
from intaglio.ops.reduce import reduce_max, reduce_mean
from intaglio.ops.shape import pad, slice_, transpose


@importer("MaxPool")
def import_max_pool(n: OnnxNode) -> Value | list[Value]:
    x = n.required(0)
    at = windows_of(n, x.shape[2:], n.attr("kernel_shape"))
    attrs: dict[str, Any] = {"kernel": at.kernel, **at.attrs}
    if not n.wants(1):
        return max_pool(x, **attrs)
    return max_pool(x, **attrs, storage_order=n.attr("storage_order", 0), with_indices=True)


@importer("NhwcMaxPool", domain="com.microsoft")
def nhwc_max_pool(n: OnnxNode) -> Value:
    """Channels-last pooling, which onnxruntime's optimiser writes for quantised models."""
    x = transpose(n.required(0), perm=(0, 3, 1, 2))
    at = windows_of(n, x.shape[2:], n.attr("kernel_shape"))
    return transpose(max_pool(x, kernel=at.kernel, **at.attrs), perm=(0, 2, 3, 1))


@importer("AveragePool")
def average_pool(n: OnnxNode) -> Value:
    return averaged(n, n.required(0))


def averaged(n: OnnxNode, x: Value) -> Value:
    """Average pooling of `x` [batch, channels, ...] with the attributes of the node."""
    at = windows_of(n, x.shape[2:], n.attr("kernel_shape"))
    count = bool(n.attr("count_include_pad", 0))
    if count and any(at.extra):  # padding that ceil_mode adds does not count: pad explicitly
        rank = len(at.kernel)
        begin, end = at.pad[:rank], at.pad[rank:]
        after = tuple(e - more for e, more in zip(end, at.extra, strict=True))
        x = pad(x, before=(0, 0, *begin), after=(0, 0, *after))
        at.pad, count = ((0,) * rank + at.extra), False
    return avg_pool(x, kernel=at.kernel, **at.attrs, count_include_pad=count)


@importer("LpPool")
def import_lp_pool(n: OnnxNode) -> Value:
    x = n.required(0)
    at = windows_of(n, x.shape[2:], n.attr("kernel_shape"))
    return lp_pool(x, kernel=at.kernel, **at.attrs, p=int(n.attr("p", 2)))


@importer("GlobalAveragePool", "GlobalMaxPool")
def global_pool(n: OnnxNode) -> Value:
    x = n.required(0)
    reduce = reduce_mean if n.op_type == "GlobalAveragePool" else reduce_max
    return reduce(x, axes=tuple(range(2, x.type.rank)), keepdims=True)


@importer("GlobalLpPool")
def global_lp_pool(n: OnnxNode) -> Value:
    x = n.required(0)
    ones = (1,) * (x.type.rank - 2)
    return lp_pool(
        x, kernel=x.shape[2:], stride=ones, pad=(0, 0) * len(ones), dilation=ones, p=n.attr("p", 2)
    )


@importer("MaxUnpool")
def import_max_unpool(n: OnnxNode) -> Value:
    x, kernel = n.required(0), tuple(n.attr("kernel_shape"))
    rank = len(kernel)
    stride, pads = n.attr("strides", (1,) * rank), n.attr("pads", (0,) * (2 * rank))
    pooled = tuple(  # indices refer to the tensor before pooling
        (d - 1) * s - b - e + k
        for d, s, b, e, k in zip(x.shape[2:], stride, pads[:rank], pads[rank:], kernel, strict=True)
    )
    shape = (*x.shape[:2], *pooled)
    y = max_unpool(x, n.required(1), shape=shape)
    wanted = shape if n.input(2) is None else ints(n.const(2))
    more = tuple(max(w - d, 0) for w, d in zip(wanted, shape, strict=True))
    if any(more):
        y = pad(y, before=(0,) * len(more), after=more)
    if y.shape != wanted:
        y = slice_(y, start=(0,) * len(more), stop=wanted, step=(1,) * len(more))
    return y
