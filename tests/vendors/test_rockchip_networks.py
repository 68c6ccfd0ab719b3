"""Whole networks of the catalogue: RKNN-Toolkit2's registers beside ours, and in our simulator."""

import subprocess
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests.vendors.test_rockchip import (
    ADDRESSES_RK3576,
    BY_CHOICE,
    LOADS,
    MORE_ADDRESSES,
    PYTHON,
    RUNNER,
    SECONDS,
    of_operator,
    one_core,
    pytestmark,  # noqa: F401
    whole,
)

import intaglio
from intaglio import catalogue
from intaglio.npu.chips.rockchip.convolution import encode
from intaglio.npu.chips.rockchip.geometry import DESIGNS
from intaglio.npu.chips.rockchip.rknn_file import read

# A table, a product or a leaky relu behind a convolution has numbers that depend on floats.
KINDS = ("Conv", "ConvRelu", "ConvClip", "ConvAdd", "ConvAddRelu")
CONVOLUTIONS = {
    ("rk3588", "mobilenet_v1"): 29,
    ("rk3588", "resnet18"): 25,
    ("rk3588", "googlenet"): 59,
    ("rk3588", "squeezenet1_1"): 33,
    ("rk3588", "shufflenet_v2_x1_0"): 85,
    ("rk3588", "mobilenet_v3_small"): 44,
    ("rk3566", "mobilenet_v1"): 29,
    ("rk3566", "mobilenet_v2"): 54,
    ("rk3566", "resnet18"): 22,
    ("rk3566", "googlenet"): 59,
    ("rk3576", "mobilenet_v1"): 29,
    ("rk3576", "mobilenet_v2"): 54,
    ("rk3576", "resnet18"): 22,
    ("rk3576", "googlenet"): 59,
}
SPLITS = {("rk3588", "mobilenet_v3_small"): 1}  # a depthwise layer that the vendor splits
# The vendor's simulator rounds once, the chip twice: deeper networks than these add that up.
TEN = (
    "googlenet",
    "mobilenet_v1",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnext50_32x4d",
    "squeezenet1_0",
    "squeezenet1_1",
    "wide_resnet50_2",
)
PICTURE = {0x100C, 0x1018, 0x104C, 0x1050, 0x1054, 0x1058, 0x107C}  # the vendor converts pixels
PICTURE_RK3576 = {0x100C, 0x1048, 0x104C, 0x1050, 0x1054, 0x1058, 0x105C, 0x1090}
# A pointwise convolution with a stride: the vendor leaves out columns and rows that no kernel
# touches, and so reads lines one by one; the buffer then has other sizes.
STRIDED = {0x100C, 0x1020, 0x1040, 0x1044, 0x107C, 0x1080, 0x1084}
STRIDED_RK3576 = {0x1018, 0x1028, 0x102C, 0x103C, 0x1040, 0x1044, 0x1078, 0x1090, 0x1094, 0x1098}
STRIDED_RK3576 |= {0x100C, 0x1014, 0x1080, 0x118C}


def randomised(path):
    """Random weights in the place of the catalogue's zeros."""
    model, chance = onnx.load(path), np.random.default_rng(1)
    for tensor in model.graph.initializer:
        old = numpy_helper.to_array(tensor)
        if old.dtype != np.float32 or old.size < 2:
            continue
        new = chance.normal(size=old.shape) * 0.1
        if old.ndim > 1:
            new = chance.normal(size=old.shape) * np.sqrt(2 / np.prod(old.shape[1:]))
        elif old.min() >= 0 and old.max() > 0:
            new = chance.uniform(0.5, 1.5, old.shape)
        tensor.CopyFrom(numpy_helper.from_array(new.astype(np.float32), tensor.name))
    onnx.save(model, path)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A network of the catalogue, compiled for a chip and simulated by the vendor's tool."""
    made = {}

    def make(chip, name):
        if (chip, name) not in made:
            folder = tmp_path_factory.mktemp(f"{chip}-{name}")
            intaglio.save_onnx(catalogue.build(name), folder / "net.onnx")
            randomised(folder / "net.onnx")
            data = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
            np.save(folder / "net.npy", data)
            command = [PYTHON, RUNNER, chip, folder]
            how = {"capture_output": True, "text": True, "timeout": SECONDS, "cwd": folder}
            done = subprocess.run(command, **how)
            assert done.returncode == 0, done.stderr[-2000:]
            made[chip, name] = folder
        return made[chip, name]

    return make


@pytest.mark.parametrize(("chip", "name"), CONVOLUTIONS)
def test_registers_of_networks(built, chip, name, capsys):
    file = read((built(chip, name) / "net.rknn").read_bytes())
    compared, chosen, different = registers(file)
    with capsys.disabled():
        print(f"\n{chip} {name}: {compared} convolutions; by choice: {dict(chosen)}", end="")
    assert compared == CONVOLUTIONS[chip, name]
    assert not different, different[:5]
    assert chosen["split by rows"] == SPLITS.get((chip, name), 0)


@pytest.mark.parametrize("name", TEN)
def test_networks_in_our_simulator(built, name, capsys):
    """Within one step of the vendor's own simulator on 99.9 % of the bytes."""
    folder = built("rk3588", name)
    file = read((folder / "net.rknn").read_bytes())
    found, last = whole(file, np.load(folder / "net.npy"))
    wanted = np.rint(np.load(folder / "net.out.npy").ravel() / last.scale) + last.zero
    off = np.abs(found[: wanted.size] - wanted)
    with capsys.disabled():
        print(f"\n{name}: {(off <= 1).mean():.2%} within one step, most {off.max():.0f}", end="")
    assert (off <= 1).mean() >= 0.999
    assert np.corrcoef(found[: wanted.size], wanted)[0, 1] > 0.999


def registers(file):
    """How many convolutions were compared, what differs by choice, and what else differs."""
    tensors = {t.name: t for t in file.tensors}
    compared, chosen, different, listed = 0, Counter(), [], one_core(file)
    newer = file.target == "rk3576"
    places = ADDRESSES_RK3576 | {0x5030, 0x5038} if newer else MORE_ADDRESSES
    chosen_words = set() if newer else BY_CHOICE
    picture = PICTURE_RK3576 if newer else PICTURE
    for number, operator in enumerate(file.operators):
        theirs = [t for t in listed if t.operator == number and len(t.words) < LOADS]
        if not operator.window or operator.kind not in KINDS:
            continue
        compared += 1
        ours = encode(of_operator(operator, tensors, theirs[0], DESIGNS[file.target]))
        if len(ours) != len(theirs):
            first = tensors[operator.inputs[0]].kind == "input" and file.target == "rk3576"
            chosen["pictures are split" if first else "split by rows"] += 1
            continue
        window = operator.window
        strided = window.kernel == (1, 1) and window.strides != (1, 1)
        first = file.target != "rk3588" and tensors[operator.inputs[0]].kind == "input"
        for task, vendor in zip(ours, theirs, strict=True):
            mine = {(w.block, w.register): w.value for w in task.words}
            for word in vendor.words:
                place = word.block, word.register
                if not word.target or word.block == "PC" or word.register in places:
                    continue
                if place in chosen_words or mine[place] == word.value:
                    continue
                if strided and word.register in (STRIDED_RK3576 if newer else STRIDED):
                    chosen["strided pointwise"] += 1
                elif first and word.register in picture:
                    chosen["pictures are converted"] += 1
                else:
                    different.append((operator.name, word))
    return compared, chosen, different
