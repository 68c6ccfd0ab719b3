"""The bytes of a kmodel: a file of the K210, or a package of Intaglio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

import intaglio
from intaglio import dtypes
from intaglio.compat.nncase.refusals import LOG
from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.ir import Array, Graph, Type
from intaglio.npu.chips.k210.compile import compile_kmodel
from intaglio.npu.chips.k210.compile import read as read_kmodel
from intaglio.npu.chips.k210.simulate import Machine, input_names, output_names
from intaglio.package import Package
from intaglio.package.format import MAGIC

KMODEL = b"LDMK"  # begins kmodels of nncase 1.x and 2.x
OLD_KMODEL = b"\3\0\0\0"
ENDS = ("quantize_linear", "dequantize_linear", "reshape", "transpose", "cast")


class Model(Protocol):
    """A model that runs: its inputs and outputs by name, in order."""

    inputs: dict[str, Type]
    outputs: dict[str, Type]

    def run(self, feeds: dict[str, Array]) -> dict[str, Array]:
        """The outputs of one inference."""


def k210_file(graph: Graph) -> bytes | None:
    """A kmodel of version 5; None, with a warning, if it cannot hold the whole model."""
    try:
        made = compile_kmodel(graph)
    except (Unsupported, BadInput) as e:
        LOG.warning(f"compile: {e}; the result is a package, which runs in the simulator only")
        return None
    left = [n for n in made.lowered.before if n.op not in ENDS]
    left += [n for n, _ in made.lowered.after if n.op not in ENDS]
    if left:
        node = left[0]
        named = node.outputs[0].name or node.origin
        LOG.warning(
            f"compile: '{named}' ({node.op}) does not run on the KPU, so that the result is a "
            "package, which runs in the simulator only; for a kmodel cut the model before it with "
            "import_options.output_arrays"
        )
        return None
    return made.data


def load(data: Any) -> Model:
    """The model in a file's bytes; BadFile says what else they are."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise BadInput(
            f"the model is {type(data).__name__}; give the content of a kmodel: "
            "open(path, 'rb').read()"
        )
    data = bytes(data)
    if data[:4] == MAGIC:
        return PackageModel(Package(data))
    if data[:4] in (KMODEL, OLD_KMODEL):
        return KmodelModel(data)
    if not data:
        raise BadFile("the kmodel is empty; was it written completely?")
    raise BadFile(
        f"this is no kmodel: it begins with {data[:4].hex()}; give what gencode_tobytes() returned"
    )


class PackageModel:
    """A package of Intaglio."""

    def __init__(self, package: Package):
        self.package = package
        self.session = intaglio.open(package)
        self.inputs = dict(self.session.inputs)
        self.outputs = dict(self.session.outputs)

    def run(self, feeds: dict[str, Array]) -> dict[str, Array]:
        return dict(self.session.run(feeds))


class KmodelModel:
    """A kmodel of the K210, simulated; ports with a scale take and give floats."""

    def __init__(self, data: bytes):
        self.model = read_kmodel(data)
        self.machine = Machine(self.model)
        main = self.model.main
        self.names = input_names(self.model), output_names(self.model)
        about = self.model.about
        self.given = _ports(self.names[0], about.get("inputs", []), main.inputs)
        self.results = _ports(self.names[1], about.get("outputs", []), main.outputs)
        self.inputs = {n: p.type for n, p in self.given.items()}
        self.outputs = {n: p.type for n, p in self.results.items()}

    def run(self, feeds: dict[str, Array]) -> dict[str, Array]:
        stored = {n: self.given[n].stored(x) for n, x in feeds.items()}
        found = self.machine.run(stored)
        return {n: self.results[n].real(x) for n, x in found.items()}


class _Port:
    """An input or output of a kmodel: bytes, with a scale if Intaglio wrote it."""

    def __init__(self, dtype: str, shape: Sequence[int], row: dict[str, Any] | None):
        self.dtype, self.shape = dtype, tuple(shape)
        self.scale = float(row["scale"]) if row else 1.0
        self.zero = int(row["zero"]) if row else 0
        self.floats = row is not None and (self.scale, self.zero) != (1.0, 0)
        self.user_shape = tuple(int(d) for d in row["shape"]) if row else self.shape

    @property
    def type(self) -> Type:
        return Type("f32" if self.floats else self.dtype, self.user_shape)

    def stored(self, given: Array) -> Array:
        if not self.floats:
            return np.reshape(given, self.shape)
        first, last = dtypes.limits(self.dtype)
        scaled = np.rint(given / np.float32(self.scale)) + self.zero
        kind = dtypes.numpy_of(self.dtype)
        return np.reshape(np.clip(scaled, first, last).astype(kind), self.shape)

    def real(self, found: Array) -> Array:
        if not self.floats:
            return np.reshape(found, self.user_shape)
        real: Array = (found.astype(np.float32) - np.float32(self.zero)) * np.float32(self.scale)
        return real.reshape(self.user_shape)


def _ports(names: list[str], rows: list[dict[str, Any]], ports: Sequence[Any]) -> dict[str, _Port]:
    known = rows if len(rows) == len(ports) else [None] * len(ports)
    found = {}
    for name, row, port in zip(names, known, ports, strict=True):
        sized = row is not None and np.prod(row["shape"]) == np.prod(port.shape)
        found[name] = _Port(port.range.dtype, port.shape, row if sized else None)
    return found
