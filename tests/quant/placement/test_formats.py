"""Number formats: options that targets accept or refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.quant.search.test_method_search import network
from tests.quant.search.test_method_search import samples as uneven_samples
from tests.quant.test_pipeline import SAMPLES, cosine, net, run

import intaglio
from intaglio import native, ops, targets
from intaglio.cpu_isa import bits_of
from intaglio.errors import BadInput
from intaglio.interpret import interpret
from intaglio.ir import Graph, Node, Type, Value, constant
from intaglio.quant.options import Options
from intaglio.quant.pipeline import calibrate
from intaglio.quant.placement.formats import formats
from intaglio.quant.placement.place import place
from intaglio.quant.placement.scheme import Override, Scheme, TensorScheme
from intaglio.quant.prepare import prepare
from intaglio.quant.result import Quantized
from intaglio.quant.search.promotion import Promotions
from intaglio.targets import Target
from intaglio.targets.precision import Precision, Stored, floats

CPU = targets.find("cpu")


def no_concat(node: Node) -> str | None:
    return "it has no concat" if node.op == "concat" else None


INT8 = Precision(
    "int8",
    Stored(("i8",)),
    Stored(("i8",), grains=("channel",)),
    float_results=False,
    why_not=no_concat,
)
INT16 = Precision("int16", Stored(("i16",)), Stored(("i8",), grains=("channel",)), cost=2.0)


def chip(*precisions: Precision) -> Target:
    """A chip of its own that computes in these, and is simulated on the CPU."""
    return replace(CPU, name="npu", precisions=precisions, weight_only=None, dynamic=())


def quantized(target: str | Target = "cpu", scheme: Scheme | None = None, **how: Any) -> Quantized:
    return calibrate(net(), SAMPLES, target=target, scheme=scheme, options=Options(**how))


def ops_of(graph: Graph) -> set[str]:
    return {n.op for n in intaglio.optimize(graph, level=3).nodes()}


# ---- options -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("how", "least"),
    [
        ({"activations": "uint8"}, 0.999),
        ({"activations": "uint8", "symmetric": True}, 0.997),
        ({"symmetric": True}, 0.997),
        ({"activations": "int16"}, 0.9995),
        ({"activations": "int16", "symmetric": False}, 0.9995),
        ({"activations": "int16", "weights": "int16"}, 0.999999),
        ({"activations": "int16", "weights": "int16", "per": "tensor"}, 0.999999),
        ({"weights": "uint8"}, 0.999),
        ({"weights": "uint8", "weight_zeros": True, "per": "tensor"}, 0.998),
        ({"weight_zeros": True}, 0.999),
        ({"per": "tensor"}, 0.998),
        ({"weights": "int4"}, 0.93),
        ({"weights": "uint4", "weight_zeros": True}, 0.95),
    ],
    ids=str,
)
def test_every_format_is_close_to_float_with_equal_bits_everywhere(how, least):
    made = quantized(**how, accuracy=None)
    usual = {"activations": "int8", "weights": "int8", "per": "channel", "weight_zeros": False}
    want = usual | how
    types = {"int8": "i8", "uint8": "u8", "int16": "i16", "int4": "i4", "uint4": "u4"}
    stored = made.scheme.tensors["x"]
    assert stored.dtype == types[want["activations"]]
    middle = 128 if stored.dtype == "u8" else 0
    mirrored = how.get("symmetric", want["activations"] == "int16")
    assert (stored.zero == (middle,)) == mirrored
    weights = [t for n, t in made.scheme.tensors.items() if "constant" in n]
    assert weights
    assert {t.dtype for t in weights} == {types[want["weights"]]}
    assert all((t.axis is None) == (want["per"] == "tensor") for t in weights)
    if want["weight_zeros"]:
        assert any(len(set(t.zero)) > 1 or t.zero[0] not in (0, 8, 128) for t in weights)
    for sample in SAMPLES:
        assert cosine(run(made.graph, sample)[0], run(net(), sample)[0]) > least
    if want["activations"] != "int16":
        lowered = intaglio.optimize(made.graph, level=3)
        assert "conv" not in {n.op for n in lowered.nodes()}, "it does not compute in integers"
        (exact,) = interpret(lowered, {"x": SAMPLES[0]}).values()
        np.testing.assert_allclose(run(made.graph, SAMPLES[0])[0], exact, rtol=1e-6)


def test_a_transpose_before_the_first_layer_has_its_bits():
    x = Value(Type("f32", (1, 16, 16, 3)), "x")
    (sample, *_), w = uneven_samples(1), np.ones((4, 3, 3, 3), np.float32)
    window = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    graph = Graph([x], [ops.conv(ops.transpose(x, perm=(0, 3, 1, 2)), constant(w), None, **window)])
    data = [{"x": sample["x"].transpose(0, 2, 3, 1).copy()}]
    made = calibrate(graph, data, activations="int16", weights="int16", accuracy=None)
    assert {*made.scheme.layers.values()} == {"int16"}
    assert {t.dtype for t in made.scheme.tensors.values()} == {"i16"}
    assert cosine(run(made.graph, data[0]["x"])[0], run(graph, data[0]["x"])[0]) > 0.999999


@pytest.mark.parametrize("activations", ["int8", "uint8"])
@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512", "avx512vnni"])
def test_the_simulation_gives_the_bytes_of_the_runtime(activations, isa):
    if bits_of(isa) & ~native.machine():
        pytest.skip(f"this CPU has no {isa}")
    graph = quantized(activations=activations, accuracy=None).graph
    stored = [v for v in graph.values() if v.name.endswith("_stored") and v.producer is not None]
    for v in stored:
        part = Graph(graph.inputs, [v], ["bytes"])
        lowered = intaglio.optimize(part, level=3)
        with intaglio.open(intaglio.compile(part, isa=isa)) as session:
            for sample in SAMPLES[:2]:
                got, want = session.run({"x": sample}), interpret(lowered, {"x": sample})
                np.testing.assert_array_equal(got["bytes"], want["bytes"], v.name)
    assert len(stored) > 3


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"activations": "int3"}, "activations is 'int3'; known are int8, uint8"),
        ({"activations": "int4"}, "cpu takes no activations of int4; it takes int8, uint8, int16"),
        (
            {"weights": "int16"},
            "cpu computes int8 layers with no weights of int16; it takes int8, "
            "uint8, int4, uint4; with activations of int16 it does",
        ),
        ({"per": "group"}, "per is 'group'; known are channel, tensor"),
        ({"floats": "int8"}, "floats is 'int8'; give f32, f16 or bf16"),
        ({"floats": "f64"}, "cpu cannot compute layers in f64; its precisions are int8, int16"),
    ],
    ids=str,
)
def test_formats_that_the_cpu_lacks_are_refused(how, words):
    with pytest.raises(BadInput, match=words):
        quantized(**how)


def test_invalid_schemes_are_refused():
    blocks = TensorScheme("i8", (0.1,) * 16, (0,), axis=0, block=8)
    weights = next(n for n, t in quantized().scheme.tensors.items() if len(t.scale) == 10)
    with pytest.raises(BadInput, match=r"cpu does not take a tensor of uint16; it takes int8"):
        quantized(scheme=Scheme({"x": TensorScheme("u16", (0.1,), (0,))}))
    with pytest.raises(BadInput, match="does not take weights of int16"):
        quantized(scheme=Scheme({weights: TensorScheme("i16", (0.1,), (0,))}))
    with pytest.raises(BadInput, match="scales"):
        quantized(scheme=Scheme({weights: blocks}))


# ---- floats of 16 bits ---------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_layers_of_16_bit_floats_round_their_inputs(dtype):
    if dtype not in {p.name for p in CPU.precisions}:
        pytest.skip("this CPU has no AVX512-BF16")
    made = quantized(scheme=Scheme(rules=[Override(dtype, op="matmul")]))
    assert sorted(set(made.scheme.layers.values())) == sorted([dtype, "int8"])
    casts = [n for n in made.graph.nodes() if n.op == "cast"]
    assert sorted(n.attrs["dtype"] for n in casts) == sorted([dtype, "f32", "f32"])
    lowered = intaglio.optimize(made.graph, level=3)
    for sample in SAMPLES:
        (want,) = interpret(lowered, {"x": sample}).values()
        np.testing.assert_allclose(run(made.graph, sample)[0], want, rtol=1e-4)
        assert cosine(run(made.graph, sample)[0], run(net(), sample)[0]) > 0.998
    ran = intaglio.compiler.trace(made.graph).graph
    (product,) = [n for n in ran.nodes() if n.op == "cpu.gemm"]
    assert [v.dtype for v in product.inputs[:2]] == [dtype, dtype]
    assert product.outputs[0].dtype == "f32"


@pytest.mark.parametrize("target", ["cpu", "rk3588"])
def test_layers_beyond_the_range_of_f16_are_not_promoted_to_it(target):
    graph = network(True)
    first, second, _ = (n.inputs[1] for n in graph.nodes() if n.op == "conv")
    first.data, second.data = first.data * 100, second.data / 100
    floats = "f16" if target == "cpu" else None  # an NPU's own choice
    made = calibrate(graph, uneven_samples(), target=target, floats=floats)
    assert "f16" not in made.scheme.layers.values()
    assert {"f32", "bf16"} & {*made.scheme.layers.values()}
    said = [note for note in made.notes if "more than f16 holds" in note]
    assert len(said) == 1
    assert ", not f16: 'a' reaches" in said[0]


def test_f16_that_overflows_is_named():
    big = [s * np.float32(1e6) for s in SAMPLES]
    scheme = Scheme(rules=[Override("f16", op="matmul")])
    with pytest.raises(BadInput, match=r"is to compute in f16: '\w+' reaches .* more than f16 hol"):
        calibrate(net(), big, scheme=scheme)


def test_a_scheme_with_16_bit_floats_round_trips(tmp_path):
    path = tmp_path / "s.yaml"
    quantized(scheme=Scheme(rules=[Override("f16", op="matmul")])).scheme.save(path)
    assert "f16" in Scheme.load(path).layers.values()
    assert "f16" in quantized(scheme=Scheme.load(path)).scheme.layers.values()


# ---- targets -------------------------------------------------------------------------------------
def test_a_chip_without_zero_points_and_floats_gets_symmetric_int8():
    made = quantized(chip(INT8))
    assert all(t.zero[0] == 0 for t in made.scheme.tensors.values())
    assert {t.dtype for t in made.scheme.tensors.values()} == {"i8"}
    (y,) = made.graph.outputs
    assert y.producer is not None
    assert y.producer.op == "dequantize_linear", "the last product gives bytes"
    concat = next(n.outputs[0].name for n in made.float_graph.nodes() if n.op == "concat")
    assert concat not in made.scheme.layers, "the chip has no concat"


def test_layers_that_a_chip_does_not_compute_are_reported():
    def no_large(node: Node) -> str | None:
        return "it has no matmul" if node.op == "matmul" else None

    graph = prepare(net())
    made = place(graph, {}, chip(replace(INT8, why_not=no_large)))
    assert list(made.floats.values()) == ["npu does not compute it in int8: it has no matmul"]
    with pytest.raises(BadInput, match=r"nothing to quantise.*npu does not compute it in int8: no"):
        quantized(chip(replace(INT8, why_not=lambda n: "no")))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"activations": "uint8"}, "npu takes no activations of uint8; it takes int8"),
        ({"symmetric": False}, "npu computes int8 layers with no activations with zero points"),
        ({"weights": "uint8"}, "npu computes int8 layers with no weights of uint8; it takes int8"),
        ({"weight_zeros": True}, "no weights with zero points; it takes symmetric ones"),
        ({"per": "tensor"}, "no weights with a scale per tensor; it takes one per channel"),
    ],
    ids=str,
)
def test_formats_that_a_chip_lacks_are_refused(how, words):
    with pytest.raises(BadInput, match=words):
        quantized(chip(INT8), **how)


def test_precisions_that_a_chip_lacks_are_refused():
    scheme = Scheme(rules=[Override("f32", op="matmul")])
    with pytest.raises(
        BadInput, match=r"layer '\w+': npu cannot compute layers in f32; its precisions"
    ):
        quantized(chip(INT8), scheme)
    with pytest.raises(BadInput, match="npu has no integer precision"):
        quantized(chip(floats("f16", 1.0)))
    for mode in ("dynamic", "weights"):
        with pytest.raises(BadInput, match=r"npu cannot .* use mode="):
            intaglio.quantize(net(), mode=mode, target=chip(INT8))


def test_the_cheapest_sufficient_precision_is_chosen():
    assert formats(CPU).wider == ("f32",), "int16 costs more than floats"
    half = floats("f16", 4.0)
    assert formats(chip(INT8, half, INT16)).wider == ("int16", "f16")
    assert formats(chip(INT8)).wider == ()
    graph, data = network(True), uneven_samples()
    made = calibrate(graph, data, target=chip(replace(INT8, float_results=True), INT16, half))
    assert "int16" in made.scheme.layers.values()
    assert "f16" not in made.scheme.layers.values()
    work = Promotions(made.float_graph, place(made.float_graph, {}), formats(CPU), {}, ()).work
    wider = sum(work[name] for name in made.curve[-1].layers)
    assert made.curve[-1].time == pytest.approx(1 + wider / sum(work.values()))  # int16 costs 2
    assert made.curve[-1].cosine > made.curve[0].cosine
    assert any("in int16" in words for words in made.notes)


def test_a_chip_without_a_wider_format_reports_it():
    made = calibrate(network(True), uneven_samples(), target=chip(INT8))
    assert set(made.scheme.layers.values()) == {"int8"}
    assert any("npu has nothing wider than int8" in words for words in made.notes)
