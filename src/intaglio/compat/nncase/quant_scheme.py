"""QuantScheme.json: types and ranges of all tensors, in nncase's form.

{"Version": "1.0", "Model": null, "Outputs": [{"Name": "conv", "DataType": "u8", "DataRange":
[{"Min": 0.0, "Max": 6.0, "IsFull": false}], "DataRangeMode": "by_tensor"}]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intaglio import dtypes, targets
from intaglio.compat.fused_layers import fused_layers
from intaglio.compat.nncase.refusals import LOG
from intaglio.errors import BadFile, BadInput, did_you_mean
from intaglio.files import open_regular, write_atomically
from intaglio.ir import Graph, Value
from intaglio.ops.registry import REGISTRY
from intaglio.quant import Quantized, Scheme, TensorScheme
from intaglio.quant.placement.place import PRODUCTS, weight_axis
from intaglio.quant.prepare import prepare
from intaglio.quant.ranges.affine import affine

NAME = "QuantScheme.json"
TYPES = ("u8", "i8", "i16", "f16", "f32")
CLAMPS = ("relu", "clip")
MAX_BYTES = 256 << 20


# ---- writing -------------------------------------------------------------------------------------
def write(result: Quantized, path: Path, by_channel: bool) -> None:
    """Write the scheme of a quantised model."""
    values = {v.name: v for v in result.float_graph.values() if v.name}
    rows = []
    for name, t in result.scheme.tensors.items():
        weight = name in values and values[name].data is not None
        ranges = _ranges(t)
        if len(ranges) > 1 and not (weight and by_channel):
            ranges = [(min(lo for lo, _ in ranges), max(hi for _, hi in ranges))]
        rows.append(_row(name, t.dtype, ranges))
    known = {row["Name"] for row in rows}
    for name, precision in result.scheme.layers.items():
        seen = result.observations.get(name)
        if precision in ("f16", "f32", "bf16") and name not in known and seen is not None:
            kind = "f16" if precision != "f32" else "f32"
            rows.append(_row(name, kind, [(float(seen.low), float(seen.high))]))
    content = {"Version": "1.0", "Model": None, "Outputs": rows}
    write_atomically(path, json.dumps(content, indent=2).encode())


def _ranges(t: TensorScheme) -> list[tuple[float, float]]:
    if len(t.scale) <= 1 or t.block:
        return [(float(t.lo), float(t.hi))]
    first, last = dtypes.limits(t.dtype)
    if t.dtype in ("i8", "i16") and not any(t.zero):
        first = -last  # symmetric
    return [(s * (first - z), s * (last - z)) for s, z in zip(t.scale, t.zero, strict=True)]


def _row(name: str, kind: str, ranges: list[tuple[float, float]]) -> dict[str, Any]:
    return {
        "Name": name,
        "DataType": kind,
        "DataRange": [{"Min": lo, "Max": hi, "IsFull": False} for lo, hi in ranges],
        "DataRangeMode": "by_channel" if len(ranges) > 1 else "by_tensor",
    }


# ---- reading -------------------------------------------------------------------------------------
def read(path: Path, graph: Graph, target: str, strict: bool) -> Scheme:
    """The scheme in a file, for a model; BadFile names the entry that is wrong."""
    rows = _rows(path)
    graph = prepare(graph, target)
    values = {v.name: v for v in graph.values() if v.name}
    widths = {p.name for p in targets.find(target).precisions}
    scheme = Scheme(strict=strict, source=str(path))
    for name, kind, ranges in rows:
        value = values.get(name)
        if value is None:
            words = f"{path}: no tensor is called '{name}'{did_you_mean(name, values)}"
            if strict:
                raise BadInput(f"{words}; quant_scheme_strict_mode makes this an error")
            LOG.warning(words)
        elif value.data is not None:
            scheme.tensors[name] = _weight(path, value, kind, ranges)
        else:
            _activation(scheme, value, kind, ranges[0], widths)
    scheme.layers |= fused_layers(graph, scheme.layers)
    return scheme


def _activation(
    scheme: Scheme, value: Value, kind: str, span: tuple[float, float], widths: set[str]
) -> None:
    if kind in ("f16", "f32"):
        if value.producer is not None:
            scheme.layers[value.name] = kind if kind in widths else "f32"
        return
    scheme.tensors[value.name] = affine(*span, kind, symmetric=kind == "i16")
    if kind == "i16" and value.producer and "int16" in widths and not _feeds_a_table(value):
        scheme.layers[value.name] = "int16"


def _feeds_a_table(value: Value) -> bool:
    """Whether a tensor is the index into the table of an activation, which always has 16 bits."""
    node = value.producer
    if node is None or node.op not in PRODUCTS:
        return False
    return bool(value.uses) and all(
        REGISTRY[n.op].elementwise and n.op not in CLAMPS and len(n.inputs) == 1 for n in value.uses
    )


def _weight(path: Path, value: Value, kind: str, ranges: list[tuple[float, float]]) -> TensorScheme:
    """Weights are symmetric: the larger end of a range counts."""
    if kind in ("f16", "f32"):
        return TensorScheme("f32")
    dtype = "i8" if kind == "u8" else kind
    if len(ranges) == 1:
        return affine(*ranges[0], dtype, symmetric=True)
    axes = [a for n in value.uses if n.op in PRODUCTS and (a := weight_axis(n)) is not None]
    if not axes or value.shape[axes[0]] != len(ranges):
        raise BadFile(
            f"{path}: '{value.name}' has {len(ranges)} ranges, its shape is {list(value.shape)}; "
            "give one for each output channel"
        )
    each = [affine(lo, hi, dtype, symmetric=True) for lo, hi in ranges]
    scale = tuple(t.scale[0] for t in each)
    return TensorScheme(
        dtype,
        scale,
        (0,) * len(scale),
        axis=axes[0],
        lo=min(t.lo for t in each),
        hi=max(t.hi for t in each),
    )


def _rows(path: Path) -> list[tuple[str, str, list[tuple[float, float]]]]:
    try:
        with open_regular(path) as file:
            text = file.read(MAX_BYTES)
        content = json.loads(text)
    except FileNotFoundError:
        raise BadFile(f"quant_scheme: there is no file '{path}' (in {Path.cwd()})") from None
    except OSError as e:
        raise BadFile(f"quant_scheme: cannot read '{path}': {e.strerror or e}") from None
    except (ValueError, RecursionError) as e:
        raise BadFile(f"quant_scheme '{path}' is no JSON: {e}; export it again") from None
    rows = content.get("Outputs") if isinstance(content, Mapping) else None
    if not isinstance(rows, list):
        raise BadFile(f"quant_scheme '{path}' has no list 'Outputs'; export it again")
    return [_checked(path, i, row) for i, row in enumerate(rows)]


def _checked(path: Path, index: int, row: Any) -> tuple[str, str, list[tuple[float, float]]]:
    where = f"quant_scheme '{path}', entry {index}"
    if not isinstance(row, Mapping) or not isinstance(row.get("Name"), str):
        raise BadFile(f"{where}: it needs a 'Name'")
    name, kind = row["Name"], row.get("DataType")
    if kind not in TYPES:
        raise BadFile(f"{where} '{name}': DataType is {kind!r}; it is one of {', '.join(TYPES)}")
    try:
        ranges = [(float(r["Min"]), float(r["Max"])) for r in row["DataRange"]]
    except (KeyError, TypeError, ValueError):
        ranges = []
    if not ranges or not all(math.isfinite(a) and math.isfinite(b) and a <= b for a, b in ranges):
        raise BadFile(f"{where} '{name}': DataRange needs entries with Min and Max, Min first")
    return name, kind, ranges
