"""Whole networks of the catalogue: RKNN-Toolkit2's registers beside ours, and in our simulator."""

import subprocess
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests.vendors.test_rockchip import (
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
CONVOLUTIONS = {"mobilenet_v1": 29, "resnet18": 25}
# A pointwise convolution with a stride: the vendor leaves out columns and rows that no kernel
# touches, and so reads lines one by one; the buffer then has other sizes.
STRIDED = {0x100C, 0x1020, 0x1040, 0x1044, 0x107C, 0x1080, 0x1084}


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


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_networks(name, tmp_path, capsys):
    intaglio.save_onnx(catalogue.build(name), tmp_path / "net.onnx")
    randomised(tmp_path / "net.onnx")
    data = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
    np.save(tmp_path / "net.npy", data)
    command = [PYTHON, RUNNER, "rk3588", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    file = read((tmp_path / "net.rknn").read_bytes())
    compared, chosen, different = registers(file)
    with capsys.disabled():
        print(f"\n{name}: {compared} convolutions; by choice: {dict(chosen)}", end="")
    assert compared == CONVOLUTIONS[name]
    assert not different, different[:5]
    assert not chosen["split by rows"]
    found, last = whole(file, data)
    wanted = np.rint(np.load(tmp_path / "net.out.npy").ravel() / last.scale) + last.zero
    assert (np.abs(found - wanted) <= 1).mean() > 0.99
    assert np.corrcoef(found, wanted)[0, 1] > 0.999


def registers(file):
    """How many convolutions were compared, what differs by choice, and what else differs."""
    tensors = {t.name: t for t in file.tensors}
    compared, chosen, different, listed = 0, Counter(), [], one_core(file)
    for number, operator in enumerate(file.operators):
        theirs = [t for t in listed if t.operator == number and len(t.words) < LOADS]
        if not operator.window or operator.kind not in KINDS:
            continue
        compared += 1
        ours = encode(of_operator(operator, tensors, theirs[0], DESIGNS[file.target]))
        if len(ours) != len(theirs):
            chosen["split by rows"] += 1
            continue
        window = operator.window
        strided = window.kernel == (1, 1) and window.strides != (1, 1)
        for task, vendor in zip(ours, theirs, strict=True):
            mine = {(w.block, w.register): w.value for w in task.words}
            for word in vendor.words:
                place = word.block, word.register
                if not word.target or word.block == "PC" or word.register in MORE_ADDRESSES:
                    continue
                if place in BY_CHOICE or mine[place] == word.value:
                    continue
                if strided and word.register in STRIDED:
                    chosen["strided pointwise"] += 1
                else:
                    different.append((operator.name, word))
    return compared, chosen, different
