"""cvimodels of quantised graphs: golden streams, dependencies, our simulator, and refusals.

tests/vendors/test_cvi.py runs the same networks in the vendor's simulator. After a change of the
streams that it has proven: python -m tests.npu.chips.cv18xx.test_cvimodel_compile
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.npu.chips.cv18xx.matrix_products import random_matmul
from tests.npu.chips.cv18xx.networks import resnet18
from tests.npu.chips.cv18xx.padded_means import random_padded_mean
from tests.npu.chips.cv18xx.paired_layers import random_product
from tests.npu.chips.cv18xx.quantized_layers import Layers, random_layer, random_network
from tests.npu.chips.cv18xx.unsigned_layers import random_unsigned
from tests.npu.chips.cv18xx.unusual_scales import random_scales
from tests.npu.chips.cv18xx.upsampling_layers import random_upsampling
from tests.npu.chips.cv18xx.wide_layers import wide_layer
from tests.npu.chips.k210.mobilenets import mobilenet_v2
from tests.npu.chips.k210.quantized_cnn import Cnn

import intaglio
from intaglio import dtypes, ops, targets
from intaglio.cli import cli
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.chips.cv18xx import arithmetic, cvimodel, product
from intaglio.npu.chips.cv18xx.commands import Command, decode
from intaglio.npu.chips.cv18xx.compile import compile_cvimodel
from intaglio.npu.chips.cv18xx.simulate import Machine
from intaglio.npu.ops import eltwise

GOLDEN = Path(__file__).with_name("golden_streams.json")
CHIPS = ("cv181x", "cv180x")
LANE = 1 << 15
SMALL = {
    **{f"layer {k}": (random_layer, k) for k in range(12)},
    **{f"network {k}": (random_network, k) for k in range(12)},
    **{f"product {k}": (random_product, k) for k in range(6)},
    **{f"upsampling {k}": (random_upsampling, k) for k in range(6)},
    **{f"matmul {k}": (random_matmul, k) for k in range(6)},
}

BUILDERS = [
    random_network,
    random_matmul,
    random_product,
    random_upsampling,
    random_unsigned,
    random_padded_mean,
]


def streams(chip: str) -> dict[str, str]:
    found = {}
    for name, (build, seed) in SMALL.items():
        made = compile_cvimodel(build(seed), chip)
        raw = b"".join(s.data for s in made.model.sections)
        found[name] = f"{len(made.commands)} {hashlib.sha256(raw).hexdigest()[:16]}"
    return found


@pytest.mark.parametrize("chip", CHIPS)
def test_streams_are_those_that_the_vendors_simulator_ran(chip):
    assert streams(chip) == json.loads(GOLDEN.read_text())[chip]


def feeds_of(made, seed=0):
    rng, feeds = np.random.default_rng(seed), {}
    for p in made.lowered.inputs:
        low, high = dtypes.limits(p.dtype)
        feeds[p.name] = rng.integers(low, high + 1, p.shape).astype(dtypes.numpy_of(p.dtype))
    return feeds


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", range(20, 26))
@pytest.mark.parametrize("build", BUILDERS)
def test_our_simulator_gives_the_interpreters_bytes(chip, seed, build):
    made = compile_cvimodel(build(seed), chip)
    feeds = feeds_of(made, seed)
    found = Machine(cvimodel.read(made.data)).run(feeds)
    for name, expected in intaglio.interpret(made.graph, feeds).items():
        assert np.array_equal(found[name].reshape(-1), expected.reshape(-1))


def test_pools_of_a_concat_that_is_larger_than_local_memory():
    """The last pools of a YOLO on 64 KiB: maps of their own, because bands share rows."""
    net = Cnn(0, (1, 8, 20, 20))
    pools = [net.conv(net.input, 128, 1)]
    for _ in range(3):
        pools.append(net.max_pool(pools[-1], 5, 1, (2, 2, 2, 2)))
    joined = ops.concat(*pools, axis=1)
    net.quant[joined] = net.of(pools[0])
    made = compile_cvimodel(net.graph(net.conv(joined, 8, 1)), "cv180x")
    feeds = feeds_of(made, 0)
    found = Machine(cvimodel.read(made.data)).run(feeds)
    for name, expected in intaglio.interpret(made.graph, feeds).items():
        assert np.array_equal(found[name].reshape(-1), expected.reshape(-1))


@pytest.mark.parametrize("seed", range(5))
def test_layers_are_split_by_channels_where_no_row_fits(seed):
    made = compile_cvimodel(wide_layer(seed), "cv180x")
    feeds = feeds_of(made, seed)
    found = Machine(cvimodel.read(made.data)).run(feeds)
    for name, expected in intaglio.interpret(made.graph, feeds).items():
        assert np.array_equal(found[name].reshape(-1), expected.reshape(-1))


# ---- dependencies --------------------------------------------------------------------------------
def touched(c: Command, lanes: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The bytes of a lane that a command reads and writes, from the first to the last."""
    if c.name == "tdma":
        to, source = c.get("trans_dir") in (0, 3), c.get("trans_dir") in (1, 3)
        sides = [_transfer(c, s, lanes) for s, local in (("src", source), ("dst", to)) if local]
        return (sides[:1] if source else []), (sides[-1:] if to else [])
    is_depthwise = c.get("tsk_typ") == 1 and c.get("tsk_eu_typ") == 2
    if is_depthwise and not c.get("opt_chl_quan"):  # a sum: two maps as two rows
        return _sum_operands(c, lanes), [_operand(c, "res0", lanes)]
    reads = [_operand(c, "opd0", lanes)]
    if c.get("tsk_typ") in (0, 1) and c.get("tsk_opd_num") == 3:
        rows = -(-c.get("opd1_c") // lanes)
        taps = c.get("opd1_h") * c.get("opd1_w")
        deep = taps * c.get("opd1_n") if c.get("tsk_typ") == 0 else -(-taps // 16) * 16
        reads += [(c.get("opd1_addr"), c.get("opd1_addr") + rows * deep)]
        reads += [(c.get("opd2_addr"), c.get("opd2_addr") + rows * 9)]
    if c.get("tsk_typ") == 3 and c.get("tsk_eu_typ") == 12:
        reads += [(c.get("opd1_addr"), c.get("opd1_addr") + 256)]
    result = _operand(c, "res0", lanes)
    writes = [result]
    wide = c.get("res0_b_str")
    if c.get("tsk_typ") == 3 and (not c.get("opt_res0_seg") or c.get("opt_res_add")):
        writes.append((result[0] + wide, result[1] + wide))
    return [*reads, *(writes if c.get("opt_res_add") else [])], writes


def _sum_operands(c: Command, lanes: int) -> list[tuple[int, int]]:
    start, rows = c.get("opd0_addr"), -(-c.get("opd1_c") // lanes)
    size = (rows - 1) * c.get("opd0_c_str") + c.get("opd0_w")
    maps = [(start + k * c.get("opd0_h_str"), size) for k in (0, 1)]
    constants = [(c.get("opd1_addr"), 16 * rows), (c.get("opd2_addr"), 2 * rows)]
    return [(at, at + many) for at, many in [*maps, *constants]]


def _transfer(c: Command, side: str, lanes: int) -> tuple[int, int]:
    start = c.get(f"{side}_base_addr_low") % LANE
    plane = c.get(f"{side}_c_stride_low") + (c.get(f"{side}_c_stride_high") << 16)
    lane = c.get(f"{side}_base_addr_low") // LANE
    blocks = (lane + c.get(f"{side}_c") - 1) // lanes
    rows = (c.get(f"{side}_h") - 1) * c.get(f"{side}_h_stride")
    return start, start + blocks * plane + rows + c.get(f"{side}_w")


def _operand(c: Command, name: str, lanes: int) -> tuple[int, int]:
    start, (h, w) = c.get(f"{name}_addr") % LANE, (c.get(f"{name}_{k}") for k in "hw")
    blocks = (c.get(f"{name}_addr") // LANE + c.get(f"{name}_c") - 1) // lanes
    if c.get(f"short_{name}_str") == 0:
        return start, start + blocks * (-(-h * w // 16) * 16) + h * w
    plane, row, pixel = (c.get(f"{name}_{k}_str") for k in "chw")
    return start, start + blocks * plane + (h - 1) * row + (w - 1) * pixel + 1


def conflicts(commands: list[Command], lanes: int) -> list[tuple[int, int]]:
    """Pairs of commands of different engines that touch the same bytes without an order."""
    seen: dict[str, list] = {"tiu": [], "tdma": []}
    waited = {"tiu": 0, "tdma": 0}  # number of the other engine's last command known to have ended
    found = []
    for at, c in enumerate(commands):
        other = "tdma" if c.name == "tiu" else "tiu"
        waited[c.name] = max(waited[c.name], c.depends)
        reads, writes = touched(c, lanes)
        for number, where, r, w in seen[other][-400:]:
            if number <= waited[c.name]:
                continue
            clash = [(a, b) for a in writes for b in [*r, *w]] + [(a, b) for a in reads for b in w]
            if any(a[0] < b[1] and b[0] < a[1] for a, b in clash):
                found.append((where, at))
        seen[c.name].append((c.number, at, reads, writes))
    return found


def small_networks():
    return [build(k) for build in BUILDERS for k in range(3)]


def larger_networks():
    return [random_network(k) for k in range(6, 20)] + [resnet18(64), mobilenet_v2(64)]


@pytest.mark.parametrize(
    "networks", [small_networks, pytest.param(larger_networks, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("chip", CHIPS)
def test_commands_wait_for_the_bytes_they_touch(chip, networks):
    lanes = {"cv181x": 8, "cv180x": 2}[chip]
    for graph in networks():
        made = compile_cvimodel(graph, chip)
        found = decode(made.model.section(cvimodel.CMDBUF), chip)
        assert conflicts(found, lanes) == []
        cut = [Command(c.engine, c.name, c.fields, c.number) for c in found]
        assert conflicts(cut, lanes)  # without their waits they are not ordered


# ---- arithmetic ----------------------------------------------------------------------------------
def test_multipliers_have_31_bits():
    scale = np.array([0.5, 0.25, 0.3, 1.0, 1e-9, 0.0])
    multiplier, shift = arithmetic.multiplier_and_shift(scale)
    assert (multiplier < 1 << 31).all()
    assert np.allclose(multiplier / 2.0 ** (31 + shift), scale, rtol=1e-9, atol=1e-10)
    with pytest.raises(BadInput, match="less than 1"):
        arithmetic.multiplier_and_shift(np.array([1.5]))


def test_rounding_of_ties():
    v = np.array([-3, -1, 1, 3])
    assert arithmetic.halves_away(v, 1).tolist() == [-2, -1, 1, 2]
    total = arithmetic.Sum(1, 1, 0, 1).apply(v.astype(np.int8), np.zeros(4, np.int8), "i8", False)
    assert total.tolist() == [-1, 0, 1, 2]


@pytest.mark.parametrize("seed", range(12))
def test_products_are_nearly_those_of_real_numbers(seed):
    rng = np.random.default_rng(seed)
    zeros = [int(z) for z in rng.choice([-128, 0, 17, 127], 3)]
    x, y = (Value(Type("i8", (1, 256, 256, 1)), name) for name in "ab")
    ends = {"low": -128, "high": 127, "dtype": "i8", "kind": "mul"}
    named = dict(zip(("a_zero", "b_zero", "y_zero"), zeros, strict=True))
    factor = float(rng.uniform(1 / 1000, 1 / 100))
    node = eltwise.node(x, y, None, **named, a_factor=factor, **ends)
    a, b = (n.astype(np.int8) for n in np.meshgrid(*[np.arange(-128, 128)] * 2))
    found = product.of_product(node).apply(a, b, "i8", relu=False)
    exact = (a.astype(int) - zeros[0]) * (b.astype(int) - zeros[1]) * factor + zeros[2]
    assert np.abs(found - np.clip(exact, -128, 127)).max() < 0.5 + 4 / 64


@pytest.mark.parametrize("seed", [0, 2, 5, 6])
def test_means_at_edges_are_nearly_those_of_real_numbers(seed):
    graph = random_padded_mean(seed)
    made = compile_cvimodel(graph, "cv181x")
    (mean,) = (n for n in graph.nodes() if n.op == "qlinear_avg_pool")
    (ours,) = (n for n in made.graph.nodes() if n.op == "cv18xx.avg_pool")
    x = feeds_of(made)[made.lowered.inputs[0].name]
    found, expected = (
        intaglio.interpret(Graph(g.inputs, [n.outputs[0]], ["y"]), {g.inputs[0].name: x})["y"]
        for g, n in ((made.graph, ours), (graph, mean))
    )
    shift = 128 if expected.dtype == np.uint8 else 0
    assert np.abs(found.astype(int) + shift - expected).max() <= 1


def test_outputs_of_u8_become_i8():
    net = Layers(0, (1, 3, 8, 8), "u8")
    y = net.conv(net.input, 4)
    real = ops.dequantize_linear(y, *net.of(y))
    made = compile_cvimodel(Graph([net.input], [real], ["y"]), "cv181x")
    assert [p.dtype for p in (*made.lowered.inputs, *made.lowered.outputs)] == ["u8", "i8"]
    assert made.lowered.outputs[0].zero == int(net.of(y)[1].data) - 128


# ---- what is left to the CPU ---------------------------------------------------------------------
def test_ops_among_convolutions_are_named():
    net = Layers(0, (1, 8, 8, 8))
    y = net.conv(net.input, 8)
    turned = ops.transpose(y, perm=(0, 2, 1, 3))
    net.quant[turned] = net.quant[y]
    with pytest.raises(Unsupported, match=r"stay on the CPU.*\(transpose\)"):
        compile_cvimodel(net.graph(net.conv(turned, 8)), "cv181x")


@pytest.mark.parametrize("seed", range(12))
def test_negative_scales_and_scales_above_1(seed):
    graph = random_scales(seed)
    made = compile_cvimodel(graph, "cv181x")
    assert not made.lowered.after
    feeds = feeds_of(made, seed)
    (expected,) = intaglio.interpret(made.graph, feeds).values()
    (found,) = Machine(cvimodel.read(made.data)).run(feeds).values()
    np.testing.assert_array_equal(found, expected)
    if not seed % 2:  # one layer: at most two units from the integers of the network
        (wanted,) = intaglio.interpret(
            graph, {graph.inputs[0].name: feeds[made.lowered.inputs[0].name]}
        ).values()
        wanted = wanted.astype(np.int64) - (128 if wanted.dtype == np.uint8 else 0)
        assert np.abs(wanted - expected.astype(np.int64)).max() <= 2


def test_a_scale_above_2_is_named():
    graph = random_scales(1)
    (first, _) = [n for n in graph.nodes() if n.op == "qlinear_conv"]
    graph.set_input(first, 4, constant(first.inputs[4].data * np.float32(40)))
    with pytest.raises(Unsupported, match="sums are multiplied by less than 1"):
        compile_cvimodel(graph, "cv181x")


def test_a_sum_with_a_constant_is_named():
    net = Layers(0, (1, 8, 9, 11), "i8")
    given = constant(np.arange(8, dtype=np.int8).reshape(1, 8, 1, 1))
    net.of(given)
    y = net.conv(net.add(net.conv(net.input, 8), given), 8)
    with pytest.raises(Unsupported, match=r"one operand is a constant.*NAME.itg"):
        compile_cvimodel(net.graph(y), "cv181x")


def test_maps_beyond_a_commands_fields_stay_on_the_cpu():
    x = Value(Type("i8", (1, 4420, 4, 1)), "x")
    find = targets.find("cv181x")
    assert "channels is 4420; lut does at most 4095" in str(
        find.why_not(ops.lookup(x, constant(np.zeros(256, np.int8))).producer)
    )


def test_floats_have_no_layers():
    x = Value(Type("f32", (1, 4)), "x")
    with pytest.raises(Unsupported, match=r"computes in floats; .* quantise it first"):
        compile_cvimodel(Graph([x], [ops.relu(x)], ["y"]), "cv181x")


def test_other_chips_have_no_cvimodel():
    with pytest.raises(BadInput, match="cv181x and cv180x do"):
        compile_cvimodel(random_layer(0), "rk3588")


def test_command_line(tmp_path):
    model, path = tmp_path / "m.int8.onnx", tmp_path / "m.cvimodel"
    intaglio.save_onnx(random_layer(3), model)
    done = CliRunner().invoke(cli, ["compile", str(model), "--target", "cv181x", "-o", str(path)])
    assert done.exit_code == 0, done.output
    assert "TIU and" in done.output
    assert cvimodel.read(path.read_bytes()).chip == "cv181x"
    wrong = CliRunner().invoke(cli, ["compile", str(model), "--target", "k210", "-o", str(path)])
    assert isinstance(wrong.exception, BadInput)
    assert "cv181x or cv180x" in str(wrong.exception)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({chip: streams(chip) for chip in CHIPS}, indent=1) + "\n")
