"""Whole files: interpreter = simulator for both versions, golden commands, refusals, mutations."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from tests.npu.chips.k210.mobilenets import mobilenet_v1, mobilenet_v2
from tests.npu.chips.k210.quantized_cnn import (
    Cnn,
    byte_weights,
    grouped,
    joined_outputs,
    large_linear,
    max_around,
    negative_scales,
    odd_sizes,
    random_cnn,
    small_maps,
    upsampling,
    wide_expansion,
)

import intaglio
from intaglio import ops
from intaglio.errors import BadFile, BadInput, IntaglioError, Unsupported
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.chips.k210 import disassembly, kmodel3, kmodel5
from intaglio.npu.chips.k210.compile import compile_kmodel, read
from intaglio.npu.chips.k210.model import Conv
from intaglio.npu.chips.k210.simulate import Machine

GOLDEN = Path(__file__).with_name("golden.json")


def feeds(made, seed=0):
    rng = np.random.default_rng(seed)
    return {p.name: rng.integers(0, 256, p.shape).astype(np.uint8) for p in made.lowered.inputs}


def real(bytes_, port):
    factor, added = np.float32(port.scale), np.float32(-port.scale * port.zero)
    return bytes_.reshape(-1).astype(np.float32) * factor + added


def check(graph, seed=0):
    """Interpreter and simulator give the same bytes; returns what is compiled."""
    made = compile_kmodel(graph)
    given = feeds(made, seed)
    want = list(intaglio.interpret(made.graph, given).values())
    found = list(Machine(read(made.data)).run(given).values())
    assert all(np.array_equal(a, b) for a, b in zip(want, found, strict=True))
    older = compile_kmodel(graph, 3)
    floats = list(Machine(read(older.data)).run(given).values())
    for a, b, port in zip(want, floats, older.lowered.outputs, strict=True):
        assert np.array_equal(real(a, port), b.reshape(-1))
    return made


@pytest.mark.parametrize("seed", [s for s in range(40) if s != 15])
def test_random_networks(seed):
    graph = random_cnn(seed)
    made = check(graph, seed)
    (port,) = made.lowered.outputs
    signed = graph.inputs[0].dtype == "i8"
    x = next(iter(feeds(made, seed).values())).astype(np.int16) - (128 if signed else 0)
    x = x.astype(np.int8 if signed else np.uint8).reshape(graph.inputs[0].shape)
    neutral = next(iter(intaglio.interpret(graph, {"x": x}).values())).astype(int)
    neutral += 128 if graph.outputs[0].dtype == "i8" else 0
    bytes_ = next(iter(intaglio.interpret(made.graph, feeds(made, seed)).values()))
    assert np.abs(neutral.reshape(-1) - bytes_.reshape(-1)).max() <= 4
    assert port.shape == graph.outputs[0].shape


@pytest.mark.parametrize("build", [mobilenet_v1, mobilenet_v2])
def test_mobilenets_at_224_compile(build):
    made = compile_kmodel(build())
    assert made.model.modules[0].pools["kpu"] <= 2 << 20
    text = "\n".join(disassembly.lines(made.model))
    assert "conv      3x224x224 -> 32x112x112  3x3, top left of 2x2 /2" in text


def test_small_mobilenets():
    check(mobilenet_v1(128, 0.25, 20))
    check(mobilenet_v2(128, 20))


def test_outputs_that_share_bytes():
    """Several outputs, one inside of another, and maps that two layers join."""
    made = check(joined_outputs())
    assert [p.shape for p in made.lowered.outputs] == [
        (1, 6, 12, 20),
        (1, 11, 12, 20),
        (1, 4, 12, 20),
        (1, 11, 12, 20),
    ]


def golden_networks():
    net = Cnn(1, (1, 3, 16, 16))
    first = net.conv(net.input, 8, 3, 2)
    second = net.conv(net.conv(first, 8, 3, depthwise=True), 8, 1)
    summed = net.add(first, second)
    yield "residual", net.graph(net.conv(net.mean(net.conv(summed, 16, 1)), 10, 1, pad=(0,) * 4))
    net = Cnn(2, (1, 4, 20, 40), "u8")
    x = net.max_pool(net.table(net.conv(net.input, 6)))
    yield "pool and table", net.graph(net.conv(x, 5, 3, 2, pad=(0, 0, 1, 1)))
    yield "linear layer of 1280 numbers", large_linear(1280)
    yield "odd sizes", odd_sizes(2)
    yield "maps below 4x4", small_maps(3)
    yield "upsampling", upsampling(1)
    yield "groups", grouped(8, 8, 2, 3)


def close_to_neutral(graph, made, most=4, seed=0):
    """The file's meaning is that of the neutral graph, within a few units."""
    bytes_ = list(intaglio.interpret(made.graph, feeds(made, seed)).values())
    signed = graph.inputs[0].dtype == "i8"
    x = next(iter(feeds(made, seed).values())).astype(np.int16) - (128 if signed else 0)
    x = x.astype(np.int8 if signed else np.uint8).reshape(graph.inputs[0].shape)
    for v, y in zip(intaglio.interpret(graph, {"x": x}).values(), bytes_, strict=True):
        more = 128 if v.dtype == np.int8 else 0
        assert np.abs(v.astype(int).reshape(-1) + more - y.reshape(-1)).max() <= most


@pytest.mark.parametrize("numbers", [1024, 1025, 1280, 1288, 9216])
def test_linear_layers_of_many_numbers(numbers):
    """More than 1024 numbers are the pixels of 3x3 windows: one command, with exact sums."""
    graph = large_linear(numbers)
    made = check(graph, numbers)
    assert not made.lowered.after
    close_to_neutral(graph, made, 1, numbers)


@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "kernel"),
    [(8, 8, 2, 3), (12, 6, 3, 1), (6, 12, 6, 3), (20, 40, 4, 3), (5, 5, 5, 1)],
)
def test_convolutions_in_groups(channels, outputs, groups, kernel):
    graph = grouped(channels, outputs, groups, kernel)
    close_to_neutral(graph, check(graph), 1)


@pytest.mark.parametrize("seed", range(12))
def test_strides_over_odd_sizes(seed):
    graph = odd_sizes(seed)
    close_to_neutral(graph, check(graph))


@pytest.mark.parametrize("seed", range(24))
def test_maps_below_4x4(seed):
    graph = small_maps(seed)
    close_to_neutral(graph, check(graph))


@pytest.mark.parametrize("seed", range(12))
def test_maximum_pools_with_odd_windows(seed):
    graph = max_around(seed)
    close_to_neutral(graph, check(graph))


@pytest.mark.parametrize("seed", range(8))
def test_upsampling(seed):
    graph = upsampling(seed)
    close_to_neutral(graph, check(graph))


@pytest.mark.parametrize("zero", [0, 90, 121, 128, 255])
def test_weights_of_bytes_with_a_zero_point(zero):
    graph = byte_weights(zero)
    close_to_neutral(graph, check(graph))


@pytest.mark.parametrize("seed", range(6))
def test_negative_scales(seed):
    check(negative_scales(seed))


def test_an_expansion_and_all_depthwise_layers_after_it_are_computed_in_parts():
    check(wide_expansion())


def streams():
    found = {}
    for name, graph in golden_networks():
        for version in (5, 3):
            made = compile_kmodel(graph, version)
            commands = made.model.main.commands
            words = [[f"{int(w):x}" for w in c.words] for c in commands if isinstance(c, Conv)]
            constants = hashlib.sha256()
            for c in commands:
                if isinstance(c, Conv):
                    constants.update(c.weights + c.norm + c.curve)
            rows = [
                row["text"]
                for row in disassembly.facts(made.model)["modules"][0]["functions"][0]["commands"]
            ]
            found[f"{name}, version {version}"] = {
                "commands": rows,
                "words": words,
                "constants": constants.hexdigest(),
            }
    return found


def test_golden_commands():
    """Proven in nncase's simulator; `python -m tests.npu.chips.k210.test_kmodels` writes them."""
    assert streams() == json.loads(GOLDEN.read_text())


def test_files_round_trip():
    made = compile_kmodel(random_cnn(3))
    assert kmodel5.write(read(made.data)) == made.data
    older = compile_kmodel(random_cnn(3), 3)
    again = read(older.data)
    assert kmodel3.write(again) == older.data


def outcome(data, given):
    """The words of the error, or None if the file runs."""
    try:
        model = read(data)
        list(disassembly.lines(model, True))
        Machine(model).run(given)
    except IntaglioError as e:
        return str(e)
    return None


def mutate(version, count, seed):
    """Mutations of two files: an IntaglioError of one line, or outputs; how many are refused."""
    rng, refused = np.random.default_rng(seed), 0
    for net in (3, 4):
        made = compile_kmodel(random_cnn(net), version)
        given = feeds(made)
        for _ in range(count // 2):
            data = bytearray(made.data)
            for at in rng.integers(0, len(data), int(rng.integers(1, 4))):
                data[at] = int(rng.integers(0, 256))
            if rng.random() < 0.2:
                del data[int(rng.integers(0, len(data))) :]
            words = outcome(bytes(data), given)
            refused += words is not None
            assert "\n" not in (words or "")
    return refused


@pytest.mark.parametrize("version", [5, 3])
def test_mutated_files_are_refused_or_run(version):
    assert mutate(version, 600, version) > 40


@pytest.mark.slow
@pytest.mark.parametrize("version", [5, 3])
def test_many_mutated_files_are_refused_or_run(version):
    assert mutate(version, 5000, 100 + version) > 400


@pytest.mark.parametrize("shape", [(1, 16, 12, 1), (1, 192), (1, 16, 12)])
def test_grey_pictures_in_any_shape_are_maps_of_one_channel(shape):
    x = Value(Type("f32", shape), "x")
    rng, window = np.random.default_rng(0), {"stride": (1, 1), "pad": (1,) * 4}
    w = [rng.normal(0, 0.3, (4, k, 3, 3)).astype(np.float32) for k in (1, 4)]
    y = ops.reshape(x, shape=(1, 1, 16, 12))
    for each in w:
        y = ops.relu(ops.conv(y, constant(each), None, **window, dilation=(1, 1), groups=1))
    samples = [{"x": rng.normal(0, 1, shape).astype(np.float32)} for _ in range(2)]
    graph = Graph([x], [y], ["y"])
    made = check(intaglio.quantize(graph, samples, target="k210", accuracy=None))
    assert made.lowered.inputs[0].shape == (1, 1, 16, 12)


# ---- refusals ------------------------------------------------------------------------------------
def refusal(graph):
    with pytest.raises(Unsupported) as e:
        compile_kmodel(graph)
    return str(e.value)


def test_what_the_kpu_cannot_do_is_named():
    net = Cnn(0, (1, 4, 16, 16))
    assert "its kernel is 5x5" in refusal(net.graph(net.conv(net.input, 4, 5)))
    assert "its padding is (0, 0, 0, 0)" in refusal(
        net.graph(net.conv(net.input, 4, 3, pad=(0, 0, 0, 0)))
    )
    net = Cnn(0, (1, 4, 12, 12))
    assert "maps grow 2 or 4 times" in refusal(net.graph(net.upsample(net.input, 3)))
    net = Cnn(0, (1, 4, 300, 300))
    assert "at most 256x512" in refusal(net.graph(net.conv(net.input, 4)))
    net = Cnn(0, (1, 64, 100, 100))
    assert "of the KPU's RAM; it has 2,097,152" in refusal(net.graph(net.conv(net.input, 128)))


def test_ops_in_the_middle_are_named_with_their_reason():
    net = Cnn(0, (1, 4, 16, 16))
    x = net.conv(net.conv(net.input, 4, 5), 4)
    words = refusal(net.graph(net.conv(x, 4)))
    assert "2 convolutions read results of ops that the KPU does not do" in words
    assert "its kernel is 5x5; the KPU does 1x1 and 3x3" in words


def test_ops_after_the_last_layer_are_left_to_the_caller():
    net = Cnn(0, (1, 4, 16, 16))
    made = compile_kmodel(net.graph(net.conv(net.conv(net.input, 8), 4, 5)))
    ((node, why),) = made.lowered.after
    assert node.op == "qlinear_conv"
    assert "its kernel is 5x5" in why
    assert made.lowered.outputs[0].shape == (1, 8, 16, 16)


def test_outputs_have_names_of_their_own():
    net = Cnn(0, (1, 3, 8, 8))  # the sum has too many channels: both operands are outputs
    left, right = (net.conv(net.input, 600, 1) for _ in range(2))
    made = check(net.graph(net.add(left, right), net.conv(left, 4)))
    names = [p.name for p in made.lowered.outputs]
    assert len(set(names)) == len(names) == 3


def test_linear_layers_of_too_many_numbers_are_named():
    net = Cnn(0, (1, 4, 56, 48))
    x = ops.reshape(net.conv(net.input, 4), shape=(1, 4 * 56 * 48, 1, 1))
    net.quant[x] = net.of(net.input)
    words = refusal(net.graph(net.conv(x, 10, 1, pad=(0, 0, 0, 0))))
    assert "it reads 10752 numbers at once; the KPU does at most 9216" in words


def test_the_whole_mobilenet_v2_is_in_the_file():
    made = check(mobilenet_v2(128, 20))
    assert not made.lowered.after
    assert made.lowered.outputs[0].shape == (1, 20, 1, 1)


def test_other_files_are_refused():
    with pytest.raises(BadFile, match="not a kmodel of version 3 or 5"):
        read(b"ITG1 and so on")
    with pytest.raises(BadFile, match="there are 4"):
        read(b"LDMK")
    made = compile_kmodel(random_cnn(3))
    made.model.modules[0].pools["data"] = 1 << 31
    with pytest.raises(BadFile, match="it asks for 2147483648 bytes of memory"):
        read(kmodel5.write(made.model))
    with pytest.raises(BadInput, match="versions 5 and 3 are known"):
        compile_kmodel(random_cnn(3), 4)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(streams(), indent=1) + "\n")
