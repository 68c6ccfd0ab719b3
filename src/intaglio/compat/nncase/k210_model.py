"""Kmodels of the K210: written where the KPU runs the whole model, and simulated.

The KPU reads and writes bytes in NCHW. Scales, shapes and layouts of the user's model are kept in
the file beside the commands, so that the simulator takes and gives what the model does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.compat.nncase.refusals import LOG
from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.ir import Array, Graph, Node, Type
from intaglio.npu.chips.k210 import kmodel5
from intaglio.npu.chips.k210.compile import Compiled, compile_kmodel
from intaglio.npu.chips.k210.compile import read as read_kmodel
from intaglio.npu.chips.k210.model import Port as FilePort
from intaglio.npu.chips.k210.simulate import Machine, input_names, output_names

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
ENDS = ("quantize_linear", "dequantize_linear", "reshape", "transpose", "cast")
NHWC = "nhwc"  # key of a port whose layout in the user's model is NHWC
BYTES = "bytes"  # key of a port that takes or gives bytes in the user's model, too
PLACE = "place"  # key: number of the port in the user's model
MAX_RANK = 8


def k210_file(graph: Graph) -> bytes | None:
    """A kmodel of version 5; None, with a warning, if it cannot hold the whole model."""
    try:
        made = compile_kmodel(graph)
        _describe(made, graph)
    except (Unsupported, BadInput) as e:
        LOG.warning(f"compile: {e}; the result is a package, which runs in the simulator only")
        return None
    return kmodel5.write(made.model)


def _describe(made: Compiled, graph: Graph) -> None:
    """Add shapes, layouts and the order of the model's ports; Unsupported if ops are left over."""
    left = [n for n in made.lowered.before if n.op not in ENDS]
    left += [n for n, _ in made.lowered.after if n.op not in ENDS]
    if left:
        raise Unsupported(
            f"k210: '{left[0].outputs[0].name or left[0].origin}' ({left[0].op}) does not run on "
            "the KPU; for a kmodel cut the model before it with import_options.output_arrays"
        )
    before = [n for n in made.lowered.before if n.op == "transpose"]
    after = [n for n, _ in made.lowered.after if n.op == "transpose"]
    inputs = {v.name: v.type for v in graph.inputs}
    outputs = dict(zip(graph.output_names, (v.type for v in graph.outputs), strict=True))
    about = made.model.about
    _rows(about["inputs"], inputs, _turned(before, TO_NCHW, "input"))
    _rows(about["outputs"], outputs, _turned(after, TO_NHWC, "output"))


def _turned(nodes: Sequence[Node], perm: tuple[int, ...], side: str) -> bool:
    """Whether all ports of a side are transposed; Unsupported for other transposes."""
    for node in nodes:
        if tuple(node.attrs["perm"]) != perm:
            raise Unsupported(
                f"k210: an {side} is transposed by {list(node.attrs['perm'])}; the KPU has NCHW: "
                f"leave out {side}_layout"
            )
    return bool(nodes)


def _rows(rows: list[dict[str, Any]], types: Mapping[str, Type], turned: bool) -> None:
    names = list(types)
    for row, name in zip(rows, _matched(rows, types), strict=True):
        t = types[name]
        row |= {"name": name, "shape": list(t.shape), PLACE: names.index(name)}
        if turned and t.rank == 4:
            row[NHWC] = True
        if t.dtype == "u8":
            row[BYTES] = True


def _matched(rows: list[dict[str, Any]], types: Mapping[str, Type]) -> list[str]:
    """The model's name of each port: the same, or that of the only port with as many elements."""
    rest = [n for n in types if n not in {r["name"] for r in rows}]
    found = []
    for row in rows:
        size = math.prod(row["shape"])
        fits = [n for n in rest if types[n].size == size]
        name = row["name"] if row["name"] in types else fits[0] if len(fits) == 1 else ""
        if not name or types[name].size != size:
            raise Unsupported(
                f"k210: the KPU's part has '{row['name']}' {row['shape']}, which is no tensor of "
                f"the model: {', '.join(types)}"
            )
        found.append(name)
    if sorted(found) != sorted(types):
        raise Unsupported(f"k210: the KPU's part has {', '.join(found)} only")
    return found


class K210Model:
    """A kmodel of the K210, simulated; ports with a scale are floats, but those of bytes."""

    def __init__(self, data: bytes):
        self.model = read_kmodel(data)
        self.machine = Machine(self.model)
        about, main = self.model.about, self.model.main
        given = _ports(input_names(self.model), about.get("inputs", []), main.inputs)
        found = _ports(output_names(self.model), about.get("outputs", []), main.outputs)
        self.given, self.results = given, found
        self.inputs = {n: p.type for n, p in given.items()}
        self.outputs = {n: p.type for n, p in found.items()}

    def run(self, feeds: dict[str, Array]) -> dict[str, Array]:
        found = self.machine.run({n: self.given[n].stored(x) for n, x in feeds.items()})
        return {n: p.real(found[n]) for n, p in self.results.items()}


class _Port:
    """An input or output of a file, as the user's model has it."""

    def __init__(self, port: FilePort, row: Mapping[str, Any] | None):
        self.dtype, self.stored_shape = port.range.dtype, port.shape
        self.shape, self.scale, self.zero = port.shape, 1.0, 0
        self.nhwc, self.place, given = False, 0, False
        if row is not None:
            self._read(row)
            given = row.get(BYTES) is True
        self.floats = not given and (self.scale, self.zero) != (1.0, 0)

    def _read(self, row: Mapping[str, Any]) -> None:
        try:
            self.scale, self.zero = float(row.get("scale", 1)), int(row.get("zero", 0))
            self.shape = tuple(int(d) for d in row.get("shape", self.shape))
            self.nhwc, self.place = row.get(NHWC) is True, int(row.get(PLACE, 0))
        except (TypeError, ValueError, OverflowError):
            raise BadFile(f"kmodel: the entry of port '{row['name']}' is damaged") from None
        right = len(self.shape) <= MAX_RANK and all(d > 0 for d in self.shape)
        right = right and math.prod(self.shape) == math.prod(self.stored_shape)
        right = right and math.isfinite(self.scale) and self.scale > 0 and abs(self.zero) < 1 << 16
        if not right or (self.nhwc and len(self.shape) != 4):
            raise BadFile(f"kmodel: the entry of port '{row['name']}' does not fit the file")

    @property
    def type(self) -> Type:
        return Type("f32" if self.floats else self.dtype, self.shape)

    def stored(self, given: Array) -> Array:
        x = given.transpose(TO_NCHW) if self.nhwc else given
        if self.floats:
            first, last = dtypes.limits(self.dtype)
            x = np.clip(np.rint(x / np.float32(self.scale)) + self.zero, first, last)
        kind = np.dtype(dtypes.numpy_of(self.dtype))
        return np.ascontiguousarray(x, kind).reshape(self.stored_shape)

    def real(self, found: Array) -> Array:
        x = found
        if self.floats:
            x = (found.astype(np.float32) - np.float32(self.zero)) * np.float32(self.scale)
        if self.nhwc:
            n, h, w, c = self.shape
            x = x.reshape(n, c, h, w).transpose(TO_NHWC)
        return np.ascontiguousarray(x.reshape(self.shape))


def _ports(
    names: list[str], rows: list[dict[str, Any]], ports: Sequence[FilePort]
) -> dict[str, _Port]:
    """The ports by name, in the order of the user's model."""
    known: Sequence[Any] = rows if len(rows) == len(ports) else [None] * len(ports)
    found = {n: _Port(p, r) for n, r, p in zip(names, known, ports, strict=True)}
    if len(found) != len(names):
        raise BadFile("kmodel: two ports have the same name")
    return dict(sorted(found.items(), key=lambda pair: pair[1].place))
