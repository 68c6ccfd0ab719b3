"""DMA commands: tensors and matrices between DDR and local memory."""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import jobs, numbers
from intaglio.npu.chips.bm1684x.arithmetic import Fields
from intaglio.npu.chips.bm1684x.lanes import MOST, Dims, Memory

COPY, TRANSPOSE, COLLECT, BROADCAST, DISTRIBUTE = range(5)
_UNSIGNED: dict[int, np.dtype] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
}


class Place:
    """Source or destination of a DMA command: a tensor in local memory or elsewhere."""

    def __init__(self, memory: Memory, f: Fields, side: str):
        self.memory, self.f, self.side = memory, f, side
        self.address = f[f"{side}_start_addr_l32"] | f[f"{side}_start_addr_h8"] << 32
        self.sizes = tuple(f[f"{side}_{d}size"] for d in "nchw")
        self.steps = tuple(f[f"{side}_{d}stride"] for d in "nchw")
        self.at = memory.local(self.address)

    @property
    def local(self) -> bool:
        """Whether it lies in local memory."""
        return self.at is not None

    def packed(self, dtype: np.dtype, shape: Dims) -> tuple[int, ...]:
        """Strides of a tensor in local memory whose planes are aligned."""
        _, c, h, w = shape
        per = self.memory.eu_bytes // dtype.itemsize
        plane = -(-h * w // per) * per
        return plane * self.memory.blocks(self.at or 0, c), plane, w, 1

    def read(self, dtype: np.dtype, shape: Dims, steps: Dims) -> Array:
        """A tensor of this side; a view where possible."""
        if self.at is not None:
            return self.memory.read(self.at, dtype, shape, steps)
        return self.memory.flat(self.address, dtype, shape, steps)

    def write(self, values: Array, steps: Dims) -> None:
        """Store a tensor."""
        if self.at is not None:
            self.memory.write(self.at, values, steps)
        else:
            self.memory.flat(self.address, values.dtype, values.shape, steps)[...] = values


def _type(f: Fields) -> np.dtype:
    code = f["src_data_format"]
    if code not in numbers.BYTES:
        raise Unsupported(f"a DMA command of type {numbers.NAMES.get(code, code)} is not simulated")
    return _UNSIGNED[numbers.BYTES[code]]


def _constant(f: Fields, dtype: np.dtype) -> Array:
    return np.array([f["constant_value"]], np.uint32).view(dtype)[:1].reshape(1, 1, 1, 1)


def _whole_mask(f: Fields) -> None:
    if f["localmem_mask_l32"] & f["localmem_mask_h32"] != 0xFFFFFFFF:
        raise Unsupported("a DMA command with a mask of lanes is not simulated")
    if f.get("decompress_enable"):
        raise Unsupported("a DMA command that decompresses is not simulated")


def tensor(memory: Memory, f: Fields) -> None:
    """DMA_tensor and DMA_cw_transpose."""
    _whole_mask(f)
    source, target = Place(memory, f, "src"), Place(memory, f, "dst")
    dtype, kind = _type(f), f["cmd_special_function"]
    if f["cmd_type"] == 4:
        kind = COLLECT
    n, _, h, w = source.sizes
    from_steps, to_steps = source.steps, target.steps
    if not f["stride_enable"]:
        from_steps, to_steps = _packed(source, dtype), _packed(target, dtype)
    if kind != COPY:
        from_steps, to_steps = (*from_steps[:3], 1), (*to_steps[:3], 1)
    if f["fill_constant_en"]:
        shape = source.sizes if f["nchw_copy"] else target.sizes
        target.write(np.broadcast_to(_constant(f, dtype), shape), to_steps)
        return
    if kind == BROADCAST:
        values = source.read(dtype, (n, 1, h, w), from_steps)
        shape = n, f["dst_csize"], h, w
        target.write(np.broadcast_to(values, shape).copy(), to_steps)
        return
    values = source.read(dtype, source.sizes, from_steps)
    if kind == COPY:
        if not f["nchw_copy"] and target.sizes != source.sizes:
            if np.prod(target.sizes) != np.prod(source.sizes):
                raise BadFile(f"a DMA command copies {source.sizes} to {target.sizes}")
            values = values.reshape(target.sizes)
    elif kind == TRANSPOSE:
        values = values.transpose(1, 0, 2, 3)
    elif kind in (COLLECT, DISTRIBUTE):
        values = values.transpose(0, 3, 2, 1)
    else:
        raise Unsupported(f"command DMA_tensor of kind {kind} is not simulated")
    overlap = not (source.local and target.local)
    target.write(values if overlap else values.copy(), to_steps)


def copy(memory: Memory, f: Fields) -> jobs.Job | None:
    """A DMA_tensor command that copies between DDR and local memory; None: numpy has to run it."""
    if f["cmd_special_function"] != COPY or f["cmd_type"] == 4 or f["fill_constant_en"]:
        return None
    _whole_mask(f)
    source, target = Place(memory, f, "src"), Place(memory, f, "dst")
    if source.local == target.local or (source.sizes != target.sizes and not f["nchw_copy"]):
        return None
    dtype, operands = _type(f), []
    for place in (target, source):
        steps = place.steps if f["stride_enable"] else _packed(place, dtype)
        if place.at is not None:
            operands.append(jobs.local(memory, place.at, dtype, source.sizes, steps))
        else:
            operands.append(jobs.flat(memory, place.address, dtype, source.sizes, steps))
    return jobs.job("copy", source.sizes, *operands)


def _packed(place: Place, dtype: np.dtype) -> tuple[int, ...]:
    _, c, h, w = place.sizes
    return place.packed(dtype, place.sizes) if place.local else (c * h * w, h * w, w, 1)


def matrix(memory: Memory, f: Fields) -> None:
    """DMA_matrix: rows of a matrix in DDR, cut into columns over the lanes."""
    _whole_mask(f)
    source, target = Place(memory, f, "src"), Place(memory, f, "dst")
    dtype, turned = _type(f), f["cmd_special_function"] == TRANSPOSE
    lanes, plain = (source, target) if source.local else (target, source)
    if source.local == target.local and not f["fill_constant_en"]:
        raise Unsupported("command DMA_matrix between two memories of one kind is not simulated")
    rows, columns = plain.sizes[2:]
    row_step = plain.steps[2] if f["stride_enable"] else columns
    width = lanes.sizes[3]
    if not rows or not columns or not width or rows * columns > MOST:
        raise BadFile(f"a DMA command moves a matrix of {rows}x{columns} in columns of {width}")
    local = (columns, rows) if turned else (rows, columns)
    shape = local[0], -(-local[1] // width), 1, width
    steps: tuple[int, ...]
    if f["stride_enable"]:
        steps = lanes.steps[0], lanes.steps[1], width, 1
    else:
        steps = lanes.packed(dtype, shape)
    inside, rest = local[1] // width, local[1] % width
    if source.local:
        values = source.read(dtype, shape, steps).reshape(local[0], -1)[:, : local[1]]
        values = values.T if turned else values
        target.write(values.reshape(1, 1, rows, columns), (0, 0, row_step, 1))
        return
    if f["fill_constant_en"]:
        values = np.broadcast_to(_constant(f, dtype)[0, 0], (rows, columns))
    else:
        values = source.read(dtype, (1, 1, rows, columns), (0, 0, row_step, 1))[0, 0]
    values = values.T if turned else values
    if inside:
        whole = np.ascontiguousarray(values[:, : inside * width])
        target.write(whole.reshape(local[0], inside, 1, width), steps)
    if rest:
        last = np.ascontiguousarray(values[:, inside * width :]).reshape(local[0], 1, 1, rest)
        size = memory.chip.lane_bytes
        first, offset = divmod(target.at or 0, size)
        block, lane = divmod(first + inside, memory.lanes)
        address = lane * size + offset + block * steps[1] * dtype.itemsize
        memory.write(address, last, steps)


def general(memory: Memory, f: Fields) -> None:
    """DMA_general: bytes in a row, or the same for each lane."""
    _whole_mask(f)
    source, target = Place(memory, f, "src"), Place(memory, f, "dst")
    dtype, count = _type(f), f["src_cstride"]
    if not 0 < count <= MOST:
        raise BadFile(f"a DMA command moves {count} elements")
    shape, steps = (1, 1, 1, count), (0, 0, 0, 1)
    if f["fill_constant_en"]:
        values = np.broadcast_to(_constant(f, dtype), shape)
    else:
        values = source.read(dtype, shape, steps).copy()
    if f["cmd_special_function"] == 1:
        values = np.broadcast_to(values, (1, f["dst_csize"], 1, count))
    target.write(values, steps)


def gather(memory: Memory, f: Fields) -> None:
    """DMA_gather: rows of a tensor by index; a constant where the index is beyond it."""
    _whole_mask(f)
    dtype = _type(f)
    sizes = {**f, "src_nsize": 1, "dst_nsize": 1}
    for side in ("src", "dst", "index"):
        sizes |= {f"{side}_nstride": 0, f"{side}_wstride": 1}
    sizes |= {"index_nsize": 1, "index_wsize": 1}
    source, target = Place(memory, sizes, "src"), Place(memory, sizes, "dst")
    place = Place(memory, sizes, "index")
    _, c, h, w = source.sizes
    rows = f["index_hsize"]
    index = place.read(np.dtype(np.uint32), (1, f["index_csize"], rows, 1), place.steps)
    data = source.read(dtype, source.sizes, source.steps)
    channels = max(c, f["index_csize"])
    index = np.broadcast_to(index[0, :, :, 0], (channels, rows))
    data = np.broadcast_to(data[0], (channels, h, w))
    safe = np.minimum(index, h - 1)[:, :, None].astype(np.int64)
    found = np.take_along_axis(data, safe, 1)
    found = np.where(index[:, :, None] < h, found, _constant(f, dtype)[0, 0])
    target.write(found[None].astype(dtype), target.steps)
