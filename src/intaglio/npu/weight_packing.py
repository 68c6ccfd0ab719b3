"""Constants in the order in which a chip's units read them: weights, scales, biases, tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array
from intaglio.npu.layers import Layer
from intaglio.npu.sparse_weights import FORMS, compress
from intaglio.targets.chip import Chip

# the index of the input that holds the lookup table, by op
TABLE_INPUT = {"conv": 5, "depthwise": 5, "eltwise": 2, "lut": 1}


@dataclass(frozen=True, slots=True)
class Atoms:
    """The input and output channels that a unit multiplies at once: the block of packed weights."""

    inputs: int
    outputs: int


def atoms(layer: Layer, chip: Chip) -> Atoms:
    """The atoms of a convolution on this chip."""
    unit, dtype = chip.units[layer.op], layer.reads[0].map.dtype
    outputs = unit.out_atom.get(dtype, layer.dst.map.c2)
    return Atoms(unit.in_atom.get(dtype, 1) if layer.op == "conv" else 1, outputs)


def packed(w: Array, a: Atoms, depthwise: bool) -> Array:
    """[ceil(OC/oa)][KH][KW][ceil(IC/ia)][oa][ia] in one row; the last atoms are not padded.

    Depthwise weights are [ceil(C/oa)][KH][KW][oa].
    """
    full = len(w) // a.outputs * a.outputs
    parts = [
        _blocks(w[:full], a.outputs, 1 if depthwise else a.inputs),
        _blocks(w[full:], len(w) - full, 1 if depthwise else a.inputs),
    ]
    return np.concatenate([p.reshape(-1) for p in parts])


def _blocks(w: Array, rows: int, wide: int) -> Array:
    """Blocks of `rows` output channels: per tap, atoms of at most `wide` input channels."""
    if not len(w):
        return w
    outs, ins, kh, kw = w.shape
    full, taps = ins // wide * wide, kh * kw
    many = outs // rows
    atoms = w[:, :full].reshape(many, rows, full // wide, wide, taps).transpose(0, 4, 2, 1, 3)
    last = w[:, full:].reshape(many, rows, ins - full, taps).transpose(0, 3, 1, 2)
    return np.concatenate([atoms.reshape(many, taps, -1), last.reshape(many, taps, -1)], 2)


@dataclass(slots=True)
class Constants:
    """The constants of one layer: a lookup table, and blocks of output channels.

    A chunk is a run of these blocks: packed weights, then scales, then biases.
    """

    atoms: Atoms
    blocks: int  # blocks of output channels
    block_bytes: int  # packed weights of one block
    table: bytes = b""
    entries: int = 0
    sparse: int = 0  # the sparse form of the weights; 0: dense
    one_scale: bool = False  # all channels share one scale, which is stored once

    def chunk(self, blocks: int, align: int) -> int:
        """Bytes of SRAM for a chunk of `blocks` blocks."""
        channels = blocks * self.atoms.outputs
        return _round_up(self.params_at(channels) + self.param_bytes(channels), align)

    def params_at(self, channels: int) -> int:
        """The offset of scales and biases in a chunk of `channels` channels."""
        return _round_up(self.weight_bytes(channels), 4)

    def param_bytes(self, channels: int) -> int:
        """Bytes of scales and biases of `channels` channels."""
        return 4 * (channels + (1 if self.one_scale else channels))

    def weight_bytes(self, channels: int) -> int:
        """Bytes of packed weights of `channels` channels; sparse weights have whole blocks."""
        return self.block_bytes * channels // self.atoms.outputs

    def chunk_bytes(self, layer: Layer, first: int, blocks: int) -> bytes:
        """The bytes of a chunk: `blocks` blocks of output channels from block `first` on."""
        assert layer.node is not None
        w, scale, bias = (v.data for v in layer.node.inputs[1:4] if v is not None)
        assert w is not None
        assert scale is not None
        assert bias is not None
        some = slice(first * self.atoms.outputs, (first + blocks) * self.atoms.outputs)
        blocked = packed(w[some], self.atoms, layer.op == "depthwise")
        if self.sparse:
            shaped = blocked.reshape(-1, self.atoms.outputs, self.atoms.inputs)
            compressed = compress(shaped, self.sparse)
            assert compressed is not None
            blocked = compressed
        factors = scale[:1] if self.one_scale else scale[some]
        result = blocked.tobytes().ljust(self.params_at(len(w[some])), b"\0")
        return result + factors.astype(np.float32).tobytes() + bias[some].tobytes()


def constants(layer: Layer, chip: Chip) -> Constants | None:
    """The constants of a layer; None if it has none."""
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
    if layer.op == "conv" and not form:
        a = _fitting(a, layer, chip)
    size = kh * kw * a.outputs * ins * dtypes.TABLE[w.dtype].numpy.itemsize
    if form:
        size = kh * kw * -(-ins // a.inputs) * FORMS[form].bytes(a.outputs, a.inputs)
    scale = node.inputs[2]
    assert scale is not None
    one = scale.data is not None and bool((scale.data == scale.data[0]).all())
    return Constants(a, -(-outs // a.outputs), size, raw, entries, form, one)


def _fitting(a: Atoms, layer: Layer, chip: Chip) -> Atoms:
    """Atoms of fewer outputs where a block of weights leaves no memory for a row of the result."""
    assert layer.node is not None
    w, x, y = layer.node.inputs[1], layer.reads[0].map, layer.dst.map
    assert w is not None
    reach = (layer.kernel[0] - 1) * layer.dilation[0] + 1
    maps = x.sram_bytes(min(x.height, reach)) + y.sram_bytes(1)
    each = w.type.bytes // w.shape[0]  # of one output channel
    outputs = a.outputs
    while outputs * each + maps > chip.sram and outputs % (2 * y.c2) == 0:
        outputs //= 2
    return Atoms(a.inputs, outputs)


def sparse_form(w: Array, a: Atoms, chip: Chip) -> int:
    """The smallest sparse form of the chip that keeps all these weights; 0: dense."""
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


def _round_up(n: int, to: int) -> int:
    return -(-n // to) * to
