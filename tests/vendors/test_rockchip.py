"""Our commands beside those of RKNN-Toolkit2, and those of the RK3588 in our simulator."""

import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.npu.chips.rockchip import layers
from tests.shared_models import SHARED

from intaglio.npu.chips.rockchip import packing, scaling
from intaglio.npu.chips.rockchip.convolution import encode
from intaglio.npu.chips.rockchip.geometry import (
    DESIGNS,
    MOST_KERNEL_BYTES,
    RK3562,
    RK3576,
    RK3588,
    Added,
    Convolution,
    kernel_channels,
    round_up,
    surface_pixels,
)
from intaglio.npu.chips.rockchip.native_machine import Machine, placed
from intaglio.npu.chips.rockchip.rknn_file import read

PYTHON = str(Path(os.environ.get("INTAGLIO_RKNN") or ".venv-rknn/bin/python").absolute())
RUNNER = Path(__file__).parent / "rockchip_runner.py"
SECONDS = 1800
LOADS = 500  # words of a task that loads a table have more
KINDS = ("conv", "depthwise", "pointwise", "picture")
TARGETS = {  # random layers of each kind; those of pictures are converted by the other chips
    "rk3588": dict.fromkeys(KINDS, 50),
    "rk3566": dict.fromkeys(KINDS[:3], 67),
    "rk3562": dict.fromkeys(KINDS[:3], 67),
    "rk3576": dict.fromkeys(KINDS[:3], 67),
    "rv1106": dict.fromkeys(KINDS[:3], 67),
}
LARGE = [  # channels, height, width, outputs, kernel, strides, pads, dilations
    (64, 112, 112, 32, (3, 3), (1, 1), (1, 1, 1, 1)),
    (64, 112, 112, 64, (5, 5), (2, 2), (2, 2, 2, 2)),
    (32, 160, 160, 32, (3, 3), (2, 2), (1, 1, 1, 1)),
    (128, 56, 56, 128, (3, 3), (1, 1), (0, 1, 1, 0)),
    (144, 56, 56, 24, (1, 1)),
    (256, 56, 56, 64, (1, 1)),
    (128, 28, 28, 256, (3, 3), (2, 2), (1, 1, 1, 1)),
    (32, 30, 30, 32, (3, 3), (1, 1), (2, 1, 0, 3)),
    (32, 30, 30, 32, (3, 5), (1, 2), (1, 2, 1, 2)),
    (32, 30, 30, 32, (3, 3), (1, 1), (2, 3, 2, 3), (2, 3)),
    (200, 20, 20, 300, (3, 3), (1, 1), (1, 1, 1, 1)),
    (256, 14, 14, 512, (3, 3), (1, 1), (1, 1, 1, 1)),
    (1024, 7, 7, 1000, (1, 1)),
    (320, 20, 20, 320, (3, 3), (1, 1), (1, 1, 1, 1)),
    (192, 40, 40, 192, (3, 3), (1, 1), (1, 1, 1, 1)),
    (96, 112, 112, 96, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), True),
    (48, 30, 30, 48, (3, 5), (1, 1), (1, 2, 1, 2), (1, 1), True),
    (1024, 7, 7, 1024, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), True),
]
BY_CHOICE = {("CNA", 0x1010)}  # how many rows are read before the first sum
ADDRESSES = {0x1070, 0x1110, 0x4020, 0x5020}
ADDRESSES_RK3576 = {0x1088, 0x1110, 0x4018, 0x5020, 0x5024}
MOST_OTHER_SPLITS = 1  # of an RK3576: a depthwise convolution that the vendor splits
MORE_ADDRESSES = ADDRESSES | {0x5018, 0x5038}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path(PYTHON).exists(),
        reason="RKNN-Toolkit2 is not here; `make test-vendors` installs it, INTAGLIO_RKNN names it",
    ),
]


@dataclass
class Layer:
    """A model of one convolution, what the vendor made of it, and the floats it was made from."""

    name: str
    conv: Convolution
    weights: np.ndarray
    bias: np.ndarray
    folder: Path

    @property
    def file(self):
        return read((self.folder / f"{self.name}.rknn").read_bytes())


def draw(kind, chance):
    """A random convolution whose weights the unit takes in one pass."""
    side = int(chance.choice([7, 8, 13, 14, 16, 28, 30, 56, 80, 112]))
    size = (side, int(chance.choice([side, side, side, 7, 14, 20, 40])))
    kernel, stride = int(chance.choice([1, 3, 3, 3, 5, 7])), int(chance.choice([1, 1, 2]))
    inputs = int(chance.choice([16, 17, 20, 32, 33, 48, 64, 96, 128, 256]))
    outputs = int(chance.choice([16, 20, 24, 32, 33, 48, 64, 128, 256]))
    if kind == "depthwise":
        kernel = int(chance.choice([3, 5]))
        inputs = outputs = int(chance.choice([8, 16, 24, 32, 40, 64, 96, 144, 192, 384]))
    elif kind == "pointwise":
        kernel = stride = 1
        inputs = int(chance.choice([16, 24, 32, 64, 96, 160, 320, 512]))
        outputs = int(chance.choice([16, 24, 32, 64, 96, 128, 320, 1000]))
    elif kind == "picture":
        inputs, outputs = int(chance.choice([1, 3, 4])), int(chance.choice([16, 32, 64]))
        kernel, size = int(chance.choice([3, 5, 7])), (int(chance.choice([32, 64, 96, 224])),) * 2
    if inputs * size[0] * size[1] > 600_000:
        size = (14, 14)
    while kind != "depthwise" and kernel**2 * round_up(inputs, 16) > MOST_KERNEL_BYTES:
        kernel -= 2
    pad = int(chance.choice([0, kernel // 2])) if min(size) >= kernel else kernel // 2
    edges = (pad,) * 4
    return Convolution(
        inputs, *size, outputs, (kernel,) * 2, (stride,) * 2, edges, depthwise=kind == "depthwise"
    )


@pytest.fixture(scope="module", params=list(TARGETS))
def compiled(request, tmp_path_factory):
    """Layers of each kind, compiled and simulated by the vendor's tool."""
    folder = tmp_path_factory.mktemp("rknn")
    chance = np.random.default_rng(28)
    made = []
    design = DESIGNS[request.param]
    drawn = [
        (f"{kind}{number}", draw(kind, chance))
        for kind, count in TARGETS[request.param].items()
        for number in range(count)
    ]
    drawn += [(f"large{number}", Convolution(*sizes)) for number, sizes in enumerate(LARGE)]
    for name, conv in drawn:
        made.append(write(name, replace(conv, design=design), chance, folder))
    command = [PYTHON, RUNNER, request.param, folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return made


def write(name, conv, chance, folder):
    groups = conv.channels if conv.depthwise else 1
    shape = (conv.outputs, conv.channels // groups, *conv.kernel)
    weights = (chance.normal(size=shape) * 0.1).astype(np.float32)
    bias = chance.normal(size=conv.outputs).astype(np.float32)
    made = Layer(name, conv, weights, bias, folder)
    attributes = {"pads": conv.pads, "strides": conv.strides, "group": groups}
    attributes["dilations"] = conv.dilations
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)]
    ports = (
        ("x", (conv.channels, conv.height, conv.width)),
        ("y", (conv.outputs, conv.out_height, conv.out_width)),
    )
    inputs, outputs = (
        [helper.make_tensor_value_info(port, TensorProto.FLOAT, [1, *dims])] for port, dims in ports
    )
    held = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")]
    graph = helper.make_graph(nodes, "one", inputs, outputs, held)
    opset = helper.make_opsetid("", 13)
    onnx.save(
        helper.make_model(graph, opset_imports=[opset], ir_version=8), folder / f"{name}.onnx"
    )
    data = chance.normal(size=(1, *ports[0][1])).astype(np.float32)
    np.save(folder / f"{name}.npy", data)
    return made


def one_core(file):
    """The tasks of the first list: those for one core, without those that turn results.

    One that loads a table is not counted in it.
    """
    left, listed = sum(o.tasks[0] for o in file.operators if o.tasks), []
    for task in file.tasks:
        if not left:
            break
        listed.append(task)
        left -= len(task.words) < LOADS
    return [t for t in listed if file.operators[t.operator].kind != "OutputOperator"]


def quantized(made, file):
    """Weights as the vendor quantises them, their zero points, and numbers of the channels."""
    flat = made.weights.reshape(made.conv.outputs, -1).astype(np.float64)
    low, high = np.minimum(flat.min(1), 0), np.maximum(flat.max(1), 0)
    scales = (high - low) / 255
    zeros = np.rint(-128 - low / scales)
    values = np.clip(np.rint(flat / scales[:, None] + zeros[:, None]), -128, 127)
    x, y = file.tensor("x"), file.tensor("y")
    sums = (values - zeros[:, None]).sum(1)
    bias = np.rint(made.bias / (x.scale * scales)) - x.zero * sums
    factors = scaling.factors(x.scale * scales / y.scale)
    shaped = values.reshape(made.weights.shape).astype(np.int8)
    return shaped, zeros.astype(np.int32), bias.astype(np.int64), factors


def addresses(made):
    return ADDRESSES_RK3576 if made.conv.design in (RK3562, RK3576) else ADDRESSES


def test_registers_are_the_vendors_word_for_word(compiled, capsys):
    different, other_splits, equal = [], [], 0
    for made in compiled:
        file = made.file
        x, y = file.tensor("x"), file.tensor("y")
        *_, (_, scale, shift) = quantized(made, file)
        numbers = {"zero_in": x.zero, "zero_out": y.zero, "scale": scale, "shift": shift}
        ours = encode(replace(made.conv, **numbers))
        theirs = one_core(file)
        if len(ours) != len(theirs):
            other_splits.append(made.name)
            continue
        for task, vendor in zip(ours, theirs, strict=True):
            mine = {(w.block, w.register): w.value for w in task.words}
            for word in vendor.words:
                place = word.block, word.register
                if word.target == 0 or word.block == "PC" or word.register in addresses(made):
                    continue
                if place not in BY_CHOICE and mine[place] != word.value:
                    different.append((made.name, place, mine[place], word.value))
        equal += 1
    with capsys.disabled():
        print(f"\n{compiled[0].file.target}: {equal} layers; other splits: {other_splits}", end="")
    assert len(other_splits) <= MOST_OTHER_SPLITS
    assert not different, different[:10]


def test_addresses_lie_where_the_vendors_do(compiled):
    names = {"x": "input", "w": "weights", "b": "channels", "y": "output"}
    compared = 0
    for made in compiled:
        file, starts = made.file, {}
        places = {w: (r.tensor, offset) for r in file.relocations for offset, w in r.places}
        ours, theirs = encode(made.conv), one_core(file)
        for task, vendor in zip(ours, theirs, strict=len(ours) == len(theirs)):
            mine = {task.words[i].register: place for i, place in task.addresses.items()}
            for index, word in enumerate(vendor.words):
                tensor, offset = places.get(vendor.offset // 8 + index, ("", 0))
                if tensor in names:
                    assert mine[word.register] == (names[tensor], offset), made.name
                elif not places and word.register in mine and word.value:  # placed already
                    name, offset = mine[word.register]
                    assert starts.setdefault(name, word.value - offset) == word.value - offset
                    compared += 1
                compared += tensor in names
    assert compared > 3 * len(compiled)


def test_packed_weights_are_the_vendors(compiled):
    """Byte for byte but where quantising in floats of 32 or 64 bits rounds another way."""
    rounded = 0
    for made in compiled:
        file = made.file
        values, zeros, bias, (multipliers, _, _) = quantized(made, file)
        design = made.conv.design
        packed = packing.weights(values, zeros, design, kernel_channels(made.conv))
        if made.conv.depthwise:
            held = kernel_channels(made.conv)
            packed = packing.depthwise_weights(values, zeros, held, design)
        theirs = np.frombuffer(file.tensor("w").data, np.int8)
        assert not theirs[len(packed) :].any()
        theirs = theirs[: len(packed)]
        off = np.abs(np.frombuffer(packed, np.int8).astype(int) - theirs)
        if design.pairs and made.conv.depthwise and kernel_channels(made.conv) > made.conv.channels:
            off = off[: 2 * made.conv.channels]  # of the first tap; what fills up differs
        assert off.max() <= 1, made.name
        assert (off > 0).sum() <= max(1, off.size // 1000), made.name
        rounded += bool(off.any())
        count = round_up(made.conv.outputs, made.conv.out_block)
        apart = made.conv.depthwise and design.pairs  # zero points stand beside the weights
        table = packing.channels(bias, None if apart else zeros, multipliers, count, design)
        stored = file.tensor("b").data
        assert len(table) <= len(stored), made.name
        last = len(table)
        width = design.group * (3 if apart else 4)
        mine, theirs = (np.frombuffer(b[:last], "<i2").reshape(-1, width) for b in (table, stored))
        start = 2 * design.group
        if not apart:  # zero points
            end = start + design.group
            np.testing.assert_array_equal(mine[:, start:end], theirs[:, start:end])
        factors = slice(width - design.group, None)
        assert np.abs(mine[:, factors].astype(int) - theirs[:, factors]).max() <= 1
        bias_off = np.abs(mine[:, :start:2].astype(int) - theirs[:, :start:2])
        assert np.median(bias_off) <= 1
    assert rounded <= len(compiled) // 8


def test_vendors_commands_in_our_simulator(compiled):
    """Within one step of the vendor's own simulator, which works on the graph."""
    from tests.vendors.test_rockchip_layers import executed

    for made in compiled:
        if made.conv.design is not RK3588:
            mine, wanted = executed(made.folder / f"{made.name}.rknn")
            off = np.abs(mine - wanted)
            assert off.max() <= 1, made.name
            assert (off > 0).mean() < 0.01, made.name
            continue
        file, conv = made.file, made.conv
        x, y = file.tensor("x"), file.tensor("y")
        data = np.load(made.folder / f"{made.name}.npy")[0]
        values = np.clip(np.rint(data / x.scale) + x.zero, -128, 127).astype(np.int8)
        surface, atom = conv.out_surface, conv.design.atom
        picture = values.transpose(1, 2, 0).tobytes()
        parts = {
            "x": picture if conv.picture else layers.block(values),
            "w": file.tensor("w").data,
            "b": file.tensor("b").data,
            "y": bytes(round_up(conv.outputs, conv.out_block) * surface),
        }
        starts, memory = {}, b""
        for name, content in parts.items():
            starts[name] = len(memory)
            memory += content + bytes(-len(content) % 64)
        machine = Machine(np.frombuffer(bytearray(memory), np.uint8))
        found = {w: (r.tensor, offset) for r in file.relocations for offset, w in r.places}
        for task in one_core(file):
            places = {}
            for i in range(len(task.words)):
                tensor, offset = found.get(task.offset // 8 + i, ("", 0))
                if tensor in starts:
                    places[i] = starts[tensor] + offset
            machine.run([placed(task.words, places)])
        out = machine.memory.view(np.int8)[starts["y"] :][: len(parts["y"])].reshape(
            -1, surface, atom
        )
        height, width = conv.out_height, conv.out_width
        pixels = out[:, : height * width].transpose(0, 2, 1).reshape(-1, height, width)
        real = np.load(made.folder / f"{made.name}.out.npy")[0]
        wanted = np.rint(real / y.scale) + y.zero
        off = np.abs(pixels[: conv.outputs] - wanted)
        assert off.max() <= 1, made.name
        assert (off > 0).mean() < 0.01, made.name


def test_layers_of_mobilenetv2_are_the_vendors(tmp_path):
    """All convolutions of a whole network, ten of them with an addition; then the network runs."""
    model = SHARED / "models/onnx/mobilenet_v2_fp32.onnx"
    if not model.exists():
        pytest.skip(f"{model} is not here")
    (tmp_path / "net.onnx").symlink_to(model)
    data = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
    np.save(tmp_path / "net.npy", data)
    command = [PYTHON, RUNNER, "rk3588", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    file = read((tmp_path / "net.rknn").read_bytes())
    tensors = {t.name: t for t in file.tensors}
    starts, first = [], 0
    for operator in file.operators:
        starts.append(first)
        first += operator.tasks[0] if operator.tasks else 0
    compared = 0
    for operator, start in zip(file.operators, starts, strict=True):
        if not operator.window:
            continue
        theirs = file.tasks[start : start + operator.tasks[0]]
        ours = encode(of_operator(operator, tensors, theirs[0]))
        assert len(ours) == len(theirs), operator.name
        for task, vendor in zip(ours, theirs, strict=True):
            mine = {(w.block, w.register): w.value for w in task.words}
            for word in vendor.words:
                place = word.block, word.register
                if word.target and word.block != "PC" and word.register not in MORE_ADDRESSES:
                    assert place in BY_CHOICE or mine[place] == word.value, (operator.name, word)
        compared += 1
    assert compared == 54
    found, last = whole(file, data)
    real = np.load(tmp_path / "net.out.npy").ravel()
    wanted = np.rint(real / last.scale) + last.zero
    assert np.corrcoef(found, wanted)[0, 1] > 0.999
    assert found.argmax() == wanted.argmax()


def of_operator(operator, tensors, task, design=RK3588):
    """The convolution of an operator; scales and limits that depend on floats are the vendor's."""
    x, weights = (tensors[name] for name in operator.inputs[:2])
    y = tensors[operator.outputs[0]]
    numbers = {w.register: w.value for w in task.words}
    window = operator.window
    newer = design in (RK3562, RK3576)
    scale, shift = (numbers[r] for r in ((0x40B0, 0x40B4) if newer else (0x4084, 0x4088)))
    limit = numbers[0x4070 if newer else 0x406C]
    scale &= 0xFFFF  # above stands whether a map is read
    added = None
    if operator.kind in ("ConvAdd", "ConvAddRelu"):
        other = tensors[operator.inputs[3]]
        added = Added(other.zero, *scaling.mantissa(other.scale / y.scale / (scale / 2**shift)))
    return Convolution(
        *x.shape[1:],
        y.shape[1],
        window.kernel,
        window.strides,
        window.pads,
        window.dilations,
        depthwise=weights.shape[0] == 1,
        zero_in=x.zero,
        zero_out=y.zero,
        scale=scale,
        shift=shift,
        limit=0 if newer and limit == 0x7FFFFFFF else limit,
        relu=operator.kind == "ConvRelu",
        relu_after=operator.kind == "ConvAddRelu",
        added=added,
        in_surface=0 if x.kind == "input" else surface_pixels(*x.shape[2:]),
        blocks=design is not RK3588,
        design=design,
    )


def whole(file, data):
    """The bytes of a network's last layer, by the vendor's commands, and its tensor."""
    memory = bytearray(file.internal_bytes + 4096)
    starts = {}
    for tensor in file.tensors:
        starts[tensor.name] = tensor.offset
        if tensor.kind in ("constant", "derived"):
            starts[tensor.name] = len(memory)
            memory += tensor.data + bytes(-len(tensor.data) % 64)
    x = next(t for t in file.tensors if t.kind == "input")
    values = np.clip(np.rint(data / x.scale) + x.zero, -128, 127).astype(np.int8)[0]
    picture = values.transpose(1, 2, 0).tobytes()
    memory[starts[x.name] : starts[x.name] + len(picture)] = picture
    machine = Machine(np.frombuffer(memory, np.uint8))
    found = {w: (r.tensor, offset) for r in file.relocations for offset, w in r.places}
    for task in one_core(file):
        first = task.offset // 8
        places = {
            i: starts[found[first + i][0]] + found[first + i][1]
            for i in range(len(task.words))
            if first + i in found
        }
        machine.run([placed(task.words, places)])
    name = [o for o in file.operators if o.on_npu][-1].outputs[0]
    last = file.tensor(name)
    return machine.memory.view(np.int8)[starts[name] :][: last.shape[1]].astype(int), last
