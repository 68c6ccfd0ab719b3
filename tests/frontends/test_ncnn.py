"""ncnn files: text and bytes written here, against the same layers written with our operators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.errors import BadFile, BadInput, IntaglioError, Unsupported
from intaglio.frontends.ncnn import read_ncnn
from intaglio.ir import Graph, Type, Value

RNG = np.random.default_rng(3)
TYPED = (0).to_bytes(4, "little")


def param(*lines: str, shape: str = "0=6 1=5 2=4") -> bytes:
    text = "\n".join(("7767517", f"{len(lines) + 1} 9", f"Input in 0 1 in {shape}", *lines, ""))
    return text.encode()


def random(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def agree(
    text: bytes, weights: bytes, body: Callable[[Value], Value], shape: tuple[int, ...] = (4, 5, 6)
) -> None:
    graph = read_ncnn(text, weights)
    x = Value(Type("f32", (1, *shape)), "in")
    feeds = {"in": random(1, *shape)}
    (found,) = intaglio.interpret(graph, feeds).values()
    (wanted,) = intaglio.interpret(Graph([x], [body(x)], ["y"]), feeds).values()
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


WINDOW = {"stride": (1, 2), "pad": (2, 1, 2, 1), "dilation": (1, 1)}


@pytest.mark.parametrize("groups", [1, 2])
def test_convolution(groups: int):
    w, b = random(8, 4 // groups, 3, 2), random(8)
    kind = "Convolution" if groups == 1 else "ConvolutionDepthWise"
    line = f"{kind} c 1 1 in out 0=8 1=2 11=3 3=2 13=1 4=1 14=2 5=1 6={w.size} 7={groups} 9=1"
    weights = TYPED + w.tobytes() + b.tobytes()
    agree(param(line), weights, lambda x: ops.relu(ops.conv(x, w, b, groups=groups, **WINDOW)))
    half = w.astype(np.float16)
    stored = 0x01306B47.to_bytes(4, "little") + half.tobytes() + bytes(-half.nbytes % 4)
    real = half.astype(np.float32)
    agree(
        param(line),
        stored + b.tobytes(),
        lambda x: ops.relu(ops.conv(x, real, b, groups=groups, **WINDOW)),
    )


def test_deconvolution():
    w = random(3, 4, 2, 2)  # outputs, inputs, kernel
    line = f"Deconvolution d 1 1 in out 0=3 1=2 3=2 6={w.size} 9=2 -23310=1,1.0e-1"
    window = {"stride": (2, 2), "pad": (0, 0, 0, 0), "dilation": (1, 1), "output_pad": (0, 0)}
    turned = w.transpose(1, 0, 2, 3)
    agree(
        param(line),
        TYPED + w.tobytes(),
        lambda x: ops.leaky_relu(ops.conv_transpose(x, turned, **window), alpha=0.1),
    )


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("average", [False, True])
def test_pooling(mode: int, average: bool):
    line = f"Pooling p 1 1 in out 0={int(average)} 1=2 2=2 5={mode}"
    after = 1 if mode == 0 else 0  # 5 rows: the last window reaches over the end
    pool = ops.avg_pool if average else ops.max_pool
    agree(
        param(line),
        b"",
        lambda x: pool(x, kernel=(2, 2), stride=(2, 2), pad=(0, 0, after, 0), dilation=(1, 1)),
    )


def test_a_small_classifier():
    slope, mean, var, bias = random(4), random(4), np.abs(random(4)) + 1, random(4)
    w, b = random(3, 4), random(3)
    lines = (
        "BatchNorm n 1 1 in n 0=4 1=1.0e-5",
        "Split s 1 2 n s0 s1",
        "HardSwish h 1 1 s0 h 0=1.666667e-01 1=5.0e-01",
        "BinaryOp a 2 1 h s1 a 0=0",
        "Pooling p 1 1 a p 0=1 4=1",
        "InnerProduct f 1 1 p f 0=3 1=1 2=12",
        "Softmax q 1 1 f q 0=0",
    )
    parts = (slope, mean, var, bias, TYPED, w, b)
    weights = b"".join(p if isinstance(p, bytes) else p.astype("<f4").tobytes() for p in parts)

    def body(x: Value) -> Value:
        n = ops.batch_norm(x, slope, bias, mean, var, epsilon=1e-5)
        a = ops.add(ops.mul(n, ops.hard_sigmoid(n, alpha=1 / 6, beta=0.5)), n)
        p = ops.reduce_mean(a, axes=(2, 3), keepdims=False)
        return ops.softmax(ops.add(ops.matmul(p, w.T.copy()), b), axis=1)

    agree(param(*lines), weights, body)


SHAPES: list[tuple[str, Callable[[Value], Value]]] = [
    ("Reshape r 1 1 in out 0=-1 1=4", lambda x: ops.reshape(x, shape=(1, 4, 30))),
    ("Permute r 1 1 in out 0=3", lambda x: ops.transpose(x, perm=(0, 2, 3, 1))),
    ("Flatten r 1 1 in out", lambda x: ops.reshape(x, shape=(1, 120))),
    ("PReLU r 1 1 in out 0=1", lambda x: ops.leaky_relu(x, alpha=0.25)),
    ("UnaryOp r 1 1 in out 0=4", lambda x: ops.mul(x, x)),
    ("BinaryOp r 1 1 in out 0=7 1=1 2=2.0", lambda x: ops.sub(np.float32(2), x)),
    ("Clip r 1 1 in out 0=-0.5 1=0.5", lambda x: ops.clip(x, lo=-0.5, hi=0.5)),
    ("Concat r 2 1 in in out 0=-1", lambda x: ops.concat(x, x, axis=3)),
    ("PixelShuffle r 1 1 in out 0=2", lambda x: ops.depth_to_space(x, blocksize=2, mode="CRD")),
    (
        "Padding r 1 1 in out 0=1 1=2 2=3 3=4 4=0 5=0.5",
        lambda x: ops.pad(x, before=(0, 0, 1, 3), after=(0, 0, 2, 4), value=0.5),
    ),
]


@pytest.mark.parametrize(("line", "body"), SHAPES)
def test_layers_without_products(line: str, body: Callable[[Value], Value]):
    weights = np.float32([0.25]).tobytes() if line.startswith("PReLU") else b""
    agree(param(line), weights, body)


def test_slices_interp_and_shuffle():
    text = param(
        "Slice s 1 2 in a b -23300=2,1,-233 1=0",
        "Interp i 1 1 b i 0=1 1=2.0 2=2.0",
        "MemoryData m 0 1 m 0=6 1=5 2=1",
        "Eltwise e 2 1 a m e 0=1 -23301=2,1.0,0.5",
        "ShuffleChannel c 1 1 in c 0=2",
    )
    held = random(1, 5, 6)
    graph = read_ncnn(text, held.tobytes())
    x = random(1, 4, 5, 6)
    found = intaglio.interpret(graph, {"in": x})
    assert list(found) == ["i", "e", "c"]
    np.testing.assert_array_equal(found["i"], x[:, 1:].repeat(2, axis=2).repeat(2, axis=3))
    np.testing.assert_allclose(found["e"], x[:, :1] + 0.5 * held, rtol=1e-6)
    np.testing.assert_array_equal(found["c"], x[:, [0, 2, 1, 3]])
    (only,) = intaglio.interpret(read_ncnn(text, held.tobytes(), ["a"]), {"in": x}).values()
    np.testing.assert_array_equal(only, x[:, :1])


CONV = "Convolution c 1 1 in out 0=2 1=1 6=8"


@pytest.mark.parametrize(
    ("text", "weights", "error", "words"),
    [
        (b"1 2 3", b"", BadFile, "does not begin with 7767517"),
        (b"\xff\xfe", b"", BadFile, "is no text"),
        (param("Convolution c 1 1 in"), b"", BadFile, "is damaged"),
        (param("ReLU r 1 1 in out 0=nan"), b"", BadFile, "is damaged"),
        (param("Foo f 1 1 in out"), b"", Unsupported, "layer 'f' (Foo) is not supported"),
        (param("ReLU r 1 1 other out"), b"", BadFile, "reads 'other'"),
        (param(CONV), bytes(8), BadFile, "ends within layer 'c' (Convolution)"),
        (param(CONV), bytes(40), BadFile, "4 bytes of the .bin file are left over"),
        (param("Convolution c 1 1 in out 0=2 1=1 6=9"), bytes(99), BadFile, "needs 8"),
        (param("Convolution c 1 1 in out 0=2 1=1 6=8 8=1"), b"", Unsupported, "is quantised"),
        (param("ReLU r 1 1 in out", shape=""), b"", BadInput, "0=WIDTH 1=HEIGHT 2=CHANNELS"),
        (param("Softmax s 1 1 in out 0=5"), b"", BadFile, "axis 5"),
        (param("Pooling p 1 1 in out 0=0 1=0"), b"", BadFile, "setting 1 is 0"),
        (param("Reshape r 1 1 in out 0=7"), b"", IntaglioError, "layer 'r'"),
    ],
)
def test_mistakes_are_one_line(text: bytes, weights: bytes, error: type, words: str):
    with pytest.raises(error) as caught:
        read_ncnn(text, weights)
    assert words in str(caught.value)
    assert str(caught.value).startswith("ncnn: ")


def test_random_damage_never_crashes():
    w = random(8, 4, 3, 3)
    text = param(f"Convolution c 1 1 in c 0=8 1=3 4=1 6={w.size}", "Pooling p 1 1 c out 1=2 2=2")
    weights = TYPED + w.tobytes()
    for seed in range(150):
        rng = np.random.default_rng(seed)
        damaged = bytearray(text)
        for _ in range(rng.integers(1, 4)):
            damaged[rng.integers(8, len(damaged))] = rng.integers(32, 127)
        with contextlib.suppress(IntaglioError):
            read_ncnn(bytes(damaged), weights[: rng.integers(0, len(weights) + 1)])
