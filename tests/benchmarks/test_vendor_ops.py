"""What the vendors' compilers leave beside the layers of the units, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.npu_zoo import text
from benchmarks.npu_zoo.net import Net

from intaglio.analysis.whatif import Model, WhatIf
from intaglio.cli import main
from intaglio.cli.model_files import integer_model
from intaglio.npu.predict import vendor
from intaglio.npu.predict.leftovers import Op
from intaglio.targets import chip

onnx = pytest.importorskip("onnx")


def left_over(n: Net, ends: list[str], target: str, folder: Path) -> list[Op]:
    """The ops beside the programs of a network, as `perf --as-vendor` finds them."""
    path = folder / "m.onnx"
    onnx.save(n.model(*ends), path)
    model: Model = integer_model(str(path), {}, as_vendor=True)
    part, _ = model.vendor_part(target, WhatIf(dtype="int8"))
    return [op for others in part.others for op in others.ops]


def attention(packed: bool) -> tuple[Net, list[str]]:
    n = Net("none")
    x = n.input((128, 1, 512) if packed else (1, 128, 512))
    made = (text._packed if packed else text._attention)(n, n.linear(x, 512), 8)
    return n, [made]


def test_heads_are_a_batch_unless_samples_lie_between_them(tmp_path: Path):
    """PyTorch's MultiheadAttention transposes [tokens, samples * heads, width]."""
    own = left_over(*attention(packed=False), "bm1684x", tmp_path)
    packed = left_over(*attention(packed=True), "bm1684x", tmp_path)
    moved = [sum(op.op == "transpose" for op in ops) for ops in (own, packed)]
    assert moved[0] == 0
    assert moved[1] >= 3


def test_a_transpose_around_kept_pixels_is_not_one_of_tokens(tmp_path: Path):
    n = Net()
    x = n.conv(n.image(3, 16, 16), 32, 3)
    y = n.transpose(n.pool(n.transpose(x, 0, 3, 2, 1), 1, (1, 2)), 0, 3, 2, 1)
    for target in ("bm1684x", "k230"):
        ops = left_over(n, [n.conv(y, 16)], target, tmp_path)
        assert sum(op.op == "transpose" for op in ops) == 2


def test_pools_cost_each_tap_in_each_lane(tmp_path: Path):
    """A map of one channel keeps one lane busy, and the others idle as long."""
    n = Net()
    x = n.input((1, 1, 20, 30))
    y = n.mul(n.pool(x, 9, 1, 4), n.constant(np.float32(2)))
    c = chip.load("bm1688")
    pools = [op for op in left_over(n, [y], "bm1688", tmp_path) if op.op == "max_pool"]
    if not pools:
        pytest.skip("the pool is a layer of the units")
    assert pools[0].elements == 32 * 20 * 30 * 81
    cycles = pools[0].elements / c.units["pool"].rate["f32"]
    spent = vendor.microseconds(pools[0], "f32", c) - vendor.microseconds(
        Op("max_pool", "", "f32", "", "", 0, 0, False, 0.0), "f32", c
    )
    assert spent == pytest.approx(cycles / c.clock)


def test_each_op_has_its_own_time_and_the_longest_is_named(tmp_path: Path, capsys):
    n = Net()
    x = n.conv(n.image(3, 16, 16), 32, 3)
    y = n.transpose(n.pool(n.transpose(x, 0, 3, 2, 1), 1, (1, 2)), 0, 3, 2, 1)
    path = tmp_path / "m.onnx"
    onnx.save(n.model(n.conv(y, 16)), path)
    main(["perf", str(path), "--target", "bm1684x", "--as-vendor", "--json"])
    rows = json.loads(capsys.readouterr().out)["layers"]
    times = [r["microseconds"] for r in rows if r["op"] == "transpose"]
    c = chip.load("bm1684x")
    for elements, time in zip((32 * 256, 16 * 256), times, strict=True):
        op = Op("transpose", "", "i8", "", "", elements, 0, False, 0.0)
        assert time == pytest.approx(vendor.microseconds(op, "i8", c))
    main(["perf", str(path), "--target", "bm1684x", "--as-vendor", "--explain"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"its transposes take {sum(times) / 1e3:.3f} ms" in said


def test_sigmoid_is_a_table_of_the_k230_but_softmax_is_not(tmp_path: Path):
    n = Net()
    x = n.reshape(n.conv(n.image(3, 16, 16), 32, 3), 1, 2, 16, 256)
    two = n.split(n.transpose(x, 0, 2, 1, 3), 8, 8)
    ends = [n.softmax(two[0], 1), n.activation(two[1], "sigmoid")]
    ops = {op.op: op for op in left_over(n, ends, "k230", tmp_path)}
    assert ops["softmax"].functions
    assert "sigmoid" not in ops or not ops["sigmoid"].functions
