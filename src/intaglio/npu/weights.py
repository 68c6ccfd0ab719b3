"""The constants of a program as the chip reads them: packed weights, factors, biases, tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array
from intaglio.npu.layers import Layer
from intaglio.npu.sparse import FORMS, compress
from intaglio.targets.chip import Chip

TABLE_INPUT = {"conv": 5, "depthwise": 5, "eltwise": 2, "lut": 1}  # of each op


@dataclass(frozen=True, slots=True)
class Atoms:
    """How many input and output channels a unit takes at once: the weights' packing."""

    inputs: int
    outputs: int


def atoms(layer: Layer, chip: Chip) -> Atoms:
    """The packing of a product's weights on this chip."""
    unit, dtype = chip.units[layer.op], layer.reads[0].store.dtype
    outputs = unit.out_atom.get(dtype, layer.dst.store.c2)
    return Atoms(unit.in_atom.get(dtype, 1) if layer.op == "conv" else 1, outputs)


def packed(w: Array, a: Atoms, depthwise: bool) -> Array:
    """[ceil(OC/oa)][KH][KW][ceil(IC/ia)][oa][ia], zeros where there is no channel."""
    outs, ins, kh, kw = w.shape
    o1, i1 = -(-outs // a.outputs), -(-ins // a.inputs)
    full = np.zeros((o1 * a.outputs, i1 * a.inputs, kh, kw), w.dtype)
    full[:outs, :ins] = w
    if depthwise:  # [ceil(C/oa)][KH][KW][oa]
        return full.reshape(o1, a.outputs, kh, kw).transpose(0, 2, 3, 1).copy()
    blocks = full.reshape(o1, a.outputs, i1, a.inputs, kh, kw)
    return blocks.transpose(0, 4, 5, 2, 1, 3).copy()


@dataclass(slots=True)
class Constants:
    """What one layer reads from the weights: a table, and blocks of output channels.

    A chunk is some of these blocks: their packed weights, then their factors and biases.
    """

    atoms: Atoms
    blocks: int  # of output channels
    block_bytes: int  # packed weights of one of them
    table: bytes = b""
    entries: int = 0
    sparse: int = 0  # the form in which weights are stored; 0: all of them

    def chunk(self, blocks: int, align: int) -> int:
        """Bytes in SRAM of that many blocks: weights, then params."""
        return _up(blocks * self.block_bytes, align) + _up(blocks * self.atoms.outputs * 8, align)

    def params_at(self, blocks: int, align: int) -> int:
        """Where the params begin in such a chunk."""
        return _up(blocks * self.block_bytes, align)


def constants(layer: Layer, chip: Chip) -> Constants | None:
    """What the layer reads from the weights; None: nothing."""
    node = layer.node
    table = node.inputs[TABLE_INPUT[layer.op]] if node and layer.op in TABLE_INPUT else None
    raw = table.data.tobytes() if table is not None and table.data is not None else b""
    entries = table.type.size if table is not None else 0
    if not layer.is_product:
        return Constants(Atoms(1, 1), 0, 0, raw, entries) if raw else None
    assert node is not None
    w = node.inputs[1]
    assert w is not None
    a = atoms(layer, chip)
    outs, ins, kh, kw = w.shape
    form = sparse_form(w.data, a, chip) if layer.op == "conv" and w.data is not None else 0
    item = dtypes.TABLE[w.dtype].numpy.itemsize
    atom = FORMS[form].bytes(a.outputs, a.inputs) if form else a.outputs * a.inputs * item
    size = kh * kw * -(-ins // a.inputs) * atom
    return Constants(a, -(-outs // a.outputs), size, raw, entries, form)


def sparse_form(w: Array, a: Atoms, chip: Chip) -> int:
    """The smallest form that the chip has in which these weights are whole; 0: as they are."""
    if (
        w.dtype != np.int8
        or w.shape[0] % a.outputs
        or w.shape[1] % a.inputs
        or 2 * np.count_nonzero(w) > w.size
    ):
        return 0
    known = [k for k, f in FORMS.items() if f.name in chip.sparse and f.fits(a.outputs, a.inputs)]
    blocks = packed(w, a, False).reshape(-1, a.outputs, a.inputs)
    for form in sorted(known, key=lambda k: FORMS[k].bytes(a.outputs, a.inputs)):
        if compress(blocks, form) is not None:
            return form
    return 0


def chunk_bytes(layer: Layer, c: Constants, first: int, blocks: int, align: int) -> bytes:
    """The bytes of `blocks` blocks of output channels from block `first` on."""
    assert layer.node is not None
    w, scale, bias = (v.data for v in layer.node.inputs[1:4] if v is not None)
    assert w is not None
    low, high = first * c.atoms.outputs, min((first + blocks) * c.atoms.outputs, w.shape[0])
    blocked = packed(w[low:high], c.atoms, layer.op == "depthwise")
    if c.sparse:
        few = compress(blocked.reshape(-1, c.atoms.outputs, c.atoms.inputs), c.sparse)
        assert few is not None
        blocked = few
    made = blocked.tobytes()
    params = np.zeros((blocks * c.atoms.outputs, 2), np.uint32)
    factors = np.broadcast_to(np.asarray(scale, np.float32), w.shape[:1])[low:high]
    params[: high - low, 0] = np.ascontiguousarray(factors).view(np.uint32)
    params[: high - low, 1] = np.ascontiguousarray(bias)[low:high].view(np.uint32)
    made = made.ljust(c.params_at(blocks, align), b"\0") + params.tobytes()
    return made.ljust(c.chunk(blocks, align), b"\0")


def _up(n: int, to: int) -> int:
    return -(-n // to) * to
