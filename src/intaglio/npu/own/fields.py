"""The fields of compute instructions: operands, windows, rounding and tables of one band."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from intaglio import dtypes
from intaglio.npu.layers import ChannelRange, Layer
from intaglio.npu.own.addresses import Cursor, broadcast
from intaglio.npu.own.hazards import Span
from intaglio.npu.own.isa import ELTWISE, POOLS
from intaglio.npu.weight_packing import Constants

ROUNDING = ("y_zero", "low", "high", "least", "most")


def window_fields(layer: Layer, at: Cursor) -> dict[str, Any]:
    """Source, destination and window of a convolution or pool."""
    low, high = at.band.made[layer.number]
    first, last = at.rows_read(layer, low, high)
    rows_above = first - (low * layer.stride[0] - layer.pad[0])
    return {
        "src": at.in_sram(layer.reads[0], first, last),
        "dst": at.in_sram(layer.dst, low, high),
        "kernel": layer.kernel,
        "stride": layer.stride,
        "dilation": layer.dilation,
        "pad": (rows_above, layer.pad[1]),
    }


def _rounding_fields(layer: Layer, at: Cursor, c: Constants | None) -> dict[str, Any]:
    given = {n: layer.attrs[n] for n in ROUNDING if n in layer.attrs}
    return given | _table_fields(layer, at, c)


def _table_fields(layer: Layer, at: Cursor, c: Constants | None) -> dict[str, Any]:
    block = at.layout.tables.get(layer.number)
    if block is None or c is None:
        return {}
    return {"table": block.offset, "entries": c.entries, "base": layer.attrs.get("base", 0)}


def chunk_channels(layer: Layer, at: Cursor, c: Constants, number: int) -> tuple[int, int]:
    """The first channel of a chunk of output channels, and how many it has."""
    step = at.layout.chunks[layer.number] * c.atoms.outputs
    return number * step, min(step, layer.dst.channels - number * step)


def convolution_fields(
    layer: Layer, at: Cursor, c: Constants, number: int
) -> tuple[dict[str, Any], list[Span]]:
    """The fields of chunk `number` of a convolution, and the bytes of SRAM with its constants."""
    k, a = layer.number, layer.attrs
    first, channels = chunk_channels(layer, at, c, number)
    slots = at.layout.weights[k]
    weights = slots[number % len(slots)].offset
    params = weights + c.params_at(channels)
    low, high = at.band.made[k]
    fields = window_fields(layer, at) | _rounding_fields(layer, at, c)
    fields |= {
        "dst": at.in_sram(part(layer.dst, first, channels), low, high),
        "weights": weights,
        "weight_bytes": c.weight_bytes(channels),
        "params": params,
        "in_atom": c.atoms.inputs,
        "out_atom": c.atoms.outputs,
        "x_zero": a.get("x_zero", 0),
        "sparse": c.sparse,
        "one_scale": int(c.one_scale),
        "weight_type": dtypes.TABLE[layer.node.inputs[1].dtype].code,  # type: ignore[union-attr]
    }
    if layer.op == "depthwise":
        x = part(layer.reads[0], first, channels)
        fields["src"] = at.in_sram(x, *at.rows_read(layer, low, high))
    if layer.residual >= 0:
        r = part(layer.reads[layer.residual], first, channels)
        fields["residual"] = at.in_sram(r, low, high)
        fields |= {"r_zero": a["r_zero"], "r_factor": a["r_factor"]}
    weight_span = weights, weights + c.weight_bytes(channels)
    param_span = params, params + c.param_bytes(channels)
    return fields, [weight_span, param_span]


def other_fields(layer: Layer, at: Cursor, c: Constants | None) -> dict[str, Any]:
    """The fields of every compute instruction but convolutions."""
    a = layer.attrs
    low, high = at.band.made[layer.number]
    fields: dict[str, Any] = {
        "src": at.in_sram(layer.reads[0], *layer.rows(0, low, high)),
        "dst": at.in_sram(layer.dst, low, high),
    }
    if layer.op == "pool":
        fields |= window_fields(layer, at) | _rounding_fields(layer, at, c)
        fields |= {n: a[n] for n in ("x_zero", "x_scale", "y_scale") if n in a}
        fields |= {"kind": POOLS.index(a["kind"]), "count_pad": int(a["count_include_pad"])}
    elif layer.op == "eltwise":
        other = at.in_sram(layer.reads[1], *layer.rows(1, low, high))
        fields["other"] = broadcast(other, fields["dst"])
        fields |= _rounding_fields(layer, at, c) | {"kind": ELTWISE.index(a["kind"])}
        fields |= {n: a[n] for n in ("a_zero", "b_zero", "a_factor", "b_factor")}
    elif layer.op == "lut":
        fields |= _table_fields(layer, at, c)
    elif layer.op == "resize":
        phase = low - layer.rows(0, low, high)[0] * layer.factor[0]
        fields |= {"factor": layer.factor, "phase": (phase, 0)}
    elif layer.op in ("arithmetic", "float_matmul"):
        fields["other"] = at.in_sram(layer.reads[1], *layer.rows(1, low, high))
    elif layer.op in ("layer_norm", "softmax", "function") and layer.number in at.layout.tables:
        fields |= {"table": at.layout.tables[layer.number].offset, "entries": 1}
        if len(layer.reads) > 1:
            fields["other"] = at.in_sram(layer.reads[1], *layer.rows(1, low, high))
    elif layer.op == "matmul":
        fields["other"] = at.in_sram(layer.reads[1], *layer.rows(1, low, high))
        fields |= _table_fields(layer, at, c)
        fields |= {n: a[n] for n in ("a_zero", "b_zero", "factor", *ROUNDING)}
        fields["turned"] = int(a["turned"])
    return fields


def phase_copies(layer: Layer, at: Cursor) -> Iterator[dict[str, Any]]:
    """The copies that interleave the phases of a depth_to_space in a band of its result."""
    low, high = at.band.made[layer.number]
    (top, left), step, wide = layer.first, layer.factor[0], layer.dst.map.width
    deep = layer.reads[0].channels // step**2
    for phase in range(step**2):
        y = low + (phase // step - low - top) % step  # its first row and column in the result
        x = (phase % step - left) % step
        rows, columns = -(-(high - y) // step), -(-(wide - x) // step)
        if rows < 1 or columns < 1:
            continue
        source = part(layer.reads[0], phase * deep, layer.dst.channels)
        first = (y + top) // step
        src = at.in_sram(source, first, first + rows)
        dst = at.in_sram(layer.dst, y, y + 1)
        src.offset += (x + left) // step * src.pixel
        dst.offset += x * dst.pixel
        dst.height, dst.row, dst.pixel = rows, dst.row * step, dst.pixel * step
        src.width = dst.width = columns
        yield {"src": src, "dst": dst}


def part(r: ChannelRange, first: int, channels: int) -> ChannelRange:
    """Some channels of a channel range."""
    return ChannelRange(r.map, r.first + first, channels)
