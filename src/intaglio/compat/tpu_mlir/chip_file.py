"""A quantised network as a file of a chip, with the ports that the vendor's tools would give it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import intaglio
from intaglio import dtypes
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Array, Graph, Node, Value
from intaglio.npu.chips.bm1684.compile import compile_bmodel as compile_shifted
from intaglio.npu.chips.bm1684.variant import BM1684
from intaglio.npu.chips.bm1684x import bmodel
from intaglio.npu.chips.bm1684x.compile import compile_bmodel
from intaglio.npu.chips.cv18xx.compile import compile_cvimodel
from intaglio.npu.lowering.builder import integer, scale_of
from intaglio.targets.chip import Chip

PASSIVE = ("reshape", "dequantize_linear", "identity")  # ops that leave bytes where they are
TO_NCHW = (0, 3, 1, 2)
WEIGHTS = {  # --quantize with rounded weights -> their type, and that of the layers
    "W8F16": ("i8", "f16"),
    "W8BF16": ("i8", "bf16"),
    "W4F16": ("u4", "f16"),
    "W4BF16": ("u4", "bf16"),
}
FLOATS = {  # types of layers, by --quantize
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    **{name: dtype for name, (_, dtype) in WEIGHTS.items()},
}
NAMED = 3  # ops that an error names


class UnsupportedEnd(Unsupported):
    """Ops after the last layer of the TPU."""


@dataclass(frozen=True)
class Port:
    """An input or output of the file, by the name of the network's tensor."""

    tensor: str  # of the network
    name: str  # in the file
    dtype: str
    shape: tuple[int, ...]  # in the file
    scale: float
    zero: int

    def stored(self, x: Array) -> Array:
        """Real numbers as the file takes them; NHWC pictures become NCHW."""
        want = dtypes.numpy_of(self.dtype)
        if x.ndim == 4 and tuple(x.shape[a] for a in TO_NCHW) == self.shape != x.shape:
            x = x.transpose(TO_NCHW)
        x = np.ascontiguousarray(x).reshape(self.shape)
        if x.dtype == want or dtypes.is_float(self.dtype):
            return x.astype(want)
        limits = np.iinfo(want)
        whole = np.rint(x.astype(np.float32) / np.float32(self.scale)) + self.zero
        stored: Array = np.clip(whole, limits.min, limits.max).astype(want)
        return stored

    def real(self, x: Array) -> Array:
        """Numbers of the file as real ones."""
        if dtypes.is_float(self.dtype):
            return x.astype(np.float32)
        return ((x.astype(np.int32) - self.zero) * np.float32(self.scale)).astype(np.float32)


@dataclass(frozen=True)
class ChipFile:
    """The bytes of a file, its ports, and the layers whose meaning it has."""

    data: bytes
    inputs: list[Port]
    outputs: list[Port]
    graph: Graph
    floats: bool = False  # some of its layers may be computed in floats

    def run(self, sample: Mapping[str, Array]) -> dict[str, Array]:
        """Its outputs in real numbers, by the meaning of its layers."""
        feeds = {
            v.name: p.stored(sample[p.tensor])
            for v, p in zip(self.graph.inputs, self.inputs, strict=True)
        }
        found = intaglio.interpret(self.graph, feeds)
        ends = zip(self.graph.output_names, self.outputs, strict=True)
        return {p.name: p.real(found[name]).reshape(p.shape) for name, p in ends}


def compile_file(
    graph: Graph,
    network: Graph,
    chip: Chip,
    dtype: str = "",
    cores: int = 1,
    layers: Mapping[str, str] | None = None,
) -> ChipFile:
    """Compile a graph of a network; Unsupported names a layer that is in the way.

    The graph is quantised, or its layers are computed in the floats `dtype`. `cores` of a BM chip
    share the work. `layers` has other types of floats, by operator.
    """
    made: Any
    try:
        if chip.name == BM1684.name:
            if dtype:
                raise Unsupported(f"files for {chip.name} hold integers, not {dtype}")
            made = compile_shifted(graph, chip)
        elif chip.file == "bmodel":
            made = compile_bmodel(graph, chip, dtype=dtype, cores=cores, layers=layers)
        else:
            made = compile_cvimodel(graph, chip)
    except Unsupported as e:
        raise Unsupported(f"{' '.join(str(e).split())}; {_package_remedy()}") from None
    _refuse_after(made.lowered.after, network)
    _refuse_before(made.lowered.before, network)
    shapes = dict(zip(network.output_names, (v.shape for v in network.outputs), strict=True))
    inputs = _inputs(made, network)
    ends = _ends(made.lowered.after, network)
    outputs = []
    for i, p in enumerate(made.lowered.outputs):
        end = ends.get(i) or End(p.name, p.scale, p.zero)
        name = f"{end.tensor}_f32" if p.dtype == "f32" else end.tensor
        outputs.append(Port(end.tensor, name, p.dtype, p.shape, end.scale, end.zero))
    _name_inputs(made, inputs)
    if chip.file == "bmodel":
        outputs = [replace(p, shape=shapes.get(p.tensor, p.shape)) for p in outputs]
        stage = made.model.nets[0].stages[0]
        for tensors in (stage.outputs, *(s.outputs for s in stage.subnets)):
            for t, p in zip(tensors, outputs, strict=True):
                t.name, t.shape, t.scale, t.zero = p.name, p.shape, p.scale, p.zero
        made.data = bmodel.write(made.model)
    return ChipFile(made.data, inputs, outputs, made.graph, bool(dtype))


def _inputs(made: Any, network: Graph) -> list[Port]:
    """The inputs of the file; pictures that are NHWC in the network are NCHW there."""
    names = [v.name for v in network.inputs]
    found = {n.inputs[0].name: n for n in made.lowered.before if n.op == "quantize_linear"}
    known = {p.name for p in made.lowered.inputs}
    rest = [n for n in names if n not in known]
    ports = []
    for p in made.lowered.inputs:
        tensor, scale, zero = p.name, p.scale, p.zero
        if p.name not in names and rest:
            tensor = rest.pop(0)
            node = found.get(tensor)
            if node is not None:
                scale = float(scale_of(node.inputs[1]))
                zero = integer(node.inputs[2] if len(node.inputs) > 2 else None)
        ports.append(Port(tensor, tensor, p.dtype, p.shape, scale, zero))
    return ports


def _name_inputs(made: Any, ports: list[Port]) -> None:
    """Write names and scales of inputs into the tables of a bmodel, if they changed."""
    old = [p.name for p in made.lowered.inputs]
    if old == [p.name for p in ports]:
        return
    stage = made.model.nets[0].stages[0]
    for tensors in (stage.inputs, *(s.inputs for s in stage.subnets)):
        for t, p in zip(tensors, ports, strict=True):
            t.name, t.scale, t.zero = p.name, 1 / p.scale, p.zero


def _passive(n: Node) -> bool:
    """Whether the results of a node are the bytes of its input, in their order."""
    if n.op == "transpose":
        x = n.inputs[0]
        assert x is not None
        moved = [a for a in n.attrs["perm"] if x.shape[a] != 1]
        return moved == sorted(moved)
    return n.op in PASSIVE


@dataclass(frozen=True)
class End:
    """The output that a result of the chip becomes, with its scale."""

    tensor: str
    scale: float = 1.0
    zero: int = 0


def _ends(after: list[tuple[Node, str]], network: Graph) -> dict[int, End]:
    """The network's outputs by the position of the results of a bmodel's part."""
    read = [v.producer for n, _ in after for v in n.inputs if v is not None]
    programs = dict.fromkeys(n for n in read if n is not None and n.op == "npu.program")
    found = ((i, _end(v, network)) for n in programs for i, v in enumerate(n.outputs))
    return {i: end for i, end in found if end is not None}


def _end(v: Value, network: Graph) -> End | None:
    """The output that a tensor becomes by passive ops."""
    for use in v.uses:
        if use.op == "result":
            return End(network.output_names[use.inputs.index(v)])
        end = _end(use.outputs[0], network) if _passive(use) else None
        if end is not None and use.op == "dequantize_linear":
            zero = integer(use.inputs[2] if len(use.inputs) > 2 else None)
            return End(end.tensor, float(scale_of(use.inputs[1])), zero)  # type: ignore[arg-type]
        if end is not None:
            return end
    return None


def _refuse_after(after: list[tuple[Node, str]], network: Graph) -> None:
    """Unsupported if ops that compute follow the chip's layers."""
    rest = [(n, why) for n, why in after if not _passive(n)]
    if not rest:
        return
    names = [f"'{n.origin or n.outputs[0].name}' ({n.op})" for n, _ in rest[:NAMED]]
    more = f" and {len(rest) - NAMED} more" if len(rest) > NAMED else ""
    late = {n for n, _ in rest}
    first = [n for n in late if not _reads(n, late, {n for n, _ in after})]
    ends = dict.fromkeys(name for n, _ in rest if n in first for name in _before(n, network))
    cut = f"end the network there by model_transform --output_names {','.join(ends)}, or "
    cut *= bool(ends)
    raise UnsupportedEnd(
        f"the TPU does not compute {', '.join(names)}{more} at the end of the network: "
        f"{rest[0][1]}; "
        f"{cut}{_package_remedy()}"
    )


def _reads(node: Node, late: set[Node], after: set[Node]) -> bool:
    """Whether a node reads a result of `late`, maybe by other ops of `after`."""
    makers = [v.producer for v in node.inputs if v is not None and v.producer in after]
    return any(m in late or _reads(m, late, after) for m in makers if m is not None)


def _refuse_before(before: list[Node], network: Graph) -> None:
    """Unsupported if ops that compute stand before the chip's layers."""
    quiet = ("quantize_linear", "transpose", "reshape")
    rest = [n for n in before if n.op not in quiet]
    if rest:
        names = [f"'{n.origin or n.outputs[0].name}' ({n.op})" for n in rest[:NAMED]]
        raise Unsupported(
            f"the TPU does not compute {', '.join(names)} at the start of the network; compute it "
            f"before, or {_package_remedy()}"
        )


def _package_remedy() -> str:
    return "give --model NAME.itg for a package that runs the rest on the CPU"


def _before(node: Node, network: Graph) -> list[str]:
    """The tensors of the network that an op reads, by their names in the model file."""
    named = {v.name for v in node.outputs} | {node.origin}
    for n in network.nodes():
        if n.origin in named or any(v.name in named for v in n.outputs):
            read = [v for v in n.inputs if v is not None and v.data is None]
            return [_plain(v) for v in read if v.name]
    return []


def _plain(v: Value) -> str:
    """The name of a tensor without the operator that tpu-mlir adds."""
    head, found, tail = v.name.rpartition("_")
    return head if found and tail[:1].isupper() else v.name


def holds_floats(chip: Chip) -> bool:
    """Whether layers of a chip's files may compute floats."""
    return chip.file == "bmodel" and chip.name != BM1684.name


def refuse_type(quantize: str, name: str, chip: Chip) -> None:
    """BadInput for types that files for a chip, by the user's name, do not have."""
    if quantize in ("INT8", "QDQ") or (holds_floats(chip) and quantize in FLOATS):
        return
    if quantize in FLOATS:
        remedy = "give --quantize INT8 with --calibration_table, or --model NAME.itg for a package"
        remedy += " in floats"
    else:
        remedy = "give --quantize INT8 with --calibration_table"
    types = "INT8, F16, BF16, F32 and W8F16 to W4BF16" if holds_floats(chip) else "INT8"
    raise BadInput(f"--quantize is {quantize}; files for {name} are written in {types}; {remedy}")
