"""From a quantised graph to a kmodel: the whole compiler for the K210."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intaglio import passes
from intaglio.errors import BadFile, BadInput, option
from intaglio.files import write_atomically
from intaglio.ir import Graph
from intaglio.npu.chips.k210 import kmodel3, kmodel5
from intaglio.npu.chips.k210.cut import Lowered, lower
from intaglio.npu.chips.k210.emit import Emitter
from intaglio.npu.chips.k210.emit3 import Emitter3
from intaglio.npu.chips.k210.lower import Port
from intaglio.npu.chips.k210.model import Kmodel
from intaglio.npu.chips.quantised import require_quantised

VERSIONS = (5, 3)
MAGICS = {b"LDMK": kmodel5.read, b"\3\0\0\0": kmodel3.read}


@dataclass
class Compiled:
    """A kmodel, and the graph of the KPU's layers, whose meaning it has."""

    model: Kmodel
    lowered: Lowered
    data: bytes

    @property
    def graph(self) -> Graph:
        """The layers as a graph of u8 tensors: `intaglio.interpret` gives the file's bits."""
        return self.lowered.graph

    def save(self, path: str | Path) -> None:
        """Write the file."""
        write_atomically(path, self.data)


def compile_kmodel(graph: Graph, version: int = 5, level: int = 3) -> Compiled:
    """Compile a quantised graph to a kmodel; the given graph stays unchanged.

    Unsupported names the ops that stand in the way. Ops before the first layer (quantising the
    input) and after the last are left to the caller: `lowered.before` and `lowered.after`.
    """
    if version not in VERSIONS:
        raise BadInput(f"{option('kmodel', version)}: versions 5 and 3 are known")
    require_quantised(graph, "k210")
    graph = graph.copy()
    passes.run(graph, passes.neutral(), level)
    lowered = lower(graph)
    if version == 3:
        scales = [(p.scale, p.zero) for p in lowered.outputs]
        model = Emitter3(lowered.graph, scales).model()
    else:
        model = Emitter(lowered.graph).model()
    model.about = _about(lowered)
    data = (kmodel3 if version == 3 else kmodel5).write(model)
    return Compiled(model, lowered, data)


def read(data: bytes) -> Kmodel:
    """The kmodel in a file of version 3 or 5."""
    for magic, reader in MAGICS.items():
        if data[:4] == magic:
            return reader(data)
    raise BadFile(f"not a kmodel of version 3 or 5: it starts with {data[:4].hex() or 'nothing'}")


def _about(lowered: Lowered) -> dict[str, Any]:
    def row(p: Port) -> dict[str, Any]:
        return {"name": p.name, "shape": list(p.shape), "scale": p.scale, "zero": p.zero}

    return {
        "inputs": [row(p) for p in lowered.inputs],
        "outputs": [row(p) for p in lowered.outputs],
    }
