"""Layers that follow convolutions: RKNN-Toolkit2's commands in our simulator, and ours beside them.

Convolutions themselves are in test_rockchip.py.
"""

import subprocess
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.vendors import rockchip_layer_models as models
from tests.vendors.test_rockchip import ADDRESSES as PLACES
from tests.vendors.test_rockchip import ADDRESSES_RK3576 as CONVOLUTION_RK3576
from tests.vendors.test_rockchip import BY_CHOICE as ROWS_AHEAD
from tests.vendors.test_rockchip import (
    LOADS,
    PYTHON,
    RUNNER,
    SECONDS,
    one_core,
    pytestmark,  # noqa: F401
)

from intaglio.npu.chips.rockchip import dpu_tasks, pool_task, rknn_file
from intaglio.npu.chips.rockchip.arithmetic import Bounds, Pair
from intaglio.npu.chips.rockchip.convolution import encode
from intaglio.npu.chips.rockchip.dpu_tasks import MapSize
from intaglio.npu.chips.rockchip.encode import DPU_TASKS
from intaglio.npu.chips.rockchip.geometry import DESIGNS, Added, Convolution, Table, surface_pixels
from intaglio.npu.chips.rockchip.native_machine import Machine
from intaglio.npu.chips.rockchip.scaling import mantissa

EACH = 5  # models of a kind
EMPTY = 64  # bytes of a tensor without data
ADDRESSES = {0x4020, 0x5018, 0x5038, 0x6070, 0x701C}
ADDRESSES_RK3576 = {0x4018, 0x5018, 0x5024, 0x5038, 0x6070, 0x701C}
TARGETS = ("rk3588", "rk3566", "rk3562", "rk3576", "rv1106")
NEWER = ("rk3562", "rk3576")  # registers lie elsewhere
NOT_SIMULATED = {
    "rv1106": {
        "leaky": "the vendor multiplies numbers below 0; our encoder uses a table",
        "inputs_add": "the vendor turns inputs by a convolution of its own kind",
        "inputs_mul": "the same",
    },
    "rk3562": {"leaky": "the vendor multiplies numbers below 0; our encoder uses a table"},
    "rk3576": {"leaky": "the vendor multiplies numbers below 0; our encoder uses a table"},
}
BY_CHOICE = {
    0x403C: "ORIG_CHANNEL: the vendor counts the channels that fill up a block, sometimes",
    0x4048: "factor of the first map: the vendor rounds it in 32 bits, one apart",
    0x4078: "factor of the second map: the same",
    0x4084: "the last scale: the same",
}
BY_CHOICE_RK3576 = {
    0x4084: "factor of the second map: the vendor rounds it in 32 bits, one apart",
    0x40B0: "the last scale: the same",
}


@pytest.fixture(scope="module", params=TARGETS)
def folder(request, tmp_path_factory):
    """Random models of each kind, compiled and simulated by the vendor's tool."""
    made = tmp_path_factory.mktemp("layers")
    chance = np.random.default_rng(7)
    for kind in models.KINDS:
        for number in range(EACH):
            models.write(made, f"{kind}-{number}", kind, chance)
    command = [PYTHON, RUNNER, request.param, made]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=made)
    assert done.returncode == 0, done.stderr[-2000:]
    return made


def blocks(values, surface, atom):
    """A map [C, H, W] in blocks of `atom` channels of `surface` pixels."""
    channels = -(-len(values) // atom) * atom
    padded = np.zeros((channels, surface), np.int8)
    padded[: len(values), : values[0].size] = values.reshape(len(values), -1)
    return padded.reshape(-1, atom, surface).transpose(0, 2, 1).tobytes()


def executed(path):
    """The output of the vendor's commands, and what its own simulator gives, as bytes."""
    file = rknn_file.read(path.read_bytes())
    design = DESIGNS[file.target]
    memory, starts = placed_tensors(file)
    inputs = [t for t in file.tensors if t.kind == "input"]
    for number, tensor in enumerate(inputs):
        real = np.load(path.with_suffix(".npy" if number == 0 else f".{number}.npy"))[0]
        values = np.clip(np.rint(real / tensor.scale) + tensor.zero, -128, 127).astype(np.int8)
        held = blocks(values, values[0].size, design.atom)
        memory[starts[tensor.name] : starts[tensor.name] + len(held)] = held
    found = {w: (r.tensor, offset) for r in file.relocations for offset, w in r.places}
    array = np.frombuffer(memory, np.uint8).copy()
    Machine(array, file.target).run([placed(task, found, starts) for task in one_core(file)])
    (y,) = (t for t in file.tensors if t.kind == "output")
    size = MapSize(*y.shape[1:], design)
    part = array[starts[y.name] :][: size.bytes].view(np.int8)
    pixels = part.reshape(-1, size.pixels, design.atom).transpose(0, 2, 1).reshape(-1, size.pixels)
    mine = pixels[: size.channels, : size.height * size.width].astype(int)
    real = np.load(path.with_suffix(".out.npy")).reshape(mine.shape)
    return mine, np.rint(real / y.scale) + y.zero


def placed_tensors(file):
    """A memory with the constants of a file, and where each tensor begins."""
    starts = {}
    maps = [t for t in file.tensors if t.kind in ("input", "output", "internal")]
    others = [t for t in file.tensors if t not in maps]
    if file.relocations:
        memory = bytearray(file.internal_bytes)
        starts |= {t.name: t.offset for t in maps}
        for tensor in others:
            starts[tensor.name] = len(memory)
            size = max(len(tensor.data), EMPTY)
            memory += tensor.data.ljust(-(-size // EMPTY) * EMPTY, b"\0")
        return memory, starts
    tensors = {t.name: t for t in file.tensors}  # its compiler has placed them already
    bases = {}  # of constants, of those that the compiler has made, and of maps
    for task in reversed(one_core(file)):
        words = {w.register: w.value for w in task.words}
        inputs = file.operators[task.operator].inputs
        if words.get(0x1110):
            held = [tensors[name] for name in inputs]
            weights = next(t for t in held if t.kind in ("constant", "derived"))
            bases[weights.kind] = words[0x1110] - weights.offset
        found = [words[r] for r in (0x1070, 0x701C, 0x5018) if words.get(r)]
        if found:
            internal = found[0] - tensors[inputs[0]].offset
    memory = bytearray(internal + file.internal_bytes)
    for tensor in maps:
        starts[tensor.name] = internal + tensor.offset
    for tensor in others:
        if tensor.data and tensor.kind in bases:
            starts[tensor.name] = bases[tensor.kind] + tensor.offset
            memory[starts[tensor.name] : starts[tensor.name] + len(tensor.data)] = tensor.data
    return memory, starts


def placed(task, found, starts):
    words = []
    for i, word in enumerate(task.words):
        tensor, offset = found.get(task.offset // 8 + i, ("", 0))
        value = starts[tensor] + offset if tensor else word.value
        words.append(word.target << 48 | (value & 0xFFFFFFFF) << 16 | word.register)
    return np.array(words, np.uint64)


@pytest.mark.parametrize("kind", models.KINDS)
def test_vendors_commands_in_our_simulator(folder, kind):
    """Within one step on 99.9 % of the bytes, and nearly all of them equal.

    The vendor's simulator works on the graph: it rounds a mean once, and the factor of a fused
    product to bytes. On an RK3576 the DPU scales a part of a concatenation. One step of a map that
    is added to a convolution can be two of the result.
    """
    target = rknn_file.read((folder / f"{kind}-0.rknn").read_bytes()).target
    if kind in NOT_SIMULATED.get(target, ()):
        pytest.skip(f"{target}: {NOT_SIMULATED[target][kind]}")
    apart = far = total = 0
    for number in range(EACH):
        mine, wanted = executed(folder / f"{kind}-{number}.rknn")
        off = np.abs(mine - wanted)
        far, apart, total = far + (off > 1).sum(), apart + (off > 0).sum(), total + off.size
    assert far / total <= (0.01 if kind == "conv_add_relu" else 0.001), kind
    scaled = ("mean", "conv_mul", "concat") if target in NEWER else ("mean", "conv_mul")
    assert apart / total < (0.2 if kind in scaled else 0.02), kind


def ours(file, operator):
    """Our settings for an operator, or None if it is none of ours."""
    if not operator.inputs or not operator.outputs:
        return None
    tensors = {t.name: t for t in file.tensors}
    x, y = tensors[operator.inputs[0]], tensors[operator.outputs[0]]
    size, out = (MapSize(*t.shape[1:], DESIGNS[file.target]) for t in (x, y))
    if operator.kind == "MaxPool":
        return pool_task.largest, size, out
    if operator.kind in ("Add", "AddRelu", "Mul"):
        z = tensors[operator.inputs[1]]
        if operator.kind == "Mul":
            scale, shift = mantissa(x.scale * z.scale / y.scale)
            numbers = Pair(True, x.zero, Added(z.zero, 1, 0), scale, shift, y.zero, Bounds())
        else:
            largest, one = max(x.scale, z.scale), 1 << 14
            factors = [
                mantissa(t.scale / largest * one) if t.scale < largest else (one, 0) for t in (x, z)
            ]
            scale, shift = mantissa(largest / y.scale / one)
            second, bounds = Added(z.zero, *factors[1]), Bounds(operator.kind == "AddRelu")
            numbers = Pair(False, x.zero, second, scale, shift, y.zero, bounds, *factors[0])
        made = DPU_TASKS.get(size.design.registers, dpu_tasks)
        return made.pair(size, numbers, z.shape != x.shape)
    return None


def test_our_registers_are_the_vendors(folder, capsys):
    """Sums, products and pools word for word, but for what differs by choice."""
    compared, chosen, different = Counter(), Counter(), []
    for path in sorted(folder.glob("*.rknn")):
        file = rknn_file.read(path.read_bytes())
        newer = file.target in NEWER
        by_choice = BY_CHOICE_RK3576 if newer else BY_CHOICE
        places = ADDRESSES_RK3576 if newer else ADDRESSES
        first = 0
        for operator in file.operators:
            count = operator.tasks[0] if operator.tasks else 0
            tasks = [t for t in one_core(file) if t.operator == file.operators.index(operator)]
            first += count
            made = ours(file, operator) if count == 1 and tasks else None
            if made is None or "Sub" in operator.kind:
                continue
            words = {w.register: w.value for w in tasks[-1].words}
            if callable(made[0]):
                window = words[0x6034]
                kernel = (window >> 8 & 15) + 1, (window & 15) + 1
                strides = (window >> 20 & 15) + 1, (window >> 16 & 15) + 1
                pads = tuple(words[0x6040] >> at & 7 for at in (4, 0, 12, 8))
                made = made[0](*made[1:], kernel, strides, pads)
            mine = {register: value for _, register, value in made}
            compared[operator.kind] += 1
            for word in tasks[-1].words:
                if word.target == 0 or word.block == "PC" or word.register in places:
                    continue
                if mine[word.register] == word.value:
                    continue
                if word.register in by_choice and near(word.register, mine, word.value):
                    chosen[word.register] += 1
                else:
                    place = path.stem, word.block, f"{word.register:#x}"
                    different.append((*place, f"{mine[word.register]:#x}", f"{word.value:#x}"))
    with capsys.disabled():
        for register, count in chosen.items():
            print(f"\n{register:#x} differs in {count} tasks; {by_choice[register]}", end="")
    assert not different, different[:10]
    assert set(compared) >= {"Add", "AddRelu", "Mul", "MaxPool"}, compared


def test_transposed_convolutions(folder):
    """Registers word for word, where the vendor splits the rows as we do."""
    compared, different = 0, []
    for path in sorted(folder.glob("transposed*.onnx")):
        file = rknn_file.read(path.with_suffix(".rknn").read_bytes())
        node = next(n for n in onnx.load(path).graph.node if n.op_type == "ConvTranspose")
        a = {v.name: helper.get_attribute_value(v) for v in node.attribute}
        number = next(i for i, o in enumerate(file.operators) if o.kind == "ConvTranspose")
        tensors = {t.name: t for t in file.tensors}
        x, y = (tensors[names[0]] for names in (file.operators[number].inputs, ["y"]))
        theirs = [t for t in one_core(file) if t.operator == number]
        words = {w.register: w.value for w in theirs[0].words}
        scale, shift, ahead, moved = 0x4084, 0x4088, ROWS_AHEAD, PLACES
        if file.target in NEWER:
            scale, shift, ahead, moved = 0x40B0, 0x40B4, ROWS_AHEAD, CONVOLUTION_RK3576
        (taps, _), pad = a["kernel_shape"], a["pads"][0]
        conv = Convolution(
            *x.shape[1:],
            y.shape[1],
            (taps, taps),
            pads=(taps - 1 - pad,) * 4,
            depthwise=a.get("group", 1) > 1,
            zero_in=x.zero,
            zero_out=y.zero,
            scale=words[scale],
            shift=words[shift],
            in_surface=0 if x.kind == "input" else surface_pixels(*x.shape[2:]),
            blocks=True,
            apart=tuple(a["strides"]),
            design=DESIGNS[file.target],
        )
        assert (conv.out_height, conv.out_width) == y.shape[2:]
        ours = encode(conv)
        if len(ours) != len(theirs):
            continue
        compared += 1
        for task, vendor in zip(ours, theirs, strict=True):
            mine = {(w.block, w.register): w.value for w in task.words}
            for word in vendor.words:
                place = word.block, word.register
                known = word.target and word.block != "PC" and word.register not in moved
                if known and place not in ahead and mine[place] != word.value:
                    different.append((path.stem, place, mine[place], word.value))
    assert not different, different[:10]
    assert compared >= EACH


def near(register, mine, value):
    """Whether the difference is the one that BY_CHOICE explains."""
    if register == 0x403C:
        return mine[register] & 0xFFFF == value & 0xFFFF
    lower = 16 if register == 0x4048 else 0  # bits below the factor
    return abs((mine[register] >> lower) - (value >> lower)) <= 1


def test_ways_of_a_table(folder):
    """A table is loaded as the vendor does: by tasks of its own, all entries of both halves."""
    file = rknn_file.read((folder / "sigmoid-0.rknn").read_bytes())
    loads = [t for t in file.tasks if len(t.words) > LOADS]
    module = DPU_TASKS.get(file.target, dpu_tasks)
    mine = module.load_table(Table(0, tuple(range(100))), DESIGNS[file.target])
    tails = {0x10, 0x14, 0}
    for settings, load in zip(mine, loads, strict=False):
        assert len(settings) == len(load.words)
        fixed = [(r, v) for _, r, v in settings if r != 0x4104]
        theirs = [(w.register, w.value) for w in load.words if w.register != 0x4104]
        pairs = zip(fixed, theirs, strict=True)
        assert all(a == b or a[0] in tails or a[0] in ADDRESSES | {0x4018} for a, b in pairs)
