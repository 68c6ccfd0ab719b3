"""Networks as register commands: the words' results are the interpreter's, byte for byte."""

import numpy as np
import pytest
from tests.npu.chips.cv18xx.padded_means import random_padded_mean
from tests.npu.chips.cv18xx.paired_layers import random_product
from tests.npu.chips.cv18xx.quantized_layers import Layers, random_layer, random_network
from tests.npu.chips.cv18xx.unsigned_layers import random_unsigned
from tests.npu.chips.cv18xx.upsampling_layers import random_upsampling
from tests.npu.chips.rockchip import jobs
from tests.shared_models import SHARED

import intaglio
from intaglio import ops
from intaglio.errors import Unsupported
from intaglio.ir import Graph, constant
from intaglio.npu.chips.rockchip import native_machine
from intaglio.npu.chips.rockchip.compile import compile_job
from intaglio.ops.shape import part

pytestmark = pytest.mark.skipif(not native_machine.available(), reason="the C library is missing")

SEEDS = 6
MORE_SEEDS = range(SEEDS, 200)
SISTERS = ["rk3566", "rk3562", "rk3576", "rv1106"]
BUILDERS = [
    random_layer,
    random_network,
    random_product,
    random_unsigned,
    random_upsampling,
    random_padded_mean,
]


def ran(build, seeds, chip="rk3588"):
    """How many of these networks the chip has commands for; all of their bytes are compared."""
    count = 0
    for seed in seeds:
        try:
            made = compile_job(build(seed), chip)
        except Unsupported:
            continue
        jobs.check(made, seed)
        count += 1
    return count


@pytest.mark.parametrize("build", BUILDERS)
def test_random_networks(build):
    assert ran(build, range(SEEDS)) >= 1


@pytest.mark.parametrize("chip", SISTERS)
@pytest.mark.parametrize("build", BUILDERS)
def test_random_networks_of_sister_chips(build, chip):
    assert ran(build, range(SEEDS, 2 * SEEDS), chip) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["rk3588", *SISTERS])
@pytest.mark.parametrize("build", BUILDERS)
def test_more_random_networks(build, chip):
    assert ran(build, MORE_SEEDS, chip) >= 10


@pytest.mark.parametrize("chip", ["rk3588", *SISTERS])
def test_transposed_convolutions_in_parts(chip):
    """Rows that do not all fit the buffer: tasks of a transposed convolution share some."""
    net = Layers(9, (1, 8, 40, 100), "i8")
    net.dtype = "i8"
    deep = net.conv(net.input, 128)
    y = ops.depth_to_space(deep, blocksize=2, mode="DCR")
    net.quant[y] = net.of(deep)
    made = compile_job(net.graph(net.conv(y, 16)), chip)
    steps = [[w.value for w in t.words if w.name == "CONV_CON3"] for t in made.job.tasks]
    spread = [s for s in steps if s and s[-1] >> 8 & 63]
    assert len(spread) > 1
    jobs.check(made)


def test_a_network_with_every_way_to_join_and_cut():
    """Parts that begin a block are written in place; others are moved by convolutions."""
    net = Layers(3, (1, 3, 24, 32), "u8")
    net.dtype = "i8"
    x = net.conv(net.input, 32)
    a, b = net.conv(x, 64), net.conv(x, 20)
    aligned = net.joined([a, x])
    twice = net.joined([aligned, aligned])
    crooked = net.joined([b, a])
    middle = part(aligned, 32, 64, axis=1)
    net.quant[middle] = net.of(x)
    outputs = [net.halved(v) for v in (twice, crooked, middle)]
    made = compile_job(net.graph(*outputs), "rk3588")
    kinds = [t.op for t in made.job.tasks]
    assert kinds.count("npu.concat") == 2  # the second half of `twice` is copied
    assert kinds.count("rockchip.conv") == 3 + 2  # two of them join `b` and `a`
    jobs.check(made)


def wide_table(entries):
    """A convolution of 16-bit results that only a table reads."""
    net = Layers(5, (1, 8, 9, 9), "i8")
    w = constant(net.rng.integers(-127, 128, (12, 8, 3, 3)).astype(np.int8))
    scale = constant(np.full(12, 4e-3, np.float32))
    zero = constant(np.zeros(12, np.int8))
    y = constant(np.float32(0.01)), constant(np.int16(0))
    window = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1)}
    wide = ops.qlinear_conv(net.input, *net.of(net.input), w, scale, zero, *y, None, **window)
    x = (np.arange(entries) - entries // 2) / (entries / 12)
    table = np.rint(100 * x / (1 + np.exp(-x)) / 6).astype(np.int8)
    found = ops.lookup_wide(wide, constant(table), base=-(entries // 2))
    return Graph([net.input], [found], ["y"])


@pytest.mark.parametrize("chip", ["rk3588", *SISTERS])
@pytest.mark.parametrize("entries", [1000, 1025, 1026, 3000])
def test_tables_end_convolutions(entries, chip):
    graph = wide_table(entries)
    made = compile_job(graph, chip)
    loads = 2 if chip == "rk3566" else 1  # tasks that load the table first
    assert [t.op for t in made.job.tasks] == ["rockchip.conv"] * (loads + 1)
    (found,) = jobs.check(made).values()
    assert len(np.unique(found)) > 20
    feeds = jobs.random_inputs(made.job)
    real = intaglio.interpret(graph, feeds)["y"]
    wrong = np.abs(jobs.meaning(made, feeds)["y"].astype(int) - real)
    assert wrong.max() <= 1 + 2 * (entries > 1025)  # thinner tables have numbers between entries


@pytest.mark.parametrize("chip", ["rk3588", *SISTERS])
def test_kernels_as_large_as_the_map_with_padding(chip):
    """Two places of a kernel are a stride apart; a single one has none."""
    net = Layers(4, (1, 16, 2, 3), "i8")
    net.dtype = "i8"
    w = constant(net.rng.integers(-127, 128, (8, 16, 2, 3)).astype(np.int8))
    scale, zero = constant(np.full(8, 4e-3, np.float32)), constant(np.zeros(8, np.int8))
    y = constant(np.float32(0.1)), constant(np.int8(0))
    window = {"stride": (2, 3), "pad": (1, 2, 1, 1), "dilation": (1, 1)}
    made = ops.qlinear_conv(net.input, *net.of(net.input), w, scale, zero, *y, None, **window)
    assert made.shape[2:] == (2, 2)
    jobs.check(compile_job(Graph([net.input], [made], ["y"]), chip))


def test_negative_scales_of_weights():
    """Folded batch norms leave them; the unit multiplies by numbers above 0."""
    net = Layers(6, (1, 8, 9, 9), "i8")
    w = constant(net.rng.integers(-128, 128, (12, 8, 3, 3)).astype(np.int8))
    scale = constant(np.where(np.arange(12) % 3, 4e-3, -4e-3).astype(np.float32))
    zero = constant(np.zeros(12, np.int8))
    bias = constant(net.rng.integers(-3000, 3000, 12).astype(np.int32))
    window = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1)}
    y = constant(np.float32(0.05)), constant(np.int8(3))
    made = ops.qlinear_conv(net.input, *net.of(net.input), w, scale, zero, *y, bias, **window)
    graph = Graph([net.input], [made], ["y"])
    compiled = compile_job(graph, "rk3588")
    jobs.check(compiled)
    feeds = jobs.random_inputs(compiled.job)
    real = intaglio.interpret(graph, feeds)["y"]
    assert np.abs(jobs.meaning(compiled, feeds)["y"].astype(int) - real).max() <= 1


def test_results_are_near_the_neutral_network():
    """Two roundings instead of one: at most one step, in few bytes."""
    graph = random_network(1)
    made = compile_job(graph, "rk3588")
    feeds = jobs.random_inputs(made.job)
    real = intaglio.interpret(graph, feeds)
    for (_, found), wanted in zip(jobs.meaning(made, feeds).items(), real.values(), strict=True):
        off = np.abs(found.reshape(wanted.shape).astype(int) - wanted)
        assert (off > 1).mean() < 0.02


def mean_network(kernel, stride, pad):
    """A mean that leaves out padding, and the network with a convolution behind it."""
    net = Layers(1, (1, 16, 40, 40), "i8")
    net.dtype = "i8"
    y = net._out()
    window = {"kernel": kernel, "stride": stride, "pad": pad, "dilation": (1, 1)}
    pooled = ops.qlinear_avg_pool(net.input, *net.of(net.input), *y, **window)
    net.quant[pooled] = y
    return Graph([net.input], [pooled], ["y"]), net.graph(net.conv(pooled, 8))


@pytest.mark.parametrize("chip", ["rk3588", *SISTERS])
@pytest.mark.parametrize(
    ("kernel", "stride", "pad"),
    [
        ((3, 3), (1, 1), (1, 1, 1, 1)),
        ((3, 3), (2, 2), (0, 0, 1, 1)),
        ((5, 4), (2, 3), (2, 1, 2, 2)),
    ],
)
def test_means_whose_windows_reach_over_the_border(kernel, stride, pad, chip):
    """A product follows: near the border a step of the mean becomes as many as it has factors."""
    for graph in mean_network(kernel, stride, pad):
        made = compile_job(graph, chip)
        assert [n.op for n in made.graph.nodes()][:2] == ["rockchip.conv", "rockchip.pair"]
        jobs.check(made)
    graph, _ = mean_network(kernel, stride, pad)
    feeds = jobs.random_inputs(made.job)
    real = intaglio.interpret(graph, feeds)["y"].astype(int)
    found = jobs.meaning(compile_job(graph, chip), feeds)["y"]
    assert np.abs(found - real).max() <= 3
    assert np.abs(found - real)[:, :, 2:-2, 2:-2].max() <= 1


def test_a_second_map_may_be_a_constant():
    """Of u8 with one pixel, and of i8 with all; it lies beside the weights."""
    for dtype, shape in (("u8", (1, 24, 1, 1)), ("i8", (1, 24, 9, 9))):
        net = Layers(3, (1, 24, 9, 9), dtype)
        net.dtype = dtype
        stored = net.rng.integers(0, 200, shape).astype(np.uint8).view(np.dtype(dtype[0] + "1"))
        other = constant(stored), constant(np.float32(0.04)), constant(stored.dtype.type(7))
        x = net.conv(net.input, 24)
        pooled = net.pool(x) if hasattr(net, "pool") else net.conv(x, 24)
        y = net._out()
        added = ops.qlinear_add(pooled, *net.of(pooled), *other, *y)
        net.quant[added] = y
        for chip in ("rk3588", *SISTERS):
            jobs.check(compile_job(net.graph(added), chip))


def test_what_has_no_command_is_named():
    net = Layers(1, (1, 16, 40, 40), "i8")
    net.dtype = "i8"
    x, y = net.conv(net.input, 16), net._out()
    window = {"kernel": (35, 35), "stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1)}
    pooled = ops.qlinear_avg_pool(x, *net.of(x), *y, **window)
    net.quant[pooled] = y
    graph = net.graph(net.conv(pooled, 8))
    with pytest.raises(Unsupported, match="its kernel is 35; the register holds at most 31"):
        compile_job(graph, "rk3588")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["mobilenet_v1_0.25_224_quant", "mobilenet_v2_1.0_224_quant", "pretrainedResnet_quant"]
)
def test_whole_networks(name):
    path = SHARED / f"models/tflite/{name}.tflite"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    jobs.check(compile_job(intaglio.load(path), "rk3588"))
